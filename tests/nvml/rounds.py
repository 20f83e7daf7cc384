"""Read GPUs as often as a job says and print the readings: run as a process of its own by the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pynvml

from stackscope.hardware.nvml_gpus import Gpus
from stackscope.hardware.peaks import Peak
from tests.nvml.machine import Job


class Steps:
    """A clock that stands still between rounds."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    for name in job.without:
        delattr(pynvml, name)
    clock = Steps()
    peak = None if job.peak is None else Peak(job.peak, "stated")
    gpus = Gpus(job.use, peak=peak, clock=clock, root=Path(job.root))
    readings = []
    for time_s in job.times_s:
        clock.now_ns = round(time_s * 1e9)
        readings.append(gpus.read())
    gpus.close()
    sys.stdout.write(msgspec.json.encode(readings).decode())


if __name__ == "__main__":
    main()
