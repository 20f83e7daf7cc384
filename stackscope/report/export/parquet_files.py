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
_BEYOND: Final = 1 << 63
"""The first integer that no column of integers holds."""


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
            if column.kind == "text":
                cells = tuple(without_surrogates(cell) for cell in cells)
            columns.append(self._arrow.array(_held_by(cells) if column.kind == "int" else cells, type=field.type))
        self._writers[table.name].write_table(self._arrow.Table.from_arrays(columns, schema=schema))


def _held_by(cells: tuple[Any, ...]) -> tuple[Any, ...]:
    """Integers with those that 64 bits cannot hold unknown: only damaged recordings have them."""
    if all(cell is None or -_BEYOND <= cell < _BEYOND for cell in cells):
        return cells
    return tuple(cell if cell is not None and -_BEYOND <= cell < _BEYOND else None for cell in cells)


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
