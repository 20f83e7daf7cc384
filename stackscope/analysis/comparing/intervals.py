"""How sure the ratio of two sessions' figures is: 95 % intervals of B ÷ A.

*Rates* (a sum ÷ another) are compared in one of two ways.

- *Paired*, where both sessions did the same work: each is cut into as many portions of the same progress, by the tokens
  that came. What a portion adds to the error of the logarithm of the ratio (the linearised ratio estimator: Cochran,
  *Sampling Techniques*, 1977, ch. 6) is then free of what the work itself differs by. The t interval of its mean holds
  for few portions, where a bootstrap would be too narrow (Hesterberg, *The American Statistician* 69, 2015). What
  correlation of neighbouring portions is left widens it, as in `analysis.statistics`.
- *Unpaired* otherwise: two ratio estimators over blocks of time (`analysis.statistics.rate_ratio`).

*Percentiles* are compared by resampling. Requests that run at the same time share every hitch, so that what is drawn is
not a request but a group of as many that finished one after the other as there were in flight. Few are drawn by BCa
(Efron, *JASA* 82, 1987; scipy's). For many, and where a request has many values, the share of values below the
percentile is estimated with its error over groups, and the interval of the share is read off the distribution
(Woodruff, *JASA* 47, 1952). A percentile has an interval from `LEAST_BEYOND` independent values beyond it on: with
fewer, no resampling reaches far enough. How many values are as good as independent is told by how much those of a group
resemble each other (Kish's design effect, by ranks).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from stackscope.analysis.statistics import LEAST_BLOCKS, MOST_BATCHES, Interval, Series, rate_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.counting import Floats, Ints

CONFIDENCE: Final = 0.95

LEAST_PORTIONS: Final = 5
MOST_PORTIONS: Final = 20
BLOCKS_PER_PORTION: Final = 2.0
"""Blocks of steps in a portion at least: what is cut inside a block is taken as even there."""

_MOST_CORRELATION: Final = 0.8
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


def told_of(letters: tuple[str, str], said: Sequence[str | None]) -> str:
    """What is said of two sessions: once where it is the same, else with whom it is of. `None`: nothing of that one."""
    if said[0] == said[1] and said[0] is not None:
        return said[0]
    return " and ".join(f"{text} in {letter}" for letter, text in zip(letters, said, strict=True) if text is not None)


def ratio_of_rates(
    a: Blocks, b: Blocks, *, is_same_work: bool, letters: tuple[str, str] = ("A", "B")
) -> Estimated | str:
    """Rate of b ÷ rate of a, or why there is no interval. Amounts and bases are not negative.

    `letters` are what the reason calls them.
    """
    if any(float(one.amounts.sum()) <= 0 or float(one.bases.sum()) <= 0 for one in (a, b)):
        return "one of them is 0"
    if is_same_work:
        found = paired(a, b)
        if found is not None:
            return Estimated(found, "paired")
    held = [_merged(one) for one in (a, b)]
    few = ["too few steps" if len(one.amounts) < LEAST_BLOCKS else None for one in held]
    if any(few):
        return told_of(letters, few)
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
    errors = [amounts / amounts.mean() - bases / bases.mean() for amounts, bases in cut]
    value = math.log(_rate(b) / _rate(a))
    reach = t_half_width(errors[1] - errors[0])
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
    error, freedom = rate_error(held.amounts, held.bases)
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Interval(value, value - reach, value + reach)


def rate_error(amounts: Floats, bases: Floats) -> tuple[float, float]:
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
