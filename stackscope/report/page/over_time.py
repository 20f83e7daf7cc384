"""Charts over the time of a session: rates as lines, parts of the time as stacked areas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live.snapshot import PARTS
from stackscope.report.page.frame import MARK_HEIGHT, MARK_ROWS, Chart, Frame, amounts_up_to
from stackscope.report.page.svg import element, escaped, path, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stackscope.report.page.gather import SessionFigures

WIDE: Final = Frame(top=12 + MARK_ROWS * MARK_HEIGHT)
HALF: Final = Frame(width=470, height=230, top=12 + MARK_ROWS * MARK_HEIGHT, left=58)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    style: str
    """Class of its colour."""
    values: tuple[tuple[float, float | None], ...]
    """(seconds, value); `None` is a gap."""
    is_filled: bool = False
    is_dashed: bool = False

    @property
    def known(self) -> list[float]:
        return [value for _, value in self.values if value is not None]


def seconds(session: SessionFigures, at_ns: float) -> float:
    """Since the first step of a session."""
    return (at_ns - session.start_ns) / 1e9


def line_of(
    session: SessionFigures, field: str, name: str, style: str, *, is_filled: bool = False, is_dashed: bool = False
) -> Line:
    """A field of the bins, each at its middle."""
    values = tuple(
        [(max(seconds(session, p.at_ns - session.bin_ns / 2), 0.0), getattr(p, field)) for p in session.points]
    )
    return Line(name=name, style=style, values=values, is_filled=is_filled, is_dashed=is_dashed)


def highest(lines: Sequence[Line]) -> float | None:
    """The largest value of any. `None`: nothing is known."""
    return max((value for line in lines for value in line.known), default=None)


def rates(
    session: SessionFigures,
    lines: Sequence[Line],
    *,
    title: str,
    lead: str,
    told: Callable[[float], str],
    high: float,
    limit: tuple[float, str] | None = None,
    frame: Frame = WIDE,
) -> Chart:
    """Lines over the time of a session; `high` is what the axis must reach, `limit` a value that bounds them."""
    lines = [line for line in lines if line.known]
    amounts = amounts_up_to(high)
    length_s = max(seconds(session, session.end_ns), 1e-3)
    across, up = frame.across(0.0, length_s), frame.up(amounts[-1])
    drawn = [frame.amounts(up, amounts, told), frame.times(across, clock(length_s))]
    for line in lines:
        for run in _runs(line.values):
            pixels = [(across(at), up(value)) for at, value in run]
            if line.is_filled:
                base = up(0.0)
                area = [(pixels[0][0], base), *pixels, (pixels[-1][0], base)]
                drawn.append(element("path", d=path(area, is_closed=True), class_=f"area {line.style}"))
            if len(pixels) == 1:
                drawn.append(element("circle", cx=pixels[0][0], cy=pixels[0][1], r=1.5, class_=f"dot {line.style}"))
            else:
                drawn.append(
                    element("path", d=path(pixels), class_=f"line {line.style}{' dashed' if line.is_dashed else ''}")
                )
    if limit is not None:
        y = up(limit[0])
        drawn.append(element("line", x1=frame.left, x2=frame.inner_right, y1=y, y2=y, class_="limit"))
        drawn.append(text(limit[1], frame.inner_right, y - 5, text_anchor="end", class_="limit-label"))
    drawn.append(frame.marks(across, marks_of(session)))
    named = [f"{line.name} from {told(min(line.known))} to {told(max(line.known))}" for line in lines]
    return Chart(
        title=title,
        lead=lead,
        description=f"Over {units.duration(round(length_s * 1e9))}: {'; '.join(named)}. {_changes(session)}",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple([(line.style, line.name) for line in lines]) if len(lines) > 1 else (),
    )


def anatomy(session: SessionFigures, *, title: str, frame: Frame = WIDE) -> Chart:
    """What the time went to, all of it, over the time of the session."""
    lead = "All of the wall time, in parts that do not overlap and sum to 100 %."
    shown = [point for point in session.points if point.shares is not None]
    if not shown:
        return Chart(title=title, lead="This source does not say where the time goes.", description="", content="")
    length_s = max(seconds(session, session.end_ns), 1e-3)
    across, up = frame.across(0.0, length_s), frame.up(1.0)
    sums = [0.0] * len(PARTS)
    for point in shown:
        sums = [total + share for total, share in zip(sums, point.shares or (), strict=True)]
    used = [index for index, total in enumerate(sums) if total > 0]
    drawn = []
    for index in reversed(used):  # From the top down, each over what is above it: no gaps between the areas.
        for run in _stretches(session):
            tops = [(left, right, sum(shares[: index + 1])) for left, right, shares in run]
            edge = [(across(x), up(top)) for left, right, top in tops for x in (left, right)]
            area = [(edge[0][0], up(0.0)), *edge, (edge[-1][0], up(0.0))]
            about = f"{PARTS[index]}: {units.percent(sums[index] / len(shown))} in the mean"
            drawn.append(
                element("path", element("title", escaped(about)), d=path(area, is_closed=True),
                        class_=f"part {PARTS[index]}")
            )  # fmt: skip
    drawn.append(frame.amounts(up, (0.0, 0.25, 0.5, 0.75, 1.0), units.percent, style="over"))
    drawn.append(frame.times(across, clock(length_s)))
    drawn.append(frame.marks(across, marks_of(session)))
    means = [f"{PARTS[index]} {units.percent(sums[index] / len(shown))}" for index in used]
    return Chart(
        title=title,
        lead=lead,
        description=f"In the mean over time: {', '.join(means)}. {_changes(session)}",
        content=element("g", *drawn, class_="plot"),
        width=frame.width,
        height=frame.height,
        key=tuple([(PARTS[index], PARTS[index]) for index in used]),
    )


def marks_of(session: SessionFigures) -> list[tuple[float, str]]:
    """Changes and marks inside the time that is drawn, in seconds of it."""
    return [
        (max(seconds(session, at_ns), 0.0), label or "mark")
        for at_ns, label in session.marks
        if at_ns <= session.end_ns
    ]


def clock(length_s: float) -> Callable[[float], str]:
    """How instants of so long a time are told: by whole seconds where there are enough of them."""
    if length_s >= 8:
        return lambda at_s: units.clock(round(at_s * 1e9))
    return lambda at_s: units.duration(round(at_s * 1e9))


def _changes(session: SessionFigures) -> str:
    found = [f"{units.duration(round(at * 1e9))} {label}" for at, label in marks_of(session)]
    return f"Marked: {', '.join(found)}." if found else ""


def _runs(values: Sequence[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    """The values between gaps."""
    run: list[tuple[float, float]] = []
    for at, value in values:
        if value is not None:
            run.append((at, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _stretches(session: SessionFigures) -> Iterator[list[tuple[float, float, tuple[float, ...]]]]:
    """(begin, end, shares) of the bins between gaps."""
    run: list[tuple[float, float, tuple[float, ...]]] = []
    for point in session.points:
        if point.shares is not None:
            left = max(seconds(session, point.at_ns - session.bin_ns), 0.0)
            run.append((left, seconds(session, point.at_ns), point.shares))
        elif run:
            yield run
            run = []
    if run:
        yield run
