"""Reading the machine: what a container leaves of it, processors that say much or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.hardware import host

if TYPE_CHECKING:
    from pathlib import Path


def machine(root: Path, files: dict[str, str]) -> Path:
    """A file system that says just this."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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
