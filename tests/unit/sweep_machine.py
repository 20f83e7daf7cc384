"""A machine whose every configuration has a known speed: what a search is held against.

The time of a step follows the cost model: weights are read once for all sequences, each sequence's keys and values by
themselves, rows cost compute beyond what reading takes, drafts cost forwards of a small model and bring tokens by their
survival. So settings interact as they do on a real one.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from stackscope.experiments.state import CellRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

WEIGHTS_MB = (608.0, 323.0, 180.0)
"""F16, Q8_0, Q4_K_M of the lab target inflated to 304 M parameters."""
ROW_MS = (0.9, 0.7, 2.4)
"""What a further row costs in each: K-quants unpack slowly."""
KV_MB = (60.0, 34.0)
"""Of one sequence's context as f16, q8_0."""
LENGTHS = (0, 2, 3, 5, 7)
"""Tokens drafted; 0 is no speculation."""
SLOTS = (1, 4, 8)
THREADS = (1, 2)
SURVIVAL = (0.756, 0.464, 0.304, 0.196, 0.167, 0.125, 0.119)
"""Of the lab pair, greedy."""
BYTES_PER_MS = (9.0, 13.5)
"""Megabytes, by threads."""


class Machine(NamedTuple):
    """Configurations by their places on the axes, and what each really does."""

    places: list[tuple[int, ...]]
    tokens_per_s: list[float]
    step_gap_ms: list[float]


def machine(*, has_threads: bool = False) -> Machine:
    """90 configurations: weights × KV types × drafts × slots; with threads 180."""
    axes = [range(3), range(2), range(len(LENGTHS)), range(3), range(2) if has_threads else range(1, 2)]
    places: list[tuple[int, ...]] = []
    rates, gaps = [], []
    for weights, kv, drafts, slots, threads in product(*axes):
        k, n = LENGTHS[drafts], SLOTS[slots]
        speed = BYTES_PER_MS[threads]
        rows = n * (k + 1)
        # Kernels take rows in blocks of four.
        compute = ROW_MS[weights] * 4 * (math.ceil(rows / 4) - 1) * (1.0 if threads else 1.9)
        step_ms = WEIGHTS_MB[weights] / speed + n * KV_MB[kv] / speed * (1.0 if kv == 0 else 1.15) + compute
        step_ms += k * (2.2 if threads else 3.4) * (1 + 0.1 * n) + 0.3 * n
        tokens = 1 + sum(SURVIVAL[:k])
        places.append((weights, kv, drafts, slots, threads if has_threads else 0))
        rates.append(n * tokens / step_ms * 1e3)
        gaps.append(step_ms)
    return Machine(places, rates, gaps)


def run_on(
    of: Machine, block: int, cell: int, random: np.random.Generator, drift: Sequence[float], *, run_sd: float = 0.02
) -> CellRun:
    """A run that strays by 2 %, on a machine that drifts."""
    stray = math.exp(random.normal(0, run_sd) + drift[block])
    figures = {
        "tokens_per_s": of.tokens_per_s[cell] * stray,
        "step_gap_p95_ns": of.step_gap_ms[cell] * 1e6 / stray,
        "memory_bytes": WEIGHTS_MB[of.places[cell][0]] * 1e6
        + SLOTS[of.places[cell][3]] * KV_MB[of.places[cell][1]] * 1e6,
        "ttft_p95_ns": of.step_gap_ms[cell] * 4e6 / stray,
    }
    return CellRun(block=block, cell=cell, figures=figures, duration_ns=10**9)
