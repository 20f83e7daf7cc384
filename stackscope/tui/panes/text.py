"""The text of the selected request as it grows."""

from __future__ import annotations

from typing import ClassVar

from stackscope import units
from stackscope.tui.compose import said, wrapped
from stackscope.tui.lines import Line, Span, cells, printable
from stackscope.tui.pane import Context, Drawn, Pane, PaneHelp
from stackscope.tui.wording import awaited, has_begun


class TextPane(Pane):
    """The text of a request."""

    id: ClassVar = "text"
    title: ClassVar = "Text"
    help: ClassVar = PaneHelp(
        meaning="What the selected request has generated so far, or its end. Several tokens that come at once were "
        "drafted and accepted together. Text is shown, never recorded, unless the session was asked to record it.",
        formula="Tokens as text, in the order in which they were committed; control characters are left out.",
        moves="Select another request in the table beside it. With synthetic acceptance the text is invalid: it is "
        "what the drafts said, not the target.",
    )

    def drawn(self, context: Context) -> Drawn:
        snapshot, size = context.snapshot, context.size
        request = next((view for view in snapshot.requests if view.id == context.selected), None)
        if context.text is None:
            n = None if request is None or not request.output_tokens else request.output_tokens
            return Drawn(wrapped(_missing(context, n), size.width), _notes(context, n))
        lines = _tail(context.text, size.width, size.height)
        is_growing = request is not None and request.finished is None and snapshot.state in ("running", "settling")
        if lines and is_growing and cells(lines[-1][0].text) < size.width:
            lines = [*lines[:-1], (*lines[-1], Span(context.look.cursor, "accent"))]
        n = None if request is None else request.output_tokens
        return Drawn(tuple(lines), _notes(context, n))


def _missing(context: Context, n_tokens: int | None) -> str:
    if not has_begun(context.snapshot):
        return awaited(context.snapshot, "text shows here")
    if context.selected is None:
        return "No request is selected."
    if n_tokens is not None:
        return "Its text is not known: it is told only while this pane is on the screen."
    return "It has no text yet." if context.snapshot.state not in ("dead", "finished") else "It has no text."


def _notes(context: Context, n_tokens: int | None) -> tuple[Line, ...]:
    if context.selected is None:
        return ()
    name = f"request {units.count(context.selected)}"
    return (said(f"{name}, {units.count(n_tokens)} tok" if n_tokens is not None else name), said(name))


def _tail(text: str, room: int, height: int) -> list[Line]:
    """The last lines of a text, broken to the width; its own line breaks stay."""
    found: list[str] = []
    # No more than this many characters can be on the screen, whatever their width; lines may be empty, too.
    for paragraph in reversed(text[-room * height * 2 :].expandtabs(4).splitlines() or [""]):
        found = _broken(printable(paragraph), room) + found
        if len(found) >= height:
            break
    return [(Span(line),) for line in found[-height:]]


def _broken(paragraph: str, room: int) -> list[str]:
    """A paragraph in lines that fit, broken at spaces where there are any."""
    lines = []
    rest = paragraph
    while cells(rest) > room:
        n = room
        while n > 1 and cells(rest[:n]) > room:
            n -= 1
        space = rest.rfind(" ", 1, n + 1)
        end = space if space > room // 3 else n
        lines.append(rest[:end])
        rest = rest[end:].removeprefix(" ")
    return [*lines, rest]
