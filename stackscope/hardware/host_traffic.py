"""Bytes between memory and processor, of the whole machine, by counters of the processor where they may be read.

Two ways, the first that works: memory-bandwidth monitoring as resctrl shows it (Documentation/filesystems/resctrl.rst),
and counters of the memory controllers (uncore events, which sysfs describes for Intel's; perf_event_open(2)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from stackscope.hardware.host_perf import Counter, RefusedError, open_counter
from stackscope.hardware.host_rates import Absence, Rate
from stackscope.hardware.procfs import text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RESCTRL: Final = "memory-bandwidth monitoring (resctrl)"
UNCORE: Final = "counters of the memory controllers (perf)"

NOT_MOUNTED: Final = Absence("resctrl is not mounted", "As root: mount -t resctrl resctrl /sys/fs/resctrl")
NOT_MONITORED: Final = Absence("the processor does not monitor its memory bandwidth (resctrl)")
NO_CONTROLLERS: Final = Absence("the kernel describes no counters of memory controllers (perf)")
NOT_ALLOWED: Final = Absence(
    "the kernel does not let it read them (perf)", "As root: sysctl kernel.perf_event_paranoid=0, or give CAP_PERFMON."
)
FLAGS: Final = ("cqm_mbm_total",)
READS_AND_WRITES: Final = (
    ("cas_count_read", "cas_count_write"),
    ("data_read", "data_write"),
    ("data_reads", "data_writes"),
)
"""Events for reads and writes as Intel's drivers name them: of servers, of desktops, of older desktops."""


class Source(Protocol):
    """One way of counting bytes."""

    name: str

    def total(self) -> float | None:
        """Bytes so far. `None`: not told just now."""

    def close(self) -> None: ...


class Resctrl:
    """Bytes that missed the last cache, by tasks in the default group: all of them, unless somebody made others."""

    name: str = RESCTRL

    def __init__(self, root: Path) -> None:
        folder = root / "sys/fs/resctrl"
        paths = sorted((folder / "mon_data").glob("mon_L3_*/mbm_total_bytes")) if folder.is_dir() else []
        self._paths = [str(path) for path in paths]
        self.absence = None if self.total() is not None else self._why(root)

    def _why(self, root: Path) -> Absence:
        flags = text_of(f"{root}/proc/cpuinfo")
        return NOT_MOUNTED if any(flag in flags for flag in FLAGS) and not self._paths else NOT_MONITORED

    def total(self) -> float | None:
        """A place that is not available for a moment makes the sum unknown."""
        texts = [text_of(path).strip() for path in self._paths]
        return float(sum(map(int, texts))) if texts and all(text.isdigit() for text in texts) else None

    def close(self) -> None:
        """Nothing is open."""


class Uncore:
    """Bytes that the memory controllers moved."""

    name: str = UNCORE

    def __init__(self, root: Path, open: Callable[[int, int, int], Counter] = open_counter) -> None:
        """`open` opens a counter of a device type, a configuration and a core."""
        self._counters: list[tuple[Counter, float]] = []
        """With the bytes that each count stands for."""
        self.absence: Absence | None = NO_CONTROLLERS
        for device in sorted((root / "sys/bus/event_source/devices").glob("uncore_imc*")):
            self._open(device, open)
            if self.absence is NOT_ALLOWED:
                self.close()
                return

    def _open(self, device: Path, open: Callable[[int, int, int], Counter]) -> None:
        names = next((pair for pair in READS_AND_WRITES if all((device / "events" / n).exists() for n in pair)), ())
        type_text, core = text_of(str(device / "type")).strip(), text_of(str(device / "cpumask")).strip()
        for name in names:
            config, size = configuration(device, name), bytes_of_a_count(device, name)
            if config is None or size is None or not type_text.isdigit():
                continue
            for first in cores_of(core):
                try:
                    self._counters.append((open(int(type_text), config, first), size))
                except RefusedError:
                    self.absence = NOT_ALLOWED
                    return
                self.absence = None

    def total(self) -> float | None:
        counts = [(counter.read(), size) for counter, size in self._counters]
        return sum(count * size for count, size in counts) if counts else None

    def close(self) -> None:
        for counter, _ in self._counters:
            counter.close()
        self._counters = []


def configuration(device: Path, event: str) -> int | None:
    """The bits that select an event, from text like `event=0x04,umask=0x03` in sysfs. `None`: there is more to it."""
    config = 0
    for term in text_of(str(device / "events" / event)).strip().split(","):
        name, _, value = term.partition("=")
        place, _, bits = text_of(str(device / "format" / name)).strip().partition(":")
        low, _, high = bits.partition("-")
        try:
            number, first = int(value or "1", 0), int(low)
            last = int(high or low)
        except ValueError:
            return None
        if place != "config" or number >> (last - first + 1):
            return None
        config |= number << first
    return config


def bytes_of_a_count(device: Path, event: str) -> float | None:
    """What one count of an event stands for. `None`: it is not told in a unit that is known."""
    units = {"MiB": float(1 << 20), "Bytes": 1.0, "KiB": 1024.0}
    unit = units.get(text_of(str(device / "events" / f"{event}.unit")).strip())
    try:
        scale = float(text_of(str(device / "events" / f"{event}.scale")).strip() or "1")
    except ValueError:
        return None
    return None if unit is None else unit * scale


def cores_of(mask: str) -> list[int]:
    """The cores that a list such as `0,28` or `0-1` names: one for each socket."""
    found: list[int] = []
    for part in mask.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            found += range(int(first), int(last or first) + 1)
    return found


class DramTraffic:
    """Bytes per second between memory and processor."""

    def __init__(self, root: Path, open: Callable[[int, int, int], Counter] = open_counter) -> None:
        resctrl = Resctrl(root)
        self._source: Source | None = resctrl
        self.absence: Absence | None = None
        if resctrl.absence is not None:
            uncore = Uncore(root, open)
            self._source = uncore if uncore.absence is None else None
            if uncore.absence is not None:
                remedies = [one.remedy for one in (uncore.absence, resctrl.absence) if one.remedy is not None]
                reason = f"{resctrl.absence.reason}, and {uncore.absence.reason}"
                self.absence = Absence(reason, next(iter(remedies), None))
        self._rate = Rate()

    @property
    def name(self) -> str | None:
        """What counts. `None`: nothing does."""
        return None if self._source is None else self._source.name

    def read(self, now_ns: int) -> float | None:
        """Since the reading before. `None`: there was none, or it is not told."""
        return None if self._source is None else self._rate.update(now_ns, self._source.total())

    def close(self) -> None:
        """Let go of what is counted."""
        if self._source is not None:
            self._source.close()
