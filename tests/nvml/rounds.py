"""Reads GPUs as often as jobs say: a process that forks for each job, because a job may end the process it runs in.

It is started once for each driver, since the loader looks only at a process's start where libraries are.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import msgspec
import pynvml

from stackscope.hardware.gpu_use import EngineUse
from stackscope.hardware.nvml_gpus import Gpus
from stackscope.hardware.peaks import Peak
from tests.nvml.loads import put


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read."""

    scenario: str
    """Path of what the fake library answers."""
    answer: str
    """Path of where the readings go, and beside it, with `.err`, what else is written."""
    times_s: tuple[float, ...]
    """When each round is, on the reader's clock."""
    root: str = "/"
    use: EngineUse = EngineUse()
    peak: float | None = None
    """Bytes per second that the user states."""
    loads: tuple[dict[str, str], ...] = ()
    """What is written into the file of the load before each round; none where there are none."""
    without: tuple[str, ...] = ()
    """Names that the binding is to lack, as an older one does."""


class Steps:
    """A clock that stands still between rounds."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def main() -> None:
    """Do every job that comes in as a line, and answer each with the status of the process that did it."""
    for line in sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        child = os.fork()
        if child == 0:
            os._exit(_guarded(job))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _guarded(job: Job) -> int:
    os.dup2(os.open(f"{job.answer}.err", os.O_WRONLY | os.O_CREAT), 2)
    try:
        Path(job.answer).write_bytes(_done(job))
    except BaseException:  # noqa: BLE001 - the test shows it
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def _done(job: Job) -> bytes:
    os.environ["FAKE_NVML_SCENARIO"] = job.scenario
    for name in job.without:
        delattr(pynvml, name)
    clock = Steps()
    peak = None if job.peak is None else Peak(job.peak, "stated")
    gpus = Gpus(job.use, peak=peak, clock=clock, root=Path(job.root))
    readings = []
    load = Path(f"{job.answer}.load")
    os.environ["FAKE_NVML_LOAD"] = str(load)
    for number, time_s in enumerate(job.times_s):
        if job.loads:
            put(load, job.loads[number])
        clock.now_ns = round(time_s * 1e9)
        readings.append(gpus.read())
    gpus.close()
    return msgspec.json.encode(readings)


if __name__ == "__main__":
    main()
