"""Lines of styled text as plain values: what panes are made of before a theme gives them colours.

Styles are names of meanings. A theme turns them into colours, or on a terminal without colours into bold, dim or
nothing: so no meaning is carried by the style alone.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size


class Span(NamedTuple):
    """Text of one style."""

    text: str
    style: str = ""
    """One of `theme.STYLES`; empty is plain."""


Line: TypeAlias = tuple[Span, ...]


def width(line: Line) -> int:
    """Cells that a line takes."""
    return sum(cell_len(span.text) for span in line)


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)


def fitted(line: Line, cells: int, ellipsis: str = "…") -> Line:
    """The line cut to `cells` cells, the cut shown by the ellipsis, or filled up with spaces."""
    total = width(line)
    if total <= cells:
        return line if total == cells else (*line, Span(" " * (cells - total)))
    room = max(cells - cell_len(ellipsis), 0)
    kept: list[Span] = []
    for span in line:
        size = cell_len(span.text)
        if size > room:
            kept.append(Span(set_cell_size(span.text, room), span.style))
            room = 0
            break
        kept.append(span)
        room -= size
    last = kept[-1].style if kept else ""
    return (*kept, Span(set_cell_size(ellipsis, min(cell_len(ellipsis), cells)), last))


def spread(left: Line, right: Line, cells: int, ellipsis: str = "…") -> Line:
    """`left` at the left edge and `right` at the right one. What does not fit is cut from the left part."""
    room = cells - width(right)
    if room < 1:
        return fitted(right, cells, ellipsis)
    return (*fitted(left, room, ellipsis), *right)
