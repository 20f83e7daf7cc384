"""The score of predictions as text: a line for each session, one for all, and what did not count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.report.layout import columns, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.scorecard import Score

HEADER: Final = ("session", "changes", "scored", "signs right", "median error", "intervals held")
TOTAL: Final = "total"
FIGURES_WIDTH: Final = 60
"""Cells that the columns behind a session's name take."""
SHORTEST_NAME: Final = 12


@dataclass(frozen=True)
class SessionScore:
    """One recording."""

    name: str
    score: Score
    truncated: str | None = None
    """Why its reading ended early. `None`: it has an end."""
    left_out: str | None = None
    """What of it could not be read, as a sentence. `None`: nothing."""


def shown(sessions: Sequence[SessionScore], total: Score, width: int) -> Text:
    """Everything, in lines of at most `width` cells."""
    rows = [_cells(_short(one.name, max(SHORTEST_NAME, width - FIGURES_WIDTH)), one.score) for one in sessions]
    if len(sessions) > 1:
        rows.append(_cells(TOTAL, total))
    first, *others = columns(HEADER, rows)
    blocks = [[Text(first, style="bold"), *map(Text, others)], [row("score", [total.sentence], width)]]
    if total.left_out:
        reasons = [f"{units.count(n)}: {why}" for why, n in total.left_out.items()]
        blocks.append([row("not scored", [reason], width) for reason in reasons[:1]])
        blocks[-1] += [row("", [reason], width) for reason in reasons[1:]]
    blocks.append([row("no score", [told], width) for told in _unscored(sessions)])
    missing = [(one.name, told) for one in sessions for told in (one.truncated, one.left_out) if told is not None]
    blocks.append([row("note", [f"{name}: {told}"], width, style="yellow") for name, told in missing])
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def _unscored(sessions: Sequence[SessionScore]) -> list[str]:
    """The recordings without any scored change, by the reason."""
    names: dict[str, list[str]] = {}
    for one in sessions:
        if one.score.why_none is not None:
            names.setdefault(one.score.why_none, []).append(one.name)
    return [f"{', '.join(alike)}: {why}" for why, alike in names.items()]


def _cells(name: str, score: Score) -> tuple[str, ...]:
    return (
        name,
        units.count(len(score.outcomes)),
        units.count(score.n),
        _of(score.signs_right, score.n_signs),
        units.percent(score.median_error),
        _of(score.covered, score.n),
    )


def _of(part: int, whole: int) -> str:
    """Out of nothing, a share is not known."""
    return f"{units.count(part)} of {units.count(whole)}" if whole > 0 else units.UNKNOWN


def _short(name: str, most: int) -> str:
    """The name in so many cells at most; a longer one loses its middle."""
    if len(name) <= most:
        return name
    end = most // 2
    return f"{name[: most - end - 1]}…{name[-end:]}"
