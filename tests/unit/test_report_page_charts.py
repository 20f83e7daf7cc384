"""Charts as pure functions: scales, series, distributions, and that pictures say what the values are."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.ledgers import UNPRICED
from stackscope.analysis.live.snapshot import PARTS
from stackscope.analysis.live.sums import counted, end_times
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.records import Phases
from stackscope.report.page import compared, over_time
from stackscope.report.page.frame import Frame, figure
from stackscope.report.page.gather import gather
from stackscope.report.page.scales import Scale, log_ticks, ticks, time_ticks
from stackscope.report.page.series import FIRST_WIDTH_NS, MOST_BINS, Series
from stackscope.report.page.shares import BUCKETS_PER_DOUBLING, Cumulative
from stackscope.report.page.svg import element, escaped
from stackscope.session.reader import SessionReader
from tests.unit.page_checker import SVG, data_of
from tests.unit.record_builders import make_step

if TYPE_CHECKING:
    from stackscope.records import StepRecord
    from stackscope.report.page.frame import Chart

STORY: Final = Path(__file__).parents[2] / "profiles" / "story.jsonl.zst"


def drawn(chart: Chart) -> ElementTree.Element:
    found = ElementTree.fromstring(figure(chart, "name")).find(f"{SVG}svg")
    assert found is not None
    return found


# Scales


@given(st.floats(1e-9, 1e15), st.integers(2, 8))
def test_ticks_reach_the_highest_value_and_are_round(high: float, most: int) -> None:
    found = ticks(high, most)
    assert found[0] == 0
    assert found[-1] >= high * (1 - 1e-6)
    assert 2 <= len(found) <= most + 2
    steps = np.diff(found)
    assert np.allclose(steps, steps[0])
    first = f"{steps[0]:.3e}".partition("e")[0].rstrip("0.")
    assert first in ("1", "2", "2.5", "5")


@pytest.mark.parametrize("high", [0.0, -1.0, math.nan, math.inf])
def test_no_value_still_has_an_axis(high: float) -> None:
    assert ticks(high, 4) == (0.0, 1.0)


@given(st.floats(1e-3, 1e7), st.integers(2, 12))
def test_instants_lie_inside_the_time(length: float, most: int) -> None:
    found = time_ticks(length, most)
    assert found[0] == 0
    assert found[-1] <= length * (1 + 1e-6)
    assert len(found) <= most + 1


@given(st.floats(1, 1e12), st.floats(1.5, 1e6))
def test_logarithmic_ticks_lie_inside(low: float, factor: float) -> None:
    found = log_ticks(low, low * factor, 7)
    assert len(found) <= 7
    assert all(low <= value <= low * factor for value in found)


@given(st.floats(-1e9, 1e9), st.booleans())
def test_a_scale_keeps_to_its_pixels(value: float, is_log: bool) -> None:
    scale = Scale(1.0, 1_000.0, 40.0, 400.0, is_log)
    assert 40.0 <= scale(value) <= 400.0
    assert scale(1.0) == 40.0
    assert scale(1_000.0) == pytest.approx(400.0)


# Markup


@given(st.text())
def test_any_text_is_only_text(text: str) -> None:
    made = element("p", escaped(text), class_=text, aria_label=text)
    parsed = ElementTree.fromstring(made)
    assert list(parsed) == []
    assert set(parsed.attrib) == {"class", "aria-label"}


# Series


def consecutive(durations: list[tuple[int, int]]) -> list[StepRecord]:
    """Steps from (idle before, duration)."""
    steps, at_ns = [], 0
    for n, (idle_ns, duration_ns) in enumerate(durations):
        at_ns += idle_ns
        steps.append(make_step(n, start_ns=at_ns, phases=Phases(decode=duration_ns)))
        at_ns += duration_ns
    return steps


def series_of(steps: list[StepRecord], chunk: int) -> Series:
    series = Series(frozenset())
    for start in range(0, len(steps), chunk):
        series.add(steps[start : start + chunk], UNPRICED)
    return series


TIMES = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 5_000_000, 3_000_000_000]), st.integers(1, 4_000_000_000)), min_size=1,
    max_size=60,
)  # fmt: skip


@given(TIMES, st.integers(1, 7))
def test_bins_hold_every_token_and_every_nanosecond(times: list[tuple[int, int]], chunk: int) -> None:
    steps = consecutive([(0, times[0][1]), *times[1:]])
    series = series_of(steps, chunk)
    points = series.points()
    total = counted(steps, end_times(steps), UNPRICED).sums
    assert 1 <= len(points) <= MOST_BINS + 1
    assert series.width_ns % FIRST_WIDTH_NS == 0
    whole = series._bins.values()
    assert sum(sums.emitted for sums in whole) == pytest.approx(total.emitted)
    assert sum(sums.busy_ns for sums in whole) == pytest.approx(total.busy_ns)
    assert sum(sums.idle_ns for sums in whole) == pytest.approx(total.idle_ns)
    assert all(sums.wall_ns <= series.width_ns * (1 + 1e-9) for sums in whole)
    assert series.epochs[0].wall_ns == pytest.approx(total.wall_ns)
    for point in points:
        assert point.shares is None or sum(point.shares) == pytest.approx(1.0)


def test_where_steps_are_missing_is_a_gap() -> None:
    first, later = make_step(0, start_ns=0), make_step(9, start_ns=10 * FIRST_WIDTH_NS)
    points = series_of([first, later], 1).points()
    assert [point.tokens_per_s is None for point in points] == [False, *[True] * 9, False]
    between = series_of([first, make_step(1, start_ns=10 * FIRST_WIDTH_NS)], 1).points()
    assert [point.tokens_per_s for point in between][1:-1] == [0.0] * 9  # idle is known, and zero


def test_what_the_hardware_measured_survives_widening() -> None:
    series = Series(frozenset())
    series.add([make_step(0, start_ns=0)], UNPRICED)
    for n in range(100):
        series.measure(n * FIRST_WIDTH_NS, float(n))
    series.add([make_step(1, start_ns=4 * MOST_BINS * FIRST_WIDTH_NS)], UNPRICED)
    assert series.width_ns > FIRST_WIDTH_NS
    found = series.measured()
    assert len(found) < 100
    assert sum(value for _, value in found) / len(found) == pytest.approx(49.5, rel=0.1)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_step_that_lies_decades_away_does_not_hold_up_a_report(where: int) -> None:
    """A damaged number: the bins become as wide as it takes, wherever in a batch it stands."""
    starts = [0, 1_000_000, 2_000_000]
    starts[where] = 999_999_999_999_999_999
    series = Series(frozenset())
    series.add([make_step(n, start_ns=start) for n, start in enumerate(starts)], UNPRICED)
    assert len(series.points()) <= MOST_BINS
    assert sum(point.at_ns > 0 for point in series.points()) >= 1


# Distributions


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=200))
def test_a_curve_is_that_of_the_values(values: list[float]) -> None:
    collected = Cumulative()
    for value in values:
        collected.add(value)
    curve = collected.curve()
    assert curve[-1].share == 1.0
    assert [below.value for below in curve] == sorted(below.value for below in curve)
    width = 2 ** (1 / BUCKETS_PER_DOUBLING)
    for below in curve:
        assert sum(v <= below.value / width / (1 + 1e-9) for v in values) / len(values) <= below.share + 1e-9
        assert below.share <= sum(v <= below.value * (1 + 1e-9) for v in values) / len(values) + 1e-9


def test_zeros_count_and_nothing_has_no_curve() -> None:
    collected = Cumulative()
    assert collected.curve() == ()
    collected.add(0.0)
    assert collected.curve() == ()
    collected.add(8.0)
    assert [below.share for below in collected.curve()] == [1.0]


# Pictures


def test_a_step_in_parts_is_to_scale() -> None:
    parts = dict.fromkeys(PARTS, 0.0) | {"decode": 3e6, "verify": 1e6}
    half = {name: ns / 2 for name, ns in parts.items()}
    rows = [
        compared.Steps(name="A", n=10, parts_ns=tuple(parts.values())),
        compared.Steps(name="B", n=1, parts_ns=tuple(half.values())),
    ]
    widths = [float(rect.attrib["width"]) for rect in drawn(compared.steps(rows)).iter(f"{SVG}rect")]
    assert widths == pytest.approx([3 * widths[3] * 2, widths[3] * 2, 3 * widths[3], widths[3]], abs=0.05)
    chart = compared.steps(rows)
    assert "A: 4 ms, mean of 10 steps: decode 3 ms (75 %), verify 1 ms (25 %)" in chart.description
    assert [name for _, name in chart.key] == ["decode", "verify"]


def test_bars_of_positions_are_as_high_as_their_shares() -> None:
    row = compared.Drafts(name="x", style="c0", by_position=(0.8, 0.4, 0.0), survival=(0.8, None, 0.0))
    picture = drawn(compared.acceptance([row], is_wide=False))
    heights = [float(bar.attrib["height"]) for bar in picture.iter(f"{SVG}rect")]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.05)
    assert heights[2] == 0
    assert len(list(picture.iter(f"{SVG}circle"))) == 2  # unknown survival has no dot


def test_nothing_to_draw_is_said_in_words() -> None:
    none = compared.Drafts(name="x", style="c0", by_position=(), survival=())
    for chart in (compared.acceptance([none], is_wide=False), compared.steps([]), compared.latencies("TTFT", "m", [])):
        assert chart.content == ""
        assert chart.lead.endswith(".")
        assert "svg" not in figure(chart, "name")


def test_lines_break_where_nothing_is_known() -> None:
    session = gather(SessionReader(STORY), ServiceLimits())
    values = ((0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 4.0), (4.0, None), (5.0, 1.0), (6.0, 1.0))
    line = over_time.Line(name="x", style="c0", values=values)
    chart = over_time.rates(session, [line], title="t", lead="l", told=str, high=4.0)
    shapes = [(shape.tag, shape.get("class")) for shape in data_of(drawn(chart))]
    assert shapes == [(f"{SVG}path", "line c0"), (f"{SVG}circle", "dot c0"), (f"{SVG}path", "line c0")]


def test_parts_of_the_time_fill_the_chart() -> None:
    session = gather(SessionReader(STORY), ServiceLimits())
    picture = drawn(over_time.anatomy(session, title="t"))
    top, *_ = data_of(picture)
    heights = [float(pair.split(" ")[1].rstrip("Z")) for pair in top.attrib["d"][1:].split("L")]
    frame = over_time.WIDE
    assert set(heights) == {float(frame.top), float(frame.inner_bottom)}  # the last part reaches 100 % throughout


def test_names_of_marks_do_not_overlap_and_every_mark_keeps_its_line() -> None:
    frame = Frame(top=42)
    marks = [(float(at), f"mark number {at}") for at in range(40)]
    root = ElementTree.fromstring(
        element("svg", frame.marks(frame.across(0.0, 40.0), marks), xmlns="http://www.w3.org/2000/svg")
    )
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert titles == [label for _, label in marks]
    labels = [(float(t.attrib["y"]), float(t.attrib["x"]), t.text or "") for t in root.iter(f"{SVG}text")]
    assert 4 < len(labels) < 40
    for y in {y for y, _, _ in labels}:
        row = sorted((x, label) for other, x, label in labels if other == y)
        for (x, label), (following, _) in pairwise(row):
            assert x + 6.6 * len(label) <= following


def test_the_name_of_a_mark_is_left_out_only_where_it_would_touch_another() -> None:
    """`load 4` and `load 1` share a row: one takes 38 px there, and 44 from line to line are enough for both."""
    frame = Frame(top=42)
    scale = frame.across(0.0, float(frame.inner_right - frame.left))
    shown = frame.marks(scale, [(100.0, "load 4"), (122.0, "load 2"), (145.0, "load 1")])
    assert [name in shown for name in (">load 4</text>", ">load 2</text>", ">load 1</text>")] == [True, True, True]
    crowded = frame.marks(scale, [(100.0, "load 4"), (110.0, "load 2"), (120.0, "load 1")])
    assert ">load 1</text>" not in crowded
    assert ">load 1</title>" in crowded
