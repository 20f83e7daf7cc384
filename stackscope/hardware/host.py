"""What the machine around this process is: processor, usable cores, memory, with the limits that a container sets."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final

import msgspec
import psutil

ROOT: Final = Path("/")

_UNLIMITED_BYTES: Final = 1 << 60
"""Version 1 of control groups writes no limit as a number near 2⁶³."""


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


def cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that control groups grant this process, the tightest of all levels. `None`: no limit."""
    quotas: list[float] = []
    for folder in _groups(root, ""):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    for folder in _groups(root, "cpu"):
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> tuple[int | None, int]:
    """(bytes that control groups allow, bytes used of that). `None`: no limit, and then nothing is used of it."""
    limits: list[tuple[int, int]] = []
    for controller, limit_name, used_name in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for folder in _groups(root, controller):
            limit, used = _text(folder / limit_name), _text(folder / used_name)
            if limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
                limits.append((int(limit), int(used) if used.isdigit() else 0))
    if not limits:
        return None, 0
    return min(limits, key=lambda pair: pair[0] - pair[1])


def processor_name(root: Path = ROOT) -> str | None:
    """The processor's name. `None`: nobody says."""
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or None


def instructions(root: Path = ROOT) -> frozenset[str]:
    """Instruction set extensions as the kernel spells them; empty where it does not say."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def system_name(root: Path = ROOT) -> str:
    """`Linux 6.1 (Debian GNU/Linux 12)`."""
    name = f"{platform.system()} {platform.release()}".strip()
    distribution = re.search(r'^PRETTY_NAME="?([^"\n]+)', _text(root / "etc/os-release"), re.MULTILINE)
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


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and all above it; `controller` is empty for version 2.

    Inside a container the path that the kernel names may not be visible, but the root of what is mounted is.
    """
    base = root / "sys/fs/cgroup" / controller
    path = ""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, named = rest.partition(":")
        if controller in controllers.split(","):
            path = named.strip("/")
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [base.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def _text(path: Path) -> str:
    """A file of the kernel's; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
