"""Takes a reading of the machine once a second, in a thread of its own, and hands it on."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec
import psutil

from stackscope.hardware.host import ROOT, allowed_cores, gpu_drivers
from stackscope.hardware.host_probes import HostProbes
from stackscope.hardware.procfs import CpuTime, Kernel, ProcessFigures, throttled_share
from stackscope.records import HardwareSample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stackscope.hardware.gpu_probe import GpuProbe
    from stackscope.records import GpuSample

PERIOD_NS: Final = 1_000_000_000

FIRST: Final = "it takes two readings"
UNTOLD: Final = "this system does not tell it"


class Sampler(threading.Thread):
    """Reads host, engine process and GPUs until it is closed.

    What one sample takes is in it; a sample that is late says by how much, and what was missed meanwhile is left out.
    """

    def __init__(
        self,
        take: Callable[[HardwareSample], None],
        *,
        clock: Callable[[], int],
        pid: int | None = None,
        gpus: GpuProbe | None = None,
        recorder_cpu_ns: Callable[[], int | None] | None = None,
        period_ns: int = PERIOD_NS,
        root: Path = ROOT,
        stopping: threading.Event | None = None,
    ) -> None:
        """`take` is called in the sampler's thread; `clock` is the session's, in nanoseconds.

        `gpus` is a probe that does not wait; it is closed with the sampler.
        """
        super().__init__(name="hardware sampler", daemon=True)
        self._take = take
        self._clock = clock
        self._period_ns = period_ns
        self._stopping = threading.Event() if stopping is None else stopping
        self._kernel = Kernel(root, allowed_cores() or frozenset())
        self._host = _Host(self._kernel)
        self._engine = _Engine(self._kernel, pid)
        self._probes = HostProbes(root)
        self._gpus = gpus
        self._gpu_drivers = gpu_drivers(root)
        self._recorder_cpu_ns = recorder_cpu_ns
        self.failure: Exception | None = None
        """What ended the thread that should not have. `None`: nothing."""

    def run(self) -> None:
        """Sample until the end."""
        due_ns = self._clock()
        try:
            while True:
                self._take(self.sample(late_ns=max(self._clock() - due_ns, 0)))
                n_missed = (self._clock() - due_ns) // self._period_ns
                due_ns += (max(n_missed, 0) + 1) * self._period_ns
                if self._stopping.wait(max(due_ns - self._clock(), 0) / 1e9):
                    return
        except Exception as error:  # noqa: BLE001 - whoever owns the thread looks at it.
            self.failure = error

    def close(self) -> None:
        """End the thread. What it is reading is read to its end. Raises what had ended it before, which is a bug."""
        self._stopping.set()
        if self.ident is not None:
            self.join()
        self._probes.close()
        if self._gpus is not None:
            self._gpus.close()
        if self.failure is not None:
            raise self.failure

    def watch(self, pid: int | None) -> None:
        """Read another engine process from now on."""
        self._engine = _Engine(self._kernel, pid)

    def sample(self, *, late_ns: int = 0) -> HardwareSample:
        """One reading, now."""
        began_ns = time.thread_time_ns()
        at_ns = self._clock()
        unknown: dict[str, str] = {}
        busy, cores = self._host.cpu_percent(unknown)
        available, total = self._host.memory(unknown)
        rss, engine_cpu_ns = self._engine.read(unknown)
        probed, missing = self._probes.read(self._engine.pid, at_ns)
        unknown |= missing
        gpus = self._read_gpus(unknown)
        sample = HardwareSample(
            at_ns=at_ns,
            late_ns=late_ns,
            cpu_percent=busy,
            cores=cores,
            frequency_mhz=self._host.frequency_mhz(unknown),
            rss_bytes=rss,
            memory_available_bytes=available,
            memory_total_bytes=total,
            engine_cpu_ns=engine_cpu_ns,
            own_cpu_ns=time.process_time_ns(),
            recorder_cpu_ns=None if self._recorder_cpu_ns is None else self._recorder_cpu_ns(),
            cpu_pressure=self._host.cpu_pressure(unknown),
            throttled_share=self._host.throttled_share(unknown),
            gpus=gpus,
            unknown=unknown,
        )
        return msgspec.structs.replace(sample, cost_ns=time.thread_time_ns() - began_ns, **probed)

    def _read_gpus(self, unknown: dict[str, str]) -> tuple[GpuSample, ...] | None:
        if self._gpus is None:
            if self._gpu_drivers:
                unknown["gpus"] = "nobody reads them"
                return None
            return ()
        reading = self._gpus.read()
        if reading.gpus is None and reading.reason is not None:
            unknown["gpus"] = reading.reason
        others = [kind for kind in self._gpu_drivers if kind != "nvidia"]
        if others and not reading.gpus:
            unknown["gpus"] = f"nobody reads those of {' and '.join(others)}"
            return None
        return reading.gpus


class _Host:
    """The machine, and what it said the last time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._why_no_frequency = kernel.why_no_frequency()
        self._cpu_time: CpuTime | None = None
        self._throttling: dict[str, tuple[int, int]] | None = None

    def cpu_percent(self, unknown: dict[str, str]) -> tuple[float | None, int | None]:
        """(busy share of all cores since the last time as a percentage, number of cores)"""
        before, now = self._cpu_time, self._read_cpu_time()
        self._cpu_time = now
        if now is None:
            unknown["cpu_percent"] = UNTOLD
            return None, None
        if before is None or now.total <= before.total:
            unknown["cpu_percent"] = FIRST
            return None, now.cores
        # A counter can step back a little when a core goes to sleep.
        share = (now.busy - before.busy) / (now.total - before.total)
        return 100 * min(max(share, 0.0), 1.0), now.cores

    def _read_cpu_time(self) -> CpuTime | None:
        if self._kernel.exists:
            return self._kernel.cpu_time()
        times = psutil.cpu_times()
        total = sum(times)
        return CpuTime(
            busy=round(1e6 * (total - times.idle)), total=round(1e6 * total), cores=psutil.cpu_count() or 1
        )  # fmt: skip

    def memory(self, unknown: dict[str, str]) -> tuple[int | None, int | None]:
        """(bytes available, bytes in all)"""
        if not self._kernel.exists:
            told = psutil.virtual_memory()
            return told.available, told.total
        available, total = self._kernel.memory()
        for name, value in (("memory_available_bytes", available), ("memory_total_bytes", total)):
            if value is None:
                unknown[name] = UNTOLD
        return available, total

    def frequency_mhz(self, unknown: dict[str, str]) -> float | None:
        told = self._kernel.frequency_mhz()
        if told is None:
            unknown["frequency_mhz"] = self._why_no_frequency
        return told

    def cpu_pressure(self, unknown: dict[str, str]) -> float | None:
        told = self._kernel.cpu_pressure()
        if told is None:
            unknown["cpu_pressure"] = "this kernel does not measure it (PSI)"
        return told

    def throttled_share(self, unknown: dict[str, str]) -> float | None:
        before, now = self._throttling, self._kernel.throttling()
        self._throttling = now
        told = None if before is None else throttled_share(before, now)
        if told is None:
            unknown["throttled_share"] = FIRST if now else "no control group counts it"
        return told


class _Engine:
    """The engine process, as long as it lives."""

    def __init__(self, kernel: Kernel, pid: int | None) -> None:
        self._kernel = kernel
        self._pid = pid
        self._started: int | None = None
        """When it did. Another process with its number did so later. `None`: it has not been seen yet."""
        self._why = "there is no engine process"

    @property
    def pid(self) -> int | None:
        """`None`: there is none, or it has ended."""
        return self._pid

    def read(self, unknown: dict[str, str]) -> tuple[int | None, int | None]:
        """(resident bytes, CPU time in nanoseconds) of the process."""
        found = None if self._pid is None else self._figures(self._pid)
        if found is None:
            unknown["rss_bytes"] = unknown["engine_cpu_ns"] = self._why
            return None, None
        return found

    def _figures(self, pid: int) -> tuple[int, int] | None:
        figures = self._kernel.process(pid) if self._kernel.exists else _told_by_psutil(pid)
        if figures is None or self._started not in (None, figures.started):
            self._pid, self._why = None, "the engine process has ended"
            return None
        self._started = figures.started
        return figures.rss_bytes, figures.cpu_ns


def _told_by_psutil(pid: int) -> ProcessFigures | None:
    """What a process has used, where there is no `/proc`."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            times, rss, started = process.cpu_times(), process.memory_info().rss, process.create_time()
    except psutil.Error:
        return None
    return ProcessFigures(cpu_ns=round(1e9 * (times.user + times.system)), rss_bytes=rss, started=round(1e3 * started))
