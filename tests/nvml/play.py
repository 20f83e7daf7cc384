"""Stackscope beside a GPU that is played: `python -m tests.nvml.play [--gpu NAME] live …`, or `run …`, or `doctor`.

The driver's library is the tests' own, so the readings take the real way. The real engine computes on the processor;
what the GPU shows follows its steps: bytes of the ledger over time as DRAM traffic, forwards as activity, and power,
heat and memory accordingly. A model this small leaves an H100 idle, so the default is a GPU as slow as a processor.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.nvml.machine import Driver, compile_library, written
from tests.nvml.scenarios import GIB, a10, driver, h100, mig

if TYPE_CHECKING:
    from stackscope.engine.process import EngineProcess
    from tests.nvml.machine import Scenario

IDLE: Final = {
    **dict.fromkeys(("gpu_samples", "memory_samples", "gpu_percent", "memory_percent"), 0),
    **dict.fromkeys(("gpm_2", "gpm_3", "gpm_5", "gpm_10", "gpm_20", "gpm_21"), 0),
    "power_mw": 70_000,
    "temperature": 34,
    "throttle": "0x1",
    "memory_used": 0,
    "field_74": 0,
}
"""Until there is an engine."""
SMALL: Final = {
    **IDLE,
    "name": "Played GPU",
    "bus_bits": 64,
    "memory_clock_max": 1600,
    "memory_clock": 1600,
    "memory_total": 8 * GIB,
    "power_limit_mw": 200_000,
}
CARDS: Final[dict[str, Scenario]] = {
    "small": {**driver(1), **h100(**SMALL)},
    "h100": {**driver(1), **h100(**IDLE)},
    "four": {
        **driver(4),
        **h100(0, **SMALL),
        **a10(1, gpu_samples=0, memory_samples=0, throttle="0x1"),
        **a10(2, throttle="0x20", temperature=92),
        **a10(3),
        "gpu.3.nvmlDeviceGetHandleByIndex_v2": 15,
    },
    "mig": {**driver(1), **mig()},
}
"""The first GPU of each is the one in use."""


def main(arguments: list[str]) -> int:
    """Run Stackscope in a process that finds the played driver; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.nvml.play", description=__doc__)
    parser.add_argument("--gpu", choices=CARDS, default="small")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of stackscope; live when there are none")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="stackscope-played-") as name:
        folder = Path(name)
        environment = Driver(compile_library(folder)).environment(
            FAKE_NVML_SCENARIO=str(written(CARDS[options.gpu], folder / "scenario.txt")),
            FAKE_NVML_LOAD=str(folder / "load.txt"),
        )
        # Ctrl-C is for Stackscope alone, which ends in order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        inner = [sys.executable, "-m", "tests.nvml.play", INSIDE, *(options.arguments or ["live"])]
        return subprocess.run(inner, env=environment, check=False).returncode


INSIDE: Final = "--inside"


def inside(arguments: list[str]) -> None:
    """Be Stackscope, with an engine that drives the played GPU."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from stackscope import __main__
    from stackscope.engine.process import EngineProcess
    from tests.nvml.played_engine import ENGINE

    start = EngineProcess.start

    def played(*args: object, **options: object) -> EngineProcess:
        return start(*args, **{**options, "engine": ENGINE})  # type: ignore[arg-type]

    EngineProcess.start = played  # type: ignore[method-assign]
    sys.argv = ["stackscope", *arguments]
    __main__.main()


if __name__ == "__main__":
    if sys.argv[1:2] == [INSIDE]:
        inside(sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
