"""The table of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.common import table
from benchmarks.validate.against import summary
from stackscope.hardware.quiet import QUIET_SHARE

if TYPE_CHECKING:
    from benchmarks.validate.figures import Figure
    from benchmarks.validate.pairing import Compared
    from benchmarks.validate.rows import Row, Scored
    from benchmarks.validate.state import State

LEGEND: Final = (
    "ours: our figure of the items that a simpler predictor is compared in. How much nearer: the mean of its error\n"
    "less ours, item by item (of macro-F1, ours less its own), with an interval of 95 % over sessions, blocks of\n"
    "steps or groups of requests. Beaten: the interval lies above 0. Beats us: below."
)
NOT_STAGED: Final = (
    "logits of all rows: the engine computes none that it does not need",
    "KV hand-off through a throttled pipe: the engine hands nothing over",
    "evicted or paged weights: needs a limit of memory that a process cannot set for another here",
)
"""Faults of the protocol that this engine or machine cannot have."""


def printed(scored: Scored, state: State) -> str:
    """Everything that a run has to say."""
    head = ("figure", "goal", "found", "95 %", "n", "ours", "how much nearer", "")
    rows = [line for row in scored.rows for line in _lines(row)]
    loud = sorted(name for name, one in state.staged.items() if one.foreign is None or one.foreign >= QUIET_SHARE)
    n = len(state.staged)
    lines = [state.machine, "", f"{n} sessions, {n - len(loud)} of them quiet" + (": NOT QUIET" if loud else ""), ""]
    lines += [table([head, *rows]), "", *(f"- {note}" for note in scored.notes)]
    lines += ["", LEGEND, "", "Simpler predictors, in the whole table:", *summary(scored.rows, scored.n_missing)]
    return "\n".join([*lines, "", "Not staged:", *(f"- {what}" for what in NOT_STAGED)])


def _lines(row: Row) -> list[tuple[str, ...]]:
    """A figure, and below it the same of simpler predictors."""
    met = {True: "met", False: "MISSED", None: ""}[row.is_met]
    below = [
        (f"  {one.name}", "", *_cells(one.found, row), _told(one.ours.value, row), *_nearer(one.compared, row))
        for one in row.simpler
    ]
    return [(row.name, _goal(row), *_cells(row.found, row), "", "", met), *below]


def _nearer(found: Compared | None, row: Row) -> tuple[str, str]:
    """By how much ours is nearer, and what follows."""
    if found is None:
        return "", ""
    difference = found.difference
    interval = _interval(difference, row)
    return f"{_told(difference.value, row)} ({interval or 'too few to tell'})", found.verdict


def _cells(found: Figure, row: Row) -> tuple[str, str, str]:
    return _told(found.value, row), _interval(found, row), f"{found.n}"


def _goal(row: Row) -> str:
    bounds = [f"≥ {_told(row.at_least, row)}"] if row.at_least is not None else []
    bounds += [f"≤ {_told(row.at_most, row)}"] if row.at_most is not None else []
    return ", ".join(bounds)


def _told(value: float | None, row: Row) -> str:
    if value is None:
        return "-"
    return f"{value * 100:.1f} %" if row.is_share else f"{value:.3g}"


def _interval(found: Figure, row: Row) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{_told(found.low, row)} to {_told(found.high, row)}"
