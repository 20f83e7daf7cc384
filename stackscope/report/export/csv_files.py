"""Tables as CSV: one file for each, with a line of names (RFC 4180, UTF-8); unknown is empty."""

from __future__ import annotations

import csv
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from stackscope.report.export.tables import TABLES
from stackscope.session.format import without_surrogates

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.report.export.columns import Cell, Row, Table

SUFFIX = ".csv"


class CsvFiles:
    """Writes tables into a folder that is there. Raises `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._files = ExitStack()
        self._writers: dict[str, Any] = {}
        for table in TABLES:
            path = folder / f"{table.name}{SUFFIX}"
            file = self._files.enter_context(path.open("w", encoding="utf-8", newline=""))
            self._writers[table.name] = csv.writer(file, lineterminator="\n")
            self._writers[table.name].writerow(table.names)

    def put(self, table: Table, row: Row) -> None:
        self._writers[table.name].writerow([_spelled(cell) for cell in row])

    def close(self) -> None:
        self._files.close()


def _spelled(cell: Cell) -> Cell:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return str(without_surrogates(cell))
    return cell
