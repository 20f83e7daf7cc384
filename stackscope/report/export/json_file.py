"""Tables as one JSON document. Rows are gathered in a file for each table, and put together in the end: memory does not
grow with the session."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from stackscope.report.export.tables import TABLES
from stackscope.session.format import without_surrogates

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from stackscope.report.export.columns import Row, Table

FORMAT = 1
"""Version of the document's form."""


class JsonFile:
    """Writes tables into one file. Raises `OSError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._spools: dict[str, IO[bytes]] = {}
        with ExitStack() as opened:
            for table in TABLES:
                self._spools[table.name] = opened.enter_context(tempfile.TemporaryFile(dir=path.parent))
            self._opened = opened.pop_all()
        self._counts = {table.name: 0 for table in TABLES}

    def put(self, table: Table, row: Row) -> None:
        names = table.names
        line = _encoded(dict(zip(names, row, strict=True)))
        self._spools[table.name].write(b",\n" + line if self._counts[table.name] else line)
        self._counts[table.name] += 1

    def close(self) -> None:
        """Put the document together."""
        with self._opened, self._path.open("wb") as file:
            head = {"format": FORMAT, "columns": {table.name: _described(table) for table in TABLES}}
            file.write(_encoded(head)[:-1] + b',"tables":{\n')
            for index, table in enumerate(TABLES):
                file.write((b"],\n" if index > 0 else b"") + _encoded(table.name) + b":[\n")
                spool = self._spools[table.name]
                spool.seek(0)
                shutil.copyfileobj(spool, file, 1 << 20)
            file.write(b"]}}\n")


def _described(table: Table) -> dict[str, dict[str, str]]:
    return {column.name: {"type": column.kind, "unit": column.unit} for column in table.columns}


def _encoded(value: object) -> bytes:
    """As JSON. What is not finite becomes null; half a surrogate pair becomes `?`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(value))
