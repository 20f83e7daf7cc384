"""What was changed, newest first: what was predicted of it, and what came."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from stackscope import units
from stackscope.tui.compose import GAP, apart, flow, quantity, said, shortened, wrapped
from stackscope.tui.lines import Line, Span, fitted, printable, spelled, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp, Size
from stackscope.tui.wording import awaited, changed, has_begun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.analysis.live.snapshot import Event, Ratio, Snapshot
    from stackscope.tui.look import Look

_TIME: Final = 7
_INDENT: Final = 4
_PREDICTED: Final = 19
_MEASURED: Final = 21
_COMPARED: Final = 12
_LEAST_CHANGE: Final = 36
"""Cells for what was changed, below which the rest has no columns."""
_LEAST_WHY: Final = 24
"""Cells, of which fewer are too few for the beginning of a reason."""
_LEAST_HEAD: Final = 40
"""Cells for a change on a single line, which a result may take from it beyond."""
_ROOMY: Final = 8
"""Rows from which on changes of the verdict stand among the events."""
_MOST_CHANGE: Final = 60
"""Cells for it, beyond which what is left goes to the results."""


class EventsPane(Pane):
    """Changes and what they did."""

    id: ClassVar = "events"
    title: ClassVar = "Events"
    is_list: ClassVar = True
    help: ClassVar = PaneHelp(
        meaning="Changes of the configuration and of the load, refusals, marks, and what limits from then on, newest "
        "first. What a change is predicted to do stands beside what it did. That is "
        "measured from comparable stretches before and after it: the warm-up behind it is left out, and where the "
        "traffic itself changed the two are not comparable. Where the interval includes no change at all, the effect "
        "is not distinguishable. As predicted is what both intervals allow for together. The same changes are vertical "
        "marks on every chart. While the pane is focused, up and down scroll it.",
        formula="effect = tokens per second after ÷ before − 1, with its 99 % interval; predictions have one of 90 %.",
        moves="Let a change run for some seconds before the next one: the interval narrows.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        if not snapshot.events:
            text = "Nothing was changed yet." if has_begun(snapshot) else awaited(snapshot, "changes show here")
            return Drawn(wrapped(text, size.width))
        listed = _listed(snapshot, size)
        first = min(context.scrolled, self.hidden(context)) if context.scrolled else 0
        lines, n_shown = _laid_out(listed[first:], size, context.look)
        hidden = _hidden(first, len(listed) - first - n_shown)
        return Drawn(lines, _notes(snapshot, hidden))

    def hidden(self, context: Context) -> int:
        """Events that are passed over when the oldest one is in sight."""
        listed = _listed(context.snapshot, context.size)
        for first in range(max(len(listed) - context.size.height, 0), len(listed)):
            if first + _laid_out(listed[first:], context.size, context.look)[1] >= len(listed):
                return first
        return max(len(listed) - 1, 0)


def _listed(snapshot: Snapshot, size: Size) -> tuple[Event, ...]:
    """The events that a pane of this size tells of, newest first."""
    if size.height >= _ROOMY:
        return snapshot.events
    # The verdict has a pane of its own: where little has room, changes and what they did come first.
    return tuple([event for event in snapshot.events if event.kind != "verdict"]) or snapshot.events


def _laid_out(events: Sequence[Event], size: Size, look: Look) -> tuple[list[Line], int]:
    """As many of them as there is room for, and how many those are."""
    shown = events[: size.height]
    if _change_room(size.width) < _LEAST_CHANGE or size.height < 2:
        lines: list[Line] = []
        n_whole = 0
        for event in shown:
            lines += told(event, size.width, look)
            n_whole += len(lines) <= size.height
        return lines[: size.height], n_whole
    results = [event for event in shown if event.predicted or event.effect]
    column = _change_column(results, size.width, look)
    header = [_header(column)] if results else []
    shown = shown[: size.height - len(header)]
    return [*header, *(_row(event, size.width, column, look) for event in shown)], len(shown)


def _hidden(newer: int, older: int) -> str:
    """How many events are out of sight."""
    if older:
        return (f"{units.count(newer)} newer, " if newer else "") + units.counted(older, "older event")
    return units.counted(newer, "newer event") if newer else ""


def _change_room(room: int) -> int:
    return min(room - _TIME - _PREDICTED - _MEASURED - _COMPARED, _MOST_CHANGE)


def _change_column(results: Sequence[Event], room: int, look: Look) -> int:
    """Cells of the column of changes: what the longest of them leaves over is for why they have no number.

    A number that was measured is shown whole, whatever is cut of the change; for the other words, only what a rebuild
    took is cut.
    """
    if not results:
        return 0
    most = min(max(width(_what(event, look)) for event in results) + GAP, _change_room(room))
    others = room - _TIME - _PREDICTED
    for_numbers = others - max(_needed(event, is_whole=_has_number(event)) for event in results)
    for_words = others - max(_needed(event, is_whole=True) for event in results)
    bare = max(width(_what(event, look)[:1]) for event in results) + 1
    most = min(most, for_numbers)
    return max(_LEAST_CHANGE, min(most, max(bare, for_words)))


def _needed(event: Event, *, is_whole: bool) -> int:
    """Cells that its result takes in its column; 0 where it may be cut."""
    if not is_whole:
        return 0
    spared = _PREDICTED if event.predicted is None and event.unpredicted is None else 0
    return width(_wordings(event, is_column=True)[0]) - spared


def _has_number(event: Event) -> bool:
    return event.effect is not None and event.effect.tokens is not None


def _header(column: int) -> Line:
    text = f"{'':{_TIME}}{'changed':<{column}}{'predicted':<{_PREDICTED}}measured"
    return (Span(text, "label"),)


def _row(event: Event, room: int, column: int, look: Look) -> Line:
    """An event with its prediction and its measurement in columns."""
    head = (_time(event), *_what(event, look))
    left = _TIME + column
    if event.effect is None and event.predicted is None and event.unpredicted is None:
        return shortened(head, room, look.ellipsis)
    changed = fitted(shortened(head, left - 1, look.ellipsis), left)
    result = _wordings(event, is_column=True)[0]
    if event.predicted is None and width(result) > room - left - _PREDICTED:
        return (*changed, *_result(event, room - left, look, is_column=True))
    predicted = () if event.predicted is None else _change(event.predicted)
    if event.predicted is not None and width(predicted) >= _PREDICTED:
        predicted = quantity(units.change(event.predicted.value - 1))  # The interval is on the Explain screen.
    elif event.unpredicted is not None:
        predicted = said("not predicted")
    line = (*changed, *fitted(predicted, _PREDICTED), *_result(event, room - left - _PREDICTED, look, is_column=True))
    if event.unpredicted is None:
        return line
    why = f"  {printable(event.unpredicted)}"
    return line if room - width(line) < _LEAST_WHY else shortened((*line, Span(why, "label")), room, look.ellipsis)


def latest(snapshot: Snapshot, room: int, look: Look) -> Line:
    """The newest event on a line of exactly `room` cells; blank where there was none.

    What came of it is shown as far as there is room, and the number that was measured even where the change is cut.
    """
    if not snapshot.events:
        return (Span(" " * room),)
    # The verdict has a pane of its own.
    event = next((one for one in snapshot.events if one.kind != "verdict"), snapshot.events[0])
    head = (_time(event), *_what(event, look))
    tail: Line = ()
    for least in (width(head), min(width(head), _LEAST_HEAD)):
        left = room - least - GAP - 1
        tail = tail or next((one for one in _tails(event) if 0 < width(one) <= left), ())
    if not tail:
        return spelled(fitted(shortened(head, room, look.ellipsis), room, look.ellipsis), look)
    head = shortened(head, room - width(tail) - GAP - 1, look.ellipsis)
    return spelled(fitted(apart(head, (*tail, Span(" ")), room), room, look.ellipsis), look)


def _tails(event: Event) -> Iterator[Line]:
    """What came of an event on a line of its own, from the fullest wording to the shortest."""
    predicted, tokens = _predicted(event), None if event.effect is None else event.effect.tokens
    wordings = _wordings(event, is_column=False)
    if predicted:
        yield from ((*wording, Span(" " * GAP), *predicted) if wording else predicted for wording in wordings)
    yield from wordings
    if event.effect is None:
        return
    if tokens is not None and event.effect.state == "measured":
        yield (Span("measured ", "label"), *quantity(units.change(tokens.value - 1), _praise(tokens)))
    elif event.effect.state != "measured":
        yield said(event.effect.state)


def told(event: Event, room: int, look: Look) -> tuple[Line, ...]:
    """An event on one line, or where that is too narrow on two."""
    head = (_time(event), *_what(event, look))
    left, predicted = room - _INDENT, _predicted(event)
    used = width(predicted) + 2 if predicted else 0
    beside = (result for result in _wordings(event, is_column=False) if used + width(result) <= left)
    result = next(beside, None)
    tail = _result(event, left, look) if result is None else flow((predicted, result), left, 2)
    if not tail and event.kind == "refused" and width(head) > room:
        what, (why,) = head[:-1], head[-1:]  # The reason is what one can act on.
        return (
            shortened(what, room, look.ellipsis),
            (Span(" " * _INDENT), *shortened((why,), room - _INDENT, look.ellipsis)),
        )
    if not tail:
        return (shortened(head, room, look.ellipsis),)
    if width(head) + GAP + width(tail) <= room:
        return (apart(head, tail, room),)
    return (shortened(head, room, look.ellipsis), (Span(" " * _INDENT), *tail))


def _time(event: Event) -> Span:
    return Span(f"{units.clock(event.at_ns):>{_TIME - 2}}  ", "label")


def _what(event: Event, look: Look) -> Line:
    """What happened, in words."""
    match event.kind:
        case "mark":
            return (Span("mark ", "label"), Span(printable(event.label), "accent"))
        case "verdict":
            return (Span("limits now: ", "label"), Span(printable(event.label), "accent"))
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
    again = f", {units.count(event.requeued)} requeued" if event.requeued else ""
    return said(f"  rebuilt{took}{again}")


def _by(event: Event) -> Line:
    return () if event.by == "user" else said(f" by {event.by}")


def _change(ratio: Ratio, style: str = "value") -> Line:
    return quantity(units.change(ratio.value - 1, ratio.low - 1, ratio.high - 1), style)


def _predicted(event: Event) -> Line:
    if event.unpredicted is not None:
        return said("not predicted")
    return () if event.predicted is None else (Span("predicted ", "label"), *_change(event.predicted))


def _result(event: Event, room: int, look: Look, *, is_column: bool = False) -> Line:
    """What came of it, in words that fit; `is_column` where a column says that it was measured."""
    wordings = _wordings(event, is_column=is_column)
    return next((line for line in wordings if width(line) <= room), shortened(wordings[-1], room, look.ellipsis))


def _wordings(event: Event, *, is_column: bool) -> tuple[Line, ...]:
    """What came of it, from the fullest wording to the shortest."""
    effect = event.effect
    if effect is None:
        return ((),)
    why = f": {printable(effect.why)}" if effect.why else ""
    if effect.state in ("settling", "measuring"):
        return ((Span(effect.state, "warning"), Span(why, "label")),)
    if effect.state == "not comparable":
        return (said(f"not comparable{why}"),)
    if effect.state == "not distinguishable":
        words = Span(f"not distinguishable{f' {printable(effect.why)}' if effect.why else ''}")
        return ((words,),) if effect.tokens is None else ((words, Span(" "), *_change(effect.tokens, "")), (words,))
    if effect.tokens is None:
        return (said("measured, not known", "unknown"),)
    measured, compared = _change(effect.tokens, _praise(effect.tokens)), _compared(event, effect.tokens)
    if effect.why is not None:  # It is not of this change alone: the number is not shown without that.
        measured = (*measured, Span(f" {printable(effect.why)}", "warning"))
    if not is_column:
        return tuple((Span("measured ", "label"), *line) for line in ((*measured, *compared), measured))
    return ((*fitted(measured, max(_MEASURED - 2, width(measured))), *compared), measured)


def _praise(ratio: Ratio) -> str:
    return "good" if ratio.value >= 1 else "bad"


def _compared(event: Event, measured: Ratio) -> Line:
    """How the measurement stands to the prediction."""
    if event.predicted is None:
        return ()
    match _agreement(event.predicted, measured):
        case "agrees":
            return said("  as predicted")
        case "vague":
            return said("  within both intervals")
    return said("  above" if measured.value > event.predicted.value else "  below")


@lru_cache(maxsize=64)
def _agreement(predicted: Ratio, measured: Ratio) -> str | None:
    """How the score counts the prediction: the measurement is not the truth either."""
    # Imported late: it is needed once something was changed.
    from stackscope.analysis.scorecard import Outcome, at_ninety
    from stackscope.records import Estimate

    expected = Estimate(predicted.value, predicted.low, predicted.high)
    return Outcome(at_ns=0, changes={}, predicted=expected, measured=at_ninety(measured)).agreement


def _notes(snapshot: Snapshot, hidden: str) -> tuple[Line, ...]:
    """The score of the predictions so far, and what is out of sight."""
    score = snapshot.score
    parts: list[str] = []
    if score is not None and score.n > 0:
        signs = f"{units.count(score.signs_right)} of {units.count(score.n_signs)} signs right"
        error = f"median error {units.percent(score.median_error)}"
        held = f"{units.count(score.covered)} of {units.count(score.n)} intervals held"
        parts = [signs, error, held] if score.n_signs else [error, held]
    end = [hidden] if hidden else []
    return tuple([said(", ".join([*parts[:n], *end])) for n in range(len(parts), -1, -1) if n or end])
