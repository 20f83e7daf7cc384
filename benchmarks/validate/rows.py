"""The table as data: rows with their goals, and what simpler predictors make of the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from benchmarks.validate.figures import Figure
    from benchmarks.validate.pairing import Simpler


class Row(NamedTuple):
    """One line of the table."""

    name: str
    found: Figure
    is_share: bool = True
    """Shown in percent."""
    at_most: float | None = None
    at_least: float | None = None
    simpler: tuple[Simpler, ...] = ()
    """The same figure of simpler predictors."""

    @property
    def is_met(self) -> bool | None:
        """Whether the figure itself reaches the goal, however wide its interval is. `None`: there is no goal, or
        nothing was measured."""
        value = self.found[0]
        if value is None or (self.at_most is None and self.at_least is None):
            return None
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)


class Scored(NamedTuple):
    """The table, and what has to be said beside it."""

    rows: list[Row]
    notes: list[str]
    n_missing: int = 0
    """Sessions of such a run that there are no recordings of: what needs them is not judged."""
