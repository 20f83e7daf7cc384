"""What the machine around this process is: processor, usable cores, memory, with the limits that a container sets."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final

import msgspec
import psutil

from stackscope.cgroups import cpu_quota as cpu_quota
from stackscope.cgroups import memory_limit, read

ROOT: Final = Path("/")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the machine. `None` is what it does not say."""

    system: str
    """Operating system with its release, and its distribution where it has one."""
    machine: str
    """Architecture, e.g. `x86_64`."""
    processor: str | None
    instructions: frozenset[str]
    """Instruction set extensions in the kernel's spelling, e.g. `avx512_bf16`; empty where they are not told."""
    cores_logical: int | None
    cores_physical: int | None
    cores_allowed: int | None
    """Logical cores that this process may be scheduled on."""
    cores_quota: float | None
    """Cores' worth of time that the container grants. `None`: no such limit."""
    memory_total: int
    """Bytes."""
    memory_limit: int | None
    """Bytes that the container may use. `None`: no such limit."""
    memory_available: int
    """Bytes that can be had now without swapping, within the limit."""
    gpus: tuple[str, ...]
    """Kinds of GPU whose driver is loaded: `nvidia`, `amd`, `apple`. A driver that is not loaded is not seen."""


def look(root: Path = ROOT) -> Host:
    """Look at the machine. `root` is where `/proc`, `/sys` and `/etc` are."""
    memory = psutil.virtual_memory()
    limit, used = memory_limit(root)
    allowed = allowed_cores()
    quota = cpu_quota(root)
    available = memory.available if limit is None else min(memory.available, max(0, limit - used))
    return Host(
        system=system_name(root),
        machine=platform.machine(),
        processor=processor_name(root),
        instructions=instructions(root),
        cores_logical=psutil.cpu_count(logical=True),
        cores_physical=psutil.cpu_count(logical=False),
        cores_allowed=None if allowed is None else len(allowed),
        cores_quota=quota,
        memory_total=memory.total,
        memory_limit=limit,
        memory_available=available,
        gpus=gpu_drivers(root),
    )


def allowed_cores() -> frozenset[int] | None:
    """Logical cores that this process may run on. `None`: the system has no such restriction."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def processor_name(root: Path = ROOT) -> str | None:
    """The processor's name. `None`: nobody says."""
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", read(root / "proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or None


def instructions(root: Path = ROOT) -> frozenset[str]:
    """Instruction set extensions as the kernel spells them; empty where it does not say."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", read(root / "proc/cpuinfo"), re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def system_name(root: Path = ROOT) -> str:
    """`Linux 6.1 (Debian GNU/Linux 12)`."""
    name = f"{platform.system()} {platform.release()}".strip()
    distribution = re.search(r'^PRETTY_NAME="?([^"\n]+)', read(root / "etc/os-release"), re.MULTILINE)
    return f"{name} ({distribution[1]})" if distribution else name


def gpu_drivers(root: Path = ROOT) -> tuple[str, ...]:
    """Kinds of GPU whose kernel driver is loaded."""
    found = []
    if (root / "proc/driver/nvidia/version").exists():
        found.append("nvidia")
    if (root / "dev/kfd").exists():
        found.append("amd")
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        found.append("apple")
    return tuple(found)
