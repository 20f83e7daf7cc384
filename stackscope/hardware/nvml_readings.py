"""Single questions to the driver, each with its fallbacks for old drivers and old bindings, and its own refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.hardware.nvml import (
    ABSENT,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    PERMANENT,
    LostError,
    RefusalError,
)
from stackscope.hardware.peaks import NOT_AVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from stackscope.hardware.nvml import Handle, Nvml

SM_CLOCK: Final = 1
MEMORY_CLOCK: Final = 2
GPU_SAMPLES: Final = 1
MEMORY_SAMPLES: Final = 2

RECENT_US: Final = 1_000_000
"""Of the driver's buffer of samples, what a first look takes."""
REASK_NS: Final = 60_000_000_000
"""What the driver refused for good is asked again after this: MIG may have been switched off meanwhile."""

REASONS_IN_FORCE: Final = {
    0x2: "clock setting of an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature (by software)",
    0x40: "temperature (by hardware)",
    0x80: "power brake",
    0x100: "clock setting of a display",
    0x200: "board limit",
    0x400: "reliability",
}
GPU_IDLE: Final = 0x1
"""Clocks are low because there is nothing to do, which is no throttling."""

MEMORY_TEMPERATURE: Final = 82
PCIE_SENT: Final = 197
PCIE_RECEIVED: Final = 198
THROTTLE_COUNTERS: Final = {74: 0x4, 76: 0x10, 269: 0x20, 270: 0x40, 271: 0x80}
"""Fields that count nanoseconds of throttling, and the reason each is for."""
FIELDS: Final = (MEMORY_TEMPERATURE, *THROTTLE_COUNTERS, PCIE_SENT, PCIE_RECEIVED)
VALUE_KINDS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of the union, by the type that the driver states."""
UNSIGNED_INT: Final = 1

NO_VALUE: Final = "the driver has no value for it"


class Answers:
    """Readings gathered one by one: a value or a reason for each.

    What is refused for good is not asked again for a minute, because a refusal costs as much as an answer.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}
        self._settled: dict[str, str] = {}
        self._settled_at_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """Start a round: forget the last one's values, and after a minute its refusals."""
        self.values, self.unknown = {}, {}
        if self._settled_at_ns is None or now_ns - self._settled_at_ns >= REASK_NS:
            self._settled, self._settled_at_ns = {}, now_ns

    def take(self, field: str, question: Callable[[], object]) -> None:
        """Ask one question. Raises `LostError` alone: every other refusal is noted."""
        if field in self._settled:
            self.unknown[field] = self._settled[field]
            return
        try:
            self.values[field] = question()
        except LostError:
            raise
        except RefusalError as refusal:
            self.unknown[field] = refusal.reason
            if refusal.code in PERMANENT:
                self._settled[field] = refusal.reason


class Memory(NamedTuple):
    """Memory in bytes."""

    used: int
    total: int
    is_shared: bool


class Process(NamedTuple):
    """A process that computes on a GPU."""

    pid: int
    """As the driver counts, which in a container is not as this process does."""
    memory: int | None
    """Bytes."""


class FieldValue(NamedTuple):
    """A value of the driver's that is asked for by number."""

    value: float
    is_32_bit: bool


class Busy:
    """Share of the time in which kernels ran, or memory was used: from the driver's ring buffer, at no waiting.

    Where there is no such buffer, the driver's own average over its last period serves.
    """

    def __init__(self, nvml: Nvml, handle: Handle, *, kind: int) -> None:
        """`kind` is `GPU_SAMPLES` or `MEMORY_SAMPLES`."""
        self._nvml = nvml
        self._handle = handle
        self._kind = kind
        self._seen_us = 0
        """Stamp of the newest sample that was taken, on the driver's clock."""
        self._has_buffer = True

    def read(self) -> float:
        """A share from 0 to 1. Raises `RefusalError`."""
        samples = self._samples()
        if samples:
            return sum(samples) / len(samples) / 100
        rates = self._nvml.ask("nvmlDeviceGetUtilizationRates", self._handle)
        percent = rates.gpu if self._kind == GPU_SAMPLES else rates.memory
        if not 0 <= percent <= 100:
            raise RefusalError(NO_VALUE)
        return int(percent) / 100

    def _samples(self) -> list[int]:
        """New samples in percent; none where there is no buffer, or nothing new in it."""
        if not self._has_buffer:
            return []
        try:
            _, found = self._nvml.ask("nvmlDeviceGetSamples", self._handle, self._kind, self._seen_us)
        except LostError:
            raise
        except RefusalError as refusal:
            # The binding asks an empty buffer for nought samples, which the driver calls an invalid argument.
            self._has_buffer = refusal.code in (NOT_FOUND, INVALID_ARGUMENT)
            return []
        stamped = [(sample.timeStamp, sample.sampleValue.uiVal) for sample in found]
        newest = max((stamp for stamp, _ in stamped), default=self._seen_us)
        oldest = max(self._seen_us, newest - RECENT_US)
        self._seen_us = newest
        return [value for stamp, value in stamped if stamp > oldest and 0 <= value <= 100]


def clock_mhz(nvml: Nvml, handle: Handle, kind: int) -> float:
    """A clock as it is now. Raises `RefusalError`."""
    return _number(nvml.ask("nvmlDeviceGetClockInfo", handle, kind))


def power_w(nvml: Nvml, handle: Handle) -> float:
    """Power drawn. Raises `RefusalError`."""
    return _number(nvml.ask("nvmlDeviceGetPowerUsage", handle)) / 1e3


def power_limit_w(nvml: Nvml, handle: Handle) -> float:
    """Power that it may draw. Raises `RefusalError`."""
    return (
        _number(first_of(nvml, ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"), handle)) / 1e3
    )


def energy_j(nvml: Nvml, handle: Handle) -> float:
    """Energy drawn since the driver was loaded. Raises `RefusalError`."""
    return float(nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle)) / 1e3


def temperature_c(nvml: Nvml, handle: Handle) -> float:
    """Temperature of the chip: either function may be missing, from old drivers the one, from new ones the other."""
    return float(first_of(nvml, ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), handle, 0))


def fan_share(nvml: Nvml, handle: Handle) -> float:
    """Intended fan speed. Raises `RefusalError`."""
    return _number(nvml.ask("nvmlDeviceGetFanSpeed", handle)) / 100


def throttle(nvml: Nvml, handle: Handle) -> tuple[str, ...]:
    """Why the clocks are held down now; an idle GPU's low clocks are not. Raises `RefusalError`."""
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    mask = int(first_of(nvml, names, handle)) & ~GPU_IDLE
    bits = [1 << n for n in range(mask.bit_length()) if mask >> n & 1]
    return tuple(REASONS_IN_FORCE.get(bit, f"reason {bit:#x}") for bit in bits)


def processes(nvml: Nvml, handle: Handle) -> list[Process]:
    """Processes that compute on it. Raises `RefusalError`."""
    base = "nvmlDeviceGetComputeRunningProcesses"
    found = first_of(nvml, (f"{base}_v3", f"{base}_v2", base), handle)
    return [Process(int(entry.pid), entry.usedGpuMemory) for entry in found]


def memory(nvml: Nvml, handle: Handle, *, has_bus: bool, root: Path) -> Memory:
    """Memory of a GPU. Raises `RefusalError`.

    A GPU that tells neither memory nor a memory bus has none of its own: then the machine's memory is what it uses.
    WSL is left out of that, because there the driver does not tell much of any GPU.
    """
    try:
        info = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    except RefusalError as refusal:
        if refusal.code != NOT_SUPPORTED or has_bus or is_wsl(root):
            raise
        return _machine_memory(root)
    if info.total > 0:
        return Memory(int(info.used), int(info.total), False)
    if has_bus:
        raise RefusalError("the driver answers that it has no memory at all")
    return _machine_memory(root)


def fields(nvml: Nvml, handle: Handle) -> dict[int, FieldValue | str]:
    """By number: the values in `FIELDS`, or why there is none. Raises `RefusalError` when all are refused."""
    answers: dict[int, FieldValue | str] = {}
    for answer in nvml.ask("nvmlDeviceGetFieldValues", handle, list(FIELDS)):
        if answer.nvmlReturn != 0:
            answers[answer.fieldId] = RefusalError.of(answer.nvmlReturn).reason
        elif answer.valueType >= len(VALUE_KINDS):
            answers[answer.fieldId] = NO_VALUE
        else:
            value = getattr(answer.value, VALUE_KINDS[answer.valueType])
            answers[answer.fieldId] = FieldValue(value, answer.valueType == UNSIGNED_INT)
    return answers


def first_of(nvml: Nvml, names: tuple[str, ...], *arguments: object) -> Any:
    """The answer of the first function that gives one.

    Raises `LostError` at once, else the `RefusalError` of the first function that driver and binding have.
    """
    refusals: list[RefusalError] = []
    for name in names:
        try:
            return nvml.ask(name, *arguments)
        except LostError:
            raise
        except RefusalError as refusal:
            refusals.append(refusal)
    raise next((refusal for refusal in refusals if refusal.code not in ABSENT), refusals[-1])


def is_wsl(root: Path) -> bool:
    """Whether this is Linux inside Windows."""
    try:
        return "microsoft" in (root / "proc/version").read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


def _machine_memory(root: Path) -> Memory:
    """The machine's own memory. Raises `RefusalError`."""
    try:
        text = (root / "proc/meminfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise RefusalError("neither the driver nor the system tells") from None
    lines = (line.split() for line in text.splitlines())
    sizes = {words[0]: int(words[1]) * 1024 for words in lines if len(words) >= 2 and words[1].isdigit()}
    total, available = sizes.get("MemTotal:", 0), sizes.get("MemAvailable:", 0)
    if total <= 0:
        raise RefusalError("neither the driver nor the system tells")
    return Memory(total - available, total, True)


def _number(value: int) -> float:
    """A number of the driver's, unless it stands for none. Raises `RefusalError`."""
    if value == NOT_AVAILABLE:
        raise RefusalError(NO_VALUE)
    return float(value)
