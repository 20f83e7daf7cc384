"""What the files of a Linux kernel say at this moment: how busy the cores are, who waits for one, who is held up.

Which of the files exist is looked up once, since a reading is taken every second. Elsewhere than on Linux there are
none, and everything is `None`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.cgroups import folders, memory_limit

if TYPE_CHECKING:
    from pathlib import Path

MOST_CLOCKS: Final = 8
"""Cores whose clock is read: each is a file of its own."""

LIMIT_READINGS: Final = 5
"""Readings of memory for which the limit of the control groups, many small files, is not read again."""

MOST_BYTES: Final = 1 << 16
"""Read of a file: what is wanted of a long one stands at its beginning."""

_SOME: Final = re.compile(r"^some avg10=([\d.]+)", re.MULTILINE)
_NOMINAL: Final = re.compile(r"^cpu MHz\s*:\s*([\d.]+)", re.MULTILINE)
_FLAGS: Final = re.compile(r"^flags\s*:(.*)", re.MULTILINE)
_NO_MORE_MEMORY: Final = ("Z", "X", "x")
"""States of a process that has ended, while its parent has not asked how."""


class CpuTime(NamedTuple):
    """Time of all cores together since the machine started, in one unit."""

    busy: int
    total: int
    cores: int


class ProcessFigures(NamedTuple):
    """What one process has used."""

    cpu_ns: int
    rss_bytes: int
    started: int
    """When, in ticks since the machine started: with the number of the process, its identity."""


class Kernel:
    """Reads `/proc` and `/sys` below a root."""

    def __init__(self, root: Path, cores: frozenset[int]) -> None:
        """`cores` are those whose clock is of interest."""
        self.exists: Final = (root / "proc").exists()
        self._root = root
        self._proc = f"{root}/proc"
        groups = folders(root, "")
        pressures = [*(f"{group}/cpu.pressure" for group in groups), f"{root}/proc/pressure/cpu"]
        self._pressure = next((path for path in pressures if _SOME.search(text_of(path))), None)
        counted = [f"{group}/cpu.stat" for group in (*groups, *folders(root, "cpu"))]
        self._throttled = [path for path in counted if _periods(path) is not None]
        clocks = [
            f"{root}/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq" for core in sorted(cores)[:MOST_CLOCKS]
        ]
        self._clocks = [path for path in clocks if text_of(path).strip().isdigit()]
        self._limit: tuple[int | None, int] = (None, 0)
        self._n_until_limit = 0
        """Readings left until the limit is read again."""

    def cpu_time(self) -> CpuTime | None:
        """How long the cores have worked. `None`: not told."""
        lines = text_of(f"{self._proc}/stat").splitlines()
        cores = sum(line.startswith("cpu") for line in lines) - 1
        fields = lines[0].split() if cores > 0 else []
        if len(fields) < 6 or fields[0] != "cpu" or not all(field.isdigit() for field in fields[1:]):
            return None
        ticks = [int(field) for field in fields[1:9]]  # The two for guests are in those of their hosts.
        total = sum(ticks)
        return CpuTime(busy=total - ticks[3] - ticks[4], total=total, cores=cores)

    def cpu_pressure(self) -> float | None:
        """Share of the last ten seconds in which something runnable waited for a core, in the control group of this
        process or else in the whole machine. `None`: this kernel does not measure it.

        Source: Documentation/accounting/psi.rst of the kernel.
        """
        found = None if self._pressure is None else _SOME.search(text_of(self._pressure))
        return float(found[1]) / 100 if found else None

    def throttling(self) -> dict[str, tuple[int, int]]:
        """(periods in which the quota held it up, periods) since each control group began, of all levels that count.

        Source: Documentation/scheduler/sched-bwc.rst of the kernel.
        """
        counted = ((path, _periods(path)) for path in self._throttled)
        return {path: periods for path, periods in counted if periods is not None}

    def frequency_mhz(self) -> float | None:
        """Mean clock of the cores, or of the first few of them. `None`: not told, as in most virtual machines."""
        texts = [text_of(path).strip() for path in self._clocks]
        kilohertz = [int(text) for text in texts if text.isdigit()]
        return sum(kilohertz) / len(kilohertz) / 1e3 if kilohertz else None

    def why_no_frequency(self) -> str:
        """Why the clock is not told.

        What /proc/cpuinfo has is no reading where the kernel cannot compare the counters of cycles: it is then the rate
        of the time stamp counter, the same at any clock. Source: arch/x86/kernel/cpu/proc.c and aperfmperf.c.
        """
        text = text_of(f"{self._proc}/cpuinfo")
        nominal = _NOMINAL.search(text)
        flags = _FLAGS.search(text)
        why = "no driver tells it (cpufreq)"
        if nominal is None or flags is None or "aperfmperf" in flags[1].split():
            return why
        virtual = ", as in most virtual machines" if "hypervisor" in flags[1].split() else ""
        return f"{why}{virtual}; the {float(nominal[1]):,.0f} MHz of /proc/cpuinfo are nominal, and not measured"

    def memory(self) -> tuple[int | None, int | None]:
        """(bytes that can be had now without swapping, bytes in all), within the limit of the control groups."""
        found: dict[str, int] = {}
        for line in text_of(f"{self._proc}/meminfo").splitlines():
            name, _, amount = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                found[name] = int(amount.split()[0]) * 1024
        if self._n_until_limit == 0:
            self._limit, self._n_until_limit = memory_limit(self._root), LIMIT_READINGS
        self._n_until_limit -= 1
        limit, used = self._limit
        available, total = found.get("MemAvailable"), found.get("MemTotal")
        if limit is None:
            return available, total
        left = max(0, limit - used)
        return left if available is None else min(available, left), limit if total is None else min(total, limit)

    def process(self, pid: int) -> ProcessFigures | None:
        """What a process has used. `None`: there is none, or it has ended and nobody has asked how yet.

        Source: proc(5), /proc/pid/stat; the name, which may hold anything, stands in brackets.
        """
        fields = text_of(f"{self._proc}/{pid}/stat").rpartition(")")[2].split()
        if len(fields) < 22 or fields[0] in _NO_MORE_MEMORY:
            return None
        user, system, started, pages = (int(fields[index]) for index in (11, 12, 19, 21))
        cpu_ns = (user + system) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return ProcessFigures(cpu_ns=cpu_ns, rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"), started=started)


def throttled_share(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> float | None:
    """Share of the periods between that were held up, at the level where it was most. `None`: no level counts."""
    shares = []
    for path, (held_up, periods) in after.items():
        held_up_before, periods_before = before.get(path, (held_up, periods))
        passed = periods - periods_before
        shares.append((held_up - held_up_before) / passed if passed > 0 else 0.0)
    return max(shares, default=None)


def _periods(path: str) -> tuple[int, int] | None:
    """(throttled periods, periods) of a `cpu.stat`. `None`: it does not count them."""
    pairs = (line.split() for line in text_of(path).splitlines())
    fields = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    if "nr_periods" not in fields or "nr_throttled" not in fields:
        return None
    return fields["nr_throttled"], fields["nr_periods"]


def text_of(path: str) -> str:
    """The beginning of a file of the kernel's; empty where there is none or it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MOST_BYTES).decode("utf-8", "replace")
    except OSError:  # The process ended between the two calls.
        return ""
    finally:
        os.close(descriptor)
