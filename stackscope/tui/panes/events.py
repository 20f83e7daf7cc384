"""What was changed, newest first: what was predicted of it, and what came."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.tui.compose import apart, flow, quantity, said, wrapped
from stackscope.tui.lines import Line, Span, fitted, printable, width
from stackscope.tui.pane import Content, Context, Pane, PaneHelp
from stackscope.tui.wording import awaited, changed, has_begun

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Effect, Event, Ratio, Snapshot
    from stackscope.tui.look import Look

_TIME = 7
_WIDE = 96
"""Cells from which prediction and measurement have columns."""


class EventsPane(Pane):
    """Changes and what they did."""

    id: ClassVar = "events"
    title: ClassVar = "Events"
    help: ClassVar = PaneHelp(
        meaning="Changes of the configuration and of the load, refusals and marks, newest first. What a change did is "
        "measured from comparable stretches before and after it: the warm-up behind it is left out, and where the "
        "traffic itself changed the two are not comparable. Where the interval includes no change at all, the effect "
        "is not distinguishable. The same changes are vertical marks on every chart.",
        formula="effect = tokens per second after ÷ before − 1, with its 95 % interval.",
        moves="Let a change run for some seconds before the next one: the interval narrows.",
    )

    def drawn(self, context: Context) -> Content:
        snapshot, size = context.snapshot, context.size
        if not snapshot.events:
            text = "Nothing was changed yet." if has_begun(snapshot) else awaited(snapshot, "changes show here")
            return Content(wrapped(text, size.width))
        lines: list[Line] = []
        for event in snapshot.events:
            lines += told(event, size.width, context.look)
            if len(lines) >= size.height:
                break
        return Content(tuple(lines[: size.height]), self.note(_notes(snapshot), size))


def latest(snapshot: Snapshot, room: int, look: Look) -> Line:
    """The newest event on a line of exactly `room` cells; blank where there was none."""
    if not snapshot.events:
        return (Span(" " * room),)
    return fitted(told(snapshot.events[0], room, look, is_single=True)[0], room, look.ellipsis)


def told(event: Event, room: int, look: Look, *, is_single: bool = False) -> tuple[Line, ...]:
    """An event on one line, or where that is too narrow on two."""
    head = (Span(f"{units.clock(event.at_ns):>{_TIME - 2}}  ", "label"), *_what(event, look))
    predicted, result = _predicted(event), _result(event)
    if room >= _WIDE:
        left = max(room - 72, 40)
        if width(head) <= left:
            column = fitted(head, left, look.ellipsis)
            line = (*column, *fitted(predicted, 31, look.ellipsis), Span(" "), *result)
            if width(line) <= room:
                return (line,)
    tail = flow((result, predicted) if is_single else (predicted, result), room - _TIME)
    if not tail:
        return (head,)
    if is_single or width(head) + 2 + width(tail) <= room:
        short = flow((result,), max(room - width(head) - 2, 0))
        return (apart(head, tail if width(head) + 2 + width(tail) <= room else short, room),)
    return (head, (Span(" " * _TIME), *tail))


def _what(event: Event, look: Look) -> Line:
    """What happened, in words."""
    match event.kind:
        case "mark":
            return (Span("mark ", "label"), Span(printable(event.label), "accent"))
        case "refused":
            return (
                Span("refused ", "bad"), Span(f"{changed(event.changes, look)}: ", ""),
                Span(printable(event.label), "label"),
            )  # fmt: skip
        case "rebuild":
            return (Span(changed(event.changes, look), "value"), *_rebuilt(event), *_by(event))
    return (Span(changed(event.changes, look), "value"), *_by(event))


def _rebuilt(event: Event) -> Line:
    took = f" in {units.duration(event.duration_ns)}" if event.duration_ns is not None else ""
    again = f", {units.count(event.requeued)} again" if event.requeued else ""
    return said(f"  rebuilt{took}{again}")


def _by(event: Event) -> Line:
    return () if event.by == "user" else said(f"  by the {event.by}")


def _change(ratio: Ratio, style: str = "value") -> Line:
    return quantity(units.change(ratio.value - 1, ratio.low - 1, ratio.high - 1), style)


def _predicted(event: Event) -> Line:
    return () if event.predicted is None else (Span("predicted ", "label"), *_change(event.predicted))


def _result(event: Event) -> Line:
    """What came of it."""
    effect = event.effect
    if effect is None:
        return ()
    why = printable(effect.why) if effect.why else ""
    match effect.state:
        case "settling":
            return (Span("settling", "warning"), Span(f": {why}" if why else "", "label"))
        case "measuring":
            return (Span("measuring", "warning"), Span(f": {why}" if why else "", "label"))
        case "not comparable":
            return said(f"not comparable: {why}" if why else "not comparable")
        case "not distinguishable":
            return (Span("not distinguishable", ""), *_interval(effect))
    if effect.tokens is None:
        return said("measured, not known", "unknown")
    style = "good" if effect.tokens.value >= 1 else "bad"
    return (Span("measured ", "label"), *_change(effect.tokens, style), *_compared(event, effect.tokens))


def _interval(effect: Effect) -> Line:
    return () if effect.tokens is None else (Span(" "), *_change(effect.tokens, ""))


def _compared(event: Event, measured: Ratio) -> Line:
    """How the measurement stands to the prediction."""
    if event.predicted is None:
        return ()
    if measured.value > event.predicted.high:
        return said("  above it")
    return said("  below it" if measured.value < event.predicted.low else "  as predicted")


def _notes(snapshot: Snapshot) -> tuple[Line, ...]:
    judged = [
        event for event in snapshot.events if event.predicted and event.effect and event.effect.state == "measured"
    ]
    if not judged:
        return ()
    right = sum(
        (event.predicted.value >= 1) == (event.effect.tokens.value >= 1)
        for event in judged
        if event.predicted is not None and event.effect is not None and event.effect.tokens is not None
    )
    text = f"{units.count(right)} of {units.count(len(judged))} signs as predicted"
    return (said(text), said(f"{units.count(right)} of {units.count(len(judged))} right"))
