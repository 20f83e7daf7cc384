"""Charts as lines of text: sparklines, areas, bars, stacked bars and areas. Pure; any series, size and look is safe.

What is not known is a gap, never a zero: a value of zero still draws its base line. NaN and infinities are not known.
Scales begin at zero.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from stackscope.tui.lines import Line, Span
from stackscope.tui.theme import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.tui.look import Look

Cell: TypeAlias = tuple[str, str]
"""A character and its style."""

LETTERS: Final = "PDVdsceh-?"
"""One for each part of a step; capitals are the target's forward."""
_FINE: Final = 16
"""Levels by which the largest part of a cell is found, where it can show only one."""
_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_PART_STYLES: Final = tuple(f"part.{name}" for name in PARTS)
_LABEL_STYLES: Final = tuple(f"part.{name}.label" for name in PARTS)
_UPON: Final = tuple(tuple(f"{low} on {high}" for high in _PART_STYLES) for low in _PART_STYLES)


def finite(value: float | None) -> float | None:
    """The value where it can be drawn."""
    return value if value is not None and math.isfinite(value) else None


def ceiling(values: Iterable[float | None], least: float = 0.0) -> float:
    """A round number at or above every value: the top of a scale, which stays put while values waver. Never 0."""
    top = max((value for value in values if value is not None and math.isfinite(value)), default=0.0)
    top = max(top, least)
    if top <= 0.0:
        return 1.0
    exponent = math.floor(math.log10(top))
    # Read from its digits, so that a round number is itself again and not a bit beside it.
    scales = (float(f"{step}e{exponent}") for step in _STEPS)
    return next((scale for scale in scales if scale >= top * (1 - 1e-9)), top)


def _divisor(top: float) -> float:
    """The top of a scale as a number to divide by; without one, everything lies on the base line."""
    return top if top > 0 and math.isfinite(top) else math.inf


def sparkline(
    values: Sequence[float | None], look: Look, top: float, marks: Iterable[int] = (), style: str = "chart"
) -> Line:
    """One cell for each value, from 0 to `top`; a mark takes the cell of its column."""
    levels, gap = look.levels, look.gap
    n = len(levels) - 2
    top = _divisor(top)
    characters = [
        gap if value is None or not math.isfinite(value) else levels[1 + round(min(max(value / top, 0.0), 1.0) * n)]
        for value in values
    ]
    places = sorted(mark for mark in marks if 0 <= mark < len(values))
    if not places:
        return (Span("".join(characters), style),) if characters else ()
    cells = [(character, style) for character in characters]
    for place in places:
        cells[place] = (look.mark, "mark")
    return runs(cells)


def area(
    values: Sequence[float | None], height: int, look: Look, top: float, *, marks: Iterable[int] = (),
    style: str = "chart", has_spare: bool = False,
) -> tuple[Line, ...]:  # fmt: skip
    """A filled area from 0 to `top`, `height` lines of a cell for each value. `has_spare` fills what is left above it
    in another shade: what could still be spent."""
    top, whole = _divisor(top), height * (len(look.levels) - 1)
    marked = frozenset(marks)
    columns = [
        _filled(
            -1 if value is None or not math.isfinite(value) else max(round(min(max(value / top, 0.0), 1.0) * whole), 1),
            height, look, style, column in marked, has_spare,
        )
        for column, value in enumerate(values)
    ]  # fmt: skip
    return tuple(map(runs, zip(*columns, strict=True))) if columns else ((),) * height


@lru_cache(maxsize=2048)
def _filled(filled: int, height: int, look: Look, style: str, is_marked: bool, has_spare: bool) -> tuple[Cell, ...]:
    """Cells of a column from the top, filled by so many levels; -1 is not known."""
    levels, is_blended = look.levels, look.is_blended
    n = len(levels) - 1
    above = (look.gap, "")
    if has_spare and filled >= 0:
        above = (look.gap, "spare on spare") if is_blended else (look.spare, "spare")
    whole = (levels[n], style)
    if is_marked:
        whole = (look.mark, f"mark.inside on {style}" if is_blended else "mark")
        above = (look.mark, "mark on spare" if above[1] == "spare on spare" else "mark")
    partial = f"{style} on spare" if has_spare and is_blended else style
    full, rest = divmod(max(filled, 0), n)
    drawn = [above] * (height - full - bool(rest))
    if rest:
        drawn.append((levels[rest], partial))
    return (*drawn, *([whole] * full))


def bar(share: float | None, width: int, look: Look, style: str = "chart") -> Line:
    """A horizontal bar in its track, always `width` cells: a share of it, from 0 to 1. Nothing where it is unknown."""
    share = finite(share)
    if share is None or width < 1:
        return (Span(" " * max(width, 0)),)
    eighths = look.eighths
    n = len(eighths) - 1
    total = round(min(max(share, 0.0), 1.0) * width * n)
    if share > 0 and total == 0:
        total = 1
    full, rest = divmod(total, n)
    spans = [Span(eighths[n] * full, style)] if full else []
    if rest:
        spans.append(Span(eighths[rest], f"{style} on track" if look.is_blended else style))
    left = width - full - (1 if rest else 0)
    if left > 0:
        spans.append(Span(" " * left, "track on track" if look.is_blended else ""))
    return tuple(spans)


def portions(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells for shares of a whole, by largest remainders; together `width`, unless all shares are 0."""
    whole = sum(share for share in shares if share > 0)
    if whole <= 0 or not math.isfinite(whole):
        return [0] * len(shares)
    exact = [max(share, 0.0) / whole * width for share in shares]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: counts[index] - exact[index])
    for index in by_remainder[: width - sum(counts)]:
        counts[index] += 1
    return counts


def stacked_bar(shares: Sequence[float], width: int, look: Look) -> Line:
    """The parts of a step side by side, each with its name inside, or its letter where there is no room for that."""
    spans: list[Span] = []
    for index, size in enumerate(portions(shares, width)):
        if size == 0:
            continue
        name = PARTS[index]
        if look.has_colour and not look.is_ascii:
            text = f" {name} " if size >= len(name) + 2 else LETTERS[index]
            spans.append(Span(text.ljust(size), _LABEL_STYLES[index]))
        else:
            texture = look.textures[index]
            text = f"{texture} {name} " if size >= len(name) + 4 else ""
            spans.append(Span(f"{text}{texture * (size - len(text))}", _PART_STYLES[index]))
    return tuple(spans)


def swatch(part: str, look: Look) -> Span:
    """The sign by which a part is found in the stacked charts: its letter in its colour, or its texture."""
    index = PARTS.index(part)
    if look.has_colour and not look.is_ascii:
        return Span(LETTERS[index], _LABEL_STYLES[index])
    return Span(look.textures[index], _PART_STYLES[index])


def stacked_area(
    columns: Sequence[Sequence[float] | None], height: int, look: Look, marks: Iterable[int] = ()
) -> tuple[Line, ...]:
    """Parts of a whole over time, the first at the bottom. Each column is filled whole; `None` is a gap."""
    drawn = [_gaps(height, look) if shares is None else _column(tuple(shares), height, look) for shares in columns]
    for column in marks:
        if 0 <= column < len(drawn):
            drawn[column] = tuple(_marked(cell, look) for cell in drawn[column])
    return tuple(map(runs, zip(*drawn, strict=True))) if drawn else ((),) * height


def signs(shares: Sequence[float] | None, height: int, look: Look) -> tuple[Span, ...]:
    """The signs of the parts that take most of each cell of a column, from the top: a legend beside a stacked area."""
    if shares is None:
        return (Span(look.gap),) * height
    bounds = _bounds(shares, height * _FINE)
    parts = [_largest(bounds, row * _FINE, (row + 1) * _FINE) for row in range(height - 1, -1, -1)]
    return tuple(Span(look.gap) if part is None else swatch(PARTS[part], look) for part in parts)


def _largest(bounds: list[tuple[int, int]], start: int, end: int) -> int | None:
    """The part that takes most of the levels between two."""
    best, most, below = None, 0, 0
    for part, top in bounds:
        inside = min(top, end) - max(below, start)
        if inside > most:
            best, most = part, inside
        below = top
    return best


def _gaps(height: int, look: Look) -> tuple[Cell, ...]:
    return ((look.gap, ""),) * height


@lru_cache(maxsize=2048)
def _column(shares: tuple[float, ...], height: int, look: Look) -> tuple[Cell, ...]:
    """Cells of one column from the top. Kept, since a column stays the same while it moves across the chart."""
    n = len(look.levels) - 1 if look.is_blended else _FINE
    bounds = _bounds(shares, height * n)
    drawn = []
    index, below = 0, 0
    for row in range(height):
        top = (row + 1) * n
        inside: list[tuple[int, int]] = []
        while index < len(bounds):
            part, end = bounds[index]
            inside.append((min(end, top) - below, part))
            below = min(end, top)
            if end > top:
                break
            index += 1
            if end == top:
                break
        drawn.append(_cell(inside, n, look))
    return tuple(reversed(drawn))


def _bounds(shares: Sequence[float], levels: int) -> list[tuple[int, int]]:
    """(part, upper end) of the parts that take a level or more, from the bottom."""
    known = [min(share, 1e300) if share > 0 and math.isfinite(share) else 0.0 for share in shares]
    whole = sum(known) or 1.0
    found, total, below = [], 0.0, 0
    for part, share in enumerate(known):
        total += share
        end = round(total / whole * levels)
        if end > below:
            found.append((part, end))
            below = end
    return found


def _cell(inside: list[tuple[int, int]], n: int, look: Look) -> Cell:
    """A cell that parts share, given as (levels, part) from the bottom: the two largest of them are drawn."""
    if not inside:
        return look.gap, ""
    if len(inside) == 1 or not look.is_blended:
        part = max(inside, key=lambda levels_and_part: levels_and_part[0])[1]
        is_solid = look.has_colour and not look.is_ascii
        return look.levels[-1] if is_solid else look.textures[part], _PART_STYLES[part]
    while len(inside) > 2:
        inside.remove(min(inside))
    (low, lower), (high, upper) = inside
    level = min(max(round(low / (low + high) * n), 1), n - 1)
    return look.levels[level], _UPON[lower][upper]


def _marked(cell: Cell, look: Look) -> Cell:
    """A cell behind a mark."""
    behind = cell[1].partition(" on ")[0]
    return look.mark, f"{behind}.label" if behind and look.is_blended else "mark"


def runs(cells: Iterable[Cell]) -> Line:
    """Cells as spans, those beside each other that share a style as one."""
    spans: list[Span] = []
    text: list[str] = []
    current = ""
    for character, style in cells:
        if style == current:
            text.append(character)
        else:
            if text:
                spans.append(Span("".join(text), current))
            text, current = [character], style
    if text:
        spans.append(Span("".join(text), current))
    return tuple(spans)


def labelled(chart: Sequence[Line], labels: Mapping[int, str], look: Look, room: int) -> tuple[Line, ...]:
    """A chart behind its scale: `labels` by line, set flush right in `room` cells, then the axis."""
    lines = []
    for row, line in enumerate(chart):
        text = labels.get(row, "")
        axis = look.axis_end if text else look.axis
        lines.append((Span(text.rjust(room), "label"), Span(axis, "axis"), *line))
    return tuple(lines)
