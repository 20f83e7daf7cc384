"""Repeated measurements: how many of each fit the time, in which order, and what they amount to."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.hardware.quiet import QUIET_SHARE
from stackscope.records.ceilings import Measured

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST_QUIET: Final = 3
"""Quiet samples that make the others superfluous."""

BEST: Final = 3
"""Samples that have to agree for what was best to count as possible."""

WORTHLESS: Final = 0.5
"""Spread from which on a figure says less than that it is not known."""


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One measurement of a duration."""

    ns: float
    waiting: float | None = None
    """Share of it in which some task of the machine waited for a CPU. `None`: the system does not say."""

    @property
    def is_quiet(self) -> bool:
        return self.waiting is not None and self.waiting < QUIET_SHARE


def chosen(samples: Sequence[Sample]) -> list[Sample]:
    """The samples to judge by: the quiet ones if there are enough of them, else all. Blind to what was measured."""
    quiet = [sample for sample in samples if sample.is_quiet]
    return quiet if len(quiet) >= FEWEST_QUIET else list(samples)


def duration(samples: Sequence[Sample]) -> Measured:
    """The median duration, in nanoseconds. Raises `ValueError` for no samples."""
    return measured([sample.ns for sample in chosen(samples)])


def rate(amount: float, samples: Sequence[Sample]) -> Measured:
    """Amount of something per second, from how long it took. Raises `ValueError` for no samples."""
    return measured([amount / sample.ns * 1e9 for sample in chosen(samples)])


def measured(values: Sequence[float]) -> Measured:
    """Median and relative interquartile range (inclusive quartiles). Raises `ValueError` for no values."""
    median = statistics.median(values)
    if len(values) == 1:
        return Measured(value=median)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measured(value=median, spread=(high - low) / abs(median) if median else None, n=len(values))


def best_duration(samples: Sequence[Sample]) -> Measured:
    """The duration at its best, in nanoseconds. Raises `ValueError` for no samples."""
    return best(sorted(sample.ns for sample in samples))


def best_rate(amount: float, samples: Sequence[Sample]) -> Measured:
    """Amount of something per second at its best. Raises `ValueError` for no samples."""
    return best(sorted((amount / sample.ns * 1e9 for sample in samples), reverse=True))


def best(ordered: Sequence[float]) -> Measured:
    """The median of the best three of values, the best first, and how far these are apart.

    For what a machine does at most: others only slow it down, for seconds, and a virtual machine may be moved to slower
    cores for longer. All samples compete, as being disturbed does not make one better. Raises `ValueError` for none.
    """
    few = ordered[:BEST]
    value = statistics.median(few)
    spread = abs(few[0] - few[-1]) / value if len(few) > 1 and value else None
    return Measured(value=value, spread=spread, n=len(ordered))


def why_worthless(found: Measured) -> str | None:
    """Why a figure is none, because its own samples do not agree. `None`: they agree well enough."""
    if found.spread is None or found.spread < WORTHLESS:
        return None
    return f"its samples differ by {units.percent(found.spread)}, too much for a figure"


def slope(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Slope of the least-squares line through points. `None`: they are fewer than two, or all above one x."""
    if len(x) < 2 or min(x) == max(x):
        return None
    return statistics.linear_regression(x, y).slope


def repeats(costs_ns: Sequence[float], budget_ns: float, *, most: int) -> list[int]:
    """How often each of some measurements can be repeated, `most` times at most, within a budget of time.

    Round after round each gets one more, the cheapest first: a dear one goes without only where it does not fit.
    """
    left = budget_ns
    counts = [0] * len(costs_ns)
    by_cost = sorted(range(len(costs_ns)), key=lambda index: costs_ns[index])
    for _ in range(most):
        for index in by_cost:
            if costs_ns[index] > left:
                break
            left -= costs_ns[index]
            counts[index] += 1
    return counts


def interleaved(counts: Sequence[int]) -> list[int]:
    """Indices, each as often as counted and spread evenly, so that a drift of the machine falls on all alike."""
    places = [((nth + 0.5) / count, index) for index, count in enumerate(counts) for nth in range(count)]
    return [index for _, index in sorted(places)]
