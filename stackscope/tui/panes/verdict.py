"""What dominates, in one line; what it is not; and what would help most."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope import units
from stackscope.analysis.live.verdict import BASIS
from stackscope.tui.compose import GAP, Rows, flow, flowed, quantity, said, shortened, wrapped
from stackscope.tui.lines import Line, Span, plain, printable, width
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.wording import wanted

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Ratio, Suggestion, Verdict


_TELLING = 30
"""Cells of a long sentence that say something by themselves."""


class VerdictPane(Pane):
    """The dominating bottleneck."""

    id: ClassVar = "verdict"
    title: ClassVar = "Verdict"
    help: ClassVar = PaneHelp(
        meaning="What takes most of the time now, with its share and one number behind it, and what it is not. A name "
        "stays until another leads clearly, so that it does not flicker. What is lost is named before what the work "
        "needs, even where a need takes more: that then stands beside it. Where the name comes from the measured phase "
        "shares alone, the border says so: they tell which part of a step is long, not yet why.",
        formula="share = time of the part ÷ wall time, over the last seconds. Predictions are a ratio of tokens per "
        "second, after ÷ before, with the interval in which it is expected in 90 of 100 cases; where arrivals decide "
        "those, the gap between steps is told instead, and called so; where the first token "
        "would surely come more than a tenth later, that stands beside it.",
        moves="The next best change is in the last line. Once it is made, the name above should change: relieving one "
        "bottleneck promotes the next.",
    )

    def drawn(self, context: Context) -> Drawn:
        verdict, room = context.snapshot.verdict, context.size.width
        rows = Rows()
        if verdict.name is None or context.snapshot.state == "dead":
            rows.add(0, *_cut(wrapped(_nothing(context), room, ""), context))
            return Drawn(rows.laid_out(context.size.height), _state(context))
        # Where the sentence takes a second line, that comes after what to do and before what was rejected.
        n_lines = 1 if context.size.height < 3 else 2
        first, *more = _named(verdict, room, n_lines, context.look.ellipsis)
        rows.add(0, first)
        rows.add(2, *more)
        others = _others(verdict, Span(f" {context.look.dot} ", "unit"), room)
        if others:
            rows.add(4, others)
        if verdict.next:
            rows.add(1, *_next(verdict, room, context.look.ellipsis))
        else:
            # That phase shares predict nothing says less than what was rejected.
            rows.add(3 if verdict.basis == "explainer" else 5, _next_unknown(context, room))
        return Drawn(rows.laid_out(context.size.height), _notes(context))


def _cut(lines: tuple[Line, ...], context: Context) -> tuple[Line, ...]:
    """As many lines of a text as there is room for, the last of them with an ellipsis where more would follow."""
    size = context.size
    if len(lines) <= size.height or size.height < 1:
        return lines[: size.height]
    rest = " ".join(plain(line) for line in lines[size.height - 1 :])
    return *lines[: size.height - 1], shortened(said(rest, ""), size.width, context.look.ellipsis)


def _nothing(context: Context) -> str:
    """Why nothing is named."""
    snapshot = context.snapshot
    if snapshot.state == "dead":
        last = f" Its log ends with: {snapshot.log[-1]}" if snapshot.log else ""
        return f"{context.end or 'The engine died.'}{last}"
    if snapshot.verdict.sentence:
        return snapshot.verdict.sentence[:1].upper() + snapshot.verdict.sentence[1:] + "."
    match snapshot.state:
        case "starting" if snapshot.header is not None:
            return "No step has run yet. What limits is named once there are some."
        case "starting":
            return "The model loads. What limits it is named once there are steps."
        case "finished":
            return "This session has no steps: there is nothing to explain."
    return "Nothing can be named yet."


def _named(verdict: Verdict, room: int, n_lines: int, ellipsis: str) -> tuple[Line, ...]:
    """The name, its share and the sentence as far as there is room: beside them, and on a second line of two."""
    name = (Span(printable(verdict.name or "").upper(), "headline"),)
    share = quantity(units.percent(verdict.share)) if verdict.share is not None else ()
    head = flow((name, share), room)
    # The border says on what grounds.
    text = verdict.sentence.removesuffix(f"; {BASIS}")
    if verdict.share is not None:
        # It stands beside the name already, and what follows it is worth the room.
        text = text.removesuffix(f", {units.percent(verdict.share)} of the time")
    sentence = said(printable(text), "")
    told = shortened(sentence, room - width(head) - GAP, ellipsis)
    if n_lines > 1 and told != sentence:
        return _on_two_lines(head, printable(text), room, ellipsis)
    is_telling = width(told) * 2 > width(sentence) or width(told) >= _TELLING
    return ((*head, Span(" " * GAP), *told) if is_telling else head,)


def _on_two_lines(head: Line, text: str, room: int, ellipsis: str) -> tuple[Line, ...]:
    """A head with the beginning of a sentence beside it, and the rest of that below."""
    beside = room - width(head) - GAP
    if beside < _TELLING:
        return head, shortened(said(text, ""), room, ellipsis)
    first = wrapped(text, beside, "")[0]
    rest = text[len(plain(first)) :].strip()
    return (*head, Span(" " * GAP), *first), shortened(said(rest, ""), room, ellipsis)


def _others(verdict: Verdict, dot: Span, room: int) -> Line:
    """What leads by now, if that is not what is named yet, what takes more and goes behind it, and what it is not."""
    line: Line = ()
    for label, items in (
        ("now ahead ", verdict.ahead),
        ("beside it " if verdict.name == "queueing" else "needs beside it ", verdict.beside),
        ("not confirmed ", verdict.unconfirmed),
        ("not  ", verdict.rejected),
    ):
        told = tuple(said(printable(item)) for item in items)
        head = (Span(" " * GAP if line else ""), Span(label, "label"))
        line = (*line, *_joined(head, told, dot, room - width(line)))
    return line


def _joined(head: Line, items: tuple[Line, ...], dot: Span, room: int) -> Line:
    """Items with dots between them, as many as fit."""
    line, left = list(head), room - width(head)
    for index, item in enumerate(items):
        size = width(item) + (width((dot,)) if index else 0)
        if size > left:
            break
        line += ((dot,) if index else ()) + item
        left -= size
    return tuple(line) if len(line) > len(head) else ()


def _next(verdict: Verdict, room: int, ellipsis: str) -> tuple[Line, ...]:
    """The changes that are predicted to help most; of the first as much as there is room for."""
    first, *others = [_suggestion(suggestion) for suggestion in verdict.next]
    lines = flowed([shortened(first, room - 5, ellipsis), *others], room - 5)
    return ((Span("next ", "label"), *lines[0]),) if lines else ()


def _suggestion(suggestion: Suggestion) -> Line:
    return (
        Span(printable(suggestion.label) or wanted(suggestion.changes), "accent"),
        Span(" step gap " if suggestion.figure == "step_gap" else " ", "label"),
        *predicted(suggestion.predicted),
        *_price(suggestion),
    )


def _price(suggestion: Suggestion) -> Line:
    """What is paid for the tokens with a later first one."""
    if suggestion.price is None:
        return ()
    return (Span(" but TTFT ", "label"), *quantity(units.change(suggestion.price.value - 1), "warning"))


def predicted(ratio: Ratio) -> Line:
    """A change with its interval."""
    return quantity(units.change(ratio.value - 1, ratio.low - 1, ratio.high - 1))


def _next_unknown(context: Context, room: int) -> Line:
    """Why no change is put forward."""
    snapshot = context.snapshot
    if snapshot.verdict.basis != "explainer" or snapshot.explanation is None:
        text = "- what a change would buy is not predicted from phase shares"
        return (Span("next ", "label"), Span(text, "unknown")) if room >= len(text) + 5 else ()
    if snapshot.explanation.ranking is None:
        why = snapshot.explanation.why_no_ranking
        text = f"- {why[:1].lower()}{why[1:]}"
    elif (doubt := snapshot.explanation.ranking.doubt) is not None:
        # As Explain says it, or shorter where that is how it fits.
        text = f"nothing is recommended, for {doubt}"
        if width(said(text)) > room - 5 >= width(said(brief := f"nothing, for {doubt}")):
            text = brief
    else:
        text = "nothing is predicted to gain beyond doubt"
    told = shortened(said(printable(text)), room - 5, context.look.ellipsis)
    return (Span("next ", "label"), *told)


def _notes(context: Context) -> tuple[Line, ...]:
    """Since when, what before, and on what grounds."""
    verdict, snapshot, dot = context.snapshot.verdict, context.snapshot, f" {context.look.dot} "
    parts = []
    if verdict.since_ns is not None:
        seconds = max(snapshot.at_ns - verdict.since_ns, 0) // 10**9
        parts.append(f"for {units.duration(seconds * 10**9)}" if seconds else "just named")
    if verdict.previous:
        parts.append(f"before: {printable(verdict.previous).lower()}")
    grounds = "from phase shares alone" if verdict.basis == "phases" else ""
    variants = [[grounds, *parts], [grounds, *parts[:1]], [grounds]] if grounds else [parts, parts[:1]]
    return (*(said(dot.join(variant)) for variant in variants), said("phases only" if grounds else ""))


def _state(context: Context) -> tuple[Line, ...]:
    return (said(context.snapshot.state),) if context.snapshot.state in ("starting", "waiting") else ()
