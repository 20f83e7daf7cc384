"""The table of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.common import table
from stackscope.hardware.quiet import QUIET_SHARE

if TYPE_CHECKING:
    from benchmarks.validate.figures import Figure
    from benchmarks.validate.scoring import Row, Scored
    from benchmarks.validate.state import State

NOT_STAGED: Final = (
    "logits of all rows: the engine computes none that it does not need",
    "KV hand-off through a throttled pipe: the engine hands nothing over",
    "evicted or paged weights: needs a limit of memory that a process cannot set for another here",
)
"""Faults of the protocol that this engine or machine cannot have."""


def printed(scored: Scored, state: State) -> str:
    """Everything that a run has to say."""
    head = ("figure", "goal", "found", "95 %", "n", "", "simpler predictors")
    rows = [_line(row) for row in scored.rows]
    loud = sorted(name for name, one in state.staged.items() if one.foreign is None or one.foreign >= QUIET_SHARE)
    n = len(state.staged)
    lines = [state.machine, "", f"{n} sessions, {n - len(loud)} of them quiet" + (": NOT QUIET" if loud else ""), ""]
    lines += [table([head, *rows]), "", *(f"- {note}" for note in scored.notes)]
    return "\n".join([*lines, "", "Not staged:", *(f"- {what}" for what in NOT_STAGED)])


def _line(row: Row) -> tuple[str, ...]:
    met = {True: "met", False: "MISSED", None: ""}[row.is_met]
    simpler = "; ".join(
        f"{name} {_told(found.value, row)}{_interval(found, row, ' [', ']')}" for name, found in row.simpler
    )
    return (
        row.name,
        _goal(row),
        _told(row.found.value, row),
        _interval(row.found, row),
        f"{row.found.n}",
        met,
        simpler,
    )


def _goal(row: Row) -> str:
    bounds = [f"≥ {_told(row.at_least, row)}"] if row.at_least is not None else []
    bounds += [f"≤ {_told(row.at_most, row)}"] if row.at_most is not None else []
    return ", ".join(bounds)


def _told(value: float | None, row: Row) -> str:
    if value is None:
        return "-"
    return f"{value * 100:.1f} %" if row.is_share else f"{value:.3g}"


def _interval(found: Figure, row: Row, before: str = "", after: str = "") -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{before}{_told(found.low, row)} to {_told(found.high, row)}{after}"
