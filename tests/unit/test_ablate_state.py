"""The results of an experiment on the disk: one line a run, whatever kill comes between."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.errors import SessionFileError, UsageError
from stackscope.experiments.blocks import Standing, conduct, order, standing, wants_block, whole_blocks
from stackscope.experiments.plan import Blocks, Plan
from stackscope.experiments.state import NAME, CellRun, StateFile, read
from tests.unit.ablate_builders import SPECULATION, WEIGHTS, plan, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIXED = Blocks(first=3, least=3, is_adaptive=False, seconds=None)


class KilledError(Exception):
    """Stands for the end of the process."""


def never(_: object) -> bool:
    return False


def until(n: int, ran: list[tuple[int, int]]) -> Callable[[int, int], CellRun]:
    """Runs cells, and dies before the run after the n-th."""

    def one(block: int, cell: int) -> CellRun:
        if len(ran) == n:
            raise KilledError
        ran.append((block, cell))
        return run(block, cell, 10.0 + cell)

    return one


def test_what_was_interrupted_anywhere_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    asked = plan(WEIGHTS, SPECULATION, blocks=FIXED)
    whole: list[tuple[int, int]] = []
    with StateFile.open(tmp_path / "whole", "ablation", asked) as state:
        conduct(state, asked.cells, asked.blocks, 7, run=until(100, whole), is_enough=never)
    assert len(whole) == 12
    for n in range(12):
        folder, ran = tmp_path / str(n), list[tuple[int, int]]()
        with StateFile.open(folder, "ablation", asked) as state, pytest.raises(KilledError):
            conduct(state, asked.cells, asked.blocks, 7, run=until(n, ran), is_enough=never)
        with (folder / NAME).open("ab") as file:
            file.write(b'{"type":"run","block":0,"ce')  # A kill in the middle of a write.
        with StateFile.open(folder, "ablation", asked) as state:
            conduct(state, asked.cells, asked.blocks, 7, run=until(100, ran), is_enough=never)
        assert ran == whole
        assert [(one.block, one.cell) for one in read(folder).runs] == whole


def test_a_plan_is_stored_and_another_one_is_refused_by_name(tmp_path: Path) -> None:
    asked = plan(WEIGHTS, SPECULATION)
    with StateFile.open(tmp_path, "ablation", asked):
        pass
    with StateFile.open(tmp_path, "ablation", asked):
        pass
    with StateFile.open(tmp_path, "ablation", None) as state:
        assert msgspec.convert(state.plan, Plan) == asked
    other = msgspec.structs.replace(asked, is_full=True)
    with pytest.raises(UsageError, match=r"another plan \(is_full: False, now True") as refused:
        StateFile.open(tmp_path, "ablation", other)
    assert refused.value.remedy is not None
    with pytest.raises(UsageError, match="another kind of experiment: ablation"):
        StateFile.open(tmp_path, "sweep", asked)
    with pytest.raises(SessionFileError, match="There is no experiment"):
        StateFile.open(tmp_path / "nowhere", "ablation", None)


def test_two_processes_do_not_write_to_one_experiment(tmp_path: Path) -> None:
    asked = plan(WEIGHTS, SPECULATION)
    with StateFile.open(tmp_path, "ablation", asked), pytest.raises(SessionFileError, match="in use"):
        StateFile.open(tmp_path, "ablation", asked)


@pytest.mark.parametrize(
    "content", [b"no json\n", b"no json", b'{"mine":1}', b'{"type":"plan"}\n', b'{"type":"run","block":0,"cell":0}\n']
)
def test_a_file_that_no_experiment_left_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(SessionFileError, match="not what an experiment left"):
        StateFile.open(tmp_path, "ablation", plan(WEIGHTS, SPECULATION))
    assert (tmp_path / NAME).read_bytes() == content


def test_a_last_line_that_an_editor_left_without_its_end_counts(tmp_path: Path) -> None:
    asked = plan(WEIGHTS, SPECULATION)
    with StateFile.open(tmp_path, "ablation", asked) as state:
        state.add(run(0, 0, 1.0))
        state.add(run(0, 1, 1.0))
    path = tmp_path / NAME
    whole = path.read_bytes()
    path.write_bytes(whole.removesuffix(b"\n"))
    assert len(read(tmp_path).runs) == 2
    with StateFile.open(tmp_path, "ablation", asked) as state:
        assert len(state.runs) == 2
    assert path.read_bytes() == whole


def test_a_pipe_is_no_experiment(tmp_path: Path) -> None:
    """Opening one as usual would wait for ever."""
    os.mkfifo(tmp_path / NAME)
    for taken_up in (read, lambda folder: StateFile.open(folder, "ablation", None)):
        with pytest.raises(SessionFileError, match=r"is no file\. Name another folder"):
            taken_up(tmp_path)


def test_every_block_has_every_cell_once_in_an_order_of_its_own() -> None:
    cells = tuple(range(8))
    orders = [order(3, block, cells) for block in range(20)]
    assert all(sorted(one) == list(cells) for one in orders)
    assert len({tuple(one) for one in orders}) > 15
    assert orders == [order(3, block, cells) for block in range(20)]
    assert orders[0] != order(4, 0, cells)


def runs_of(n_blocks: int, cells: tuple[int, ...] = (0, 1), *, more: int = 0) -> list[CellRun]:
    found = [run(block, cell, 10.0) for block in range(n_blocks) for cell in cells]
    return [*found, *(run(n_blocks, cell, 10.0) for cell in cells[:more])]


def test_only_whole_blocks_count() -> None:
    assert [len(block) for block in whole_blocks(runs_of(2, more=1), (0, 1))] == [2, 2]


def test_blocks_end_early_or_are_added_by_the_width_of_intervals_and_the_time() -> None:
    cells = (0, 1)
    blocks = Blocks(first=8, least=5, most=20, seconds=30.0)
    always = lambda _: True  # noqa: E731 - one of a pair with `never`
    assert wants_block(runs_of(4), cells, blocks, always)
    assert not wants_block(runs_of(5), cells, blocks, always)
    assert wants_block(runs_of(5), cells, blocks, never)
    assert wants_block(runs_of(5, more=1), cells, blocks, always)  # one has begun
    # A run takes a second: 14 blocks are 28 s, and 15 are 30; the 16th would end too late.
    assert wants_block(runs_of(14), cells, blocks, never)
    assert not wants_block(runs_of(15), cells, blocks, never)
    assert wants_block(runs_of(7), cells, msgspec.structs.replace(blocks, seconds=1.0), never)
    assert not wants_block(runs_of(20), cells, msgspec.structs.replace(blocks, seconds=None), never)
    assert wants_block(runs_of(2), cells, FIXED, always)
    assert not wants_block(runs_of(3), cells, FIXED, never)


def test_the_time_that_is_left_is_that_of_the_same_cells() -> None:
    slow = msgspec.structs.replace(run(0, 1, 5.0), duration_ns=4 * 10**9)
    one = standing([run(0, 0, 10.0), slow, run(1, 0, 10.0)], (0, 1), FIXED, 1, 1)
    assert one == Standing(block=1, n_blocks=3, cell=1, n_done=3, n_total=6, left_s=4.0 + 5.0)
    assert standing([], (0, 1), FIXED, 0, 0).left_s > 0
