"""Charts in which sessions and configurations stand side by side: steps in parts, drafts by position, distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live.snapshot import PARTS
from stackscope.report.page.frame import CHARACTER, Chart, Frame
from stackscope.report.page.scales import Scale, log_ticks, ticks
from stackscope.report.page.svg import element, escaped, path, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.distribution import Spread
    from stackscope.report.page.shares import Below

ROW: Final = 44
BAR: Final = 20
ALL: Final = "all drafts"
MOST_POSITIONS: Final = 16
"""Places of a draft that are drawn."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The mean step of one session or configuration."""

    name: str
    n: int
    parts_ns: tuple[float, ...]


def steps(rows: Sequence[Steps]) -> Chart:
    """The mean step as a bar of its parts, all bars to one scale."""
    title = "A step in parts"
    if not rows:
        return Chart(title=title, lead="This source does not say where the time goes.", description="", content="")
    frame = Frame(height=24 + ROW * len(rows) + 30, left=16, top=8, bottom=30)
    longest = max(sum(row.parts_ns) for row in rows)
    amounts = ticks(longest / 1e6, 6)
    across = Scale(0.0, max(amounts[-1], longest / 1e6), frame.left, frame.inner_right)
    drawn = []
    for value in amounts:
        x = across(value)
        drawn.append(element("line", x1=x, x2=x, y1=frame.top, y2=frame.inner_bottom, class_="grid"))
    told = []
    for place, row in enumerate(rows):
        y = frame.top + 14 + place * ROW
        total = sum(row.parts_ns)
        head = f"{row.name}: {units.duration(total)}, mean of {units.counted(row.n, 'step')}"
        drawn.append(text(shortened(head, frame.inner_right - frame.left), frame.left, y, class_="strong"))
        drawn += _bar(row, y + 7, across)
        told.append(f"{head}: {', '.join(_parts(row))}")
    drawn.append(frame.below(across, amounts, lambda value: units.duration(value * 1e6)))
    used = [index for index in range(len(PARTS)) if any(row.parts_ns[index] > 0 for row in rows)]
    return Chart(
        title=title,
        lead="Mean wall time per step, the idle time before it included; bars are to one scale.",
        description=". ".join(told) + ".",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple([(PARTS[index], PARTS[index]) for index in used]),
    )


def _parts(row: Steps) -> list[str]:
    total = sum(row.parts_ns)
    return [
        f"{name} {units.duration(ns)} ({units.percent(ns / total)})"
        for name, ns in zip(PARTS, row.parts_ns, strict=True)
        if ns > 0 and total > 0
    ]


def _bar(row: Steps, y: float, across: Scale) -> list[str]:
    drawn = []
    total, begin_ns = sum(row.parts_ns), 0.0
    for name, ns in zip(PARTS, row.parts_ns, strict=True):
        if ns <= 0:
            continue
        left, right = across(begin_ns / 1e6), across((begin_ns + ns) / 1e6)
        begin_ns += ns
        about = f"{name}: {units.duration(ns)}, {units.percent(ns / total)}"
        box = element(
            "rect", element("title", escaped(about)), x=left, y=y, width=right - left, height=BAR, class_=f"part {name}"
        )
        drawn.append(box)
        label = f"{name} {units.percent(ns / total)}"
        if len(label) * CHARACTER + 8 < right - left:
            drawn.append(text(label, left + 6, y + 14, class_=f"on-part on-{name}"))
    return drawn


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """What became of the drafts of one session or configuration."""

    name: str
    style: str
    by_position: tuple[float, ...]
    """Share of drafts whose j-th token entered the output."""
    survival: tuple[float | None, ...]
    """Of drafts that long, the share whose first j tokens were accepted."""


def acceptance(rows: Sequence[Drafts], *, is_wide: bool) -> Chart:
    """How often the token at each place of a draft was kept. A single row without a name has no key."""
    title = "Acceptance by position"
    rows = [row for row in rows if row.by_position]
    if not rows:
        return Chart(title=title, lead="Nothing was drafted, or this source does not say.", description="", content="")
    frame = Frame(width=960 if is_wide else 470, height=240, left=56, bottom=44)
    n = min(max(len(row.by_position) for row in rows), MOST_POSITIONS)
    up = frame.up(1.0)
    slot = (frame.inner_right - frame.left) / n
    width = min(46.0, slot * 0.8 / len(rows))
    drawn = [frame.amounts(up, (0.0, 0.25, 0.5, 0.75, 1.0), units.percent)]
    told = []
    for place, row in enumerate(rows):
        for j, share in enumerate(row.by_position[:n]):
            left = frame.left + slot * (j + 0.5) + width * (place - len(rows) / 2)
            drawn += _position(row, j, share, left, width, up, is_labelled=width > 40)
        shares = ", ".join(units.percent(share) for share in row.by_position[:n])
        told.append(f"{row.name or ALL}: {shares}")
    for j in range(n):
        x = frame.left + slot * (j + 0.5)
        drawn.append(text(units.count(j + 1), x, frame.inner_bottom + 16, text_anchor="middle", class_="tick"))
    middle = (frame.left + frame.inner_right) / 2
    drawn.append(text("place of the token in the draft", middle, frame.height - 6, text_anchor="middle"))
    return Chart(
        title=title,
        lead="Bars: share of all drafts whose token at this place entered the output. Dots: of drafts that long, the"
        " share accepted up to there.",
        description="By place, from the first: " + "; ".join(told) + ".",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple([(row.style, row.name) for row in rows if row.name]),
    )


def _position(
    row: Drafts, j: int, share: float, left: float, width: float, up: Scale, *, is_labelled: bool
) -> list[str]:
    top, base = up(share), up(0.0)
    about = element("title", escaped(f"{row.name or ALL}, place {units.count(j + 1)}: {units.percent(share)}"))
    drawn = [
        element("rect", about, x=left + 1, y=top, width=max(width - 2, 1.0), height=base - top,
                class_=f"bar {row.style}")
    ]  # fmt: skip
    alive = row.survival[j] if j < len(row.survival) else None
    if alive is not None:
        drawn.append(element("circle", cx=left + width / 2, cy=up(alive), r=3.5, class_=f"ring {row.style}"))
    if is_labelled and base - top > 18:
        drawn.append(text(units.percent(share), left + width / 2, base - 6, text_anchor="middle", class_="on-bar"))
    return drawn


@dataclass(frozen=True, kw_only=True)
class Spreads:
    """One latency of one session."""

    name: str
    style: str
    curve: tuple[Below, ...]
    spread: Spread


def latencies(header: str, meaning: str, rows: Sequence[Spreads]) -> Chart:
    """The share of values up to each duration."""
    rows = [row for row in rows if row.curve]
    if not rows:
        return Chart(title=header, lead="There is no value of it.", description="", content="")
    frame = Frame(width=470, height=200, left=56)
    values = [below.value for row in rows for below in row.curve]
    low, high = min(values) / 1.1, max(values) * 1.05
    if high / low < 4:
        middle = (low * high) ** 0.5
        low, high = min(low, middle / 2), max(high, middle * 2)
    across, up = frame.across(low, high, is_log=True), frame.up(1.0)
    drawn = [
        frame.amounts(up, (0.0, 0.25, 0.5, 0.75, 1.0), units.percent),
        frame.below(across, log_ticks(low, high, 7), units.duration),
    ]
    told = []
    for row in rows:
        pixels, y = [(across(low), up(0.0))], up(0.0)
        for below in row.curve:
            pixels += [(across(below.value), y), (across(below.value), up(below.share))]
            y = up(below.share)
        pixels.append((float(frame.inner_right), y))
        drawn.append(element("path", d=path(pixels), class_=f"line {row.style}"))
        supported = [p for p in (50, 95) if f"p{p}" not in row.spread.unsupported]
        for p in supported:
            value = getattr(row.spread, f"p{p}")
            about = element("title", escaped(f"{row.name} p{p}: {units.duration(value)}"))
            drawn.append(element("circle", about, cx=across(value), cy=up(p / 100), r=4, class_=f"dot {row.style}"))
        named = ", ".join(f"p{p} {units.duration(getattr(row.spread, f'p{p}'))}" for p in supported)
        told.append(f"{row.name}: {named or units.UNKNOWN}, n {units.count(row.spread.n)}")
    return Chart(
        title=header,
        lead=f"{meaning} Share of values up to each duration; dots are p50 and p95.",
        description="; ".join(told) + ".",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple([(row.style, f"{row.name} (n {units.count(row.spread.n)})") for row in rows]),
    )


def shortened(words: str, width: float) -> str:
    """As much of a label as has room."""
    most = int(width / CHARACTER)
    return words if len(words) <= most else f"{words[: most - 1]}…"
