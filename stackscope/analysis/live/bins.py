"""The last minutes in bins of half a second: sums for windows, levels for charts.

A step counts whole in the bin in which it ended, so that windows are ratios of whole steps and their counts are exact.
Charts want levels: there a step that spans several bins is spread over them in proportion. Idle time lies in the bins
in which it passed. Time of which nothing is known lies in no bin's sums.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.live import windows
from stackscope.analysis.live.sums import Counted, Sums, Table, counted, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.live.snapshot import Point
    from stackscope.analysis.metrics.base import Need
    from stackscope.records import StepRecord

BIN_NS: Final = 500_000_000
MOST_BINS: Final = 240
"""Bins that are kept: two minutes."""
MINUTE_BINS: Final = 120
_LATE_BINS: Final = 2
"""Records may be under way for so long before their absence shows as a gap."""
_CPU_BINS: Final = 6
"""Bins that one hardware sample may stand for at most."""


class Bin:
    """One half second."""

    __slots__ = ("index", "level", "longest_ns", "point", "row", "sums", "verifications")

    def __init__(self, index: int) -> None:
        self.index = index
        self.sums = Sums()
        """Of the steps that ended in it."""
        self.verifications: Table = {}
        self.longest_ns = 0
        """Of those steps."""
        self.level: list[tuple[float, ...]] = []
        """Rows that sum to what its time was spent on. Empty once it is closed."""
        self.row: tuple[float, ...] = ()
        """Of `sums`, as of when it was closed or last changed after that."""
        self.point: Point | None = None
        """Once it is closed."""

    @property
    def start_ns(self) -> int:
        return self.index * BIN_NS

    @property
    def end_ns(self) -> int:
        return (self.index + 1) * BIN_NS

    def overlap_ns(self, start_ns: int, end_ns: int) -> int:
        """How much of a stretch lies in it."""
        return max(min(end_ns, self.end_ns) - max(start_ns, self.start_ns), 0)

    def take(self, some: Counted) -> None:
        """Count steps that ended in it."""
        self.sums.add(some.sums.row)
        for key, n in some.verifications.items():
            self.verifications[key] = self.verifications.get(key, 0) + n
        self.longest_ns = max(self.longest_ns, some.longest_ns)

    def idle(self, idle_ns: int) -> None:
        """Idle time passed in it."""
        if idle_ns > 0:
            self.sums.idle_ns += idle_ns
            self.level.append(Sums(idle_ns=idle_ns).row)

    def make_point(self, unknown: frozenset[Need], cpu_percent: float | None, *, idle_ns: int = 0) -> Point:
        """What its time was spent on so far, and so much idle time more."""
        level = total(self.level) if self.level else Sums()
        level.idle_ns += idle_ns
        return windows.point(self.end_ns, level, unknown, cpu_percent)


class _Table:
    """Verifications of consecutive bins, kept up by what comes in and what goes out."""

    def __init__(self) -> None:
        self.counts: Table = {}
        self._held: deque[Bin] = deque()

    def hold(self, bins: deque[Bin], first: int) -> Table:
        """The verifications of those of `bins` (closed ones, in order) from index `first` on."""
        while self._held and self._held[0].index < first:
            for key, n in self._held.popleft().verifications.items():
                left = self.counts[key] - n
                if left:
                    self.counts[key] = left
                else:
                    del self.counts[key]
        newest = self._held[-1].index if self._held else first - 1
        fresh = []
        for one in reversed(bins):
            if one.index <= newest or one.index < first:
                break
            fresh.append(one)
        for one in reversed(fresh):
            self._held.append(one)
            for key, n in one.verifications.items():
                self.counts[key] = self.counts.get(key, 0) + n
        return self.counts


class Bins:
    """Takes steps in the order of time and answers what the last stretch amounts to. Bounded memory."""

    def __init__(
        self,
        unknown: frozenset[Need],
        *,
        on_steps: Callable[[Sums, StepRecord, int], None],
        on_close: Callable[[], None],
    ) -> None:
        """`unknown` is what the source cannot know. `on_steps` gets sums over consecutive steps, the last of them, and
        the idle time before the first, which the sums hold. `on_close` is called when bins have been closed."""
        self.unknown: Final = unknown
        self.closed: deque[Bin] = deque(maxlen=MOST_BINS)
        self.open: Bin | None = None
        """`None`: no step has come."""
        self.previous: tuple[int, int] | None = None
        """Number of the last step, and when it ended."""
        self._on_steps = on_steps
        self._on_close = on_close
        self._n_completed = 0
        """Requests completed before there is a bin."""
        self._cpu: dict[int, float | None] = {}
        """What hardware samples say of the bins that they stand for."""
        self._minute: tuple[tuple[int, int], tuple[float, ...]] | None = None
        """First and last closed bin of the last minute that was asked for, and their sums."""
        self._table = _Table()

    @property
    def covered_ns(self) -> int | None:
        """Up to when anything is known. `None`: no step has come."""
        return None if self.previous is None else self.previous[1]

    def add(self, steps: Sequence[StepRecord], ends: Sequence[int], pricing: Pricing) -> None:
        """Take consecutive steps under one configuration, in the order of time, and their `end_times`."""
        i, n = 0, len(steps)
        while i < n:
            current = self.open
            if current is None:
                current = self._begin(steps[0].start_ns // BIN_NS)
            j = bisect_right(ends, current.end_ns, i)
            if j > i:
                self._within(current, steps[i:j], ends[i:j], pricing)
            if j < n:
                self._across(current, steps[j], ends[j], pricing)
                j += 1
            i = j

    def complete(self, at_ns: int) -> None:
        """A request was completed, at a time that steps cover."""
        current = self.open
        if current is None:
            self._n_completed += 1
            return
        place = _index_of_end(at_ns) - current.index + len(self.closed)
        if 0 <= place < len(self.closed):
            current = self.closed[place]
            self._minute = None
        current.sums.completed += 1
        current.row = current.sums.row

    def window(self, n_bins: int, *, idle_until_ns: int | None = None) -> tuple[Sums, Table]:
        """Sums over the open bin and `n_bins` before it, and their verifications.

        With `idle_until_ns` nothing has happened since the last step, and the window ends then.
        """
        if self.open is None or self.previous is None:
            return Sums(), {}
        last = self.open.index if idle_until_ns is None else max(_index_of_end(idle_until_ns), self.open.index)
        first = last - n_bins
        sums, verifications = self._closed_since(first, is_minute=n_bins == MINUTE_BINS)
        if self.open.index >= first:
            sums.add(self.open.sums.row)
            verifications = _merged(verifications, self.open.verifications)
        if idle_until_ns is not None:
            sums.idle_ns += max(idle_until_ns - max(self.previous[1], first * BIN_NS), 0)
        return sums, verifications

    def points(self, now_ns: int, *, is_idle: bool) -> list[Point]:
        """Every complete bin, oldest first, at most `MOST_BINS`.

        `is_idle`: nothing has happened since the last step; otherwise what came since is not known, and a gap.
        """
        if self.open is None or self.previous is None:
            return []
        points = [one.point for one in self.closed if one.point is not None]
        n_ended = now_ns // BIN_NS - self.open.index - (0 if is_idle else _LATE_BINS)
        if n_ended < 1:
            return points
        remaining = self.open.end_ns - self.previous[1] if is_idle else 0
        points.append(self.open.make_point(self.unknown, self._cpu.get(self.open.index), idle_ns=remaining))
        blank = windows.point(0, Sums(idle_ns=BIN_NS if is_idle else 0), self.unknown)
        for index in range(self.open.index + max(1, n_ended - MOST_BINS), self.open.index + n_ended):
            changes = {"at_ns": (index + 1) * BIN_NS, "cpu_percent": self._cpu.get(index)}
            points.append(msgspec.structs.replace(blank, **changes))
        return points[-MOST_BINS:]

    @property
    def longest_ns(self) -> int:
        """The longest step of the last minute."""
        recent = [self.open] if self.open is not None else []
        return max([one.longest_ns for one in (*list(self.closed)[-MINUTE_BINS:], *recent)], default=0)

    def sample(self, at_ns: int, since_ns: int, cpu_percent: float | None) -> None:
        """A hardware sample stands for the time since the one before."""
        last = at_ns // BIN_NS
        for index in range(max(since_ns // BIN_NS, last - _CPU_BINS), last + 1):
            self._cpu[index] = cpu_percent
            place = index - self.closed[0].index if self.closed else -1
            if 0 <= place < len(self.closed):
                one = self.closed[place]
                assert one.point is not None
                one.point = msgspec.structs.replace(one.point, cpu_percent=cpu_percent)
        while len(self._cpu) > MOST_BINS:
            del self._cpu[next(iter(self._cpu))]

    def _begin(self, index: int) -> Bin:
        self.open = Bin(index)
        self.open.sums.completed, self._n_completed = self._n_completed, 0
        return self.open

    def _close(self, current: Bin) -> None:
        current.point = current.make_point(self.unknown, self._cpu.get(current.index))
        current.row = current.sums.row
        current.level = []
        self.closed.append(current)

    def _idle_before(self, step: StepRecord) -> int:
        """Idle time ahead of a step. Where steps are missing in between, nothing is known of it."""
        if self.previous is None or step.n != self.previous[0] + 1:
            return 0
        return max(step.start_ns - self.previous[1], 0)

    def _within(self, current: Bin, steps: Sequence[StepRecord], ends: Sequence[int], pricing: Pricing) -> None:
        """Take steps that end in the open bin."""
        some = counted(steps, ends, pricing)
        idle_ns = self._idle_before(steps[0])
        some.sums.idle_ns += idle_ns
        current.take(some)
        current.level.append(some.sums.row)
        self.previous = (steps[-1].n, ends[-1])
        self._on_steps(some.sums, steps[-1], idle_ns)

    def _across(self, current: Bin, step: StepRecord, end_ns: int, pricing: Pricing) -> None:
        """Take a step that ends after the open bin does: close what lies before its end."""
        some = counted([step], [end_ns], pricing)
        row = some.sums.row
        duration_ns = end_ns - step.start_ns
        idle_ns = self._idle_before(step)
        last = _index_of_end(end_ns)
        first = max(current.index, last - MOST_BINS)
        for index in range(first, last + 1):
            if index > current.index:
                self._close(current)
                current = self._begin(index)
            current.idle(current.overlap_ns(step.start_ns - idle_ns, step.start_ns))
            spent_ns = current.overlap_ns(step.start_ns, end_ns)
            if spent_ns > 0:
                current.level.append(tuple([x * spent_ns / duration_ns for x in row]))
        if duration_ns == 0:
            current.level.append(row)
        current.take(some)
        self.previous = (step.n, end_ns)
        some.sums.idle_ns += idle_ns
        self._on_steps(some.sums, step, idle_ns)
        self._on_close()

    def _closed_since(self, first: int, *, is_minute: bool) -> tuple[Sums, Table]:
        """Sums and verifications of the closed bins from index `first` on; the sums are the caller's."""
        if not self.closed or self.closed[-1].index < first:
            return Sums(), {}
        if not is_minute:
            recent = [one for one in self.closed if one.index >= first]
            verifications: Table = {}
            for one in recent:
                verifications = _merged(verifications, one.verifications)
            return total([one.row for one in recent]), verifications
        key = (first, self.closed[-1].index)
        if self._minute is None or self._minute[0] != key:
            self._minute = key, total([one.row for one in self.closed if one.index >= first]).row
        return Sums(*self._minute[1]), self._table.hold(self.closed, first)


def _index_of_end(end_ns: int) -> int:
    """The bin in which something that ends then has its last nanosecond."""
    return (end_ns - 1) // BIN_NS


def _merged(one: Table, other: Table) -> Table:
    if not other:
        return one
    merged = dict(one)
    for key, n in other.items():
        merged[key] = merged.get(key, 0) + n
    return merged
