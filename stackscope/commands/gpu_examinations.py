"""What `doctor` finds out about GPUs: the driver is asked in a process of its own, never in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.commands.examinations import Check
from stackscope.errors import UsageError
from stackscope.hardware import nvml, peaks
from stackscope.hardware.gpu_facts import GpuFacts
from stackscope.hardware.gpu_probe import GpuReading
from stackscope.hardware.nvml_device import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stackscope.hardware.host import Host
    from stackscope.records import GpuSample

PATIENCE_S: Final = 60
"""A driver that was not in use may take seconds for each GPU to wake up."""

READINGS: Final = {
    "utilisation": "utilisation", "memory_busy": "memory busy time",
    "sm_clock_mhz": "SM clock", "memory_clock_mhz": "memory clock", "power_w": "power", "power_limit_w": "power limit",
    "energy_j": "energy", "temperature_c": "temperature", "memory_temperature_c": "memory temperature",
    "fan_share": "fan", "throttle": "throttling now", "throttled": "throttling over time", "processes": "processes",
    "pcie_read_bytes_per_s": "PCIe traffic",
}  # fmt: skip
"""What is read beside GPM and the peak, and its name for people."""

COUNTERS: Final = {
    "sm_active": "SM", "tensor_active": "tensor", "occupancy": "occupancy", "dram_share": "DRAM bandwidth",
    "pcie_read_bytes_per_s": "PCIe", "nvlink_read_bytes_per_s": "NVLink",
}  # fmt: skip
"""What GPM measures."""

WITHOUT_GPM: Final = "Nothing is needed: bandwidth is then modelled, and never derived from memory busy time."
STATE_IT: Final = f"Give it in GB/s with {peaks.OVERRIDE_VARIABLE}; without it no share of the peak is shown."


def ask_gpus(command: Sequence[str] | None = None) -> GpuFacts:
    """Ask the driver in a process of its own; what goes wrong with that is the answer's problem."""
    try:
        peaks.override(os.environ)
    except UsageError as error:
        return _failed(error.message, error.remedy)
    asked = [sys.executable, "-m", "stackscope.hardware.nvml_facts"] if command is None else list(command)
    try:
        answer = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return _failed(f"The NVIDIA driver did not answer within {PATIENCE_S} s.", nvml.CHECK)
    except OSError as error:
        return _failed(f"The NVIDIA driver cannot be asked: {error.strerror or error}.", nvml.CHECK)
    if answer.returncode < 0:
        name = signal.Signals(-answer.returncode).name
        return _failed(f"The NVIDIA driver's library ended the process that asked it ({name}).", nvml.CHECK)
    try:
        return msgspec.json.decode(answer.stdout, type=GpuFacts)
    except msgspec.DecodeError:
        last = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return _failed(f"The NVIDIA driver cannot be asked: {last or 'no answer came'}.", nvml.CHECK)


def _failed(problem: str, remedy: str | None) -> GpuFacts:
    return GpuFacts(reading=GpuReading(problem=problem, remedy=remedy))


def of_gpus(facts: GpuFacts, machine: Host) -> Iterator[Check]:
    """The driver, then every GPU with what can be read of it."""
    yield from _other_package()
    reading = facts.reading
    if reading.problem is not None:
        others = [kind for kind in machine.gpus if kind != "nvidia"]
        value = reading.problem
        if others:
            value += f" GPUs of other kinds ({', '.join(others)}) are not read."
        remedy = reading.remedy or nvml.CHECK
        yield Check(topic="GPUs", name="NVIDIA driver", holds=False, value=value, remedy=remedy)
        return
    version = f"version {facts.driver}" if facts.driver is not None else "does not tell its version"
    value = f"{version}, asked through nvidia-ml-py {facts.binding}"
    yield Check(topic="GPUs", name="NVIDIA driver", holds=True, value=value)
    if not reading.gpus:
        value = "the driver sees none"
        look = "See what nvidia-smi says; in a container, start that with --gpus all."
        yield Check(topic="GPUs", name="GPUs", holds=False, value=value, remedy=look)
        return
    cost = f"{units.milliseconds(reading.took_ns)}, {units.milliseconds(reading.cost_ns)} of CPU"
    yield Check(topic="GPUs", name="One round", holds=True, value=f"of readings takes {cost}")
    for gpu in reading.gpus:
        yield from _of_gpu(gpu)


def _other_package() -> Iterator[Check]:
    """The package of the module's name, which is another's shell, or an old one that hides it."""
    try:
        version = metadata.version("pynvml")
    except metadata.PackageNotFoundError:
        return
    yield Check(
        topic="GPUs",
        name="Python package",
        holds=False,
        value=f"pynvml {version} is installed beside nvidia-ml-py, which it hides or warns about",
        remedy="Run: pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
    )


def _of_gpu(gpu: GpuSample) -> Iterator[Check]:
    number = f"GPU {units.count(gpu.index)}"
    topic = number if gpu.name == number else f"{number}, {gpu.name}"
    if gpu.instance_of is not None:
        topic += f", {gpu.uuid}"

    def check(name: str, value: str, holds: bool | None = True, remedy: str | None = None) -> Check:
        return Check(topic=topic, name=name, value=value, holds=holds, remedy=remedy)

    all_of_it = gpu.unknown.get("*")
    if all_of_it is not None and gpu.instance_of is None:
        yield check("Readings", f"none: {all_of_it}", False, nvml.remedy_for(all_of_it))
        return
    identity = ", ".join(part for part in (gpu.uuid, gpu.pci_id) if part)
    yield check("Identity", identity or "not told", True if identity else None)
    if not gpu.is_used and gpu.why("is_used") is None:
        value, remedy = "CUDA_VISIBLE_DEVICES hides it from the engine", "Unset that variable to use it."
        yield check("Use", value, None, remedy)
    yield _memory(topic, gpu)
    yield _gpm(topic, gpu)
    if gpu.instance_of is not None:
        yield check("Other readings", f"none: {all_of_it}", None)
        return
    yield _peak(topic, gpu)
    yield from _readings(topic, gpu)


def _memory(topic: str, gpu: GpuSample) -> Check:
    if gpu.memory_total_bytes is None:
        reason = gpu.why("memory_total_bytes") or "not told"
        remedy = nvml.remedy_for(reason)
        return Check(topic=topic, name="Memory", holds=False, value=reason, remedy=remedy)
    value = f"{units.data_size(gpu.memory_used_bytes)} used of {units.data_size(gpu.memory_total_bytes)}"
    if gpu.is_memory_shared:
        value += ", the machine's own, shared with the processor"
    return Check(topic=topic, name="Memory", holds=True, value=value)


def _gpm(topic: str, gpu: GpuSample) -> Check:
    if not gpu.is_gpm_live:
        reason = gpu.why("is_gpm_live") or "not told"
        remedy = nvml.remedy_for(reason)
        remedy = WITHOUT_GPM if remedy == nvml.NOTHING_TO_DO else remedy
        return Check(topic=topic, name="GPM", holds=False, value=reason, remedy=remedy)
    measured = [name for field, name in COUNTERS.items() if getattr(gpu, field) is not None]
    value = f"live: {', '.join(measured)}" if measured else "live, but without any value"
    for reason, names in _missing(gpu, COUNTERS).items():
        value += f"; not {', '.join(names)}: {reason}"
    return Check(topic=topic, name="GPM", holds=True, value=value)


def _peak(topic: str, gpu: GpuSample) -> Check:
    if gpu.peak_bytes_per_s is None:
        reason = (gpu.why("peak_bytes_per_s") or "not told").partition(";")[0]
        return Check(topic=topic, name="Peak bandwidth", holds=False, value=reason, remedy=STATE_IT)
    value = f"{units.number(gpu.peak_bytes_per_s / 1e9, unit='GB/s')}, {gpu.peak_from}"
    row = peaks.rated(gpu.name)
    if row is not None and row.dram_gb_per_s is not None:
        value += f"; rated at {units.number(row.dram_gb_per_s, unit='GB/s')}"
    return Check(topic=topic, name="Peak bandwidth", holds=True, value=value)


def _readings(topic: str, gpu: GpuSample) -> Iterator[Check]:
    """What is read, and what is not, by reason."""
    known = [name for field, name in READINGS.items() if getattr(gpu, field) is not None]
    if known:
        yield Check(topic=topic, name="Readings", holds=True, value=", ".join(known))
    for reason, names in _missing(gpu, READINGS).items():
        remedy = nvml.remedy_for(reason)
        yield Check(topic=topic, name="Not read", holds=False, value=f"{', '.join(names)}: {reason}", remedy=remedy)
    if gpu.why("engine_memory_bytes") == NAMESPACE:
        value = "the driver lists those of another namespace, so the engine's process cannot be told from others"
        remedy = "Start the container with --pid=host."
        yield Check(topic=topic, name="Process ids", holds=False, value=value, remedy=remedy)


def _missing(gpu: GpuSample, fields: Mapping[str, str]) -> dict[str, list[str]]:
    """The readings that are not there, by reason."""
    reasons: dict[str, list[str]] = {}
    for field, name in fields.items():
        if getattr(gpu, field) is None:
            reasons.setdefault(gpu.why(field) or "not told", []).append(name)
    return reasons
