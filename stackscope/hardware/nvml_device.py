"""One GPU behind its handle: who it is, what is read of it at every round and what once a second, and its instances."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.characters import harmless
from stackscope.hardware import gpu_use, nvml_readings, peaks
from stackscope.hardware.gpu_use import EngineUse, Identity
from stackscope.hardware.nvml import NOT_SUPPORTED, LostError, RefusalError
from stackscope.hardware.nvml_gpm import Gpm
from stackscope.hardware.nvml_readings import (
    GPU_SAMPLES,
    MEMORY_CLOCK,
    MEMORY_SAMPLES,
    NO_VALUE,
    PCIE_RECEIVED,
    PCIE_SENT,
    REASONS_IN_FORCE,
    SM_CLOCK,
    THROTTLE_COUNTERS,
    Answers,
    Busy,
    FieldValue,
)
from stackscope.hardware.peaks import Peak
from stackscope.records import GpuSample

if TYPE_CHECKING:
    from typing import Any

    from stackscope.hardware.nvml import Handle, Nvml

SLOW_NS: Final = 950_000_000
"""Between two looks at what changes slowly: a second, less the jitter of ticks."""
MOST_SHARE: Final = 1.2
"""Of an interval, what a counter of nanoseconds may grow by before it is not one of nanoseconds."""

NEEDS_TWO: Final = "it takes two readings, a second apart"
WHOLE_GPU: Final = "it is read for the whole GPU, not for an instance"
NAMESPACE: Final = "the driver lists processes of another namespace; a container needs --pid=host"
SLICED: Final = "the bandwidth of an instance's part of the GPU is not told"
MIG_HAS_NONE: Final = "the driver has none while MIG is on"
SUSPECT: Final = "the driver says 0 here whatever the memory does"
SHARED: Final = "memory is the machine's own, and the driver does not describe it"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU's readings need from outside the driver."""

    peak: Peak | None = None
    """Bandwidth that the user states."""
    root: Path = Path("/")


class Device:
    """A GPU. Every method raises `LostError` when it is gone, and none may be called after that."""

    def __init__(self, nvml: Nvml, handle: Handle, index: int, surroundings: Surroundings) -> None:
        self._nvml = nvml
        self._handle = handle
        self._around = surroundings
        self._fast = Answers()
        self._slow = Answers()
        self._slow_at_ns: int | None = None
        self._pids: frozenset[int] | None = None
        self._counters: tuple[int, dict[int, FieldValue | str]] | None = None
        """When fields were read last, and what they said."""
        self._was_memory_busy = False
        self.identity = identify(nvml, handle, index)
        self._utilisation = Busy(nvml, handle, kind=GPU_SAMPLES)
        self._memory_busy = Busy(nvml, handle, kind=MEMORY_SAMPLES)
        self._gpm = Gpm(nvml, handle)
        self._peak = self._find_peak()
        self.instances = self._find_instances()

    def read(self, now_ns: int, use: EngineUse, visible: dict[str, bool | None]) -> list[GpuSample]:
        """The GPU, then its MIG instances. `visible` is whether CUDA shows each to the engine, by UUID."""
        began = time.perf_counter_ns()
        self._read_fast(now_ns)
        if self._slow_at_ns is None or now_ns - self._slow_at_ns >= SLOW_NS:
            self._read_slow(now_ns, use)
            self._slow_at_ns = now_ns
        counters, refused = self._gpm.read(now_ns)
        values = {**self._slow.values, **self._fast.values, **counters}
        unknown = {**refused, **self._slow.unknown, **self._fast.unknown}
        self._mend(values, unknown)
        samples = [_sample(self.identity, values, unknown, self._gpm, self._is_used(use, visible))]
        samples += [instance.read(now_ns, use, visible) for instance in self.instances]
        took = time.perf_counter_ns() - began
        return [msgspec.structs.replace(sample, took_ns=took) for sample in samples]

    def close(self) -> None:
        """Free what the driver holds for it. Not to be called for a GPU that was lost."""
        self._gpm.close()
        for instance in self.instances:
            instance.close()

    def _read_fast(self, now_ns: int) -> None:
        take, nvml, handle = self._fast.take, self._nvml, self._handle
        self._fast.begin(now_ns)
        take("utilisation", self._utilisation.read)
        take("sm_clock_mhz", partial(nvml_readings.clock_mhz, nvml, handle, SM_CLOCK))
        take("memory_clock_mhz", partial(nvml_readings.clock_mhz, nvml, handle, MEMORY_CLOCK))

    def _read_slow(self, now_ns: int, use: EngineUse) -> None:
        take, nvml, handle = self._slow.take, self._nvml, self._handle
        self._slow.begin(now_ns)
        take("memory_busy", self._memory_busy.read)  # The driver keeps what it was meanwhile: nothing is missed.
        for field in ("power_w", "power_limit_w", "energy_j", "temperature_c", "fan_share", "throttle"):
            take(field, partial(getattr(nvml_readings, field), nvml, handle))
        read_memory(self._nvml, self._handle, self._slow, has_bus=self._has_bus, root=self._around.root)
        self._read_processes(use)
        self._read_fields(now_ns)

    def _read_processes(self, use: EngineUse) -> None:
        """Who computes here. Process ids are only matched where they are those of this process's namespace."""
        slow, root = self._slow, self._around.root
        slow.take("processes", partial(nvml_readings.processes, self._nvml, self._handle))
        self._pids = None
        if "processes" not in slow.values:
            reason = slow.unknown["processes"]
            slow.unknown |= dict.fromkeys(("processes_outside", "process_memory_bytes", "engine_memory_bytes"), reason)
            return
        found = slow.values["processes"]
        pids = [process.pid for process in found]
        slow.values["processes"] = len(found)
        slow.values["processes_outside"] = len(gpu_use.outside(pids, root))
        held = [process.memory for process in found]
        if None in held:
            slow.unknown["process_memory_bytes"] = NO_VALUE
        else:
            slow.values["process_memory_bytes"] = sum(held)
        if not gpu_use.trusted(pids, root):
            slow.unknown["engine_memory_bytes"] = NAMESPACE
            return
        self._pids = frozenset(pids)
        if use.pid is None:
            slow.unknown["engine_memory_bytes"] = "no engine is running"
            return
        own = [process.memory for process in found if process.pid == use.pid]
        if None in own:
            slow.unknown["engine_memory_bytes"] = NO_VALUE
        else:
            slow.values["engine_memory_bytes"] = sum(own)

    def _read_fields(self, now_ns: int) -> None:
        """What is asked for by number: one call, some of it counters that only mean something against the last."""
        slow = self._slow
        slow.take("fields", partial(nvml_readings.fields, self._nvml, self._handle))
        refused = slow.unknown.pop("fields", None)
        found: dict[int, FieldValue | str] = slow.values.pop("fields", {})
        before = self._counters
        self._counters = (now_ns, found) if found else None
        if refused is not None:
            names = ("memory_temperature_c", "throttled", "pcie_read_bytes_per_s", "pcie_write_bytes_per_s")
            slow.unknown |= dict.fromkeys(names, refused)
            return
        temperature = found.get(nvml_readings.MEMORY_TEMPERATURE, NO_VALUE)
        _note(slow, "memory_temperature_c", temperature if isinstance(temperature, str) else temperature.value)
        then_ns, base = before or (now_ns, {})
        _note(slow, "throttled", _throttled(base, found, now_ns - then_ns))
        _note(slow, "pcie_write_bytes_per_s", _rate(base, found, PCIE_SENT, now_ns - then_ns))
        _note(slow, "pcie_read_bytes_per_s", _rate(base, found, PCIE_RECEIVED, now_ns - then_ns))

    def _find_peak(self) -> Peak | str:
        """Theoretical bandwidth, or why it is not known."""
        self._has_bus = False
        try:
            bus = self._nvml.ask("nvmlDeviceGetMemoryBusWidth", self._handle)
            self._has_bus = 0 < bus < peaks.NOT_AVAILABLE
            clock = self._nvml.ask("nvmlDeviceGetMaxClockInfo", self._handle, MEMORY_CLOCK)
        except LostError:
            raise
        except RefusalError as refusal:
            return refusal.reason
        return peaks.from_clock(self.identity.name, clock, bus)

    def _find_instances(self) -> tuple[Instance, ...]:
        """The MIG instances, where MIG is on."""
        self._has_mig = False
        try:
            self._has_mig = bool(self._nvml.ask("nvmlDeviceGetMigMode", self._handle)[0])
            count = self._nvml.ask("nvmlDeviceGetMaxMigDeviceCount", self._handle) if self._has_mig else 0
        except LostError:
            raise
        except RefusalError:
            return ()  # most GPUs and older drivers have no MIG
        found = []
        for place in range(count):
            try:
                handle = self._nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, place)
            except LostError:
                raise
            except RefusalError:
                continue  # places may be empty
            found.append(Instance(self._nvml, self._handle, handle, self.identity, self._around))
        return tuple(found)

    def _is_used(self, use: EngineUse, visible: dict[str, bool | None]) -> bool | None:
        is_visible = visible.get(self.identity.uuid)
        return gpu_use.used(self.identity, use, is_visible=is_visible, pids=self._pids)

    def _mend(self, values: dict[str, Any], unknown: dict[str, str]) -> None:
        """Add the peak, and take back what this kind of GPU is known to say wrongly."""
        for field in values:
            unknown.pop(field, None)
        peak: Peak | str = self._peak
        is_shared = bool(values.get("is_memory_shared"))
        if is_shared:
            peak = SHARED
        if self._around.peak is not None:
            peak = self._around.peak
        if isinstance(peak, Peak):
            values["peak_bytes_per_s"], values["peak_from"] = peak.bytes_per_s, peak.source
        else:
            unknown["peak_bytes_per_s"] = f"{peak}; {peaks.OVERRIDE_VARIABLE} can state it"
        self._was_memory_busy = self._was_memory_busy or bool(values.get("memory_busy"))
        if is_shared and not self._was_memory_busy and values.get("utilisation"):
            values.pop("memory_busy", None)
            unknown["memory_busy"] = SUSPECT
        if self._has_mig:
            for field in ("utilisation", "memory_busy"):
                if field in unknown:
                    unknown[field] = f"{MIG_HAS_NONE} (NVML {NOT_SUPPORTED})"


class Instance:
    """A MIG instance: memory and GPM are its own, the rest is the whole GPU's."""

    def __init__(self, nvml: Nvml, parent: Handle, handle: Handle, whole: Identity, surroundings: Surroundings) -> None:
        self._nvml = nvml
        self._handle = handle
        self._around = surroundings
        self._slow = Answers()
        self._slow_at_ns: int | None = None
        identity = identify(nvml, handle, whole.index)
        self.identity = msgspec.structs.replace(identity, pci_id=whole.pci_id, instance_of=whole.uuid)
        try:
            number = int(nvml.ask("nvmlDeviceGetGpuInstanceId", handle))
            self._gpm: Gpm | str = Gpm(nvml, parent, instance=number)
        except LostError:
            raise
        except RefusalError as refusal:
            self._gpm = refusal.reason

    def read(self, now_ns: int, use: EngineUse, visible: dict[str, bool | None]) -> GpuSample:
        """The instance. Raises `LostError` when the GPU is gone."""
        if self._slow_at_ns is None or now_ns - self._slow_at_ns >= SLOW_NS:
            self._slow.begin(now_ns)
            read_memory(self._nvml, self._handle, self._slow, has_bus=True, root=self._around.root)
            self._slow_at_ns = now_ns
        counters: dict[str, float] = {}
        unknown = {"*": WHOLE_GPU, "peak_bytes_per_s": SLICED, **self._slow.unknown}
        if isinstance(self._gpm, Gpm):
            counters, refused = self._gpm.read(now_ns)
            unknown |= refused
        else:
            unknown["is_gpm_live"] = self._gpm
        is_used = gpu_use.used(self.identity, use, is_visible=visible.get(self.identity.uuid), pids=None)
        gpm = self._gpm if isinstance(self._gpm, Gpm) else None
        return _sample(self.identity, {**self._slow.values, **counters}, unknown, gpm, is_used)

    def close(self) -> None:
        """Free what the driver holds for it."""
        if isinstance(self._gpm, Gpm):
            self._gpm.close()


def identify(nvml: Nvml, handle: Handle, index: int) -> Identity:
    """Who a handle is; what the driver does not tell is left out. Raises `LostError`."""
    told = Answers()
    told.take("name", partial(nvml.ask, "nvmlDeviceGetName", handle))
    told.take("uuid", partial(nvml.ask, "nvmlDeviceGetUUID", handle))
    told.take("pci", partial(nvml.ask, "nvmlDeviceGetPciInfo", handle))
    name = harmless(told.values.get("name", ""))
    place = None
    if "pci" in told.values:
        pci = told.values["pci"]
        place = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
    return Identity(uuid=told.values.get("uuid", ""), name=name or f"GPU {index}", index=index, pci_id=place)


def read_memory(nvml: Nvml, handle: Handle, answers: Answers, *, has_bus: bool, root: Path) -> None:
    """Memory in use and in all, of a GPU or an instance."""
    answers.take("memory", partial(nvml_readings.memory, nvml, handle, has_bus=has_bus, root=root))
    if "memory" not in answers.values:
        reason = answers.unknown.pop("memory")
        answers.unknown |= dict.fromkeys(("memory_used_bytes", "memory_total_bytes"), reason)
        return
    found = answers.values.pop("memory")
    answers.values |= {
        "memory_used_bytes": found.used, "memory_total_bytes": found.total, "is_memory_shared": found.is_shared
    }  # fmt: skip


def _sample(
    identity: Identity, values: dict[str, Any], unknown: dict[str, str], gpm: Gpm | None, is_used: bool | None
) -> GpuSample:
    is_live = None if gpm is None else gpm.is_live
    if is_live is not True and gpm is not None:
        unknown["is_gpm_live"] = gpm.reason
    if is_used is None:
        unknown["is_used"] = gpu_use.UNTOLD
    return GpuSample(
        uuid=identity.uuid,
        name=identity.name,
        index=identity.index,
        pci_id=identity.pci_id,
        instance_of=identity.instance_of,
        is_used=bool(is_used),
        is_gpm_live=is_live,
        unknown=unknown,
        **values,
    )


def _note(answers: Answers, field: str, found: object) -> None:
    """Keep a value, or a reason if it is a text."""
    if isinstance(found, str):
        answers.unknown[field] = found
    else:
        answers.values[field] = found


def _throttled(
    base: dict[int, FieldValue | str], found: dict[int, FieldValue | str], elapsed_ns: int
) -> dict[str, float] | str:
    """Share of the time between two looks that each reason held, or why it is not known."""
    shares: dict[str, float] = {}
    reason: str | None = None
    for number, bit in THROTTLE_COUNTERS.items():
        now, then = found.get(number, NO_VALUE), base.get(number, NEEDS_TWO)
        if isinstance(now, str) or isinstance(then, str):
            reason = reason or (now if isinstance(now, str) else NEEDS_TWO)
            continue
        share = (now.value - then.value) / elapsed_ns
        if not 0 <= share <= MOST_SHARE:
            return "the driver's counters of it jump"
        shares[REASONS_IN_FORCE[bit]] = min(share, 1.0)
    if not shares:
        return reason or NO_VALUE
    return {name: share for name, share in shares.items() if share > 0}


def _rate(
    base: dict[int, FieldValue | str], found: dict[int, FieldValue | str], number: int, elapsed_ns: int
) -> float | str:
    """Growth of a counter per second, or why it is not known."""
    now, then = found.get(number, NO_VALUE), base.get(number, NEEDS_TWO)
    if isinstance(now, str):
        return now
    if now.is_32_bit:
        return "the driver's counter has 32 bits and may run over unseen"
    if isinstance(then, str):
        return NEEDS_TWO
    if now.value < then.value:
        return "the driver's counter ran over"
    return (now.value - then.value) * 1e9 / elapsed_ns
