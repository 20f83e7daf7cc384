"""How sure the ratio of two sessions' figures is: 95 % intervals of B ÷ A.

*Rates* (a sum ÷ another) are compared in one of two ways.

- *Paired*, where both sessions did the same work: each is cut into as many portions of the same progress, by the tokens
  that came. The logarithms of the portions' ratios are as good as independent, and their mean has a t interval; a
  bootstrap of so few values would be too narrow (Hesterberg, *The American Statistician* 69, 2015). What correlation of
  neighbouring portions is left widens it, as in `analysis.statistics`.
- *Unpaired* otherwise: two ratio estimators over blocks of time (`analysis.statistics.rate_ratio`).

*Percentiles* are compared by resampling requests: BCa (Efron, *JASA* 82, 1987; scipy's) where each has one value and
there are few; else, and where a request has many values, the share of values below the percentile is estimated with its
error over requests, and the interval of the share is read off the distribution (Woodruff, *JASA* 47, 1952). Where both
served the same requests, a request is drawn in both or in neither.
A percentile has an interval from `LEAST_BEYOND` values beyond it on: with fewer, no resampling reaches far enough.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from stackscope.analysis.statistics import LEAST_BLOCKS, MOST_BATCHES, Interval, Series, rate_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from stackscope.analysis.comparing.counting import Floats, Ints
    from stackscope.analysis.comparing.digest import Values

CONFIDENCE: Final = 0.95

LEAST_BEYOND: Final = 2.5
"""Values beyond a percentile that its interval needs: 50 for a p95, 250 for a p99. Simulated for log-normal latencies,
95 % intervals of ratios then hold the truth in 93 to 98 % of cases; with 20 values, those of a p95 in 83 to 90 %."""

FEWER_REQUESTS: Final = 6
"""Where each request has many values, so many times fewer requests will do. Simulated with values of a request that
resemble each other: 95 to 99 %."""

PAIRED_SHARE: Final = 0.9
"""Share of the requests of both that must be the same ones, for them to be drawn together."""

MOST_RESAMPLED: Final = 200
"""Requests up to which each resample is drawn; beyond, that takes a second per figure and changes nothing."""

LEAST_PORTIONS: Final = 5
MOST_PORTIONS: Final = 20
BLOCKS_PER_PORTION: Final = 2.0
"""Blocks of steps in a portion at least: what is cut inside a block is taken as even there."""

_RESAMPLES: Final = 1999
_DRAWS: Final = 4000
_MOST_CORRELATION: Final = 0.8
_SEED: Final = 0
"""The same sessions have the same intervals every time."""

How: TypeAlias = Literal["paired", "unpaired", "resampled", "by shares"]


class Estimated(NamedTuple):
    """An interval and how it came about."""

    interval: Interval
    how: How


class Blocks(NamedTuple):
    """A rate's sums by block, and the tokens that came in each block, by which progress is measured."""

    amounts: Floats
    bases: Floats
    progress: Floats


def ratio_of_rates(a: Blocks, b: Blocks, *, is_same_work: bool) -> Estimated | str:
    """Rate of b ÷ rate of a, or why there is no interval. Amounts and bases are not negative."""
    if any(float(one.amounts.sum()) <= 0 or float(one.bases.sum()) <= 0 for one in (a, b)):
        return "one of them is 0"
    if is_same_work:
        found = paired(a, b)
        if found is not None:
            return Estimated(found, "paired")
    held = [_merged(one) for one in (a, b)]
    if min(len(one.amounts) for one in held) < LEAST_BLOCKS:
        return "too few steps"
    series = [Series(one.amounts.tolist(), one.bases.tolist()) for one in held]
    return Estimated(rate_ratio(series[0], series[1], confidence=CONFIDENCE), "unpaired")


def paired(a: Blocks, b: Blocks) -> Interval | None:
    """The ratio by portions of the same work. `None`: they are too few, or a portion has nothing to compare."""
    n = min(MOST_PORTIONS, int(min(len(a.amounts), len(b.amounts)) / BLOCKS_PER_PORTION))
    if n < LEAST_PORTIONS or a.progress.sum() <= 0 or b.progress.sum() <= 0:
        return None
    cut = [(_portions(one.amounts, one.progress, n), _portions(one.bases, one.progress, n)) for one in (a, b)]
    if any(float(part.min()) <= 0 for pair in cut for part in pair):
        return None
    (amounts_a, bases_a), (amounts_b, bases_b) = cut
    logs = np.log(amounts_b / bases_b) - np.log(amounts_a / bases_a)
    value = math.log(_rate(b) / _rate(a))
    reach = t_half_width(logs)
    return Interval(math.exp(value), math.exp(value - reach), math.exp(value + reach))


def t_half_width(values: Floats) -> float:
    """Half the width of the t interval of the mean of at least two values, the correlation of neighbours in it."""
    from scipy.special import stdtrit

    n = len(values)
    inflation = _inflation(values)
    freedom = max(1.0, n / inflation - 1)
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * float(values.std(ddof=1)) * math.sqrt(inflation / n)


def rate_interval(blocks: Blocks) -> Interval | None:
    """A rate with its interval. `None`: too few blocks."""
    held = _merged(blocks)
    if len(held.amounts) < LEAST_BLOCKS or held.bases.sum() <= 0:
        return None
    value = _rate(blocks)
    error, freedom = _rate_error(held.amounts, held.bases)
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Interval(value, value - reach, value + reach)


def least_for(percentile: int) -> int:
    """Values that the interval of a percentile needs."""
    return math.ceil(LEAST_BEYOND * 100 / (100 - percentile) - 1e-9)


def least_owners(values: Values, percentile: int) -> int:
    """Requests, or blocks, that this takes, as many values as each has here."""
    least = least_for(percentile)
    is_single = len(values.values) == values.n_owners
    return least if is_single else max(math.ceil(least / FEWER_REQUESTS), least_for(50))


def has_enough(values: Values, percentile: int) -> bool:
    """Whether the percentile has an interval."""
    return len(values.values) >= least_for(percentile) and values.n_owners >= least_owners(values, percentile)


def ratio_of_percentiles(
    a: Values, b: Values, percentile: int, *, same: tuple[Ints, Ints] | None = None
) -> Estimated | str:
    """Percentile of b ÷ that of a, or why there is no interval.

    `same`: owners in a and in b that are the same request, pair by pair. `None`: they have nothing to do with each
    other.
    """
    for one in (a, b):
        if len(one.values) == 0:
            return "there is none"
        if not has_enough(one, percentile):
            return f"too few: {one.n_owners}, and its interval needs {least_owners(one, percentile)}"
    qa, qb = (one.percentile(percentile) for one in (a, b))
    if qa <= 0 or qb <= 0:
        return "one of them is 0"
    ends, how = _percentile_ends(a, b, percentile, same)
    value = qb / qa
    return Estimated(Interval(value, min(value, math.exp(ends[0])), max(value, math.exp(ends[1]))), how)


def _percentile_ends(
    a: Values, b: Values, percentile: int, same: tuple[Ints, Ints] | None
) -> tuple[tuple[float, float], How]:
    """Ends of the logarithm of the ratio, and how they were found."""
    pairs = None if same is None else _places(a, b, same)
    if all(len(one.values) == one.n_owners <= MOST_RESAMPLED for one in (a, b)):
        samples = (a.values, b.values) if pairs is None else (a.values[pairs[0]], b.values[pairs[1]])
        ends = _resampled(samples, percentile, is_paired=pairs is not None)
        if ends is not None:
            return ends, "resampled"
    return _ends(_drawn_logs(a, b, percentile, pairs)), "by shares"


def _places(a: Values, b: Values, same: tuple[Ints, Ints]) -> tuple[Ints, Ints] | None:
    """The pairs as positions among the owners that have values. `None`: too many have none in the other."""
    has_a, has_b = np.isin(same[0], a.owners), np.isin(same[1], b.owners)
    both = has_a & has_b
    if np.count_nonzero(both) < PAIRED_SHARE * max(a.n_owners, b.n_owners):
        return None
    at_a = np.searchsorted(np.unique(a.owners), same[0][both])
    at_b = np.searchsorted(np.unique(b.owners), same[1][both])
    return at_a, at_b


def percentile_interval(values: Values, percentile: int) -> Interval | None:
    """A percentile with its interval. `None`: too few values."""
    if not has_enough(values, percentile):
        return None
    value = values.percentile(percentile)
    error, freedom, _ = _share_error(values, percentile)
    generator = np.random.default_rng(_SEED)
    low, high = _ends(_at_shares(values, percentile, error * generator.standard_t(freedom, _DRAWS)))
    return Interval(value, min(value, low), max(value, high))


def _resampled(samples: Sequence[Floats], percentile: int, *, is_paired: bool) -> tuple[float, float] | None:
    """BCa ends of the logarithm of the ratio. `None`: the values are too alike to say."""
    from scipy.stats import bootstrap

    def logged(one: Floats, other: Floats, axis: int = -1) -> npt.NDArray[np.float64]:
        found: Floats = np.log(np.percentile(other, percentile, axis=axis) / np.percentile(one, percentile, axis=axis))
        return found

    if any(float(sample.min()) <= 0 for sample in samples):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That values are degenerate shows in the result, which is NaN.
        found = bootstrap(
            tuple(samples), logged, vectorized=True, paired=is_paired, method="BCa", n_resamples=_RESAMPLES,
            confidence_level=CONFIDENCE, random_state=np.random.default_rng(_SEED),
        ).confidence_interval  # fmt: skip
    low, high = float(found.low), float(found.high)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _drawn_logs(a: Values, b: Values, percentile: int, pairs: tuple[Ints, Ints] | None) -> Floats:
    """What the logarithm of the ratio might have been: draws of the shares below both, read off the distributions."""
    error_a, freedom_a, rest_a = _share_error(a, percentile)
    error_b, freedom_b, rest_b = _share_error(b, percentile)
    correlation = 0.0
    if pairs is not None:
        one, other = rest_a[pairs[0]], rest_b[pairs[1]]
        power = math.sqrt(float(one @ one) * float(other @ other))
        correlation = min(max(float(one @ other) / power, 0.0), 1.0) if power > 0 else 0.0
    generator = np.random.default_rng(_SEED)
    first, second = generator.standard_normal((2, _DRAWS))
    second = correlation * first + math.sqrt(1 - correlation**2) * second
    freedom = min(freedom_a, freedom_b)
    tail = np.sqrt(freedom / generator.chisquare(freedom, _DRAWS))
    drawn_a = _at_shares(a, percentile, error_a * first * tail)
    drawn_b = _at_shares(b, percentile, error_b * second * tail)
    found: Floats = np.log(drawn_b) - np.log(drawn_a)
    return found


def _share_error(values: Values, percentile: int) -> tuple[float, float, Floats]:
    """(standard error of the share of values that lie below the percentile, its degrees of freedom, what each owner
    adds to it)."""
    share = percentile / 100
    place = values.percentile(percentile)
    firsts = np.flatnonzero(np.diff(values.owners, prepend=-1))
    sizes = np.diff(np.append(firsts, len(values.values))).astype(np.float64)
    under = np.add.reduceat((values.values <= place).astype(np.float64), firsts)
    error, freedom = _rate_error(under, sizes)
    # Batches can happen to be alike. So many independent values would not be surer than this.
    error = max(error, math.sqrt(share * (1 - share) / len(values.values)))
    return error, freedom, under - share * sizes


def _at_shares(values: Values, percentile: int, errors: Floats) -> Floats:
    """The values that have as many below them as the percentile, give or take each of the errors."""
    last = len(values.ordered) - 1
    places = np.clip(percentile / 100 + errors, 0.0, 1.0) * last
    below = places.astype(np.int64)
    low, high = values.ordered[below], values.ordered[np.minimum(below + 1, last)]
    found: Floats = np.maximum(low + (high - low) * (places - below), np.finfo(np.float64).tiny)
    return found


def _ends(draws: Floats) -> tuple[float, float]:
    low, high = np.percentile(draws, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def _rate_error(amounts: Floats, bases: Floats) -> tuple[float, float]:
    """(standard error, degrees of freedom) of a rate over consecutive blocks, from the means of batches."""
    residuals = (amounts - amounts.sum() / bases.sum() * bases) / bases.mean()
    n_batches = min(MOST_BATCHES, len(residuals))
    ends = np.linspace(0, len(residuals), n_batches + 1).astype(int)
    means = np.diff(np.concatenate(((0.0,), np.cumsum(residuals)))[ends]) * (n_batches / len(residuals))
    inflation = _inflation(means)
    return float(means.std(ddof=1)) * math.sqrt(inflation / n_batches), max(1.0, n_batches / inflation - 1)


def _inflation(values: Floats) -> float:
    """How many times as much the mean's variance is as that of independent values, by the correlation of neighbours,
    which is freed of its downward bias and taken as none where it is negative."""
    n = len(values)
    centred = values - values.mean()
    power = float(centred @ centred)
    if power <= 0 or n <= 4:
        return 1.0
    found = (float(centred[1:] @ centred[:-1]) / power * n + 1) / (n - 3)
    found = min(max(found, 0.0), _MOST_CORRELATION)
    return (1 + found) / (1 - found)


def _rate(blocks: Blocks) -> float:
    return float(blocks.amounts.sum()) / float(blocks.bases.sum())


MOST_BLOCKS: Final = 512


def _merged(blocks: Blocks) -> Blocks:
    """At most `MOST_BLOCKS` of them, those without a base (nothing to count over) joined to what follows."""
    kept = np.flatnonzero(blocks.bases > 0)
    if len(kept) == 0:
        return Blocks(blocks.amounts[:0], blocks.bases[:0], blocks.progress[:0])
    chosen: Ints = kept[np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MOST_BLOCKS)).astype(int))]
    starts = np.concatenate(([0], chosen[:-1] + 1))
    made = [np.add.reduceat(part[: chosen[-1] + 1], starts) for part in blocks]
    return Blocks(made[0], made[1], made[2])


def _portions(values: Floats, progress: Floats, n: int) -> Floats:
    """Sums between equal steps of progress, a block that lies across being shared out evenly."""
    done = np.concatenate(((0.0,), np.cumsum(progress)))
    sums = np.concatenate(((0.0,), np.cumsum(values)))
    # Blocks without progress belong to what follows them.
    ends = np.linspace(0.0, done[-1], n + 1)
    found: Floats = np.diff(np.interp(ends, done, sums))
    return found
