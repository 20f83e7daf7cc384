"""How panes are put together: figures with labels, lines that drop what does not fit, rows that share a height."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.tui.lines import Line, Span, cells, printable, width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

GAP: Final = 3
"""Cells between figures on a line."""


_WORDS: Final = re.compile(r"\S+\s*|\s+")
_BARE_NUMBER: Final = re.compile(r"[(\[]?[+−<>-]*\d[\d,.]*(?<![,.])")
_UNFINISHED: Final = frozenset("0123456789→>:,[(")
"""Ends of words that what follows belongs to."""


def quantity(text: str, style: str = "value") -> Line:
    """A number as `units` writes it: the number bright, its unit and interval dim. Unknown is dim all through."""
    if text == units.UNKNOWN:
        return (Span(text, "unknown"),)
    number, space, rest = text.partition(" ")
    if not space:
        return (Span(number, style),)
    if rest[:1].isalpha() and any(map(str.isdigit, rest)):  # `2 min 05 s` is one figure
        return (Span(text, style),)
    return (Span(number, style), Span(f" {rest}", "unit"))


def figure(label: str, text: str, *, room: int = 0, style: str = "value") -> Line:
    """A label and its number. The number is set flush right in `room` cells, so that what follows stands still."""
    shown = quantity(text, style)
    pad = room - cells(text)
    return (Span(f"{label} " + " " * pad if pad > 0 else f"{label} ", "label"), *shown)


def said(text: str, style: str = "label") -> Line:
    """Words."""
    return (Span(text, style),) if text else ()


def flow(items: Iterable[Line], room: int, gap: int = GAP) -> Line:
    """The items on one line, most important first; one that does not fit is left out whole."""
    spans: list[Span] = []
    left = room
    blank = Span(" " * gap)
    for item in items:
        if not item:
            continue
        size = width(item) + (gap if spans else 0)
        if size > left:
            continue
        if spans:
            spans.append(blank)
        spans += item
        left -= size
    return tuple(spans)


def flowed(items: Sequence[Line], room: int, gap: int = GAP) -> tuple[Line, ...]:
    """The items on as many lines as they take, none of them broken. One that is wider than a line is left out."""
    lines: list[Line] = []
    current: list[Line] = []
    used = 0
    for item in items:
        size = width(item)
        if not item or size > room:
            continue
        if current and used + gap + size > room:
            lines.append(flow(current, room, gap))
            current, used = [], 0
        used += size + (gap if current else 0)
        current.append(item)
    return (*lines, flow(current, room, gap)) if current else tuple(lines)


def apart(left: Line, right: Line, room: int) -> Line:
    """`left` at the left edge, `right` at the right one; `right` is left out where there is no room for both."""
    rest = room - width(left) - width(right)
    if rest < 1:
        return left
    return (*left, Span(" " * rest), *right)


def beside(left: Line, right: Line, room: int, gap: int = GAP) -> Line:
    """Two columns, the right one starting after `room` cells and a gap."""
    return (*left, Span(" " * (room - width(left) + gap)), *right)


def wrapped(text: str, room: int, style: str = "label") -> tuple[Line, ...]:
    """Words on as many lines as they take; a number stays with its unit. A word longer than a line is broken."""
    lines: list[Line] = []
    line = ""
    for word in _unbroken(printable(text).split(), room):
        rest = word
        while rest:
            joined = f"{line} {rest}" if line else rest
            if cells(joined) <= room:
                line, rest = joined, ""
            elif line:
                lines.append((Span(line, style),))
                line = ""
            else:
                head = _head(rest, room)
                lines.append((Span(head, style),))
                rest = rest[len(head) :]
    return (*lines, (Span(line, style),)) if line else tuple(lines)


def _unbroken(words: Sequence[str], room: int) -> Iterator[str]:
    """Words, where a number and what it counts are one: `130 ms`, `[46.2 %,`. Not where they are wider than a line."""
    number = ""
    for word in words:
        if number and cells(number) + 1 + cells(word) <= room:
            yield f"{number} {word}"
            number = ""
            continue
        if number:
            yield number
        number = word if _BARE_NUMBER.fullmatch(word) else ""
        if not number:
            yield word
    if number:
        yield number


def _head(word: str, room: int) -> str:
    """As much of a word as fits, and at least one character."""
    n = max(room, 1)
    while n > 1 and cells(word[:n]) > room:
        n -= 1
    return word[:n]


def shortened(line: Line, room: int, ellipsis: str) -> Line:
    """The line, or as many of its words as fit before an ellipsis; none is parted from a number before it."""
    if width(line) <= room:
        return line
    left = room - cells(ellipsis)
    kept: list[Span] = []
    for word in (Span(word, span.style) for span in line for word in _WORDS.findall(span.text)):
        left -= cells(word.text)
        if left < 0:
            break
        kept.append(word)
    while kept and (not kept[-1].text.strip() or kept[-1].text.strip()[-1] in _UNFINISHED):
        kept.pop()
    return (*kept, Span(ellipsis, kept[-1].style if kept else "label")) if room > 0 else ()


def folded(line: Line, room: int, n_lines: int, ellipsis: str) -> tuple[Line, ...]:
    """The line on as many lines as it takes, at most `n_lines`; an ellipsis ends the last where more would follow."""
    lines: list[Line] = []
    words = [Span(word, span.style) for span in line for word in _WORDS.findall(span.text)]
    while words and len(lines) < n_lines - 1 and sum(cells(word.text) for word in words) > room:
        n = used = 0
        while n < len(words) and used + cells(words[n].text.rstrip()) <= room:
            used += cells(words[n].text)
            n += 1
        whole = n
        while n and (not words[n - 1].text.strip() or words[n - 1].text.strip()[-1] in _UNFINISHED):
            n -= 1
        n = n or whole
        if not n:  # A word longer than a line.
            break
        last = words[n - 1]
        lines.append((*words[: n - 1], Span(last.text.rstrip(), last.style)))
        words = words[n:]
        while words and not words[0].text.strip():
            del words[0]
    return (*lines, shortened(tuple(words), room, ellipsis)) if words else tuple(lines)


def sentence(variants: Sequence[str], room: int, style: str = "label") -> Line:
    """The first wording that fits, from the fullest to the shortest; nothing where none does."""
    return next((said(text, style) for text in variants if cells(text) <= room), ())


@dataclass(frozen=True)
class _Block:
    """Lines that stand or fall together, or a chart that takes what room there is."""

    rank: int
    least: int
    most: int
    make: Callable[[int], Sequence[Line]]


class Rows:
    """The rows of a pane in their order, each with a rank; those of the lowest ranks get the room."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def add(self, rank: int, *lines: Line) -> None:
        """Lines that are shown together or not at all. Rank 0 matters most."""
        if lines and any(lines):
            self._blocks.append(_Block(rank, len(lines), len(lines), lambda _: lines))

    def fill(self, rank: int, least: int, most: int, make: Callable[[int], Sequence[Line]]) -> None:
        """A block of `least` to `most` lines, made once it is known how many there are."""
        if most >= least > 0:
            self._blocks.append(_Block(rank, least, most, make))

    def laid_out(self, height: int) -> tuple[Line, ...]:
        """At most `height` lines."""
        chosen: list[_Block] = []
        left = height
        for block in sorted(self._blocks, key=lambda block: block.rank):
            if block.least <= left:
                chosen.append(block)
                left -= block.least
        sizes = {}
        for block in chosen:
            extra = min(left, block.most - block.least)
            sizes[id(block)] = block.least + extra
            left -= extra
        lines: list[Line] = []
        for block in self._blocks:
            if id(block) in sizes:
                lines += block.make(sizes[id(block)])
        return tuple(lines[:height])
