"""A whole session in few bins of equal width, which doubles as it grows: bounded memory, whatever its length.

As on the live screen, a step that spans several bins is spread over them in proportion, and idle time lies where it
passed; where steps are missing nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.analysis.live import windows
from stackscope.analysis.live.sums import Sums, counted, end_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.live.snapshot import Point
    from stackscope.analysis.metrics.base import Need
    from stackscope.records import StepRecord

MOST_BINS: Final = 240
FIRST_WIDTH_NS: Final = 20_000_000


class Series:
    """Takes steps in the order of time."""

    def __init__(self, unknown: frozenset[Need]) -> None:
        self._unknown = unknown
        self.width_ns = FIRST_WIDTH_NS
        self.start_ns: int | None = None
        """When the first step began. `None`: there was none."""
        self.epochs: dict[int, Sums] = {}
        """Sums by epoch, idle time between epochs left out."""
        self._bins: dict[int, Sums] = {}
        self._measured: dict[int, tuple[float, int]] = {}
        """Sum and number of what the hardware said of its bandwidth, by bin."""
        self._previous: tuple[int, int] | None = None
        """Number of the last step, and when it ended."""
        self._epoch: int | None = None
        """Of that step."""

    def add(self, steps: Sequence[StepRecord], pricing: Pricing) -> None:
        """Take consecutive steps under one configuration."""
        ends = end_times(steps)
        if self.start_ns is None:
            self.start_ns = steps[0].start_ns
        # By the outermost of them: in a damaged recording one in the middle may lie years away.
        self._fit(min(step.start_ns for step in steps))
        self._fit(max(ends))
        epoch = self.epochs.setdefault(steps[0].epoch, Sums())
        epoch.add(counted(steps, ends, pricing).sums.row)
        if self._epoch == steps[0].epoch and self._previous is not None and self._previous[0] + 1 == steps[0].n:
            epoch.idle_ns += max(steps[0].start_ns - self._previous[1], 0)
        self._epoch = steps[0].epoch
        i = 0
        while i < len(steps):
            self._idle_before(steps[i])
            index = steps[i].start_ns // self.width_ns
            j = i
            # Steps that follow each other inside one bin are counted at once, which is many times as quick.
            while j < len(steps) and ends[j] <= (index + 1) * self.width_ns:
                if j > i and steps[j].n != steps[j - 1].n + 1:
                    break
                j += 1
            if j > i:
                self._bin(index).add(counted(steps[i:j], ends[i:j], pricing).sums.row)
                self._previous = (steps[j - 1].n, ends[j - 1])
                i = j
            else:
                self._spread(steps[i], ends[i], pricing)
                self._previous = (steps[i].n, ends[i])
                i += 1

    def measure(self, at_ns: int, bytes_per_s: float) -> None:
        """What the hardware itself said of its bandwidth."""
        total, n = self._measured.get(at_ns // self.width_ns, (0.0, 0))
        self._measured[at_ns // self.width_ns] = (total + bytes_per_s, n + 1)

    def points(self) -> tuple[Point, ...]:
        """Every bin from the first to the last, without gaps in time; what is not known is in the points."""
        if not self._bins:
            return ()
        return tuple(
            [
                windows.point((index + 1) * self.width_ns, self._bins.get(index, Sums()), self._unknown)
                for index in range(min(self._bins), max(self._bins) + 1)
            ]
        )

    def measured(self) -> tuple[tuple[int, float], ...]:
        """(end of the bin, mean) of what the hardware said, in the order of time."""
        return tuple([((index + 1) * self.width_ns, total / n) for index, (total, n) in sorted(self._measured.items())])

    def _bin(self, index: int) -> Sums:
        return self._bins.setdefault(index, Sums())

    def _fit(self, at_ns: int) -> None:
        """Widen the bins until there is room for a time."""
        while self._bins:
            indices = (*self._bins, at_ns // self.width_ns)
            if max(indices) - min(indices) < MOST_BINS:
                return
            self.width_ns *= 2
            narrow, self._bins = self._bins, {}
            for index, sums in narrow.items():
                self._bin(index // 2).add(sums.row)
            samples, self._measured = self._measured, {}
            for index, (total, n) in samples.items():
                known_total, known_n = self._measured.get(index // 2, (0.0, 0))
                self._measured[index // 2] = (known_total + total, known_n + n)
        first_ns = at_ns if self.start_ns is None else self.start_ns
        while abs(at_ns - first_ns) // self.width_ns >= MOST_BINS - 1:
            self.width_ns *= 2

    def _idle_before(self, step: StepRecord) -> None:
        """Idle time ahead of a step lies in the bins in which it passed."""
        if self._previous is None or step.n != self._previous[0] + 1:
            return
        begin_ns = self._previous[1]
        while begin_ns < step.start_ns:
            index = begin_ns // self.width_ns
            until_ns = min((index + 1) * self.width_ns, step.start_ns)
            self._bin(index).idle_ns += until_ns - begin_ns
            begin_ns = until_ns

    def _spread(self, step: StepRecord, end_ns: int, pricing: Pricing) -> None:
        """Take a step that spans several bins, each in proportion."""
        row = counted([step], [end_ns], pricing).sums.row
        duration_ns = end_ns - step.start_ns
        begin_ns = step.start_ns
        while begin_ns < end_ns:
            index = begin_ns // self.width_ns
            until_ns = min((index + 1) * self.width_ns, end_ns)
            self._bin(index).add([x * (until_ns - begin_ns) / duration_ns for x in row])
            begin_ns = until_ns
