"""From values to pixels, and which values an axis names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_SECONDS: Final = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200,
    10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_419_200,
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """A linear axis, or a logarithmic one."""

    low: float
    high: float
    start: float
    """Pixel of `low`."""
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; what lies outside is drawn at the edge."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def ticks(high: float, most: int) -> tuple[float, ...]:
    """Round values from 0 to the first that is not below `high`, at most so many beside 0."""
    if high <= 0 or not math.isfinite(high):
        return (0.0, 1.0)
    power = 10.0 ** math.floor(math.log10(high / most))
    step = next(power * factor for factor in (*_STEPS, 20.0) if power * factor * most >= high * (1 - 1e-9))
    n = math.ceil(high / step * (1 - 1e-9))
    return tuple([round(index * step / power, 6) * power for index in range(n + 1)])


def time_ticks(length_s: float, most: int) -> tuple[float, ...]:
    """Seconds from 0 on inside a length, at most so many beside 0."""
    longest = _SECONDS[-1] * max(math.ceil(length_s / most / _SECONDS[-1]), 1)
    step = next((step for step in _SECONDS if length_s / step <= most), longest)
    return tuple([index * step for index in range(int(length_s / step + 1e-9) + 1)])


def log_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """1, 2 and 5 of every decade inside the bounds; only 1 where that is too many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        inside = tuple([value for value in found if low <= value <= high])
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]
