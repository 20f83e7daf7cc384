"""Charts of ratios with their intervals, and of shares: one line for each figure or configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.report.page.compared import shortened
from stackscope.report.page.frame import CHARACTER, Chart, Frame, amounts_up_to
from stackscope.report.page.scales import Scale, log_ticks, ticks
from stackscope.report.page.style import PARTS
from stackscope.report.page.svg import element, escaped, path, text

if TYPE_CHECKING:
    from collections.abc import Sequence

LINE: Final = 20
"""Pixels of one mark; the marks of a row stand below each other."""
PADDING: Final = 12
HEAD: Final = 18
"""For the row's name, which stands above its marks."""
BAR: Final = 20
LEAST_RANGE, MOST_RANGE = 1.1, 1_000.0
"""How far from 1 the axis goes at least and at most: an interval that leaves it is cut."""
_TICKS: Final = (
    0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.33, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0,
    5.0, 10.0, 30.0, 100.0, 300.0, 1_000.0,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio, with the ends of its interval as far as there is one."""

    style: str
    what: str
    """What it is, for the key. Marks of the same style say the same."""
    value: float
    low: float | None = None
    high: float | None = None
    is_ring: bool = False
    """Drawn hollow: it was not measured."""

    @property
    def told(self) -> str:
        return units.ratio(self.value, self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """What stands on one line of the chart."""

    name: str
    marks: tuple[Ratio, ...]


def ratios(title: str, lead: str, rows: Sequence[Ratios], *, missing: str) -> Chart:
    """Ratios on a logarithmic axis around 1, with their intervals as lines. `missing`: what is said where there are
    none."""
    rows = [row for row in rows if row.marks]
    if not rows:
        return Chart(title=title, lead=missing, description="", content="")
    heights = [HEAD + LINE * len(row.marks) + PADDING for row in rows]
    frame = Frame(height=16 + sum(heights) + 30, left=16, top=8, bottom=30)
    ends = [end for row in rows for mark in row.marks for end in (mark.value, mark.low, mark.high) if end]
    low = max(min(*ends, 1 / LEAST_RANGE) / 1.03, 1 / MOST_RANGE)
    high = min(max(*ends, LEAST_RANGE) * 1.03, MOST_RANGE)
    across = Scale(low, high, frame.left, frame.inner_right - 150, is_log=True)
    drawn = []
    shown = [tick for tick in _TICKS if low <= tick <= high]
    for tick in shown:
        x = across(tick)
        style = "axis" if tick == 1 else "grid"
        drawn.append(element("line", x1=x, x2=x, y1=frame.top, y2=frame.inner_bottom, class_=style))
    y = float(frame.top)
    for row, height in zip(rows, heights, strict=True):
        drawn += _row(row, y, across, frame)
        y += height
    drawn.append(frame.below(across, shown, lambda tick: f"{tick:g}×"))
    key = dict.fromkeys((mark.style, mark.what) for row in rows for mark in row.marks)
    return Chart(
        title=title,
        lead=lead,
        description=". ".join(f"{row.name}: {', '.join(f'{m.what} {m.told}' for m in row.marks)}" for row in rows)
        + ".",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple(key) if len(key) > 1 else (),
    )


def _row(row: Ratios, top: float, across: Scale, frame: Frame) -> list[str]:
    drawn = [text(shortened(row.name, frame.inner_right - frame.left), frame.left, top + 13, class_="strong")]
    for place, mark in enumerate(row.marks):
        y = top + HEAD + LINE * place + LINE / 2 - 2
        about = element("title", escaped(f"{row.name}, {mark.what}: {mark.told}"))
        if mark.low is not None and mark.high is not None:
            ends = [(across(mark.low), y), (across(mark.high), y)]
            drawn.append(element("path", d=path(ends), class_=f"line {mark.style}"))
            for x, _ in ends:
                drawn.append(element("path", d=path([(x, y - 4), (x, y + 4)]), class_=f"line {mark.style}"))
        kind = "ring" if mark.is_ring else "dot"
        drawn.append(element("circle", about, cx=across(mark.value), cy=y, r=4.5, class_=f"{kind} {mark.style}"))
        drawn.append(text(mark.told, frame.inner_right, y + 4, text_anchor="end"))
    return drawn


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Parts of a whole, side by side on one line."""

    name: str
    parts: tuple[tuple[str, str, float], ...]
    """(class, name, share from 0 to 1)."""
    remark: str = ""


def shares(title: str, lead: str, rows: Sequence[Shares], *, missing: str) -> Chart:
    """Parts of a whole as a bar for each row; what they do not fill stays empty."""
    rows = [row for row in rows if row.parts]
    if not rows:
        return Chart(title=title, lead=missing, description="", content="")
    height = HEAD + BAR + PADDING
    frame = Frame(height=16 + height * len(rows) + 30, left=16, top=8, bottom=30)
    across = Scale(0.0, 1.0, frame.left, frame.inner_right)
    drawn = [
        element("line", x1=across(share), x2=across(share), y1=frame.top, y2=frame.inner_bottom, class_="grid")
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    for place, row in enumerate(rows):
        top = frame.top + height * place
        head = f"{row.name}: {row.remark}" if row.remark else row.name
        drawn.append(text(shortened(head, frame.inner_right - frame.left), frame.left, top + 13, class_="strong"))
        drawn += _bars(row, top + HEAD, across)
    drawn.append(frame.below(across, (0.0, 0.25, 0.5, 0.75, 1.0), units.percent))
    key = dict.fromkeys((style, name) for row in rows for style, name, _ in row.parts)
    told = [
        f"{row.name}: {', '.join(f'{name} {units.percent(share)}' for _, name, share in row.parts)}" for row in rows
    ]
    return Chart(
        title=title,
        lead=lead,
        description=". ".join(told) + ".",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple(key) if len(key) > 1 else (),
    )


def _bars(row: Shares, y: float, across: Scale) -> list[str]:
    drawn = []
    begin = 0.0
    for style, name, share in row.parts:
        left, right = across(begin), across(min(begin + share, 1.0))
        begin += share
        about = element("title", escaped(f"{row.name}, {name}: {units.percent(share)}"))
        drawn.append(element("rect", about, x=left, y=y, width=right - left, height=BAR, class_=_filled(style)))
        label = f"{name} {units.percent(share)}"
        if len(label) * CHARACTER + 8 < right - left:
            inside = f"on-part on-{style}" if style in PARTS else "on-bar"
            drawn.append(text(label, left + 6, y + 14, class_=inside))
    return drawn


def _filled(style: str) -> str:
    return f"part {style}" if style in PARTS else f"bar {style}"


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A configuration by two of its figures, both above 0."""

    number: int
    """By which it is found in a table."""
    name: str
    style: str
    what: str
    x: float
    y: float


def scatter(title: str, lead: str, spots: Sequence[Spot], *, across_told: str, up_told: str, missing: str) -> Chart:
    """Configurations by milliseconds across and a rate upwards."""
    if not spots:
        return Chart(title=title, lead=missing, description="", content="")
    frame = Frame(height=340, bottom=50)
    low, high = min(spot.x for spot in spots) / 1.1, max(spot.x for spot in spots) * 1.1
    is_log = high > 5 * low
    across = frame.across(low, high, is_log=True) if is_log else frame.across(0.0, high)
    named = log_ticks(low, high, 8) if is_log else [tick for tick in ticks(high, 8) if tick <= high]
    amounts = amounts_up_to(max(spot.y for spot in spots))
    up = frame.up(amounts[-1])
    drawn = [
        frame.amounts(up, amounts, units.number),
        frame.below(across, named, lambda value: units.duration(value * 1e6)),
        text(across_told, (frame.left + frame.inner_right) / 2, frame.height - 8, text_anchor="middle"),
    ]
    names = [f"{spot.name}: {units.number(spot.y)} {up_told}, {units.duration(spot.x * 1e6)}" for spot in spots]
    for spot, name in zip(spots, names, strict=True):
        about = element("title", escaped(name))
        drawn.append(element("circle", about, cx=across(spot.x), cy=up(spot.y), r=5, class_=f"dot {spot.style}"))
        drawn.append(text(units.count(spot.number), across(spot.x) + 8, up(spot.y) + 4))
    return Chart(
        title=title,
        lead=lead,
        description="; ".join(names) + ".",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple(dict.fromkeys((spot.style, spot.what) for spot in spots)),
    )
