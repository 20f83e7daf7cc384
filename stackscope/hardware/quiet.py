"""Whether a measurement was left alone: CPU time that others took meanwhile, and how much had to wait for a CPU."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUIET_SHARE: Final = 0.03
"""A measurement was quiet when processes that are no part of it, and the hypervisor, took less than this of one CPU's
time during it. Declared beforehand, and blind to what was measured."""

CALM_SHARE: Final = 0.1
"""The same for a calibration, whose samples are judged one by one as well: a terminal that shows its progress takes 1
to 2 % of a CPU, and a desktop more."""


class Neighbours:
    """Watches how much CPU time goes to processes that are no part of a measurement."""

    def __init__(self, pids: Sequence[int], proc: Path = Path("/proc")) -> None:
        """`pids` are the measurement's processes beside this one."""
        self._pids = tuple(pids)
        self._proc = proc
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._begun: tuple[int | None, int] = (None, 0)

    def begin(self) -> None:
        """Watch from here on."""
        self._begun = (self.foreign_ticks(), time.monotonic_ns())

    def share(self) -> float | None:
        """Share of one CPU that others took since `begin`. `None`: this system does not say."""
        before, begun_ns = self._begun
        after, now_ns = self.foreign_ticks(), time.monotonic_ns()
        if before is None or after is None:
            return None
        # Two clocks that tick by 10 ms can differ by one, in either direction.
        return max(0, after - before) * self._tick_ns / max(1, now_ns - begun_ns)

    def watch(self, work: Callable[[], None]) -> float | None:
        """Do some work; share of one CPU that others took meanwhile. `None`: this system does not say."""
        self.begin()
        work()
        return self.share()

    def foreign_ticks(self) -> int | None:
        """CPU time that was not ours since the machine started, in ticks. `None`: this system does not say."""
        try:
            spent = machine_ticks((self._proc / "stat").read_text())
            own = process_ticks((self._proc / "self" / "stat").read_text(), with_ended=True)
        except OSError:
            return None
        for pid in self._pids:
            with suppress(OSError):  # One that has ended is among this process's ended children.
                own += process_ticks((self._proc / str(pid) / "stat").read_text())
        return spent - own


class Waiting:
    """Share of short stretches in which some task of the machine waited for a CPU (PSI, which counts microseconds)."""

    def __init__(self, path: Path = Path("/proc/pressure/cpu")) -> None:
        self._path = path
        self._before: int | None = None
        self._begun_ns = 0

    def begin(self) -> None:
        """A stretch begins."""
        self._before, self._begun_ns = self._total_us(), time.monotonic_ns()

    def share(self) -> float | None:
        """Since `begin`. `None`: this system does not say."""
        after, now_ns = self._total_us(), time.monotonic_ns()
        if self._before is None or after is None:
            return None
        return min(1.0, 1_000 * (after - self._before) / max(1, now_ns - self._begun_ns))

    def _total_us(self) -> int | None:
        try:
            return waited_us(self._path.read_text())
        except OSError:
            return None


def machine_ticks(stat: str) -> int:
    """CPU time of all processes, and what the hypervisor took, from /proc/stat, in ticks."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = [int(x) for x in stat.split("\n", 1)[0].split()[1:9]]
    return user + nice + system + irq + softirq + steal


def process_ticks(stat: str, *, with_ended: bool = False) -> int:
    """CPU time of one process, its threads included, from /proc/PID/stat, in ticks.

    `with_ended` adds that of its children that have ended and been waited for.
    """
    # Its name stands in brackets, and may hold spaces and brackets itself.
    fields = stat.rsplit(") ", 1)[1].split()
    return sum(int(ticks) for ticks in fields[11 : 15 if with_ended else 13])


def pressure(text: str) -> float | None:
    """Share of the last ten seconds in which some task waited for a CPU, in per cent, from /proc/pressure/cpu."""
    average = _some(text).get("avg10")
    return None if average is None else float(average)


def waited_us(text: str) -> int | None:
    """Time in which some task waited for a CPU since the machine started, in µs, from /proc/pressure/cpu."""
    total = _some(text).get("total")
    return None if total is None else int(total)


def _some(text: str) -> dict[str, str]:
    """The fields of the line about some task, as against all of them."""
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind == "some":
            return dict(field.split("=", 1) for field in fields)
    return {}
