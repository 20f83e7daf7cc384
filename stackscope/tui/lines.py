"""Lines of styled text as plain values: what panes are made of before a theme gives them colours.

Styles are names of meanings. A theme turns them into colours, or on a terminal without colours into bold, dim or
nothing: so no meaning is carried by the style alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from stackscope.tui.look import Look


class Span(NamedTuple):
    """Text of one style."""

    text: str
    style: str = ""
    """One of `theme.STYLES`, or two of them as `this on that`; empty is plain."""


Line: TypeAlias = tuple[Span, ...]


def cells(text: str) -> int:
    """Cells that printable text takes."""
    return len(text) if text.isascii() else cell_len(text)


def width(line: Line) -> int:
    """Cells that a line takes."""
    return sum([len(span[0]) if span[0].isascii() else cell_len(span[0]) for span in line])


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)


def printable(text: str) -> str:
    """The text without what would move the cursor, change colours or hide: control and format characters."""
    if text.isprintable():
        return text.replace("\ufe0f", "")
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character.isprintable() and character != "\ufe0f":
        return character
    return " " if character.isspace() else ""


def fitted(line: Line, room: int, ellipsis: str = "…") -> Line:
    """The line cut to `room` cells, the cut shown by the ellipsis, or filled up with spaces."""
    total = width(line)
    if total <= room:
        return line if total == room else (*line, Span(" " * (room - total)))
    left = max(room - cells(ellipsis), 0)
    kept: list[Span] = []
    for span in line:
        size = cells(span.text)
        if size > left:
            kept.append(Span(set_cell_size(span.text, left), span.style))
            break
        kept.append(span)
        left -= size
    last = kept[-1].style if kept else ""
    return (*kept, Span(set_cell_size(ellipsis, min(cells(ellipsis), room)), last))


def spread(left: Line, right: Line, room: int, ellipsis: str = "…") -> Line:
    """`left` at the left edge and `right` at the right one. What does not fit is cut from the left part."""
    rest = room - width(right)
    if rest < 1:
        return fitted(right, room, ellipsis)
    return (*fitted(left, rest, ellipsis), *right)


def spelled(line: Line, look: Look) -> Line:
    """The line in characters that the terminal has."""
    if not look.is_ascii:
        return line
    return tuple([Span(look.spelled(span.text), span.style) for span in line])
