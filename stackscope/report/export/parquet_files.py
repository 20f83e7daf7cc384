"""Tables as Parquet, by pyarrow: one file for each, with unit and meaning in each column's metadata."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from stackscope.errors import StackscopeError
from stackscope.report.export.tables import TABLES
from stackscope.session.format import without_surrogates

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.report.export.columns import Row, Table

SUFFIX = ".parquet"
GROUP_ROWS: Final = 16_384
"""Rows of a row group: of the widest table some 7 MB, which is what is held in memory."""

_TYPES: Final = {"int": "int64", "float": "float64", "bool": "bool_", "text": "string"}


class ParquetFiles:
    """Writes tables into a folder that is there. Raises `OSError`, and `StackscopeError` without pyarrow."""

    def __init__(self, folder: Path) -> None:
        self._arrow, parquet = pyarrow_and_parquet()
        self._schemas = {table.name: _schema(table, self._arrow) for table in TABLES}
        self._held: dict[str, list[Row]] = {table.name: [] for table in TABLES}
        self._files = ExitStack()
        self._writers: dict[str, Any] = {}
        with ExitStack() as opened:
            for table in TABLES:
                writer = parquet.ParquetWriter(
                    folder / f"{table.name}{SUFFIX}", self._schemas[table.name], compression="zstd"
                )
                self._writers[table.name] = opened.enter_context(writer)
            self._files = opened.pop_all()

    def put(self, table: Table, row: Row) -> None:
        held = self._held[table.name]
        held.append(row)
        if len(held) == GROUP_ROWS:
            self._write(table)

    def close(self) -> None:
        with self._files:
            for table in TABLES:
                self._write(table)

    def _write(self, table: Table) -> None:
        rows, self._held[table.name] = self._held[table.name], []
        if not rows:
            return
        schema = self._schemas[table.name]
        columns = []
        for column, field, cells in zip(table.columns, schema, zip(*rows, strict=True), strict=True):
            found = [without_surrogates(cell) for cell in cells] if column.kind == "text" else cells
            columns.append(self._arrow.array(found, type=field.type))
        self._writers[table.name].write_table(self._arrow.Table.from_arrays(columns, schema=schema))


def _schema(table: Table, arrow: Any) -> Any:
    return arrow.schema(
        [
            arrow.field(
                column.name,
                getattr(arrow, _TYPES[column.kind])(),
                metadata={"unit": column.unit, "meaning": column.meaning},
            )
            for column in table.columns
        ],
        metadata={"meaning": table.meaning},
    )


def pyarrow_and_parquet() -> tuple[Any, Any]:
    """The library, which is an extra. Raises `StackscopeError` where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise StackscopeError(
            "Parquet is written by pyarrow, which is not installed.",
            remedy=f"Install it with {sys.executable} -m pip install pyarrow, or export --to csv.",
        ) from error
    return pyarrow, pyarrow.parquet
