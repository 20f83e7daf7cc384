"""Whether the limits of `--fail-if` are broken, beyond what chance explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from stackscope import units
from stackscope.analysis.comparing.comparison import compared, grouped, spelled
from stackscope.analysis.comparing.figures import BY_NAME, Percentile, Rate
from stackscope.analysis.comparing.intervals import Blocks, rate_interval
from stackscope.analysis.comparing.percentiles import percentile_interval
from stackscope.analysis.statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.analysis.comparing.digest import Digest
    from stackscope.analysis.comparing.figures import Figure
    from stackscope.analysis.comparing.thresholds import Condition


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, for one session."""

    condition: str
    letters: tuple[str, str]
    outcome: Literal["broken", "kept", "not judged"]
    """`broken`: the whole 95 % interval lies beyond the limit. `not judged`: there is no interval."""
    sentence: str
    interval: Interval | None = None
    """Of the ratio, or of the level."""


def judge(condition: Condition, a: Digest, b: Digest, letters: tuple[str, str], *, is_same_work: bool) -> Judged:
    """Hold one session to a limit, a change being one against `a`."""
    figure = BY_NAME[condition.figure]
    found = _change(figure, a, b, letters, is_same_work=is_same_work) if condition.is_change else _level(figure, b)
    if isinstance(found, str):
        text = f"{condition.text} cannot be judged for {letters[1]}: {found}."
        return Judged(condition=condition.text, letters=letters, outcome="not judged", sentence=text)
    is_beyond = found.low > condition.limit if condition.sign == ">" else found.high < condition.limit
    told = f"{figure.header} {spelled(found)}" if condition.is_change else f"{figure.header} {_spelled(figure, found)}"
    holds = "holds" if is_beyond else "is not shown to hold"
    against = f" against {letters[0]}" if condition.is_change else ""
    return Judged(
        condition=condition.text,
        letters=letters,
        outcome="broken" if is_beyond else "kept",
        sentence=f"{condition.text} {holds} for {letters[1]}{against}: {told}.",
        interval=found,
    )


def _change(figure: Figure, a: Digest, b: Digest, letters: tuple[str, str], *, is_same_work: bool) -> Interval | str:
    found = compared(figure, a, b, letters, is_same_work=is_same_work)
    if found.ratio is not None:
        return found.ratio
    if found.a is not None and found.b is not None and found.a > 0 and found.why == "measured once":
        # There is no interval to respect: the number is the machine's own, and stands for itself.
        ratio = found.b / found.a
        return Interval(ratio, ratio, ratio)
    return f"{figure.header} has no interval ({found.why})"


def _level(figure: Figure, digest: Digest) -> Interval | str:
    value = figure.of(digest)
    if value is None:
        return f"{figure.header} is not known"
    found: Interval | None = Interval(value, value, value)
    if isinstance(figure, Percentile):
        found = percentile_interval(grouped(figure, digest), figure.percentile)
    elif isinstance(figure, Rate):
        held = rate_interval(Blocks(*figure.blocks(digest), digest.column("emitted")))
        found = None
        if held is not None:
            found = _possible(figure, Interval(value, held.low * figure.scale, held.high * figure.scale))
    return f"{figure.header} has too few values for an interval" if found is None else found


def _possible(figure: Rate, found: Interval) -> Interval:
    """No rate is below 0, and no share above 1 (but one that was measured so)."""
    most = max(found.value, 1.0) if figure.unit == "1" else found.high
    return Interval(found.value, max(found.low, 0.0), min(found.high, most))


TEXT_OF: dict[str, Callable[[float | None], str]] = {
    "ns": units.duration,
    "tokens/s": units.token_rate,
    "B/s": units.bandwidth,
    "B": units.data_size,
    "1": units.percent,
    "J/token": lambda value: units.scaled(value, "J"),
}
"""How values are written, by their unit; others as plain numbers."""


def value_text(unit: str, value: float | None) -> str:
    """A value as text, with its unit where it has one."""
    return TEXT_OF.get(unit, units.number)(value)


def _spelled(figure: Figure, found: Interval) -> str:
    if found.low == found.high:
        return value_text(figure.unit, found.value)
    low, high = (value_text(figure.unit, end) for end in (found.low, found.high))
    return f"{value_text(figure.unit, found.value)} [{low}, {high}]"
