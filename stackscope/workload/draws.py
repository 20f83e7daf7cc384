"""Random numbers of a workload: one independent stream per purpose and index, so that nothing depends on timing."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from stackscope.workload.spec import Length


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of what a seed means: never reuse or renumber one."""

    ARRIVALS = 1
    JOB = 2
    TURNS = 3
    CONVERSATION = 4
    LIBRARY = 5
    CURSORS = 6
    BLOCK = 7


def stream(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """The generator of one purpose and index, the same whenever and in whatever order it is asked for (18 µs)."""
    return np.random.default_rng((seed, int(purpose), *indices))


def draw(length: Length, rng: np.random.Generator) -> int:
    """One whole number from the distribution, clipped to `low` and `most`.

    A lognormal of mean m and coefficient of variation c has σ² = ln(1 + c²) and μ = ln m − σ² ÷ 2; a geometric of mean
    m has success probability 1 ÷ m.
    """
    mean = 1.0 if length.mean is None else length.mean
    match length.kind:
        case "fixed":
            value = round(mean)
        case "uniform":
            value = int(rng.integers(length.low, length.most + 1))
        case "lognormal":
            variance = math.log1p(length.spread**2)
            value = round(float(rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance))))
        case "geometric":
            value = int(rng.geometric(1.0 / mean))
    return min(max(value, length.low), length.most)
