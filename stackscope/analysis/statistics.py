"""Intervals for rates that were measured in few blocks of time, each of which resembles the one before.

A rate is Σ amounts ÷ Σ bases (tokens ÷ seconds) of consecutive blocks. Its error is that of the sum of the residuals
`amount − rate × base` (the ratio estimator: Cochran, *Sampling Techniques*, 1977, ch. 6), and blocks are not
independent: a prefill lasts several, requests end together. So the error of each window is estimated as follows.

- *Batch means.* Blocks are pooled into at most `MOST_BATCHES` batches, whose sums spread as independent ones would,
  times f = (1 + ρ) ÷ (1 − ρ) for the correlation ρ of neighbours that is left, a first-order autoregression being
  assumed of the batches (Tafazzoli and Wilson, "Skart", *IIE Transactions* 43, 2011). ρ is estimated from both windows
  together, since one alone is too short, and freed of its downward bias (Marriott and Pope, *Biometrika* 41, 1954).
- *The longer window as a witness.* Where the other window is at least twice as long, it shows how far stretches of this
  one's length really stray from its own rate: overlapping batches (Meketon and Schmeiser, *Winter Simulation
  Conference*, 1984). The larger of the two estimates counts. Without it, a rate that swings more slowly than a window
  lasts would look steady in it.

The two errors are added with Welch's degrees of freedom. Ratios are compared as logarithms, where the error of a rate
is its relative error (the delta method).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np

LEAST_BLOCKS: Final = 4
"""Of each window: with fewer there is nothing to estimate a spread from."""

MOST_BATCHES: Final = 20
_MOST_CORRELATION: Final = 0.8
"""Estimates of ρ are cut off here: beyond, f would rest on the third digit of ρ."""
_MOST_LOG: Final = 50.0
"""Ends of intervals stay within e⁵⁰, to remain numbers."""

Array: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]


class Series(msgspec.Struct, frozen=True):
    """What was counted in consecutive blocks, and what it is counted over."""

    amounts: Sequence[float]
    bases: Sequence[float]
    """Of the same length; positive in sum."""

    @property
    def rate(self) -> float:
        return sum(self.amounts) / sum(self.bases)


class Interval(msgspec.Struct, frozen=True):
    """An estimate, and the ends of its interval."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def rate_ratio(before: Series, after: Series, *, confidence: float = 0.95) -> Interval:
    """Rate after ÷ rate before. Raises `ValueError` when a rate is 0, or a series is too short."""
    if before.rate <= 0 or after.rate <= 0:
        raise ValueError("a rate of 0 has no ratio")
    errors = [_residuals(series) / series.rate for series in (before, after)]
    value = math.log(after.rate / before.rate)
    reach = _half_width(errors[0], errors[1], confidence)
    low, high = max(value - reach, -_MOST_LOG), min(value + reach, _MOST_LOG)
    return Interval(math.exp(value), math.exp(low), math.exp(high))


def rate_difference(before: Series, after: Series, *, confidence: float = 0.95) -> Interval:
    """Rate after − rate before. Rates may be 0. Raises `ValueError` when a series is too short."""
    value = after.rate - before.rate
    reach = _half_width(_residuals(before), _residuals(after), confidence)
    return Interval(value, value - reach, value + reach)


def _residuals(series: Series) -> Array:
    """What each block adds to the error of the rate, times the number of blocks: their mean is 0."""
    amounts, bases = np.asarray(series.amounts, dtype=float), np.asarray(series.bases, dtype=float)
    if len(amounts) < LEAST_BLOCKS:
        raise ValueError(f"an interval needs {LEAST_BLOCKS} blocks")
    residuals: Array = (amounts - series.rate * bases) / bases.mean()
    return residuals


def _half_width(before: Array, after: Array, confidence: float) -> float:
    """Half the width of the interval of the difference of two means, given the residuals of the blocks."""
    from scipy.special import stdtrit  # half a second, which no start should pay for

    windows = _by_batches(before, after)
    for index, (short, long) in enumerate(((before, after), (after, before))):
        if len(long) >= 2 * len(short):
            windows[index] = max(windows[index], _by_stretches(long, len(short)))
    variance = sum(own for own, _ in windows)
    if variance == 0.0:
        return 0.0
    freedom = 1 / sum((own / variance) ** 2 / degrees for own, degrees in windows)
    return float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(variance)


def _by_batches(*windows: Array) -> list[tuple[float, float]]:
    """(variance of the mean, degrees of freedom) of each window, from its batches."""
    batched = [_batches(window) for window in windows]
    correlation = _correlation(batched)
    inflation = (1 + correlation) / (1 - correlation)
    estimates = []
    for batches in batched:
        n = len(batches)
        spread = float(batches.var(ddof=1))
        # Batches that resemble each other spread less about their own mean than about the true one.
        spread /= max(1 - (inflation - 1) / n, 0.3)
        estimates.append((spread * inflation / n, max(1.0, n / inflation - 1)))
    return estimates


def _batches(window: Array) -> Array:
    """Means of batches of equal size, or nearly so."""
    n = len(window)
    n_batches = n // math.ceil(n / MOST_BATCHES)
    ends = np.linspace(0, n, n_batches + 1).astype(int)
    means: Array = np.diff(np.concatenate(((0.0,), np.cumsum(window)))[ends]) * (n_batches / n)
    return means


def _correlation(windows: Sequence[Array]) -> float:
    """Correlation of neighbouring batches over all windows, freed of its bias; never negative."""
    total = 0.0
    n = 0
    for window in windows:
        centred = window - window.mean()
        power = float(centred @ centred)
        if power > 0:
            total += len(window) * float(centred[1:] @ centred[:-1]) / power
            n += len(window)
    k = len(windows)
    if n == 0:
        return 0.0
    estimate = (total + k) / (n - 3 * k) if n > 4 * k else total / n
    return min(max(estimate, 0.0), _MOST_CORRELATION)


def _by_stretches(window: Array, length: int) -> tuple[float, float]:
    """(variance of the mean, degrees of freedom) of a stretch of `length` blocks, from all those inside a window."""
    sums = np.concatenate(((0.0,), np.cumsum(window)))
    means = (sums[length:] - sums[:-length]) / length
    n = len(window) / length
    return float((means @ means) / len(means)) / (1 - 1 / n), max(1.0, 1.5 * (n - 1))
