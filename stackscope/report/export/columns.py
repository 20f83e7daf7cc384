"""What a table of an export is: its columns with type, unit and meaning, from which `docs/export.md` is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from stackscope.session.format import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.analysis.metrics.base import Need

Kind: TypeAlias = Literal["int", "float", "bool", "text"]
Cell: TypeAlias = int | float | bool | str | None
"""`None` is not known: an empty field in CSV, null in Parquet and JSON."""
Row: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    unit: str
    """Empty where there is none: names, flags."""
    meaning: str
    of: Callable[[Any], Cell]
    """The cell of what the table's rows are made from."""
    need: Need | None = None
    """A source that does not know this has nothing but unknown cells in it."""


@dataclass(frozen=True)
class Table:
    """One table: the name of its file, and its columns."""

    name: str
    meaning: str
    """What a row is."""
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([column.name for column in self.columns])

    def row(self, source: object, unknown: frozenset[Need]) -> Row:
        """The cells of one row; what the source of the session cannot know is unknown, whatever the record says."""
        if not unknown:
            return tuple([column.of(source) for column in self.columns])
        return tuple([None if column.need in unknown else column.of(source) for column in self.columns])


def field(name: str, kind: Kind, unit: str, meaning: str, *, need: Need | None = None, of: str = "") -> Column:
    """A column that is an attribute, perhaps of an attribute (`of` = `phases.decode`), of what rows are made from."""
    first, _, second = (of or name).partition(".")
    if second:
        return Column(name, kind, unit, meaning, lambda row: getattr(getattr(row, first), second), need)
    return Column(name, kind, unit, meaning, lambda row: getattr(row, first), need)


def as_json(value: object) -> str:
    """What has parts of its own, as one text."""
    plain = without_surrogates(msgspec.to_builtins(value))
    return msgspec.json.encode(plain, order="sorted").decode()


def json_or_unknown(value: object) -> str | None:
    """The same, and unknown where nothing is known."""
    return None if value is None else as_json(value)
