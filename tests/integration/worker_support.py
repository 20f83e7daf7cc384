"""Running the engine process in tests: sessions with the fake engine, a parent that can be killed, deadlines."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from stackscope.engine.process import EngineProcess
from stackscope.records import StepRecord
from stackscope.session.writer import SessionWriter
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.unit.fake_engine import ENGINE, TRAFFIC

if TYPE_CHECKING:
    from stackscope.engine.process import Item

T = TypeVar("T")

ENDLESS: Final = 1_000_000
"""Requests that no test sees the end of."""

DEADLINE_S: Final = 20.0
"""Nothing in these tests takes nearly as long, unless it hangs."""


def start(model: str = "fake:", **workload: object) -> EngineProcess:
    """The engine process with the fake engine; by default 20 requests of 8 tokens, 4 at a time.

    A model that is a file goes to the real engine and traffic.
    """
    asked = {"name": "unique", "requests": 20, "concurrency": 4, "max_tokens": 8, **workload}
    spec = WorkloadSpec(**asked)  # type: ignore[arg-type]
    config = EngineConfig(model=model)
    if not model.startswith("fake:"):
        return EngineProcess.start(config, spec)
    return EngineProcess.start(config, spec, engine=ENGINE, traffic=TRAFFIC)


def begin(engine: EngineProcess, path: Path | None = None) -> SessionWriter | None:
    """Let the traffic begin, recorded when there is a path."""
    engine.wait_ready()
    header = engine.compose_header(host="test", device="none")
    writer = None if path is None else SessionWriter(path, header)
    engine.begin(header, writer)
    return writer


def until_step(engine: EngineProcess, n: int) -> StepRecord:
    """Read until a step of at least this number comes."""
    for item in engine.items():
        if isinstance(item, StepRecord) and item.n >= n:
            return item
    raise AssertionError(f"the engine ended before step {n}")


def rest_of(engine: EngineProcess) -> list[Item]:
    return list(engine.items())


def of_type(items: list[Item], kind: type[T]) -> list[T]:
    return [item for item in items if isinstance(item, kind)]


def run_through(model: str = "fake:", **workload: object) -> list[Item]:
    """Everything that a session yields once it has begun."""
    with start(model, **workload) as engine:
        begin(engine)
        return rest_of(engine)


def open_descriptors() -> set[str]:
    """Of this process."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def is_gone_within(pid: int, seconds: float) -> bool:
    """Whether a process, anybody's child, ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def wait_ms(milliseconds: float) -> None:
    """Let time pass: a random moment is a length of time, not an event."""
    select.select([], [], [], milliseconds / 1_000)


class Parent:
    """A process that runs a recorded session, as `stackscope run` does, and can be killed."""

    def __init__(self, path: Path, model: str, *, requests: int = 1_000_000) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.worker_support", str(path), model, str(requests)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent.parent,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._process.communicate()[1])
        engine_pid, origin_ns = line.split()
        self.engine_pid = int(engine_pid)
        self.origin_ns = int(origin_ns)
        self.began_ns: int | None = None
        """When the traffic began, on the session's clock. `None`: it has not, or the process has not ended yet."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> int:
        """Send a signal; when, on the session's clock."""
        self._process.send_signal(number)
        return time.monotonic_ns() - self.origin_ns

    def await_begin(self) -> None:
        """Wait until the traffic has begun."""
        assert self._process.stdout is not None
        self.began_ns = int(self._process.stdout.readline())

    def wait(self) -> tuple[int, str]:
        """Exit status and what it wrote to its standard error."""
        output, errors = self._process.communicate(timeout=DEADLINE_S)
        if output:
            self.began_ns = int(output)
        return self._process.returncode, errors


def main() -> None:
    path, model, requests = sys.argv[1:]
    with start(model, requests=int(requests), max_tokens=50) as engine:
        os.write(1, f"{engine.pid} {engine.origin_ns}\n".encode())
        begin(engine, Path(path))
        os.write(1, f"{engine.now_ns()}\n".encode())
        for _ in engine.items():
            pass


if __name__ == "__main__":
    main()
