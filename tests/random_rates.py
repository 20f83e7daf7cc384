"""Made-up rates over time, block by block, that vary as those of an engine do: slowly, in bursts, in long steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Rates: TypeAlias = list[float]

MEAN: Final = 50.0
_LEAD: Final = 200
"""Blocks left out at the beginning, until it no longer matters how the series began."""


def autoregressive(correlation: float, *, spread: float = 0.15) -> Callable[[np.random.Generator, int], Rates]:
    """Each block resembles the one before; `spread` is relative to the mean."""

    def series(random: np.random.Generator, n: int) -> Rates:
        shocks = random.standard_normal(n + _LEAD) * math.sqrt(1 - correlation**2)
        deviation, deviations = 0.0, []
        for shock in shocks:
            deviation = correlation * deviation + float(shock)
            deviations.append(deviation)
        return [max(0.0, MEAN * (1 + spread * x)) for x in deviations[_LEAD:]]

    return series


def bursty(busy: float, quiet: float, low: float) -> Callable[[np.random.Generator, int], Rates]:
    """Full speed and `low` of it in turns that last `busy` and `quiet` blocks on average; tokens come singly."""

    def series(random: np.random.Generator, n: int) -> Rates:
        is_busy = random.random() < busy / (busy + quiet)
        rates = []
        for _ in range(n):
            rates.append(float(random.poisson(MEAN * (1.0 if is_busy else low))))
            if random.random() < 1 / (busy if is_busy else quiet):
                is_busy = not is_busy
        return rates

    return series


def long_steps(blocks: float) -> Callable[[np.random.Generator, int], Rates]:
    """Steps of about `blocks` blocks, whose tokens are spread over the time they took."""

    def series(random: np.random.Generator, n: int) -> Rates:
        rates = [0.0] * n
        begin = -float(random.random()) * blocks
        while begin < n:
            length = blocks * float(random.lognormal(0.0, 0.2))
            for i in range(max(0, math.floor(begin)), min(n - 1, math.floor(begin + length)) + 1):
                rates[i] += MEAN * blocks / length * max(0.0, min(begin + length, i + 1) - max(begin, i))
            begin += length
        return rates

    return series


def waves(period: float) -> Callable[[np.random.Generator, int], Rates]:
    """Requests that end together: once in `period` blocks, three tenths of it go to their successors' prompts."""

    def series(random: np.random.Generator, n: int) -> Rates:
        shift = random.random() * period
        lows = ((np.arange(n) + shift + random.normal(0, 0.2, n)) % period) < 0.3 * period
        return [float(rate) for rate in MEAN * (1 - 0.6 * lows) + random.normal(0, 2, n)]

    return series


KINDS: Final[dict[str, Callable[[np.random.Generator, int], Rates]]] = {
    "independent": autoregressive(0.0),
    "a little alike": autoregressive(0.3),
    "alike": autoregressive(0.6),
    "much alike": autoregressive(0.8),
    "even bursts": bursty(4, 4, 0.3),
    "rare lulls": bursty(8, 2, 0.1),
    "long steps": long_steps(3),
    "waves": waves(10),
    "slow waves": waves(25),
}
