"""Run the application with an engine beside the GPUs of this process's driver, and print what it shows of them."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from stackscope.commands.screen import make_app
from stackscope.config import RunOptions
from stackscope.engine.process import EngineProcess
from stackscope.hardware.gpu_probe import NOT_YET
from stackscope.options import OutputOptions
from stackscope.toggles import EngineConfig
from stackscope.tui.runner import Runner
from stackscope.workload.spec import WorkloadSpec
from tests.tui.apps import text_of
from tests.unit.fake_engine import ENGINE, TRAFFIC

if TYPE_CHECKING:
    from stackscope.records import HardwareSample

DEADLINE_S = 30.0


def main() -> None:
    """The engine's GPU is named on the command line, by its PCI id."""
    workload = WorkloadSpec(name="unique", concurrency=2, max_tokens=8)
    options = RunOptions(workload=workload, output=OutputOptions(record=False))
    config = EngineConfig(model=f"fake:step_us=2000,gpu={sys.argv[1]}", threads=1)

    def start(config: EngineConfig, workload: WorkloadSpec) -> EngineProcess:
        return EngineProcess.start(config, workload, engine=ENGINE, traffic=TRAFFIC)

    app = make_app(Runner(options, config, start=start), options)

    async def show() -> None:
        async with app.run_test(size=(200, 60)) as pilot:
            deadline = time.monotonic() + DEADLINE_S
            while not _is_told(app.frame.snapshot.hardware if app.frame is not None else None):
                assert time.monotonic() < deadline, "nothing is told of the GPUs"
                await pilot.pause(0.05)
            await pilot.pause()
            sys.stdout.write(text_of(app) + "\n")

    asyncio.run(show())
    app.end_feed()


def _is_told(sample: HardwareSample | None) -> bool:
    """Everything is known of the GPUs, or why nothing is."""
    if sample is None or sample.unknown.get("gpus") == NOT_YET:
        return False
    return not sample.gpus or all(gpu.is_gpm_live is not None or "*" in gpu.unknown for gpu in sample.gpus)


if __name__ == "__main__":
    main()
