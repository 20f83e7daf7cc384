"""The only place where a number becomes text: three significant digits, SI prefixes, and no 0 for what is not zero.

Every function takes `None` (or NaN, or an infinity, which is what dividing by an unknown gives) as "not known" and
answers `UNKNOWN`. Zero is a value and says so.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final, TypeAlias

Number: TypeAlias = int | float

UNKNOWN: Final = "-"
"""What is shown for a value that is not known."""

_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
_MINUTE_NS: Final = 60 * 10**9
_HOUR_NS: Final = 60 * _MINUTE_NS
_DAY_NS: Final = 24 * _HOUR_NS


def is_known(value: Number | None) -> bool:
    """Whether there is a number to show: neither `None` nor NaN nor an infinity."""
    return value is not None and (isinstance(value, int) or math.isfinite(value))


def number(value: Number | None, *, unit: str = "", places: int = 2) -> str:
    """Three significant digits, at most `places` decimals, thousands grouped: `6.97`, `99.5`, `1,234`, `<0.01`.

    Whole digits are never rounded away: 123,456 stays itself, and an `int` is shown exactly.
    """
    suffix = f" {unit}" if unit else ""
    if not is_known(value):
        return UNKNOWN
    assert value is not None
    if value == 0:
        return f"0{suffix}"
    sign, magnitude = ("-" if value < 0 else ""), abs(value)
    if isinstance(magnitude, int):
        return f"{sign}{magnitude:,}{suffix}"
    # A float is formatted from its exact value, as a Decimal is, and several times as fast.
    decimals = min(places, max(0, 2 - int(f"{magnitude:.2e}".partition("e")[2])))
    text = f"{magnitude:,.{decimals}f}"
    if not text.strip("0.,"):
        return f"{sign}<{Decimal(1).scaleb(-places):f}{suffix}"
    return f"{sign}{text}{suffix}"


def exact(value: Number | None) -> str:
    """A number as it was set, without rounding: `0.008`, `0.5`, `4,096`, `3`."""
    if not is_known(value):
        return UNKNOWN
    assert value is not None
    return f"{value or 0:,}".removesuffix(".0")  # zero has no sign


def count(value: int | None) -> str:
    """A whole number with its thousands grouped: `1,234,567`."""
    return UNKNOWN if value is None else f"{value:,}"


def counted(value: int | None, singular: str, plural: str | None = None) -> str:
    """A number of things with their name: `1 step`, `1,234 steps`, `2 entries`."""
    return f"{count(value)} {singular if value == 1 else plural or f'{singular}s'}"


def scaled(value: Number | None, unit: str = "") -> str:
    """Three significant digits with an SI prefix before the unit: `1.23 GB/s`, `45.6 k`. Below 1 there is no prefix."""
    if not is_known(value):
        return UNKNOWN
    assert value is not None
    magnitude = abs(_decimal(value))
    if magnitude < 1:
        return number(value, unit=unit)
    index = min(_exponent(magnitude) // 3, len(_PREFIXES) - 1)
    shifted = magnitude.scaleb(-3 * index)
    is_exact = index == 0 and magnitude == int(magnitude)
    text = f"{shifted:,.{0 if is_exact else _decimals(shifted)}f}"
    sign = "-" if value < 0 else ""
    return f"{sign}{text} {_PREFIXES[index]}{unit}".rstrip()


def data_size(n_bytes: Number | None) -> str:
    """Bytes, SI: `513 B`, `1.23 GB` (1 GB = 10⁹ bytes)."""
    return scaled(n_bytes, "B")


def bandwidth(bytes_per_second: Number | None) -> str:
    """`12.3 GB/s`, SI."""
    return scaled(bytes_per_second, "B/s")


def flops(operations: Number | None) -> str:
    """A number of floating-point operations: `1.23 GFLOP`."""
    return scaled(operations, "FLOP")


def flop_rate(operations_per_second: Number | None) -> str:
    """`1.23 TFLOP/s`."""
    return scaled(operations_per_second, "FLOP/s")


def token_rate(tokens_per_second: Number | None) -> str:
    """`45.6 tok/s`."""
    return number(tokens_per_second, unit="tok/s")


def request_rate(requests_per_second: Number | None) -> str:
    """`1.23 req/s`."""
    return number(requests_per_second, unit="req/s")


def milliseconds(duration_ns: Number | None) -> str:
    """Always in ms, for columns whose rows are compared: `0.05 ms`, `12.3 ms`, `1,234 ms`."""
    return number(None if duration_ns is None else duration_ns / 1e6, unit="ms")


def duration(duration_ns: Number | None) -> str:
    """Nanoseconds in the unit that fits: `850 ns`, `12.3 µs`, `4.56 ms`, `59.3 s`, `2 min 05 s`, `1 h 02 min`."""
    if not is_known(duration_ns):
        return UNKNOWN
    assert duration_ns is not None
    sign, magnitude = ("-" if duration_ns < 0 else ""), abs(_decimal(duration_ns))
    if magnitude == 0:
        return "0 s"
    if magnitude < 1:
        return f"{sign}<1 ns"
    exponent = _exponent(magnitude)
    if exponent < 9:
        unit = ("ns", "µs", "ms")[exponent // 3]
        shifted = magnitude.scaleb(-3 * (exponent // 3))
        return f"{sign}{number(_plain(shifted), unit=unit)}"
    if magnitude < Decimal("59.95e9"):
        return f"{sign}{number(_plain(magnitude.scaleb(-9)), unit='s')}"
    return sign + _clock_time(int(magnitude))


def clock(at_ns: int | None) -> str:
    """An instant of the session since its origin, as on a clock, by whole seconds: `0:07`, `12:05`, `1:02:03`."""
    if at_ns is None:
        return UNKNOWN
    seconds = max(at_ns, 0) // 10**9
    minutes, hours = seconds // 60, seconds // 3600
    if hours > 0:
        return f"{hours}:{minutes % 60:02d}:{seconds % 60:02d}"
    return f"{minutes}:{seconds % 60:02d}"


def percent(fraction: Number | None) -> str:
    """A fraction as a percentage: `6.97 %`, `99.5 %`, `<0.01 %`; what just falls short of the whole is `>99.9 %`."""
    if not is_known(fraction):
        return UNKNOWN
    assert fraction is not None
    hundredfold = _decimal(fraction) * 100
    if Decimal("99.95") <= hundredfold < 100:
        return ">99.9 %"
    return number(_plain(hundredfold), unit="%")


def ratio(value: Number | None, low: Number | None = None, high: Number | None = None) -> str:
    """How many times as much, with an interval where there is one: `1.44×`, `1.44× [1.37, 1.52]`."""
    if not is_known(value):
        return UNKNOWN
    text = f"{number(value)}×"
    if is_known(low) and is_known(high):
        text += f" [{number(low)}, {number(high)}]"
    return text


def change(fraction: Number | None, low: Number | None = None, high: Number | None = None) -> str:
    """A relative change with its sign, and its interval where there is one: `+44 %`, `+44 % [37, 52]`, `-3.2 %`.

    The three share their decimals: none from 10 % on, else as many as the largest needs, and no more than two.
    """
    if not is_known(fraction):
        return UNKNOWN
    has_interval = is_known(low) and is_known(high)
    shown = [
        _decimal(part) * 100 for part in ((fraction, low, high) if has_interval else (fraction,)) if part is not None
    ]
    largest = max(abs(part) for part in shown)
    decimals = 0 if largest >= 10 else 1 if largest >= 1 else 2
    while decimals < 2 and any(_vanishes(part, decimals) for part in shown):
        decimals += 1
    texts = [_fixed(part, decimals) for part in shown]
    text = f"{'+' if shown[0] > 0 else ''}{texts[0]} %"
    return f"{text} [{texts[1]}, {texts[2]}]" if has_interval else text


def _decimal(value: Number) -> Decimal:
    """Exact, so that neither a huge integer nor the last bit of a float is lost before rounding."""
    return Decimal(value)


def _plain(value: Decimal) -> Number:
    """Back to a built-in number: an int where it is whole, else the nearest float."""
    return int(value) if value == int(value) else float(value)


def _exponent(magnitude: Decimal) -> int:
    """Power of ten of the first digit, after rounding to three significant ones (999.9 rounds up to 10³)."""
    return int(f"{magnitude:.2e}".split("e")[1])


def _decimals(magnitude: Decimal) -> int:
    """Decimals that make three significant digits; none where the whole part has them."""
    return max(0, 2 - _exponent(magnitude))


def _vanishes(value: Decimal, decimals: int) -> bool:
    """Whether a value that is not zero would be shown as zero (formatting rounds halves to even, so down)."""
    return value != 0 and abs(value) <= Decimal(5).scaleb(-decimals - 1)


def _fixed(value: Decimal, decimals: int) -> str:
    if value == 0:
        return "0"
    if _vanishes(value, decimals):
        return f"{'-' if value < 0 else ''}<{Decimal(1).scaleb(-decimals):f}"
    return f"{value:,.{decimals}f}"


def _clock_time(duration_ns: int) -> str:
    """From a minute on: the two largest units, rounded to the smaller one before it is split."""
    seconds = (duration_ns + 5 * 10**8) // 10**9
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    minutes = (duration_ns + _MINUTE_NS // 2) // _MINUTE_NS
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = (duration_ns + _HOUR_NS // 2) // _HOUR_NS
    return f"{hours // 24:,} d {hours % 24:02d} h"
