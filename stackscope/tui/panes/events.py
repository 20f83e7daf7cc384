"""What was changed, newest first: what was predicted of it, and what came."""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar, Final

from stackscope import units
from stackscope.tui.compose import GAP, apart, folded, quantity, said, shortened, wrapped
from stackscope.tui.lines import Line, Span, fitted, printable, spelled, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp, Size
from stackscope.tui.wording import awaited, changed, has_begun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stackscope.analysis.live.snapshot import Event, Ratio, Snapshot
    from stackscope.tui.look import Look

_TIME: Final = 7
_INDENT: Final = 4
_PREDICTED: Final = 19
_NOTHING: Final = 5e-4
"""A change that is predicted to be smaller is told as none where there is no room for its interval."""
_MEASURED: Final = 21
_COMPARED: Final = 12
_LEAST_CHANGE: Final = 36
"""Cells for what was changed, below which the rest has no columns."""
_LEAST_RESULT: Final = 40
"""Cells for what came of it where that is words: of a reason, its beginning."""
_LEAST_WHY: Final = 24
"""Cells, of which fewer are too few for the beginning of a reason."""
_LEAST_HEAD: Final = 40
"""Cells for a change on a single line, which a result may take from it beyond."""
_ROOMY: Final = 8
"""Rows from which on changes of the verdict stand among the events."""


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
    events = _by_time(snapshot)
    if size.height >= _ROOMY:
        return events
    # The verdict has a pane of its own: where little has room, changes and what they did come first.
    return tuple([event for event in events if event.kind != "verdict"]) or events


def _by_time(snapshot: Snapshot) -> tuple[Event, ...]:
    """Newest first. They are recorded in another order: a change when it is done, with the time at which it was."""
    return tuple(sorted(snapshot.events, key=lambda event: -event.at_ns))


def _laid_out(events: Sequence[Event], size: Size, look: Look) -> tuple[list[Line], int]:
    """As many of them as there is room for, and how many those are."""
    shown = events[: size.height]
    if size.width - _TIME - _PREDICTED - _MEASURED - _COMPARED < _LEAST_CHANGE or size.height < 2:
        return _filled(shown, size.height, lambda event, more: told(event, size.width, look, more))
    results = [event for event in shown if event.predicted or event.effect]
    column = _change_column(results, size.width, look)
    header = [_header(column)] if results else []
    shown = shown[: size.height - len(header)]
    rows, n_whole = _filled(
        shown, size.height - len(header), lambda event, more: _row(event, size.width, column, look, more)
    )
    return [*header, *rows], n_whole


def _filled(
    events: Sequence[Event], height: int, made: Callable[[Event, int], tuple[Line, ...]]
) -> tuple[list[Line], int]:
    """The events in so many lines, and how many are whole. `made` is told how many lines an event may take beyond.

    Only lines that no event needs are spent on what would be cut of another, the newest first.
    """
    least = [made(event, 0) for event in events]
    free = height - sum(map(len, least))
    lines: list[Line] = []
    n_whole = 0
    for event, short in zip(events, least, strict=True):
        whole = made(event, free) if free > 0 else short
        free -= len(whole) - len(short)
        lines += whole
        n_whole += len(lines) <= height
    return lines[:height], n_whole


def _hidden(newer: int, older: int) -> str:
    """How many events are out of sight."""
    if older:
        return (f"{units.count(newer)} newer, " if newer else "") + units.counted(older, "older event")
    return units.counted(newer, "newer event") if newer else ""


def _change_column(results: Sequence[Event], room: int, look: Look) -> int:
    """Cells of the column of changes: what predictions, measured numbers and the beginnings of reasons leave."""
    if not results:
        return 0
    longest = max(width(_whats(event, look)[0]) for event in results) + GAP
    left = room - _TIME - _PREDICTED - max(map(_needed, results))
    return max(min(longest, left), min(longest, _LEAST_CHANGE))


def _needed(event: Event) -> int:
    """Cells that its result takes in its column: a number whole, a reason only its beginning."""
    spared = _PREDICTED if event.predicted is None and event.unpredicted is None else 0
    needed = width(_whole(event)) - spared
    return needed if _has_number(event) else min(needed, _LEAST_RESULT)


def _has_number(event: Event) -> bool:
    return event.effect is not None and event.effect.tokens is not None


def _header(column: int) -> Line:
    text = f"{'':{_TIME}}{'changed':<{column}}{'predicted':<{_PREDICTED}}measured"
    return (Span(text, "label"),)


def _row(event: Event, room: int, column: int, look: Look, more: int) -> tuple[Line, ...]:
    """An event with its prediction and its measurement in columns, on at most `more` lines beyond the first."""
    left = _TIME + column
    if event.effect is None and event.predicted is None and event.unpredicted is None:
        rows = folded(_what(event, look), room - _TIME, 1 + more, look.ellipsis)
        return _beside((_time(event),), _TIME, rows)
    whole = _whole(event)
    is_alone = event.predicted is None and event.unpredicted is None and width(whole) > room - left - _PREDICTED
    predicted = said(units.UNKNOWN, "unknown") if event.predicted is None else _change(event.predicted)
    if event.predicted is not None and width(predicted) >= _PREDICTED:
        change = event.predicted.value - 1  # The interval is on the Explain screen.
        predicted = quantity(units.change(change) if abs(change) >= _NOTHING else "0 %")
    elif event.unpredicted is not None:
        predicted = said("not predicted")
    left_over = room - left - (0 if is_alone else _PREDICTED)
    if more:
        results = folded(whole, left_over, 1 + more, look.ellipsis)
    else:
        result = _result(event, left_over, look, is_column=True)
        is_told = width(whole) > width(result) and left_over - width(result) >= _LEAST_WHY
        results = (shortened(whole, left_over, look.ellipsis) if is_told and event.unpredicted is not None else result,)
    first: Line = () if is_alone else fitted(predicted, _PREDICTED)
    results = _beside(first, width(first), results)
    names = _beside((_time(event),), _TIME, _named(event, column - 1, look, more))
    return tuple([(*fitted(name, left), *result) for name, result in zip_longest(names, results, fillvalue=())])


def _beside(head: Line, room: int, lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with a head of so many cells before the first."""
    first, *rest = lines or ((),)
    return ((*head, *first), *((Span(" " * room), *line) for line in rest))


def _whole(event: Event) -> Line:
    """All that there is to say of what came, and of why nothing was predicted."""
    why = () if event.unpredicted is None else said(f"  {printable(event.unpredicted)}")
    return (*_wordings(event, is_column=True)[0], *why)


def latest(snapshot: Snapshot, room: int, look: Look) -> Line:
    """The newest event on a line of exactly `room` cells; blank where there was none.

    What came of it is shown as far as there is room, and the number that was measured even where the change is cut.
    """
    if not snapshot.events:
        return (Span(" " * room),)
    # The verdict has a pane of its own.
    events = _by_time(snapshot)
    event = next((one for one in events if one.kind != "verdict"), events[0])
    head = (_time(event), *_what(event, look))
    tail: Line = ()
    for least in (width(head), min(width(head), _LEAST_HEAD)):
        left = room - least - GAP - 1
        tail = tail or next((one for one in _tails(event) if 0 < width(one) <= left), ())
    if not tail:
        return spelled(fitted(shortened(head, room, look.ellipsis), room, look.ellipsis), look)
    (name,) = _named(event, room - _TIME - width(tail) - GAP - 1, look)
    head = (_time(event), *name)
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


def told(event: Event, room: int, look: Look, more: int = 0) -> tuple[Line, ...]:
    """An event on one line, or where that is too narrow on two, and on at most `more` beyond."""
    head = (_time(event), *_what(event, look))
    left, predicted = room - _INDENT, _predicted(event)
    used = width(predicted) + 2 if predicted else 0
    wordings = _wordings(event, is_column=False)
    result = next((line for line in wordings if used + width(line) <= left), wordings[-1])
    tail: Line = (*predicted, Span("  "), *result) if predicted and result else (*predicted, *result)
    if not tail and event.kind == "refused" and width(head) > room:
        what, tail = head[:-1], head[-1:]  # The reason is what one can act on.
        heads: tuple[Line, ...] = (shortened(what, room, look.ellipsis),)
    elif not tail:
        return _beside((_time(event),), _TIME, _named(event, room - _TIME, look, more))
    elif width(head) + GAP + width(tail) <= room:
        return (apart(head, tail, room),)
    else:
        heads = _beside((_time(event),), _TIME, _named(event, room - _TIME, look, more))
    tails = folded(tail, left, 1 + max(more - len(heads) + 1, 0), look.ellipsis)
    return (*heads, *((Span(" " * _INDENT), *line) for line in tails))


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


def _whats(event: Event, look: Look) -> tuple[Line, ...]:
    """What happened, from the fullest wording to one that tells no more than what is in force since."""
    whole = _what(event, look)
    if event.kind not in ("live", "rebuild", "traffic"):
        return (whole,)
    by = _by(event)
    shorter = [(*whole[:1], *_rebuilt(event, has_requeued=False), *by), (*whole[:1], *by)]
    brief = (Span(changed(event.changes, look, is_short=True), "value"),)
    return (whole, *(line for line in shorter if width(line) < width(whole)), brief)


def _named(event: Event, room: int, look: Look, more: int = 0) -> tuple[Line, ...]:
    """What happened, in the fullest words that fit; on further lines what would be cut of the change itself."""
    wordings = _whats(event, look)
    *fuller, brief = wordings
    fitting = next((line for line in fuller if width(line) <= room), None)
    if fitting is not None:
        return (fitting,)
    if more and fuller:
        return folded(fuller[-1], room, 1 + more, look.ellipsis)
    return folded(brief, room, 1 + more, look.ellipsis)


def _rebuilt(event: Event, *, has_requeued: bool = True) -> Line:
    if event.kind != "rebuild":
        return ()
    took = f" in {units.duration(event.duration_ns)}" if event.duration_ns is not None else ""
    again = f", {units.count(event.requeued)} requeued" if event.requeued and has_requeued else ""
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
        signs = f"{units.count(score.signs_right)} of {units.counted(score.n_signs, 'sign')} right"
        error = f"median error {units.percent(score.median_error)}"
        held = f"{units.count(score.covered)} of {units.counted(score.n, 'interval')} held"
        parts = [signs, error, held] if score.n_signs else [error, held]
    end = [hidden] if hidden else []
    return tuple([said(", ".join([*parts[:n], *end])) for n in range(len(parts), -1, -1) if n or end])
