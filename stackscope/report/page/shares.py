"""How values are distributed, for drawing: counts in narrow buckets of equal ratio, in bounded memory."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

BUCKETS_PER_DOUBLING: Final = 24
"""A bucket is 3 % wide, which is less than a pixel of a chart that spans two decades."""


class Below(NamedTuple):
    """The share of values up to one."""

    value: float
    share: float


class Cumulative:
    """Collects positive values; zero counts as the least."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._zeros = 0
        self.n = 0

    def add(self, value: float) -> None:
        self.n += 1
        if value <= 0:
            self._zeros += 1
            return
        key = math.floor(math.log2(value) * BUCKETS_PER_DOUBLING)
        self._buckets[key] = self._buckets.get(key, 0) + 1

    def curve(self) -> tuple[Below, ...]:
        """The share of values up to the upper end of each bucket that has any. Empty: nothing positive came."""
        count = self._zeros
        found = []
        for key in sorted(self._buckets):
            count += self._buckets[key]
            found.append(Below(2.0 ** ((key + 1) / BUCKETS_PER_DOUBLING), count / self.n))
        return tuple(found)
