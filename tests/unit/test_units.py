"""What numbers look like: digits, prefixes, unknowns, and that nothing which is not zero is shown as zero."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope import units

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATTERS: tuple[Callable[[float | None], str], ...] = (
    units.number,
    units.scaled,
    units.data_size,
    units.bandwidth,
    units.flops,
    units.flop_rate,
    units.token_rate,
    units.request_rate,
    units.milliseconds,
    units.duration,
    units.percent,
    units.ratio,
    units.change,
)
FINITE = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False) | st.integers()


@pytest.mark.parametrize("formatter", FORMATTERS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known_is_a_dash(formatter: Callable[[float | None], str], value: float | None) -> None:
    assert formatter(value) == "-"


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_zero_is_shown_as_zero(formatter: Callable[[float | None], str]) -> None:
    assert re.fullmatch(r"0( \S+|×)?", formatter(0))
    assert formatter(-0.0) == formatter(0)


@pytest.mark.parametrize("formatter", FORMATTERS)
@given(value=FINITE)
def test_what_is_not_zero_never_looks_like_zero(formatter: Callable[[float | None], str], value: float) -> None:
    text = formatter(value)
    digits = re.sub(r"[^1-9]", "", text)
    assert digits or value == 0
    assert ("-" in text) == (value < 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (6.966, "6.97"),
        (99.54, "99.5"),
        (123.4, "123"),
        (1234.5, "1,234"),  # halves go to the even neighbour
        (9.996, "10.0"),  # rounding carries into the next digit: 10.00 would be four digits
        (999.6, "1,000"),
        (0.0049, "<0.01"),
        (-0.0049, "-<0.01"),
        (0.0051, "0.01"),
        (7, "7"),
        (123_456, "123,456"),
    ],
)
def test_number(value: float, expected: str) -> None:
    assert units.number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (513, "513 B"),
        (999, "999 B"),
        (1_000, "1.00 kB"),
        (999_600, "1.00 MB"),  # 999.6 k has three digits only as 1.00 M
        (1_234_567_890, "1.23 GB"),
        (2**30, "1.07 GB"),  # SI: a gibibyte is 1.0737 GB
        (45.6e12, "45.6 TB"),
        (10**22, "10,000 EB"),
        (-1_500, "-1.50 kB"),
    ],
)
def test_data_size(value: int, expected: str) -> None:
    assert units.data_size(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"),
        (0.4, "<1 ns"),
        (850, "850 ns"),
        (999.6, "1.00 µs"),
        (12_345, "12.3 µs"),
        (4_560_000, "4.56 ms"),
        (999_600_000, "1.00 s"),
        (59_940_000_000, "59.9 s"),
        (59_960_000_000, "1 min 00 s"),
        (125 * 10**9, "2 min 05 s"),
        (3_599_600_000_000, "1 h 00 min"),  # 59 min 59.6 s rounds to 60 min 00 s, which is an hour
        (3_720 * 10**9, "1 h 02 min"),
        (86_399 * 10**9, "1 d 00 h"),
        (-4_560_000, "-4.56 ms"),
    ],
)
def test_duration(value: float, expected: str) -> None:
    assert units.duration(value) == expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (96 / 1378, "6.97 %"),
        (96593 / (96593 + 459), "99.5 %"),
        (1.0, "100 %"),
        (0.99999, ">99.9 %"),  # a cache that missed once did not hit always
        (0.0004, "0.04 %"),
        (0.00001, "<0.01 %"),
        (12.0, "1,200 %"),
        (-0.5, "-50 %"),
    ],
)
def test_percent(fraction: float, expected: str) -> None:
    assert units.percent(fraction) == expected


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.44, 0.37, 0.52, "+44 % [37, 52]"),
        (0.44, None, None, "+44 %"),
        (-0.032, None, None, "-3.2 %"),
        (0.003, -0.12, 0.15, "+0.3 % [-12.0, 15.0]"),  # whole percents would show +0 %
        (0.0, -0.02, 0.02, "0 % [-2.0, 2.0]"),
        (1e-7, None, None, "+<0.01 %"),
    ],
)
def test_change(value: float, low: float | None, high: float | None, expected: str) -> None:
    assert units.change(value, low, high) == expected


def test_a_ratio_carries_its_interval_only_when_both_ends_are_known() -> None:
    assert units.ratio(1.444, 1.37, 1.52) == "1.44× [1.37, 1.52]"
    assert units.ratio(1.444, 1.37, None) == "1.44×"
    assert units.ratio(1.444, math.nan, 1.52) == "1.44×"


def test_a_count_is_exact() -> None:
    assert units.count(1234567) == "1,234,567"
    assert units.count(0) == "0"
    assert units.count(None) == "-"


@given(st.floats(min_value=1, max_value=1e20))
def test_scaling_keeps_the_value_to_three_digits(value: float) -> None:
    text = units.scaled(value, "B")
    digits, unit = text.replace(",", "").split(" ")
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18}[unit]
    assert float(digits) * factor == pytest.approx(value, rel=0.005)
    assert len(digits) <= 4  # three digits and a point, so that columns stay narrow


@given(st.floats(min_value=0, max_value=1e18), st.floats(min_value=0, max_value=1e18))
def test_durations_keep_their_order(first: float, second: float) -> None:
    short, long = sorted((first, second))
    assert _nanoseconds(units.duration(short)) <= _nanoseconds(units.duration(long))


def _nanoseconds(text: str) -> float:
    """Read a duration back; `<1 ns` counts as a half."""
    scale = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "d": 86400e9}
    if text == "<1 ns":
        return 0.5
    parts = text.replace(",", "").split(" ")
    return sum(float(amount) * scale[unit] for amount, unit in zip(parts[::2], parts[1::2], strict=True))


def test_things_are_counted_with_their_name() -> None:
    assert [units.counted(n, "step") for n in (0, 1, 2_000, None)] == ["0 steps", "1 step", "2,000 steps", "- steps"]
    assert units.counted(2, "entry", "entries") == "2 entries"


def test_instants_are_told_as_on_a_clock() -> None:
    shown = [units.clock(seconds * 10**9) for seconds in (0, 7, 60, 725, 3_599, 3_600, 3_723, 360_000)]
    assert shown == ["0:00", "0:07", "1:00", "12:05", "59:59", "1:00:00", "1:02:03", "100:00:00"]
    assert units.clock(999_999_999) == "0:00"  # an instant has not come before its second is over
    assert units.clock(None) == "-"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.008, "0.008"),
        (0.0123456, "0.0123456"),
        (0.5, "0.5"),
        (3.0, "3"),
        (4096, "4,096"),
        (1234.5, "1,234.5"),
        (0, "0"),
        (-0.0, "0"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_what_was_set_is_shown_as_it_was_set(value: float | None, shown: str) -> None:
    assert units.exact(value) == shown
