"""Experiments in tests: the command line with the fake engine behind it, faster or slower by its settings."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.integration.cli_support import ROOT, Running

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.engine.process import EngineProcess
    from stackscope.toggles import EngineConfig

TRAFFIC: Final = ("--workload", "unique", "--requests", "6", "--concurrency", "2", "--max-tokens", "4")


def command(*arguments: str | Path) -> list[str]:
    """A verb of an experiment and its options."""
    return [sys.executable, "-m", "tests.integration.ablate_support", *map(str, arguments)]


def start(*arguments: str | Path) -> Running:
    """The same, started, on a terminal."""
    return Running(*command(*arguments), columns=100)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of an experiment's results, the plan first; empty while there are none."""
    path = folder / "experiment.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def runs(folder: Path) -> list[tuple[int, int]]:
    """(block, cell) of the runs that are stored."""
    return [(line["block"], line["cell"]) for line in stored(folder)]


def stored(folder: Path) -> list[dict[str, Any]]:
    """The runs that are stored, whole."""
    return [line for line in lines(folder) if line["type"] == "run"]


def step_us(config: EngineConfig) -> int:
    """What a forward of the fake engine takes: less with each optimisation."""
    us = 4_000.0
    us *= 0.5 if config.speculation != "off" else 1.0
    us *= 0.7 if config.kv_type_k == "q8_0" else 1.0
    us *= 0.8 if config.slots == 4 else 1.0
    return round(us)


def main() -> None:
    """The command line with the fake engine."""
    from stackscope import cli
    from stackscope.engine.process import EngineProcess
    from tests.unit.fake_engine import ENGINE, TRAFFIC

    start_process = EngineProcess.start

    def start_fake(config: EngineConfig, workload: Any, **options: Any) -> EngineProcess:
        config = msgspec.structs.replace(config, model=f"fake:step_us={step_us(config)}", threads=1)
        return start_process(config, workload, **{**options, "engine": ENGINE, "traffic": TRAFFIC})

    EngineProcess.start = start_fake  # type: ignore[method-assign]
    cli.main()


__all__ = ["ROOT", "TRAFFIC", "command", "lines", "runs", "start"]

if __name__ == "__main__":
    main()
