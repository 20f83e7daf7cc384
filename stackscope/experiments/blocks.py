"""Randomised complete blocks: in each, every cell runs once, in an order of its own.

What drifts slowly (heat, neighbours) falls on all cells of a block alike and drops out of their contrasts; what happens
within a block falls on a cell by chance (Abedi and Brecht, *Conducting repeatable experiments in highly variable cloud
computing environments*, ICPE 2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from stackscope.experiments.plan import Blocks
    from stackscope.experiments.state import CellRun, StateFile

UNKNOWN_RUN_S: Final = 8.0
"""Taken for the time of a run before there was one."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far an experiment is, when it is about to run a cell."""

    block: int
    """Counted from 0."""
    n_blocks: int
    """That there will be, by what is known now."""
    cell: int
    n_done: int
    n_total: int
    left_s: float
    """Expected time until the end."""


def order(seed: int, block: int, cells: Sequence[int]) -> list[int]:
    """The cells in the order of a block: the same for the same seed, whatever was interrupted."""
    shuffled = np.random.default_rng([seed, block]).permutation(len(cells))
    return [cells[place] for place in shuffled]


def whole_blocks(runs: Collection[CellRun], cells: Sequence[int]) -> list[dict[int, CellRun]]:
    """The runs of each block in which no cell is missing, by cell, in the order of the blocks."""
    blocks: dict[int, dict[int, CellRun]] = {}
    for run in runs:
        blocks.setdefault(run.block, {})[run.cell] = run
    return [blocks[block] for block in sorted(blocks) if all(cell in blocks[block] for cell in cells)]


def conduct(
    state: StateFile,
    cells: Sequence[int],
    blocks: Blocks,
    seed: int,
    *,
    run: Callable[[int, int], CellRun],
    is_enough: Callable[[list[dict[int, CellRun]]], bool],
    progress: Callable[[Standing], None] = lambda _: None,
) -> None:
    """Run what is missing, `run(block, cell)` each, until there are blocks enough. Every run is stored at once.

    `is_enough` is asked after each whole block from `blocks.least` on. Whatever `run` raises passes through.
    """
    while wants_block(state.runs, cells, blocks, is_enough):
        block = len(whole_blocks(state.runs, cells))
        done = {one.cell for one in state.runs if one.block == block}
        for cell in order(seed, block, cells):
            if cell not in done:
                progress(standing(state.runs, cells, blocks, block, cell))
                state.add(run(block, cell))


def wants_block(
    runs: Collection[CellRun],
    cells: Sequence[int],
    blocks: Blocks,
    is_enough: Callable[[list[dict[int, CellRun]]], bool],
) -> bool:
    """Whether there should be another block, or the rest of the one that has begun."""
    whole = whole_blocks(runs, cells)
    n = len(whole)
    if len(runs) > n * len(cells):
        return True  # A block that has begun is worth nothing before it has ended.
    if not blocks.is_adaptive:
        return n < blocks.first
    if n >= blocks.most:
        return False
    if n >= blocks.least and is_enough(whole):
        return False
    return n < blocks.first or not _is_late(runs, n, blocks)


def _is_late(runs: Collection[CellRun], n_blocks: int, blocks: Blocks) -> bool:
    """Another block would end after the time that there is."""
    taken_s = sum(run.duration_ns for run in runs) / 1e9
    return blocks.seconds is not None and taken_s * (n_blocks + 1) / n_blocks > blocks.seconds


def standing(runs: Collection[CellRun], cells: Sequence[int], blocks: Blocks, block: int, cell: int) -> Standing:
    """How far an experiment is. Runs that are to come take as long as those of the same cell did on average."""
    took: dict[int, list[float]] = {one: [] for one in cells}
    for one in runs:
        took[one.cell].append(one.duration_ns / 1e9)
    known = [seconds for some in took.values() for seconds in some]
    usual = sum(known) / len(known) if known else UNKNOWN_RUN_S
    expected = {one: sum(some) / len(some) if some else usual for one, some in took.items()}
    n_blocks = max(block + 1, blocks.first)
    done = {one.cell for one in runs if one.block == block}
    left_s = sum(expected[one] for one in cells if one not in done) + (n_blocks - block - 1) * sum(expected.values())
    return Standing(
        block=block,
        n_blocks=n_blocks,
        cell=cell,
        n_done=len(runs),
        n_total=n_blocks * len(cells),
        left_s=left_s,
    )
