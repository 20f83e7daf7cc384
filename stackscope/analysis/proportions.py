"""Proportions of what comes in time, with intervals that hold the truth nine times in ten.

They are ratios of sums over blocks of about a second, of which the last minute's count most. Tokens of one request are
alike, and so are neighbouring blocks, so that many say less than they are:

- Blocks are pooled into a few batches, and the error is that of a ratio estimator over batches (Cochran, *Sampling
  Techniques*, 1977, ch. 6) with weights, times (1 + ρ) ÷ (1 − ρ) for the correlation ρ of neighbours that is left (as
  in `statistics`).
- Requests that run for many blocks are few however many blocks there are. Where it is known whose rounds they were, the
  error is also that of a ratio estimator over requests (clusters, in Cochran's ch. 9A), and the larger one counts.
- Few rounds, or blocks that agree, look surer than they are. A mean of values between 0 and 1 spreads no more than a
  proportion, so the interval of one (Wilson, *JASA* 22, 1927), with rounds as trials, is the least there is.
"""

from __future__ import annotations

from itertools import pairwise
from math import log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.records import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BATCHES: Final = 12
"""More of them are more alike; fewer tell less of how they spread."""
LEAST_BLOCKS: Final = 4
"""With fewer there is nothing to estimate a spread from."""
LEAST_REQUESTS: Final = 2.0
"""The same of requests, counted as ones of equal weight."""
LEAST_KNOWN: Final = 0.5
"""Share of all rounds of which it has to be known whose they were, for requests to be looked at."""
ALIKE: Final = 4.0
"""Rounds taken to be worth an independent one where there are too few blocks to see how alike they are."""
CONFIDENCE: Final = 0.90
_Z: Final = 1.6448536269514722
"""Quantile of the normal distribution for that confidence, two-sided."""
_MOST_CORRELATION: Final = 0.8
LEAST_FREEDOM: Final = 3.0
"""Degrees of freedom at least: a dozen batches show a correlation of 0.8 by chance, and with one degree left besides,
everything was possible after thousands of drafts."""


def log_error(estimate: Estimate) -> float:
    """Standard deviation of the logarithm of a positive estimate with a 90 % interval."""
    low = max(estimate.low, 1e-9)
    return max(log(max(estimate.high, low) / low), 0.0) / (2 * _Z)


class Sample(NamedTuple):
    """One block of a ratio."""

    amount: float
    base: float
    """At least as large as the amount."""
    trials: float
    """Independent trials that it is made of, at most."""
    weight: float = 1.0


def proportion(samples: Sequence[Sample], requests: Sequence[Sample] = ()) -> Estimate | None:
    """Σ weighted amounts ÷ Σ weighted bases, between 0 and 1, with its interval. `None` without a base.

    `samples` are blocks in the order of time; `requests` are the same rounds, or most of them, by request. See the
    module for the errors of which the greatest counts.
    """
    total = sum(s.weight * s.base for s in samples)
    if total <= 0:
        return None
    value = min(1.0, max(0.0, sum(s.weight * s.amount for s in samples) / total))
    weighted = sum(s.weight * s.trials for s in samples)
    trials = weighted**2 / max(sum(s.weight**2 * s.trials for s in samples), 1e-12)
    reach = 0.0
    if len(samples) < LEAST_BLOCKS:
        trials /= ALIKE
    else:
        reach = max(_reach(samples, value, total), _reach_by_request(requests, value, total))
    low, high = _wilson(value, max(trials, 0.25))
    return Estimate(value, max(0.0, min(low, value - reach)), min(1.0, max(high, value + reach)))


def _reach(samples: Sequence[Sample], value: float, total: float) -> float:
    """Half the width of the interval, from how the blocks stray from the ratio of all."""
    size = -(-len(samples) // MOST_BATCHES)
    batches = [samples[start : start + size] for start in range(0, len(samples), size)]
    strays = [sum(s.weight * (s.amount - value * s.base) for s in batch) for batch in batches]
    power = sum(x * x for x in strays)
    if power <= 0.0:
        return 0.0
    shares = [sum(s.weight * s.base for s in batch) / total for batch in batches]
    n = 1.0 / sum(share * share for share in shares)  # Batches of equal weight that would say as much.
    neighbours = sum(a * b for a, b in pairwise(strays)) / power
    # Freed of its downward bias (Marriott and Pope, Biometrika 41, 1954).
    correlation = min(max((n * neighbours + 1) / max(n - 3, 1.0), 0.0), _MOST_CORRELATION)
    inflation = (1 + correlation) / (1 - correlation)
    freedom = max(LEAST_FREEDOM, n / inflation - 1)
    return _times_spread(freedom, power / total**2 * inflation * n / max(n - 1, 1.0))


def _reach_by_request(requests: Sequence[Sample], value: float, whole: float) -> float:
    """The same from how requests stray. 0: too few are known to say, or of too little of it."""
    total = sum(s.weight * s.base for s in requests)
    if total <= LEAST_KNOWN * whole:
        return 0.0
    n = 1.0 / sum((s.weight * s.base / total) ** 2 for s in requests)
    if n < LEAST_REQUESTS:
        return 0.0
    power = sum((s.weight * (s.amount - value * s.base)) ** 2 for s in requests)
    return _times_spread(max(LEAST_FREEDOM, n - 1), power / total**2 * n / (n - 1))


def _times_spread(freedom: float, variance: float) -> float:
    """Half the width of an interval of Student's."""
    from scipy.special import stdtrit  # half a second, which no start should pay for

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * sqrt(variance)


def _wilson(share: float, trials: float) -> tuple[float, float]:
    """The interval of a proportion (Wilson, 1927)."""
    square = _Z * _Z
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    reach = _Z / (1 + square / trials) * sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    return min(share, centre - reach), max(share, centre + reach)
