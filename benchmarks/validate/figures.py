"""Figures of merit, each with its interval: how often, how far off, how well named."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 400
LEAST_CHANGE: Final = math.log(1.03)
"""Changes smaller than 3 % have no sign worth the name."""
HEALTHY: Final = "healthy"
"""What a namer says of an engine that is limited by its work alone."""


class Figure(NamedTuple):
    """One number of the table. `None`: there was nothing to count."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0


UNKNOWN: Final = Figure(None)


def figure(value: float, interval: tuple[float, float] | None, n: int) -> Figure:
    """A number with an interval, where there is one."""
    low, high = interval or (None, None)
    return Figure(value, low, high, n)


def quantile(values: Sequence[float], q: float, *, seed: int = 0) -> Figure:
    """A quantile of independent values, with a bootstrap interval."""
    return _resampled(values, lambda some: float(np.quantile(some, q)), seed=seed)


def _resampled(values: Sequence[T], of: Callable[[Sequence[T]], float], *, seed: int = 0) -> Figure:
    """A statistic with the interval of its bootstrap percentiles."""
    if not values:
        return UNKNOWN
    draw = random.Random(seed)
    found = [of(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)] if len(values) > 1 else []
    low, high = (
        (float(q) for q in np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])) if found else (None,) * 2
    )
    return Figure(of(values), low, high, len(values))


def share(hits: int, n: int) -> Figure:
    """A share of independent trials, with Wilson's interval."""
    if n == 0:
        return UNKNOWN
    found = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return Figure(hits / n, float(found.low), float(found.high), n)


class Judged(NamedTuple):
    """A predicted ratio beside the measured one; both after ÷ before."""

    predicted: float
    low: float
    high: float
    measured: float
    noise: float = 0.0
    """Half the 90 % interval of ln(measured): the measurement is not the truth either."""

    @property
    def error(self) -> float:
        """|ln(predicted ÷ measured)|."""
        return abs(math.log(self.predicted / self.measured))

    @property
    def is_covered(self) -> bool:
        """The two intervals together allow for the difference, taken as independent."""
        towards = self.low if self.measured < self.predicted else self.high
        return self.error <= math.hypot(math.log(self.predicted / towards), self.noise)


def has_sign(one: Judged, *, at_all: bool = False) -> bool:
    """Whether a change had a direction: with the whole interval of what was measured, as visits of the same toggle can
    differ in direction. `at_all`: by their mean."""
    return abs(math.log(one.measured)) - (0.0 if at_all else one.noise) > LEAST_CHANGE


def is_sign_right(one: Judged) -> bool:
    return (one.predicted > 1) == (one.measured > 1)


def sign_right(judged: Sequence[Judged], *, at_all: bool = False) -> Figure:
    """How often the direction was right, of changes that had one."""
    clear = [one for one in judged if has_sign(one, at_all=at_all)]
    return share(sum(map(is_sign_right, clear)), len(clear))


def coverage(judged: Sequence[Judged]) -> Figure:
    """How often the interval held what was measured."""
    return share(sum(one.is_covered for one in judged), len(judged))


def median_error(judged: Sequence[Judged]) -> Figure:
    return quantile([one.error for one in judged], 0.5)


class Named(NamedTuple):
    """A verdict beside the truth; both are causes, or `HEALTHY`."""

    truth: str
    said: str


def macro_f1(verdicts: Sequence[Named]) -> float:
    """Mean over the true classes of 2·TP ÷ (2·TP + FP + FN)."""
    truths = sorted({one.truth for one in verdicts})
    right = Counter(one.truth for one in verdicts if one.truth == one.said)
    true, said = Counter(one.truth for one in verdicts), Counter(one.said for one in verdicts)
    return math.fsum(2 * right[name] / (true[name] + said[name]) for name in truths) / len(truths) if truths else 0.0


def naming(verdicts: Sequence[Named], *, seed: int = 0) -> Figure:
    """Macro-F1, its interval by resampling sessions.

    Not within each class: where all sessions of a class were named alike, that leaves nothing to vary.
    """
    return _resampled(verdicts, macro_f1, seed=seed)


def alarms(verdicts: Sequence[Named]) -> Figure:
    """How often a fault was named where there was none."""
    placebos = [one for one in verdicts if one.truth == HEALTHY]
    return share(sum(one.said != HEALTHY for one in placebos), len(placebos))


def is_monotone(responses: Sequence[float]) -> bool:
    """Larger doses do not do less, a twentieth aside."""
    return all(later >= earlier * 0.95 for earlier, later in pairwise(responses))
