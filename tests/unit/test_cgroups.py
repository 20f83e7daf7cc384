"""The limits of control groups: both versions, groups within groups, files that say nothing sensible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope import cgroups

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9


def machine(root: Path, files: dict[str, str]) -> Path:
    """A file system that says just this."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        # The tightest of all levels holds.
        (
            {
                "proc/self/cgroup": "0::/outer/inner\n",
                "sys/fs/cgroup/outer/cpu.max": "200000 100000",
                "sys/fs/cgroup/outer/inner/cpu.max": "max 100000",
                "sys/fs/cgroup/cpu.max": "400000 100000",
            },
            2.0,
        ),
        # Version 1: -1 is no limit.
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/box\n0::/\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        ({"sys/fs/cgroup/cpu.max": "nonsense"}, None),
        ({"sys/fs/cgroup/cpu.max": "100000 0"}, None),
        # Another controller's group is not this one's.
        ({"proc/self/cgroup": "5:memory:/box\n", "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "50000"}, None),
        # Both versions at once, as on a system that changes over.
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/box\n0::/box\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/box/cpu.max": "350000 100000",
            },
            3.0,
        ),
    ],
)
def test_cpu_quota(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    assert cgroups.cpu_quota(machine(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, (None, 0)),
        ({"sys/fs/cgroup/memory.max": "max"}, (None, 0)),
        ({"sys/fs/cgroup/memory.max": str(8 * GB), "sys/fs/cgroup/memory.current": str(3 * GB)}, (8 * GB, 3 * GB)),
        # Version 1 writes "no limit" as 2^63 rounded down to a page.
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, (None, 0)),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GB),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(1 * GB),
            },
            (4 * GB, 1 * GB),
        ),
        # Cached files are dropped when memory is asked for.
        (
            {
                "sys/fs/cgroup/memory.max": str(8 * GB),
                "sys/fs/cgroup/memory.current": str(7 * GB),
                "sys/fs/cgroup/memory.stat": f"file {5 * GB}\nactive_file {GB}\ninactive_file {3 * GB}\n",
            },
            (8 * GB, 3 * GB),
        ),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GB),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(3 * GB),
                "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_active_file 0\ntotal_inactive_file {GB}\n",
            },
            (4 * GB, 2 * GB),
        ),
        # What is left decides: 6 - 5 is less than 4 - 1.
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/memory.max": str(6 * GB),
                "sys/fs/cgroup/memory.current": str(5 * GB),
                "sys/fs/cgroup/a/memory.max": str(4 * GB),
                "sys/fs/cgroup/a/memory.current": str(1 * GB),
            },
            (6 * GB, 5 * GB),
        ),
    ],
)
def test_memory_limit(tmp_path: Path, files: dict[str, str], limit: tuple[int | None, int]) -> None:
    assert cgroups.memory_limit(machine(tmp_path, files)) == limit


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:       5 kB\n"}, 5 * 1024),
        ({"proc/meminfo": "MemAvailable: 5 kB\n", "sys/fs/cgroup/memory.max": "4096"}, 4096),
        ({"sys/fs/cgroup/memory.max": "4096", "sys/fs/cgroup/memory.current": "5000"}, 0),
    ],
)
def test_available_memory(tmp_path: Path, files: dict[str, str], available: int | None) -> None:
    assert cgroups.available_memory(machine(tmp_path, files)) == available
