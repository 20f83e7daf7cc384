"""A roofline as lines of text: attainable FLOP/s against FLOP per byte, both in powers of ten, with points on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from stackscope import units

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL_WIDTH: Final = 12
HEIGHT: Final = 9
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille cell, by column and row from the top."""
_BRAILLE: Final = 0x2800
_BESIDE: Final = 0.4
"""Decades that are shown beyond what has to be seen."""
_LEAST: Final = 10.0
"""Times the ridge to both sides, which is always seen."""


class Point(NamedTuple):
    """A forward on the roofline."""

    mark: str
    """One character of ASCII, by which it is found."""
    intensity: float
    """FLOP per byte."""
    flops_per_s: float


class _Scale(NamedTuple):
    """From the logarithm of a value to a place between 0 and `size`."""

    low: float
    high: float
    size: int

    @classmethod
    def around(cls, values: Sequence[float], size: int) -> _Scale:
        logs = [math.log10(value) for value in values]
        return cls(min(logs) - _BESIDE, max(logs) + _BESIDE, size)

    def place(self, value: float) -> int:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return min(max(int(share * self.size), 0), self.size - 1)

    def value(self, place: int) -> float:
        """In the middle of a place."""
        return float(10 ** (self.low + (place + 0.5) / self.size * (self.high - self.low)))

    @property
    def decades(self) -> range:
        return range(math.ceil(self.low), math.floor(self.high) + 1)


def plot(bandwidth: float, flops: float, points: Sequence[Point], width: int, *, is_ascii: bool) -> list[Text]:
    """Lines of at most `width` cells: the roof, the points on it by their marks, and scales in powers of ten.

    Where two points fall into one cell, the one that comes first is seen.
    """
    across = max(width - LABEL_WIDTH - 2, 8)
    ridge = flops / bandwidth
    x = _Scale.around([ridge / _LEAST, ridge * _LEAST, *(point.intensity for point in points)], across)
    y = _Scale.around([flops / _LEAST, flops, *(point.flops_per_s for point in points)], HEIGHT)
    rows = _ascii_roof(bandwidth, flops, x, y) if is_ascii else _braille_roof(bandwidth, flops, x, y)
    marked = {(HEIGHT - 1 - y.place(p.flops_per_s), x.place(p.intensity)): p.mark for p in reversed(points)}
    labels = {HEIGHT - 1 - y.place(10.0**power): units.flop_rate(10**power) for power in y.decades}
    axis = "|" if is_ascii else "│"
    lines = []
    for index, row in enumerate(rows):
        line = Text(f"{labels.get(index, ''):>{LABEL_WIDTH}} {axis}", style="dim")
        last = max([len(row.rstrip()), *(column + 1 for at, column in marked if at == index)])
        for column in range(last):
            mark = marked.get((index, column))
            line.append(row[column] if mark is None else mark, style="not dim" if mark is None else "not dim bold")
        line.rstrip()
        lines.append(line)
    return [*lines, *_under(x, is_ascii=is_ascii)]


def _under(x: _Scale, *, is_ascii: bool) -> list[Text]:
    """The axis and its scale."""
    corner, line, tick = ("+", "-", "+") if is_ascii else ("└", "─", "┴")
    axis, scale = [line] * x.size, [" "] * x.size
    taken = -1
    for power in x.decades:
        place, label = x.place(10.0**power), units.number(10**power if power >= 0 else 10.0**power)
        axis[place] = tick
        if place > taken and place + len(label) <= x.size:
            scale[place : place + len(label)] = label
            taken = place + len(label)
    name = "FLOP/byte"
    indent = " " * (LABEL_WIDTH + 1)
    under = f"{name:>{LABEL_WIDTH}}  {''.join(scale)}".rstrip()
    return [Text(f"{indent}{corner}{''.join(axis)}", style="dim"), Text(under, style="dim")]


def _roof(bandwidth: float, flops: float, intensity: float) -> float:
    return min(flops, bandwidth * intensity)


def _braille_roof(bandwidth: float, flops: float, x: _Scale, y: _Scale) -> list[str]:
    """The roof in dots, two by four to a cell, without gaps where it is steep."""
    fine_x, fine_y = x._replace(size=x.size * 2), y._replace(size=y.size * 4)
    cells = [[0] * x.size for _ in range(y.size)]
    before: int | None = None
    for column in range(fine_x.size):
        value = _roof(bandwidth, flops, fine_x.value(column))
        height = fine_y.place(value)
        is_inside = math.log10(value) >= y.low
        for dot in range(height if before is None else min(before + 1, height), height + 1):
            if is_inside:
                row, within = divmod(fine_y.size - 1 - dot, 4)
                cells[row][column // 2] |= _DOTS[column % 2][within]
        before = height
    return ["".join(chr(_BRAILLE + bits) if bits else " " for bits in row) for row in cells]


def _ascii_roof(bandwidth: float, flops: float, x: _Scale, y: _Scale) -> list[str]:
    cells = [[" "] * x.size for _ in range(y.size)]
    for column in range(x.size):
        intensity = x.value(column)
        value = _roof(bandwidth, flops, intensity)
        if math.log10(value) >= y.low:
            cells[y.size - 1 - y.place(value)][column] = "/" if intensity < flops / bandwidth else "-"
    return ["".join(row) for row in cells]
