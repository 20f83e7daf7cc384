"""Two recordings side by side: their headline numbers at once, and what a comparison finds as soon as it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stackscope import units
from stackscope.analysis.comparing.differences import header_differences
from stackscope.analysis.distribution import Spread
from stackscope.analysis.metrics import cost, counts, latency, load, speculation, time
from stackscope.tui.compared import differences, judged
from stackscope.tui.compose import wrapped
from stackscope.tui.lines import Line, Span, fitted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackscope.analysis.comparing.comparison import Comparison
    from stackscope.analysis.metrics.base import Metric
    from stackscope.tui.library import Digest, Entry
    from stackscope.tui.look import Look

IN_PROGRESS: Final = "They are being compared: the verdict, intervals and the anatomy of their steps follow."
_NAME: Final = 28


@dataclass(frozen=True)
class Figure:
    """A number that is compared."""

    name: str
    metric: type[Metric[Any]]
    text: Callable[[Any], str]
    percentile: str | None = None
    """Of a distribution."""

    def of(self, known: Digest) -> float | None:
        """Its value. `None`: not known."""
        value = None if known.result is None else known.result[self.metric]
        if isinstance(value, Spread):
            value = getattr(value, self.percentile or "p50")
        return value if isinstance(value, int | float) else None


FIGURES: Final[tuple[Figure, ...]] = (
    Figure("tokens out", load.OutputRate, units.token_rate),
    Figure("tokens in", load.InputRate, units.token_rate),
    Figure("requests", load.RequestRate, units.request_rate),
    Figure("first token, p50", latency.TimeToFirstToken, units.duration, "p50"),
    Figure("first token, p95", latency.TimeToFirstToken, units.duration, "p95"),
    Figure("per output token, p50", latency.TimePerOutputToken, units.duration, "p50"),
    Figure("step gap, p95", latency.StepGap, units.duration, "p95"),
    Figure("step, p50", time.StepTime, units.duration, "p50"),
    Figure("A, tokens per forward", speculation.TokensPerForward, units.number),
    Figure("acceptance", speculation.AcceptanceRate, units.percent),
    Figure("coverage", speculation.Coverage, units.percent),
    Figure("useful hits", load.UsefulHitRate, units.percent),
    Figure("slots busy", load.Occupancy, units.percent),
    Figure("rows per forward, p50", load.BatchRows, units.number, "p50"),
    Figure("bytes per token", cost.BytesPerToken, units.data_size),
    Figure("bytes in forwards", cost.TargetBandwidth, units.bandwidth),
    Figure("threads running", time.CpuShare, units.percent),
    Figure("idle", time.IdleShare, units.percent),
    Figure("ran for", counts.WallTime, units.duration),
)


def comparison(
    one: tuple[Entry, Digest], other: tuple[Entry, Digest], found: Comparison | str | None, room: int, look: Look
) -> tuple[Line, ...]:
    """Both, in lines of at most `room` cells. `found` is what comparing them found, or why they were not compared.

    `None`: that is still going on.
    """
    is_compared = found is not None and not isinstance(found, str)
    lines: list[Line] = []
    for letter, (entry, known) in (("A", one), ("B", other)):
        lines.append(fitted((Span(f"{letter}  ", "accent"), Span(printable(entry.path.name), "title")), room,
                            look.ellipsis))  # fmt: skip
        if not is_compared:  # Else what is found says it.
            for said in _reservations(letter, known):
                lines += wrapped(said, room, "warning")
    if found is not None and not isinstance(found, str):
        return (*lines, (), *judged(found, room, look))
    told = wrapped(IN_PROGRESS, room, "accent") if found is None else wrapped(found, room, "warning")
    lines += [(), *told, (), *_table(one[1], other[1], room, look)]
    if one[1].header is not None and other[1].header is not None:
        lines += [(), *differences(header_differences(one[1].header, other[1].header), room, look)]
    return tuple(lines)


def _reservations(letter: str, known: Digest) -> Iterator[str]:
    """What to know of a recording before its figures are read."""
    for missing in (known.damage, known.truncated, known.left_out):
        if missing is not None:
            yield missing
    if known.result is not None and known.result.epochs:
        n = units.counted(len(known.result.epochs), "configuration")
        yield f"{letter} ran under {n}: its figures mix them."


def _table(one: Digest, other: Digest, room: int, look: Look) -> list[Line]:
    column = min(max((room - _NAME) // 3, 8), 18)
    name = min(_NAME, max(room - 3 * column, 4))
    head = f"{'':<{name}}{'A':>{column}}{'B':>{column}}{f'B {_divided(look)} A':>{column}}"
    lines: list[Line] = [(Span(head, "label"),)]
    for figure in FIGURES:
        a, b = figure.of(one), figure.of(other)
        if a is None and b is None:
            continue
        ratio = b / a if a is not None and b is not None and a != 0 else None
        lines.append(
            (*fitted((Span(figure.name),), name, look.ellipsis),
             Span(f"{figure.text(a):>{column}}{figure.text(b):>{column}}", "value"),
             Span(f"{units.ratio(ratio):>{column}}", "label"))
        )  # fmt: skip
    return lines


def _divided(look: Look) -> str:
    return "/" if look.is_ascii else "÷"
