"""Two recordings side by side: what differs in how they ran, and their headline numbers. Nothing is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope import units
from stackscope.analysis.distribution import Spread
from stackscope.analysis.metrics import cost, counts, latency, load, speculation, time
from stackscope.tui.compose import wrapped
from stackscope.tui.lines import Line, Span, fitted, printable
from stackscope.tui.wording import called, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stackscope.analysis.metrics.base import Metric
    from stackscope.records import Header
    from stackscope.tui.library import Digest, Entry
    from stackscope.tui.look import Look

NO_VERDICT: Final = (
    "Two runs differ by chance, too, and nothing is judged here: stackscope compare, with the paths of both, gives"
    " intervals and a verdict, and says where the time went."
)
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


def comparison(one: tuple[Entry, Digest], other: tuple[Entry, Digest], room: int, look: Look) -> tuple[Line, ...]:
    """Both, in lines of at most `room` cells."""
    lines: list[Line] = []
    for letter, (entry, known) in (("A", one), ("B", other)):
        lines.append(fitted((Span(f"{letter}  ", "accent"), Span(printable(entry.path.name), "title")), room,
                            look.ellipsis))  # fmt: skip
        if known.damage is not None or known.truncated is not None:
            lines += wrapped(known.damage or known.truncated or "", room, "warning")
        if known.result is not None and known.result.epochs:
            n = units.counted(len(known.result.epochs), "configuration")
            lines += wrapped(f"{letter} ran under {n}: its figures mix them.", room, "warning")
    lines += [(), *_table(one[1], other[1], room, look), ()]
    lines += _differences(one[1].header, other[1].header, room, look)
    return (*lines, (), *wrapped(NO_VERDICT, room))


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


def _differences(one: Header | None, other: Header | None, room: int, look: Look) -> list[Line]:
    """What is not the same: settings at the start, traffic, machine."""
    if one is None or other is None:
        return []
    groups = (
        ("Configuration at the start", dict(_settings(one, other, look))),
        ("Workload", dict(_different(one.workload, other.workload, look))),
        ("Machine", dict(_different(_machine(one), _machine(other), look))),
    )
    lines: list[Line] = []
    for title, found in groups:
        if not found:
            lines.append((Span(title, "headline"), Span("  the same", "label")))
            continue
        lines.append((Span(title, "headline"),))
        for name, text in found.items():
            first, *rest = wrapped(text, max(room - _NAME, 10), "") or ((),)
            lines.append((Span(f"{name[: _NAME - 1]:<{_NAME}}", "label"), *first))
            lines += [(Span(" " * _NAME), *line) for line in rest]
    return lines


def _settings(one: Header, other: Header, look: Look) -> Iterable[tuple[str, str]]:
    if one.config is None or other.config is None:
        if one.config is not other.config:
            yield "configuration", "one of them does not say how it was configured"
        return
    for field in type(one.config).__struct_fields__:
        a, b = getattr(one.config, field), getattr(other.config, field)
        if a != b:
            yield called(field), f"{spelled(field, a)} {look.arrow} {spelled(field, b)}"


def _different(one: Mapping[str, object], other: Mapping[str, object], look: Look) -> Iterable[tuple[str, str]]:
    for name in dict.fromkeys((*one, *other)):
        a, b = one.get(name), other.get(name)
        if a != b:
            yield called(name), f"{_text(a)} {look.arrow} {_text(b)}"


def _text(value: object) -> str:
    return units.UNKNOWN if value is None else printable(str(value))


def _machine(header: Header) -> dict[str, object]:
    weights = None if header.model is None else header.model.tensor_bytes
    found: dict[str, object] = {
        "host": header.host, "device": header.device, "library": header.library, "stackscope": header.stackscope,
        "weights": None if weights is None else units.data_size(weights),
    }  # fmt: skip
    return {name: value for name, value in msgspec.to_builtins(found).items() if value is not None}
