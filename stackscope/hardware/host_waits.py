"""What held the machine or the engine process up: pressure on I/O and memory, swapping, page faults, lost cores."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.cgroups import folders
from stackscope.hardware.host_rates import Absence
from stackscope.hardware.procfs import text_of

if TYPE_CHECKING:
    from pathlib import Path

NO_PRESSURE: Final = Absence(
    "this kernel does not measure it (PSI)", "Boot a kernel that has CONFIG_PSI with psi=1 on its command line."
)
NO_SWAP: Final = Absence("this system does not tell of swapping")
_SOME: Final = re.compile(r"^some avg10=([\d.]+)", re.MULTILINE)
_SWAPPED: Final = re.compile(r"^pswp(?:in|out) (\d+)$", re.MULTILINE)
_SWAP: Final = re.compile(r"^Swap(Total|Free):\s+(\d+) kB$", re.MULTILINE)
_INVOLUNTARY: Final = re.compile(r"^nonvoluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)


class Pressure:
    """Share of the last ten seconds in which something waited, in this process's control group or else everywhere.

    Source: Documentation/accounting/psi.rst of the kernel.
    """

    def __init__(self, root: Path, kind: str) -> None:
        """`kind` is `io` or `memory`."""
        places = [*(f"{group}/{kind}.pressure" for group in folders(root, "")), f"{root}/proc/pressure/{kind}"]
        self._path = next((path for path in places if _SOME.search(text_of(path))), None)
        self.absence: Final = NO_PRESSURE if self._path is None else None

    def read(self) -> float | None:
        found = None if self._path is None else _SOME.search(text_of(self._path))
        return float(found[1]) / 100 if found else None


class Swap:
    """Use of swap space, by all of the machine."""

    def __init__(self, root: Path) -> None:
        self._meminfo = f"{root}/proc/meminfo"
        self._vmstat = f"{root}/proc/vmstat"
        self.absence: Final = None if self.used() is not None and self.moved() is not None else NO_SWAP

    def used(self) -> int | None:
        """Bytes; 0 where there is no swap. `None`: not told."""
        found = {name: int(amount) * 1024 for name, amount in _SWAP.findall(text_of(self._meminfo))}
        return found["Total"] - found["Free"] if len(found) == 2 else None

    def moved(self) -> int | None:
        """Bytes swapped in and out since the machine started. `None`: not told."""
        found = _SWAPPED.findall(text_of(self._vmstat))
        return sum(map(int, found)) * os.sysconf("SC_PAGE_SIZE") if len(found) == 2 else None


class Waits(NamedTuple):
    """What a process waited for since it began, counted."""

    major_faults: int
    """Pages that had to come from a disk."""
    involuntary_switches: int
    """Times that one of its threads lost its core though it had more to do; those of threads that ended are gone."""


def waits_of(root: Path, pid: int) -> Waits | None:
    """What a process waited for. `None`: it has ended, or this system does not tell.

    Source: proc(5), /proc/pid/stat, and /proc/pid/task/tid/status, which counts for one thread.
    """
    folder = f"{root}/proc/{pid}"
    fields = text_of(f"{folder}/stat").rpartition(")")[2].split()
    if len(fields) < 10:
        return None
    threads: list[str] = []
    with suppress(OSError):  # It ended just now.
        threads = os.listdir(f"{folder}/task")  # noqa: PTH208 - a third of the time that a Path takes
    counts = [_INVOLUNTARY.search(text_of(f"{folder}/task/{thread}/status")) for thread in threads]
    known = [int(found[1]) for found in counts if found is not None]
    return Waits(int(fields[9]), sum(known)) if known else None
