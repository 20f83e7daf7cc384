"""Ablations without an engine: plans, and runs whose rates are known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stackscope.experiments.cells import Factor
from stackscope.experiments.plan import Blocks, Plan
from stackscope.experiments.state import CellRun
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

SPECULATION = Factor(
    name="speculation", label="speculation=draft", off={"speculation": "off"}, on={"speculation": "draft"}
)
WEIGHTS = Factor(name="weights", label="weights=Q8_0", off={"model": "f16.gguf"}, on={"model": "q8_0.gguf"})
CACHE = Factor(name="prefix_cache", label="prefix_cache=on", off={"prefix_cache": False}, on={"prefix_cache": True})


def plan(*factors: Factor, is_full: bool = False, blocks: Blocks | None = None) -> Plan:
    return Plan(
        base=EngineConfig(model="f16.gguf", draft_model="draft.gguf"),
        factors=factors or (WEIGHTS, CACHE, SPECULATION),
        is_full=is_full,
        workload=WorkloadSpec(name="code", requests=11, concurrency=1),
        blocks=Blocks() if blocks is None else blocks,
    )


def run(block: int, cell: int, rate: float, **figures: float) -> CellRun:
    """A run that took a second."""
    return CellRun(
        block=block, cell=cell, figures={"tokens_per_s": rate, "cpu_share": 1.0, **figures}, duration_ns=10**9
    )


def simulated(
    of: Plan,
    truth: Mapping[int, float],
    n_blocks: int,
    random: np.random.Generator,
    *,
    run_sd: float = 0.02,
    first: int = 0,
) -> list[CellRun]:
    """Runs around true logarithms of rates; blocks differ by 5 %."""
    runs: list[CellRun] = []
    for block in range(first, first + n_blocks):
        common = random.normal(0, 0.05)
        runs += [run(block, cell, math.exp(truth[cell] + common + random.normal(0, run_sd))) for cell in of.cells]
    return runs
