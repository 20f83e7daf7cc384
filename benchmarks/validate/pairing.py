"""Ours beside a simpler predictor's, item by item: both were asked the same, so that only their differences count.

One rule for every figure, with nothing to choose after the fact:

- An **item** is something that both said a value of, of the kinds for which the two can differ at all. Its loss is
  |ln(predicted ÷ measured)|, or for a sign or a name 1 when it is wrong and else 0.
- The **difference** is the mean over items of their loss − our loss; for macro-F1 our value − theirs. Above 0 we are
  nearer. The mean, because a simpler predictor is as good as ours in most items and far off in a few: a median of
  differences would be 0 whatever happens in those few.
- Its **interval** of 95 % is the bootstrap's over clusters, as items of one cluster err together: a session of toggles,
  a block of steps, a session that is named, some requests of which shadows count together. Percentiles are widened
  for few clusters as Student's t is (Hesterberg 2015, "expanded percentile"). Of losses that are 0 or 1 it is at least
  as wide as McNemar's exact one. With fewer than `LEAST_CLUSTERS` clusters there is none.
- The **verdict** is "beaten" when the interval lies above 0, "beats us" when it lies below, else "not told apart".

Every comparison has its own 95 %; no correction is made for their number. Simulated, five to sixteen clusters whose
items err together are told apart in 6 to 7 % where nothing differs (`tests/unit/test_validate_pairing.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.validate.figures import CONFIDENCE, UNKNOWN, Figure, figure, macro_f1

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from benchmarks.validate.figures import Named

Verdict = Literal["beaten", "not told apart", "beats us"]

RESAMPLES: Final = 4000
LEAST_CLUSTERS: Final = 5
"""With four, all are on one side by chance once in eight."""


class Item(NamedTuple):
    """What both predictors were asked."""

    cluster: str
    ours: float
    """Our loss."""
    theirs: float


class Compared(NamedTuple):
    """How much further off the other is, and what follows from it."""

    difference: Figure
    """Above 0: ours is nearer. Without an interval where there are too few clusters."""

    @property
    def verdict(self) -> Verdict:
        _, low, high, _ = self.difference
        if low is not None and low > 0:
            return "beaten"
        return "beats us" if high is not None and high < 0 else "not told apart"


def compared(items: Sequence[Item]) -> Compared | None:
    """The mean difference of losses. `None`: there is nothing to compare."""
    if not items:
        return None
    names = sorted({one.cluster for one in items})
    sums, counts = np.zeros(len(names)), np.zeros(len(names))
    for one in items:
        at = names.index(one.cluster)
        sums[at], counts[at] = sums[at] + one.theirs - one.ours, counts[at] + 1
    found = resampled(len(names), lambda some: sums[some].sum(axis=1) / counts[some].sum(axis=1))
    mean = float(sums.sum() / counts.sum())
    if found is not None and all({one.ours, one.theirs} <= {0, 1} for one in items):
        exact = mcnemar(items)
        found = min(found[0], exact[0]), max(found[1], exact[1])
    return Compared(figure(mean, found, len(items)))


def compared_names(ours: Sequence[Named], theirs: Sequence[Named]) -> Compared | None:
    """Our macro-F1 − theirs, of the same sessions in the same order, each of them a cluster."""
    if not ours:
        return None

    def differ(some: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.array([macro_f1([ours[i] for i in row]) - macro_f1([theirs[i] for i in row]) for row in some])

    found = resampled(len(ours), differ, n=RESAMPLES // 4)
    value = macro_f1(ours) - macro_f1(theirs)
    return Compared(figure(value, found, len(ours)))


def resampled(
    n_clusters: int, of: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]], *, n: int = RESAMPLES
) -> tuple[float, float] | None:
    """Interval of a statistic over clusters. `None`: there are too few.

    `of` takes indexes of drawn clusters, (draws, clusters), and returns a value for each draw.
    """
    if n_clusters < LEAST_CLUSTERS:
        return None
    draws = of(np.random.default_rng(0).integers(n_clusters, size=(n, n_clusters)))
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, n_clusters - 1) * math.sqrt(n_clusters / (n_clusters - 1))
    low, high = np.quantile(draws, [stats.norm.cdf(-reach), stats.norm.cdf(reach)])
    return float(low), float(high)


def mcnemar(items: Sequence[Item]) -> tuple[float, float]:
    """Exact interval of the difference of two shares of wrong answers to the same questions.

    Of the questions that one of them answered wrongly and the other not, a share is theirs: Clopper's and Pearson's
    interval of that share. Without any such question, what that share of all questions may be all the same.
    """
    theirs = sum(one.theirs > one.ours for one in items)
    differing = sum(one.theirs != one.ours for one in items)
    if not differing:
        most = 1 - ((1 - CONFIDENCE) / 2) ** (1 / len(items))
        return -most, most
    share = stats.binomtest(theirs, differing).proportion_ci(CONFIDENCE, method="exact")
    return tuple(differing / len(items) * (2 * float(end) - 1) for end in (share.low, share.high))  # type: ignore[return-value]


class Simpler(NamedTuple):
    """A simpler predictor's part of a row."""

    name: str
    found: Figure
    """The same figure of its predictions, of the items that are compared."""
    ours: Figure = UNKNOWN
    """Ours of these items."""
    compared: Compared | None = None
