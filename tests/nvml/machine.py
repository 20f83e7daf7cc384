"""A machine with GPUs that a scenario describes: the fake library, compiled, and processes that read it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from stackscope.hardware.gpu_probe import GpuReading
from stackscope.hardware.gpu_use import INITIAL_NAMESPACE
from tests.nvml.rounds import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

Scenario: TypeAlias = dict[str, object]
"""What the fake library answers, by key; see `fake_nvml.c`."""

ROOT: Final = Path(__file__).parents[2]
MEMINFO: Final = "MemTotal:       128000000 kB\nMemFree:         1000000 kB\nMemAvailable:    98000000 kB\n"


class Driver:
    """A driver's library, and a process that reads GPUs through it."""

    def __init__(self, library: Path | None) -> None:
        """`library` is the folder that it is in. `None`: there is no driver."""
        self.library = library
        self._reader: subprocess.Popen[str] | None = None

    def environment(self, **extra: str) -> dict[str, str]:
        """Of a process that finds the fake library as it would find the real one."""
        found = {**os.environ, "PYTHONPATH": str(ROOT), **extra}
        if self.library is not None:
            found["LD_LIBRARY_PATH"] = str(self.library)
        return found

    def do(self, job: Job) -> int:
        """Have a job done. Returns the exit code of the process that did it."""
        if self._reader is None:
            self._reader = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.nvml.rounds"],
                env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._reader.stdin.flush()
        return int(self._reader.stdout.readline())

    def close(self) -> None:
        """End the process."""
        if self._reader is not None:
            with self._reader as reader:
                reader.kill()


class Machine:
    """Where tests read GPUs: always in a process of their own, because the fake may end it."""

    def __init__(self, folder: Path, driver: Driver) -> None:
        self.folder = folder
        self.driver = driver
        self.root = folder / "root"
        self.write("proc/version", "Linux version 6.8.0-generic")
        self.write("proc/meminfo", MEMINFO)
        self.enter_namespace(INITIAL_NAMESPACE)

    def write(self, path: str, text: str) -> None:
        """Put a file where the kernel's would be."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def enter_namespace(self, name: str) -> None:
        """Be in this process namespace."""
        link = self.root / "proc/self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def run_process(self, pid: int) -> None:
        """Have a process of this id."""
        (self.root / f"proc/{pid}").mkdir(parents=True)

    def play(self, scenario: Scenario) -> Path:
        """Write down what the driver answers."""
        return written(scenario, self.folder / "scenario.txt")

    def environment(self, scenario: Scenario, **extra: str) -> dict[str, str]:
        """Of a process of its own on this machine."""
        return self.driver.environment(FAKE_NVML_SCENARIO=str(self.play(scenario)), **extra)

    def run(self, module: str, *arguments: str, scenario: Scenario, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a module to its end."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", module, *arguments],
            env=self.environment(scenario, **extra), capture_output=True, text=True, timeout=60, cwd=self.folder,
        )  # fmt: skip

    def read(self, scenario: Scenario, times_s: Sequence[float], **job: Any) -> list[GpuReading]:
        """Rounds of readings at these times."""
        answer = self.folder / "readings.json"
        wanted = Job(
            scenario=str(self.play(scenario)), answer=str(answer), times_s=tuple(times_s), root=str(self.root), **job
        )
        status = self.driver.do(wanted)
        errors = answer.with_name(f"{answer.name}.err").read_text()
        assert (status, errors) == (0, "")
        return msgspec.json.decode(answer.read_bytes(), type=list[GpuReading])


def compile_library(folder: Path, *options: str) -> Path:
    """Compile the fake library into a folder, which is returned."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the tests need a C compiler"
    source = Path(__file__).with_name("fake_nvml.c")
    target = folder / "libnvidia-ml.so.1"
    flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{target.name}"]
    subprocess.run([compiler, *flags, *options, str(source), "-o", str(target)], check=True, timeout=60)
    return folder


def written(scenario: Scenario, path: Path) -> Path:
    """Write a scenario to a file, whose path is returned."""
    path.write_bytes(b"".join(_line(key, value) for key, value in scenario.items()))
    return path


def _line(key: str, value: object) -> bytes:
    content = value if isinstance(value, bytes) else str(value).encode()
    return key.encode() + b" = " + content + b"\n"
