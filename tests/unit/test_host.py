"""Reading the machine: containers of both versions, processors that say much or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.hardware import host

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
    ],
)
def test_cpu_quota(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    assert host.cpu_quota(machine(tmp_path, files)) == cores


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
    assert host.memory_limit(machine(tmp_path, files)) == limit


def test_available_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": "5000000", "sys/fs/cgroup/memory.current": "2000000"}
    seen = host.look(machine(tmp_path, files))
    assert (seen.memory_limit, seen.memory_available) == (5_000_000, 3_000_000)
    over = {"sys/fs/cgroup/memory.max": "5000000", "sys/fs/cgroup/memory.current": "6000000"}
    assert host.look(machine(tmp_path, over)).memory_available == 0


def test_a_processor_and_its_instructions(tmp_path: Path) -> None:
    text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2 fma\n"
    root = machine(tmp_path, {"proc/cpuinfo": text, "etc/os-release": 'NAME=x\nPRETTY_NAME="An OS 12"\n'})
    assert host.processor_name(root) == "Some CPU @ 2 GHz"
    assert host.instructions(root) == {"fpu", "avx2", "fma"}
    assert host.system_name(root).endswith("(An OS 12)")


def test_what_nobody_says_is_empty(tmp_path: Path) -> None:
    assert host.instructions(tmp_path) == frozenset()
    assert host.gpu_drivers(tmp_path) in ((), ("apple",))
    assert "(" not in host.system_name(tmp_path)


def test_a_loaded_driver_is_a_gpu(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/driver/nvidia/version": "NVRM", "dev/kfd": ""})
    assert host.gpu_drivers(root)[:2] == ("nvidia", "amd")


def test_this_machine_is_possible() -> None:
    seen = host.look()
    assert 0 <= seen.memory_available <= seen.memory_total
    assert seen.cores_allowed is None or seen.cores_logical is None or 1 <= seen.cores_allowed <= seen.cores_logical
