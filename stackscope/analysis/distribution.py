"""Many values in bounded memory, and the percentiles that their number supports."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EXACT_VALUES: Final = 65_536
"""Values kept as they are (512 KiB); beyond, they are folded into a histogram."""
_BUCKETS_PER_OCTAVE: Final = 128
"""A bucket is 0.54 % wide, so a value read from the histogram is off by 0.27 % at most."""
_ZERO_BUCKET: Final = -(2**31)
PERCENTILES: Final = (50, 90, 95, 99)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution, summed up. Percentiles interpolate linearly between order statistics."""

    n: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    is_exact: bool = True
    """Every value was kept. Otherwise percentiles come from a histogram and are off by 0.27 % at most."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Percentiles that fewer than one value lies beyond, such as the p99 of n < 100: no more than the maximum."""
        return tuple(f"p{p}" for p in PERCENTILES if self.n * (100 - p) < 100)

    def to_dict(self) -> dict[str, object]:
        """The figures by name, with the names of the unsupported ones."""
        return {**msgspec.structs.asdict(self), "unsupported": list(self.unsupported)}


def spread_of(kept: Sequence[float]) -> Spread:
    """The distribution of at least one value, all of them kept. An array of floats is read in place."""
    import numpy as np  # Late: a screen is up long before there are values, and this takes a fifth of a second.

    values = np.sort(np.asarray(kept, dtype=np.float64))
    last = len(values) - 1

    def percentile(p: int) -> float:
        # numpy's own takes longer for all that it can do besides than sorting 6,000 values.
        below, part = divmod(last * p, 100)
        low, high = float(values[below]), float(values[min(below + 1, last)])
        return low + (high - low) * part / 100

    return Spread(
        n=len(values),
        mean=float(values.mean()),
        min=float(values[0]),
        p50=percentile(50),
        p90=percentile(90),
        p95=percentile(95),
        p99=percentile(99),
        max=float(values[-1]),
    )


class Distribution:
    """Collects values one by one. Memory stays bounded: exact up to `EXACT_VALUES`, a fine histogram after that."""

    __slots__ = ("_buckets", "_folded", "_folded_max", "_folded_min", "_folded_sum", "_values")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values = array("d")
        self._buckets: dict[int, int] = {}
        self._folded = 0
        self._folded_sum = 0.0
        self._folded_min = math.inf
        self._folded_max = -math.inf
        for value in values:
            self.add(value)

    def __len__(self) -> int:
        return self._folded + len(self._values)

    def add(self, value: float) -> None:
        """Take one finite value that is not negative."""
        self._values.append(value)
        if len(self._values) > EXACT_VALUES:
            self._fold()

    def extend(self, values: Sequence[float]) -> None:
        """Take values one after the other."""
        start = 0
        while start < len(values):
            stop = start + EXACT_VALUES + 1 - len(self._values)
            self._values.extend(values[start:stop])
            if len(self._values) > EXACT_VALUES:
                self._fold()
            start = stop

    def merge(self, other: Distribution) -> None:
        """Take every value of another distribution, which stays as it is."""
        if other._folded > 0:
            self._fold()
            for bucket, count in other._buckets.items():
                self._buckets[bucket] = self._buckets.get(bucket, 0) + count
            self._folded += other._folded
            self._folded_sum += other._folded_sum
            self._folded_min = min(self._folded_min, other._folded_min)
            self._folded_max = max(self._folded_max, other._folded_max)
        self._values.extend(other._values)
        if len(self._values) > EXACT_VALUES:
            self._fold()

    def spread(self) -> Spread | None:
        """The distribution so far. `None` when it is empty."""
        if len(self) == 0:
            return None
        if self._folded > 0:
            self._fold()
            return self._from_histogram()
        return spread_of(self._values)

    def _fold(self) -> None:
        """Move the values kept so far into the histogram."""
        if not self._values:
            return
        import numpy as np

        values = np.asarray(self._values)
        keys = np.full(len(values), _ZERO_BUCKET, dtype=np.int64)
        positive = values > 0.0
        keys[positive] = np.floor(np.log2(values[positive]) * _BUCKETS_PER_OCTAVE)
        for bucket, count in zip(*np.unique(keys, return_counts=True), strict=True):
            self._buckets[int(bucket)] = self._buckets.get(int(bucket), 0) + int(count)
        self._folded += len(values)
        self._folded_sum += float(values.sum())
        self._folded_min = min(self._folded_min, float(values.min()))
        self._folded_max = max(self._folded_max, float(values.max()))
        self._values = array("d")

    def _from_histogram(self) -> Spread:
        import numpy as np

        buckets = sorted(self._buckets.items())
        middles = [0.0 if key == _ZERO_BUCKET else 2.0 ** ((key + 0.5) / _BUCKETS_PER_OCTAVE) for key, _ in buckets]
        ends = np.cumsum([count for _, count in buckets])

        def percentile(p: int) -> float:
            place = int(np.searchsorted(ends, (self._folded - 1) * p / 100, side="right"))
            return min(max(middles[place], self._folded_min), self._folded_max)

        return Spread(
            n=self._folded,
            mean=self._folded_sum / self._folded,
            min=self._folded_min,
            p50=percentile(50),
            p90=percentile(90),
            p95=percentile(95),
            p99=percentile(99),
            max=self._folded_max,
            is_exact=False,
        )
