"""What Linux grants this process: the limits that a container or a service sets by control groups of both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path("/")

_UNLIMITED_BYTES: Final = 1 << 60
"""Version 1 writes no limit as a number near 2⁶³."""


def cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that control groups grant this process, the tightest of all levels. `None`: no limit.

    `root` is where `/proc` and `/sys` are found, here as below.
    """
    quotas: list[float] = []
    for folder in folders(root, ""):
        quota, _, period = read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    for folder in folders(root, "cpu"):
        quota, period = read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> tuple[int | None, int]:
    """(bytes that control groups allow, bytes used of that) where least is left. `None`: no limit, and nothing used.

    Cached files do not count as used: the kernel drops them when memory is asked for.
    """
    limits: list[tuple[int, int]] = []
    for controller, limit_name, used_name, prefix in (
        ("", "memory.max", "memory.current", ""),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        for folder in folders(root, controller):
            limit, used = read(folder / limit_name), read(folder / used_name)
            if limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
                in_use = int(used) - _cached_files(folder, prefix) if used.isdigit() else 0
                limits.append((int(limit), max(0, in_use)))
    if not limits:
        return None, 0
    return min(limits, key=lambda pair: pair[0] - pair[1])


def available_memory(root: Path = ROOT) -> int | None:
    """Bytes that could be allocated now without swapping, within the limit. `None`: this system does not say."""
    lines = read(root / "proc/meminfo").splitlines()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = memory_limit(root)
    if limit is not None:
        found.append(max(0, limit - used))
    return min(found, default=None)


def _cached_files(folder: Path, prefix: str) -> int:
    """Bytes of cached files that a group is charged for."""
    wanted = (f"{prefix}active_file", f"{prefix}inactive_file")
    fields = [line.split() for line in read(folder / "memory.stat").splitlines()]
    return sum(int(field[1]) for field in fields if len(field) == 2 and field[0] in wanted and field[1].isdigit())


def folders(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and all above it; `controller` is empty for version 2.

    Inside a container the path that the kernel names may not be visible, but the root of what is mounted is.
    """
    base = root / "sys/fs/cgroup" / controller
    path = ""
    for line in read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, named = rest.partition(":")
        if controller in controllers.split(","):
            path = named.strip("/")
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [base.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def read(path: Path) -> str:
    """A file of the kernel's; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
