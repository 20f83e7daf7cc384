"""Intervals of percentiles, by resampling groups of requests; `intervals` says which way is taken when."""

from __future__ import annotations

import math
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope.analysis.comparing.digest import percentile_of
from stackscope.analysis.comparing.intervals import CONFIDENCE, Estimated, rate_error, told_of
from stackscope.analysis.statistics import Interval

if TYPE_CHECKING:
    from stackscope.analysis.comparing.counting import Floats, Ints
    from stackscope.analysis.comparing.digest import Values
    from stackscope.analysis.comparing.intervals import How

LEAST_BEYOND: Final = 2.5
"""Independent values beyond a percentile that its interval needs: 50 for a p95, 250 for a p99. Simulated for log-normal
latencies, 95 % intervals of ratios then hold the truth in 93 to 98 % of cases; with 20 values, those of a p95 in 83 to
90 %. Of made-up sessions that differ by chance alone, 0 to 8 % of the figures are called different."""

LEAST_GROUPS: Final = 5
"""Groups that there is a spread between."""

MOST_RESAMPLED: Final = 200
"""Values up to which each resample is drawn; beyond, that takes a second per figure and changes nothing."""

_RESAMPLES: Final = 1999
_DRAWS: Final = 4000
_MOST_RANKED: Final = 20_000
"""Values that are enough to tell how much those of a group resemble each other."""
_SEED: Final = 0
"""The same sessions have the same intervals every time."""

NEEDS: Final = ", and its interval needs "
"""Between what there is and what would be enough, in the reason for having no interval."""


def least_for(percentile: int) -> int:
    """Values that the interval of a percentile needs."""
    return max(LEAST_GROUPS, math.ceil(LEAST_BEYOND * 100 / (100 - percentile) - 1e-9))


class Grouped:
    """Values of a distribution, in the groups that are drawn together."""

    def __init__(self, values: Values, in_flight: int) -> None:
        """`in_flight`: owners that form a group, one after the other."""
        self.ordered = values.ordered
        self.is_single = values.n_owners == len(values.values)
        """Each owner has one value."""
        self.in_flight = max(1, in_flight)
        starts = np.flatnonzero(np.diff(values.owners, prepend=-1))
        self._firsts: Ints = starts[:: self.in_flight]
        self.values = values.values

    @property
    def n(self) -> int:
        """Groups."""
        return len(self._firsts)

    def sums(self, of_values: Floats) -> Floats:
        """Something that every value has, summed up by group."""
        found: Floats = np.add.reduceat(of_values, self._firsts)
        return found

    @property
    def sizes(self) -> Floats:
        """Values of each group."""
        found: Floats = np.diff(np.append(self._firsts, len(self.values))).astype(np.float64)
        return found

    def percentile(self, percentile: float) -> float:
        return percentile_of(self.ordered, percentile)

    @cached_property
    def independent(self) -> float:
        """As many independent values would tell as much: fewer than there are when those of a group are alike."""
        n, sizes = len(self.values), self.sizes
        if self.n < 2:
            return float(self.n)
        # Of all groups as large as a value finds its own to be on average.
        return n / (1 + (float((sizes**2).sum()) / n - 1) * self._likeness())

    def _likeness(self) -> float:
        """How much the values of a group resemble each other: the intraclass correlation of their ranks, 0 to 1."""
        every = -(-len(self.values) // _MOST_RANKED)
        ends = np.append(self._firsts[1:], len(self.values))
        chosen = [self.values[first:end] for first, end in zip(self._firsts[::every], ends[::every], strict=True)]
        sizes = np.array([len(one) for one in chosen], dtype=np.float64)
        values = np.concatenate(chosen)
        n, groups = len(values), len(chosen)
        if n == groups:
            return 0.0
        ordered = np.sort(values)
        ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
        sums = np.add.reduceat(ranks, np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64))
        within = max(float((ranks**2).sum() - (sums**2 / sizes).sum()), 0.0) / (n - groups)
        between = float((sizes * (sums / sizes - ranks.mean()) ** 2).sum()) / (groups - 1)
        size = (n - float((sizes**2).sum()) / n) / (groups - 1)
        whole = between + (size - 1) * within
        return min(max((between - within) / whole, 0.0), 1.0) if whole > 0 else 0.0

    def too_few(self, percentile: int) -> str | None:
        """What there is, where a percentile has no interval because that is too little. `None`: it has one."""
        independent = self.independent
        if self.n < LEAST_GROUPS:
            return f"{self.n} independent"
        if independent < least_for(percentile):
            n = len(self.values)
            return f"{n:,}" if independent > 0.99 * n else f"{n:,} worth {independent:.0f} independent ones"
        return None


def ratio_of_percentiles(
    a: Grouped, b: Grouped, percentile: int, letters: tuple[str, str] = ("A", "B")
) -> Estimated | str:
    """Percentile of b ÷ that of a, or why there is no interval. `letters` are what the reason calls them."""
    none = ["there is none" if len(one.values) == 0 else None for one in (a, b)]
    if any(none):
        return told_of(letters, none)
    few = [one.too_few(percentile) for one in (a, b)]
    if any(few):
        if few[0] is not None and few[1] is not None and " independent" in few[0] and few[0] != few[1]:
            few[1] = few[1].replace(" independent ones", "").replace(" independent", "")
        return f"too few: {told_of(letters, few)}{NEEDS}{least_for(percentile)}"
    qa, qb = (one.percentile(percentile) for one in (a, b))
    if qa <= 0 or qb <= 0:
        return "one of them is 0"
    how: How = "resampled"
    ends = None
    if all(one.is_single and len(one.values) <= MOST_RESAMPLED for one in (a, b)):
        ends = _resampled(a, b, percentile)
    if ends is None:
        how = "by shares"
        ends = _ends(np.log(_drawn(b, percentile, _SEED + 1)) - np.log(_drawn(a, percentile, _SEED)))
    value = qb / qa
    return Estimated(Interval(value, min(value, math.exp(ends[0])), max(value, math.exp(ends[1]))), how)


def percentile_interval(values: Grouped, percentile: int) -> Interval | None:
    """A percentile with its interval. `None`: too few values."""
    if len(values.values) == 0 or values.too_few(percentile) is not None:
        return None
    value = values.percentile(percentile)
    low, high = _ends(_drawn(values, percentile, _SEED))
    return Interval(value, min(value, low), max(value, high))


def _resampled(a: Grouped, b: Grouped, percentile: int) -> tuple[float, float] | None:
    """BCa ends of the logarithm of the ratio, each owner having one value. `None`: too alike to say."""
    from scipy.stats import bootstrap

    # The last group may be smaller than the others; the interval does without it.
    tables = [np.log(one.values[: len(one.values) // one.in_flight * one.in_flight].reshape(-1, one.in_flight))
              for one in (a, b) if float(one.values.min()) > 0]  # fmt: skip
    if len(tables) < 2 or min(map(len, tables)) < LEAST_GROUPS - 1:
        return None

    def of(table: Floats, groups: Ints) -> Floats:
        drawn = table[groups]
        found: Floats = np.percentile(drawn.reshape(*drawn.shape[:-2], -1), percentile, axis=-1)
        return found

    def logged(one: Ints, other: Ints, axis: int = -1) -> Floats:
        del axis  # The last, as scipy has it.
        return of(tables[1], other) - of(tables[0], one)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That values are degenerate shows in the result, which is NaN.
        found = bootstrap(
            tuple(np.arange(len(table)) for table in tables), logged, vectorized=True, paired=False, method="BCa",
            n_resamples=_RESAMPLES, confidence_level=CONFIDENCE, random_state=np.random.default_rng(_SEED),
        ).confidence_interval  # fmt: skip
    value = math.log(b.percentile(percentile) / a.percentile(percentile))
    reach = _widened(min(map(len, tables)))
    low, high = (value + reach * (float(end) - value) for end in (found.low, found.high))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _widened(n: int) -> float:
    """How many times as wide the interval must be as resampling `n` draws says: resamples spread by √((n − 1) ÷ n) too
    little, and know nothing of Student's t (Hesterberg, as in `intervals`)."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + CONFIDENCE) / 2
    return float(stdtrit(n - 1, upper) / ndtri(upper)) * math.sqrt(n / (n - 1))


def _drawn(values: Grouped, percentile: int, seed: int) -> Floats:
    """What the percentile might have been: draws of the share below it, read off the distribution."""
    share = percentile / 100
    under = values.sums((values.values <= values.percentile(percentile)).astype(np.float64))
    error, freedom = rate_error(under, values.sizes)
    # Batches can happen to be alike. So many independent values would not be surer than this.
    error = max(error, math.sqrt(share * (1 - share) / values.independent))
    shares = np.clip(share + error * np.random.default_rng(seed).standard_t(freedom, _DRAWS), 0.0, 1.0)
    last = len(values.ordered) - 1
    places = shares * last
    below = places.astype(np.int64)
    low, high = values.ordered[below], values.ordered[np.minimum(below + 1, last)]
    found: Floats = np.maximum(low + (high - low) * (places - below), np.finfo(np.float64).tiny)
    return found


def _ends(draws: Floats) -> tuple[float, float]:
    low, high = np.percentile(draws, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)
