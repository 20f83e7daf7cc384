"""What charts have in common: size, axes, marks, and what a reader who does not see them is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stackscope.report.page.scales import Scale, ticks, time_ticks
from stackscope.report.page.svg import element, escaped, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHARACTER: Final = 6.6
"""Width of a character of 12 px in pixels, on the safe side."""
WIDTHS: Final = {
    **dict.fromkeys("ijlI.,:;'|!()[] ", 3.9), **dict.fromkeys("tfr-", 5.0), **dict.fromkeys("wKVQGOD+=", 9.8),
    **dict.fromkeys("mMW@%", 12.0),
}  # fmt: skip
"""Those of characters of 12 px that are far from the others', which take up to `WIDTH`; of DejaVu Sans, a wide font."""
WIDTH: Final = 7.7
BETWEEN_MARKS: Final = 6
"""Pixels from the end of a mark's name to the beginning of the next in the same row, whose line is two pixels away."""
MARK_ROWS: Final = 2
"""Lines of labels above a chart over time; marks that find no room in them keep their line."""
MARK_HEIGHT: Final = 15
WIDE_FROM: Final = 700
"""Pixels from which on a chart has a row of the page for itself."""


def width_of(label: str) -> float:
    """Pixels that a name of 12 px takes, closer than by the width of a usual character, and still on the safe side."""
    return sum(WIDTHS.get(one, WIDTH) for one in label)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A picture with its words."""

    title: str
    """What it shows, in a few words."""
    lead: str
    """How to read it, in a sentence."""
    description: str
    """What is in it, for who does not see it."""
    content: str
    """Markup of the picture. Empty: there is nothing to draw, and `lead` says why."""
    width: int = 0
    height: int = 0
    key: tuple[tuple[str, str], ...] = ()
    """(class, name) of what its colours mean."""


def figure(chart: Chart, name: str) -> str:
    """A chart as a figure; `name` is unique on the page."""
    caption = element("figcaption", element("strong", escaped(chart.title)), " ", element("span", escaped(chart.lead)))
    if not chart.content:
        return element("figure", caption, class_="chart empty", id=name)
    entries = [element("li", element("i", " ", class_=f"swatch {style}"), escaped(told)) for style, told in chart.key]
    key = element("ul", *entries, class_="key") if entries else ""
    picture = element(
        "svg",
        element("title", escaped(chart.title), id=f"{name}-title"),
        element("desc", escaped(chart.description), id=f"{name}-desc"),
        chart.content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {chart.width} {chart.height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    return element(
        "figure", caption, key, picture, class_="chart wide" if chart.width > WIDE_FROM else "chart", id=name
    )


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The place of a chart with two axes."""

    width: int = 960
    height: int = 260
    left: int = 64
    right: int = 16
    top: int = 12
    bottom: int = 34

    def without_marks(self) -> Frame:
        """The same without room for the names of marks."""
        saved = MARK_ROWS * MARK_HEIGHT
        return replace(self, height=self.height - saved, top=self.top - saved)

    @property
    def inner_right(self) -> int:
        return self.width - self.right

    @property
    def inner_bottom(self) -> int:
        return self.height - self.bottom

    def across(self, low: float, high: float, *, is_log: bool = False) -> Scale:
        return Scale(low, high, self.left, self.inner_right, is_log)

    def up(self, high: float) -> Scale:
        return Scale(0.0, high, self.inner_bottom, self.top)

    def amounts(
        self, scale: Scale, values: Sequence[float], told: Callable[[float], str], *, style: str = "grid"
    ) -> str:
        """The vertical axis: a line and a number for each value."""
        drawn = []
        for value in values:
            y = scale(value)
            drawn.append(element("line", x1=self.left, x2=self.inner_right, y1=y, y2=y,
                                 class_="axis" if value == 0 else style))  # fmt: skip
            drawn.append(text(told(whole(value)), self.left - 8, y + 4, text_anchor="end"))
        return element("g", *drawn, class_="scale")

    def below(self, scale: Scale, values: Sequence[float], told: Callable[[float], str]) -> str:
        """The horizontal axis: a number for each value, as far as they find room."""
        drawn = []
        taken = float("-inf")
        for value in values:
            x = scale(value)
            drawn.append(element("line", x1=x, x2=x, y1=self.inner_bottom, y2=self.inner_bottom + 4, class_="axis"))
            label = told(whole(value))
            is_last = x > self.inner_right - 14
            width = len(label) * CHARACTER
            begin = x - (width if is_last else width / 2)
            if begin >= taken:
                taken = begin + width + 6
                drawn.append(text(label, x, self.inner_bottom + 18, text_anchor="end" if is_last else "middle"))
        return element("g", *drawn, class_="scale")

    def times(self, scale: Scale, told: Callable[[float], str]) -> str:
        """The horizontal axis of a chart over time, in seconds."""
        most = max(2, (self.inner_right - self.left) // 90)
        return self.below(scale, time_ticks(scale.high, most), told)

    def marks(self, scale: Scale, marks: Sequence[tuple[float, str]]) -> str:
        """Changes and marks as lines with their names above, in rows where they find room."""
        ends = [float("-inf")] * MARK_ROWS
        drawn = []
        for at, label in marks:
            x = scale(at)
            line = element("line", x1=x, x2=x, y1=self.top, y2=self.inner_bottom, class_="mark")
            drawn.append(element("g", element("title", escaped(label)), line))
            width = width_of(label)
            begin = min(x + 4, self.width - 2 - width)
            row = next((row for row, end in enumerate(ends) if begin >= end), None)
            if row is None or width > self.width / 2:
                continue
            ends[row] = begin + width + BETWEEN_MARKS
            y = self.top - 6 - (MARK_ROWS - 1 - row) * MARK_HEIGHT
            drawn.append(element("line", x1=x, x2=x, y1=y - 8, y2=self.top, class_="mark"))
            drawn.append(text(label, begin, y, class_="mark-label"))
        return element("g", *drawn)


def whole(value: float) -> float:
    """A value as an integer where it is one, which is then told without decimals."""
    return int(value) if value == int(value) else value


def amounts_up_to(high: float, most: int = 4) -> tuple[float, ...]:
    """What the vertical axis names."""
    return ticks(high, most)
