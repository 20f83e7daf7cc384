"""How fast it is: tokens per second and what the last change did to them, and how long requests wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.tui.compose import Rows, figure, flow, flowed, quantity, said, wrapped
from stackscope.tui.lines import Line, Span, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.series import LEAST_FRAMED, add_chart, over_time
from stackscope.tui.wording import awaited, has_begun

if TYPE_CHECKING:
    from stackscope.analysis.distribution import Spread
    from stackscope.analysis.live.snapshot import Latency, Snapshot

_LABEL = 9
_COLUMN = 10
"""The widest value, in brackets, and a space before it: `(42.2 ms)`."""
_ROOMY = 72
"""Columns from which a change is shown with its interval."""


class ThroughputPane(Pane):
    """Throughput and latency."""

    id: ClassVar = "throughput"
    title: ClassVar = "Throughput"
    help: ClassVar = PaneHelp(
        meaning="Tokens that entered outputs per second of wall time, and what the last change did to them. TTFT is "
        "what a user waits for the first token; the step gap is the time between the moments at which a request gains "
        "tokens; TPOT is its mean time for each token after the first. p50 is the median, p95 what one in twenty "
        "exceeds; in brackets when there are too few values for it, so that it is no more than the largest. Rows "
        "useful is the share of the rows of decoding sequences whose token was kept.",
        formula="tok/s = Σ emitted ÷ wall time. TTFT = first token − arrival. TPOT = (last emission − first) ÷ (output"
        " tokens − 1), per request, over requests that completed in the last minute. rows useful = Σ emitted ÷ Σ rows "
        "of sequences that decode. Limits are met by the share of those requests that kept all of them.",
        moves="Throughput: whatever the verdict names. TTFT: shorter queues, prefix cache, a larger token budget. "
        "Gaps: a smaller token budget, so that prefills interrupt less.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        if not has_begun(snapshot):
            return Drawn(wrapped(awaited(snapshot, "its speed shows here"), size.width))
        rows = Rows()
        rows.add(0, *_rate(context))
        table = _table(snapshot.latency, size.width) if size.height >= 7 else ()
        load = flowed(_load(snapshot), size.width, 2)
        if table:
            rows.add(1, *table)
            rows.add(2, *load)
            if size.height - len(table) - len(load) - len(_rate(context)) >= LEAST_FRAMED:
                add_chart(rows, 3, context, "tokens_per_s", "tok/s")
        else:
            for rank, line in enumerate(_figures(snapshot, size.width, size.height - len(_rate(context))), 1):
                rows.add(rank, line)
        return Drawn(rows.laid_out(size.height), _notes(snapshot))


def _rate(context: Context) -> tuple[Line, ...]:
    """Tokens per second, over time where they fit, and what the last change did."""
    snapshot, room = context.snapshot, context.size.width
    number, space, unit = units.token_rate(snapshot.now.tokens_per_s).partition(" ")
    head = (Span(f"{number:>5}", "headline" if space else "unknown"), Span(f"{space}{unit}", "unit"))
    change = _change(snapshot, has_interval=room >= _ROOMY)
    left = room - width(head) - 2
    chart = over_time(context, "tokens_per_s", "", left - (width(change) + 2 if change else 0))
    if chart and change:
        return ((*head, Span("  "), *chart, Span("  "), *change),)
    chart = over_time(context, "tokens_per_s", "", left)
    first = (*head, Span("  "), *chart) if chart else flow((head, change), room)
    return (first, flow((change,), room)) if chart and change and context.size.height >= 4 else (first,)


def _change(snapshot: Snapshot, *, has_interval: bool) -> Line:
    """What the last change that is measured did to tokens per second."""
    event = next((event for event in snapshot.events if event.effect is not None), None)
    if event is None or event.effect is None:
        return ()
    effect = event.effect
    match effect.state:
        case "settling":
            return said("settling", "warning")
        case "measuring":
            return said("measuring the change", "warning")
        case "not comparable":
            return said("not comparable with before")
        case "not distinguishable":
            return said("no change to be seen")
    if effect.tokens is None or effect.why is not None:  # Of several changes, which takes the words that events have.
        return ()
    ratio = effect.tokens
    ends = (ratio.low - 1, ratio.high - 1) if has_interval else ()
    change = quantity(units.change(ratio.value - 1, *ends), "good" if ratio.value >= 1 else "bad")
    return (Span(f"was {units.number(effect.before)}: ", "label"), *change)


def _latencies(latency: Latency) -> list[Line]:
    """Each distribution in one piece."""
    items = [_percentiles("TTFT", latency.ttft), _percentiles("step gap", latency.step_gap)]
    tpot = latency.tpot
    items.append(figure("TPOT p50", units.duration(None if tpot is None else tpot.p50)))
    return items


def _percentiles(label: str, spread: Spread | None) -> Line:
    if spread is None:
        return (Span(f"{label} ", "label"), Span(units.UNKNOWN, "unknown"))
    p50, p95 = units.duration(spread.p50), tail(spread)
    number, _, unit = p50.partition(" ")
    is_shared = p95.partition(" ")[2] == unit
    return (
        Span(f"{label} p50 ", "label"), Span(number, "value"), Span("" if is_shared else f" {unit}", "unit"),
        Span(" p95 ", "label"), *quantity(p95),
    )  # fmt: skip


def tail(spread: Spread) -> str:
    """The p95; in brackets where so few values are no more than their largest."""
    text = units.duration(spread.p95)
    return f"({text})" if "p95" in spread.unsupported else text


def _table(latency: Latency, room: int) -> tuple[Line, ...]:
    """Distributions as rows; columns go from the right where they have no room."""
    columns = [column for n, column in enumerate(("p50", "p95", "p99", "n")) if _LABEL + (n + 1) * _COLUMN <= room]
    if len(columns) < 2:
        return ()
    head = Span(f"{'':{_LABEL}}" + "".join(f"{name:>{_COLUMN}}" for name in columns), "label")
    lines: list[Line] = [(head,)]
    for label, spread in (
        ("TTFT", latency.ttft), ("step gap", latency.step_gap), ("TPOT", latency.tpot), ("request", latency.e2e),
    ):  # fmt: skip
        line: list[Span] = [Span(f"{label:<{_LABEL}}", "label")]
        for name in columns:
            line += _cell(spread, name)
        lines.append(tuple(line))
    return tuple(lines)


def _cell(spread: Spread | None, column: str) -> Line:
    if spread is None:
        return (Span(f"{units.UNKNOWN:>{_COLUMN}}", "unknown"),)
    if column == "n":
        return (Span(f"{units.count(spread.n):>{_COLUMN}}", "unit"),)
    text = units.duration(getattr(spread, column))
    is_supported = column not in spread.unsupported
    shown = quantity(text if is_supported else f"({text})", "value" if is_supported else "label")
    return (Span(" " * (_COLUMN - width(shown))), *shown)


def _figures(snapshot: Snapshot, room: int, height: int) -> tuple[Line, ...]:
    """Latencies and load on lines; what waits is among the first `height` as long as anything does, or just did."""
    (first, *latencies), (queue, slots, *load) = _latencies(snapshot.latency), _load(snapshot)
    lines = flowed([first, *latencies, queue, slots, *load], room, 2)
    is_waiting = (snapshot.levels.queue or 0) > 0 or (snapshot.now.queue or 0) > 0
    if not is_waiting or any(set(queue) <= set(line) for line in lines[:height]):
        return lines
    return flowed([queue, first, slots, *latencies, *load], room, 2)


def _load(snapshot: Snapshot) -> list[Line]:
    """What stands in line and in slots."""
    levels, now = snapshot.levels, snapshot.now
    busy, slots = units.count(levels.slots_busy), units.count(levels.slots)
    return [
        figure("queue", units.count(levels.queue)),
        figure("slots", f"{busy}/{slots}" if levels.slots is not None else busy),
        figure("rows useful", units.percent(now.useful_row_share)),
        figure("prefill", units.token_rate(now.prefill_tokens_per_s)),
    ]


def _notes(snapshot: Snapshot) -> tuple[Line, ...]:
    latency = snapshot.latency
    if latency.ttft_limit_ns is None and latency.tpot_limit_ns is None:
        rate = snapshot.now.requests_per_s
        return () if rate is None else (quantity(units.request_rate(rate)),)
    limits = [
        f"{name} < {units.duration(limit)}"
        for name, limit in (("TTFT", latency.ttft_limit_ns), ("TPOT", latency.tpot_limit_ns))
        if limit is not None
    ]
    met = quantity(units.percent(latency.good_share), "good" if (latency.good_share or 0) >= 0.95 else "bad")
    names = ", ".join(limits)
    return tuple((Span(words, "label"), *met) for words in (f"limits {names} met by ", f"{names} met ", "limits met "))
