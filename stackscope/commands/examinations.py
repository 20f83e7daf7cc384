"""What `doctor` looks at, topic by topic. Native code is asked in a process of its own, never in this one."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.engine import openmp, sizing
from stackscope.engine.exits import died
from stackscope.errors import LibraryError, ToggleRefusedError
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stackscope.hardware.host import Host
    from stackscope.records import ModelSummary

OLDEST_PYTHON: Final = (3, 11)
PATIENCE_S: Final = 120
"""Loading the library takes 0.3 s; a GPU runtime may take many seconds to start."""

GPU_BUILDS: Final = {"nvidia": "-DGGML_CUDA=on", "amd": "-DGGML_HIP=on", "apple": "-DGGML_METAL=on"}
FASTER_INSTRUCTIONS: Final = {
    "avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16", "avx_vnni": "AVX_VNNI", "amx_int8": "AMX_INT8", "asimd": "NEON",
    "i8mm": "MATMUL_INT8", "sve": "SVE",
}  # fmt: skip
"""Instruction sets that inference gains from: the kernel's name for each, and the library's."""


MAPPING: Final = {
    True: ("Memory mapping", "yes", True, None),
    False: (
        "Memory mapping", "weights are read into memory", False, "Nothing to do: loading a model takes longer for it.",
    ),
}  # fmt: skip
LOCKING: Final = {
    True: ("Memory locking", "yes", True, None),
    False: (
        "Memory locking", "the system may swap weights out", False, "Nothing to do as long as enough memory is free.",
    ),
}  # fmt: skip
SMALLER_CONTEXT: Final = "Ask for fewer --context tokens or --slots, or a smaller --kv-type."


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    topic: str
    name: str
    holds: bool | None
    """Whether it is there. `None`: that cannot be told here."""
    value: str
    remedy: str | None = None
    """What to do about it, as an imperative sentence."""
    is_needed: bool = False
    """Stackscope cannot run without it."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that the library can compute on."""

    name: str
    description: str
    type: str
    memory_free: int | None = None
    memory_total: int | None = None


class LibraryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the inference library says of itself, through `stackscope.engine.facts`."""

    library_version: str
    llama_version: str
    system_info: str
    gpu_offload: bool
    devices: tuple[Device, ...]
    max_sequences: int
    mmap: bool
    mlock: bool
    rpc: bool
    build_dir: str

    @property
    def description(self) -> str:
        """Version and CPU features as the engine says them."""
        return f"llama-cpp-python {self.library_version} | {self.system_info}"


def ask_library(command: Sequence[str] | None = None) -> LibraryFacts:
    """Ask the library in a process of its own. Raises `LibraryError` when that fails, hangs or dies."""
    asked = [sys.executable, "-m", "stackscope.engine.facts"] if command is None else list(command)
    try:
        answer = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise LibraryError(f"The inference library did not load within {PATIENCE_S} s.") from None
    except OSError as error:
        raise LibraryError(f"The inference library cannot be asked: {error.strerror or error}.") from None
    log = [line for line in answer.stderr.decode(errors="replace").splitlines() if line.strip()]
    if answer.returncode < 0:
        ended = died(answer.returncode, log)
        raise LibraryError(ended.message, remedy=ended.remedy)
    if answer.returncode != 0:
        reason = re.sub(r"^stackscope\.errors\.\w+: ", "", log[-1]) if log else "it does not say why"
        raise LibraryError(f"The inference library does not load: {reason}", remedy=f"Build it again: {rebuild()}")
    try:
        return msgspec.json.decode(answer.stdout, type=LibraryFacts)
    except msgspec.DecodeError as error:
        raise LibraryError(f"The inference library answers what Stackscope does not understand: {error}.") from None


def rebuild(cmake_args: str = "") -> str:
    """The command that builds the library again, in a checkout or where Stackscope is installed."""
    setting = f'CMAKE_ARGS="{cmake_args}" ' if cmake_args else ""
    if (Path(__file__).parents[2] / "scripts" / "setup" / "library.py").is_file():
        return f"{setting}make run" if cmake_args else "make distclean run"
    package = f"llama-cpp-python=={metadata.version('llama-cpp-python')}"
    return f"{setting}pip install --no-cache-dir --force-reinstall --no-deps --no-binary :all: {package}"


def of_machine(machine: Host) -> Iterator[Check]:
    """Python, system, processor, cores and memory."""

    def check(
        name: str, value: str, holds: bool | None = True, remedy: str | None = None, *, needed: bool = False
    ) -> Check:
        return Check(topic="Machine", name=name, value=value, holds=holds, remedy=remedy, is_needed=needed)

    version = f"{platform.python_version()} ({platform.python_implementation()})"
    is_new = sys.version_info >= OLDEST_PYTHON
    yield check("Python", version, is_new, None if is_new else "Install Python 3.11 or newer.", needed=True)
    yield check("System", f"{machine.system}, {machine.machine}")
    yield check("Processor", machine.processor or "not told", None if machine.processor is None else True)
    yield check("Cores", _cores(machine))
    memory = f"{units.data_size(machine.memory_available)} available of {units.data_size(machine.memory_total)}"
    if machine.memory_limit is not None:
        memory += f", limited to {units.data_size(machine.memory_limit)} by the container"
    yield check("Memory", memory)


def _cores(machine: Host) -> str:
    parts = [f"the engine uses {openmp.usable_cores()}"]
    parts.append(f"{_count(machine.cores_physical)} physical, {_count(machine.cores_logical)} logical")
    if machine.cores_allowed is not None and machine.cores_allowed != machine.cores_logical:
        parts.append(f"this process may use {machine.cores_allowed}")
    if machine.cores_quota is not None:
        parts.append(f"the container grants the time of {units.number(machine.cores_quota)}")
    return "; ".join(parts)


def _count(value: int | None) -> str:
    return "an unknown number of" if value is None else units.count(value)


def of_library(facts: LibraryFacts, machine: Host) -> Iterator[Check]:
    """Version, build, devices and limits of the inference library."""

    def check(name: str, value: str, holds: bool | None = True, remedy: str | None = None) -> Check:
        return Check(topic="Inference library", name=name, value=value, holds=holds, remedy=remedy)

    yield Check(
        topic="Inference library",
        name="Library",
        holds=True,
        value=f"llama-cpp-python {facts.library_version}, llama.cpp {facts.llama_version}, in {facts.build_dir}",
        is_needed=True,
    )
    yield _instructions(facts, machine)
    for device in facts.devices:
        memory = "" if device.memory_total is None else f", {units.data_size(device.memory_total)}"
        yield check("Device", f"{device.name}: {device.description} ({device.type}{memory})")
    yield _offload(facts, machine)
    if facts.gpu_offload:
        yield check(
            "Flash attention", "the CPU has it; whether the GPU has it for a model shows when it is loaded", None
        )
    else:
        yield check("Flash attention", "yes; a quantised V cache needs it")
    yield check("Sequences", f"{facts.max_sequences} at most: slots and cached prefixes together")
    yield _openmp(facts)
    yield check(*MAPPING[facts.mmap])
    yield check(*LOCKING[facts.mlock])
    rpc = "yes" if facts.rpc else "this build computes on devices of this machine only"
    yield check("Remote workers", rpc, facts.rpc, None if facts.rpc else f"To have it: {rebuild('-DGGML_RPC=on')}")


def _instructions(facts: LibraryFacts, machine: Host) -> Check:
    """Whether the build uses what the processor has: a build made for any processor is several times slower."""
    used = dict(re.findall(r"(\w+) = (\d+)", facts.system_info))
    missing = [
        name
        for flag, name in FASTER_INSTRUCTIONS.items()
        if flag in machine.instructions and used.get(name, "0") == "0"
    ]
    known = [name for name in FASTER_INSTRUCTIONS.values() if used.get(name, "0") != "0"]
    value = f"uses {', '.join(known)}" if known else "uses no vector instructions that it names"
    if missing:
        value += f"; this processor also has {', '.join(missing)}"
    remedy = f"Build it for this processor: {rebuild()}" if missing else None
    return Check(topic="Inference library", name="Instructions", holds=not missing, value=value, remedy=remedy)


def _offload(facts: LibraryFacts, machine: Host) -> Check:
    if facts.gpu_offload:
        return Check(
            topic="Inference library", name="GPU offload", holds=True, value="yes; all layers unless told otherwise"
        )
    kinds = ", ".join(machine.gpus)
    value = "CPU backend only; --gpu-layers has no effect"
    value += f", and an idle GPU ({kinds}) is what to expect" if machine.gpus else "; an idle GPU is what to expect"
    argument = next((GPU_BUILDS[kind] for kind in machine.gpus), "-DGGML_CUDA=on")
    others = "" if machine.gpus else " (or -DGGML_HIP=on, -DGGML_METAL=on, -DGGML_VULKAN=on)"
    return Check(
        topic="Inference library",
        name="GPU offload",
        holds=False,
        value=value,
        remedy=f"With a GPU and its toolkit: {rebuild(argument)}{others}",
    )


def _openmp(facts: LibraryFacts) -> Check:
    """How the engine's threads will wait for each other."""
    if "OPENMP = 1" not in facts.system_info:
        return Check(
            topic="Inference library",
            name="OpenMP",
            holds=False,
            value="the build has none: every step starts its threads anew",
            remedy=f"Build it with OpenMP: {rebuild('-DGGML_OPENMP=on')}",
        )
    settings = openmp.described(openmp.child_environment(os.environ))
    return Check(
        topic="Inference library",
        name="OpenMP",
        holds=True,
        value=f"yes; the engine runs with {settings}",
    )


def of_model(model: ModelSummary, machine: Host) -> Iterator[Check]:
    """What a model costs in the default configuration: weights, a sequence id, and the context."""

    def check(name: str, value: str, holds: bool = True, remedy: str | None = None) -> Check:
        return Check(topic=f"Model {model.name}", name=name, value=value, holds=holds, remedy=remedy)

    size = units.data_size(model.tensor_bytes)
    yield check("Weights", f"{size}, {units.scaled(model.parameters)} parameters, architecture {model.architecture}")
    row, tokens = units.data_size(model.vocabulary * 4), units.count(model.vocabulary)
    yield check("A sequence id", f"costs {row}: an output row of {tokens} logits, 4 B each")
    settings = EngineConfig()
    try:
        context = sizing.resolve(settings, model, usable_threads=openmp.usable_cores())
    except ToggleRefusedError as error:
        yield check("Default context", error.message, False, error.remedy or SMALLER_CONTEXT)
        return
    cell = units.data_size(sizing.kv_bytes_per_cell(settings, model))
    total = sizing.memory_estimate(settings, context, model)
    fits = total + model.tensor_bytes <= machine.memory_available
    yield check(
        "Default context",
        f"{units.data_size(total)} beside the weights: {units.count(context.n_ctx)} KV cells of {cell}, "
        f"{units.count(context.n_outputs_max)} output rows",
        fits,
        None if fits else SMALLER_CONTEXT,
    )


def of_terminal(environment: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """What the terminal shows."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    size = shutil.get_terminal_size((0, 0))
    if not sys.stdout.isatty():
        value = "standard output is no terminal: plain lines instead of a progress bar"
        yield Check(topic="Terminal", name="Terminal", holds=None, value=value)
    else:
        value = f"{environment.get('TERM', 'unknown')}, {size.columns} × {size.lines}"
        yield Check(topic="Terminal", name="Terminal", holds=True, value=value)
    is_unicode = encoding == "utf8"
    yield Check(
        topic="Terminal",
        name="Characters",
        holds=is_unicode,
        value="UTF-8" if is_unicode else f"{encoding or 'unknown'}: × and µ may not show",
        remedy=None if is_unicode else "Set LANG to a UTF-8 locale, or PYTHONUTF8=1.",
    )


def of_packages(name: str = "stackscope") -> Iterator[Check]:
    """Versions of what Stackscope needs, against the ranges it states."""
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        yield Check(
            topic="Packages", name=name, holds=None, value="runs from a folder, not installed: no ranges to check"
        )
        return
    for requirement in requirements:
        if ";" in requirement:
            continue
        package, conditions = re.match(r"([\w.-]+)\s*(.*)", requirement).groups()  # type: ignore[union-attr]
        yield _package(package, conditions)


def _package(package: str, conditions: str) -> Check:
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Check(
            topic="Packages",
            name=package,
            holds=False,
            value="not installed",
            remedy=f'Install it: pip install "{package}{conditions}"',
            is_needed=True,
        )
    fits = in_range(version, conditions)
    return Check(
        topic="Packages",
        name=package,
        holds=fits,
        value=version if fits else f"{version}, outside {conditions}",
        remedy=None if fits else f'Install another: pip install "{package}{conditions}"',
        is_needed=True,
    )


def in_range(version: str, conditions: str) -> bool:
    """Whether a release number meets conditions such as `>=0.3.36,<0.3.37`; what follows the numbers is left out."""
    number = _release(version)
    for condition in conditions.split(","):
        operator, bound = re.match(r"\s*(>=|<=|==|!=|<|>)?\s*(.*)", condition).groups()  # type: ignore[union-attr]
        limit = _release(bound)
        holds = {
            ">=": number >= limit, "<=": number <= limit, "==": number == limit, "!=": number != limit,
            "<": number < limit, ">": number > limit, None: True,
        }[operator]  # fmt: skip
        if not holds:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """The release's numbers without trailing zeros, so that 2.0 is 2.0.0."""
    parts = [int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", version.strip())[0])]  # type: ignore[index]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
