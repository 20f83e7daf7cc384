"""How a lesson goes: looks, predictions, a search, and blocks for as long as there is time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stackscope.experiments.lessons.catalogue import CATALOGUE
from stackscope.experiments.lessons.conducting import LOOKING, LOOKING_SHARE, Conductor, Standing
from stackscope.experiments.lessons.contracts import Budget, Lesson
from stackscope.experiments.runs import Stopped
from stackscope.experiments.state import CellRun
from tests.unit.lessons_builders import FakeModels, stage

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.experiments.lessons.contracts import Stage
    from stackscope.toggles import EngineConfig


class Machine:
    """Runs any configuration in the same time, at a speed that is known, and remembers what ran."""

    def __init__(self, of: Stage, speeds: dict[str, float] | None = None, run_s: float = 5.0) -> None:
        self._cells = of.cells
        self._speeds = {} if speeds is None else speeds
        self._run_s = run_s
        self.now_s = 100.0
        self.ran: list[tuple[int, str]] = []
        """(block, key)."""

    def clock(self) -> float:
        return self.now_s

    def run(
        self, config: EngineConfig, *_: Any, block: int, cell: int, recording: Path | None = None, **__: Any
    ) -> CellRun:
        is_look = recording is not None and recording.name.startswith("look")
        share = LOOKING_SHARE if is_look else self._cells[cell].config.shadow_share
        assert config == msgspec.structs.replace(self._cells[cell].config, shadow_share=share)
        self.now_s += self._run_s
        key = self._cells[cell].key
        self.ran.append((block, key))
        return CellRun(
            block=block, cell=cell, figures={"tokens_per_s": 50.0 * self._speeds.get(key, 1.0)}, notes=("n",)
        )


def conductor(of: Stage, machine: Machine, folder: Path, *, seconds: float = 200.0, **more: Any) -> Conductor:
    return Conductor(of, Budget(seconds=seconds), folder, clock=machine.clock, run=machine.run, **more)


@pytest.mark.parametrize("number", [number for number, lesson in CATALOGUE.items() if isinstance(lesson, Lesson)])
@pytest.mark.parametrize("is_quick", [False, True])
def test_what_others_are_held_against_runs_first_and_then_whole_blocks(
    number: int, is_quick: bool, tmp_path: Path
) -> None:
    of = stage(number, is_quick=is_quick)
    machine = Machine(of)
    going = conductor(of, machine, tmp_path)
    going.look()
    assert machine.ran == [(LOOKING, cell.key) for cell in of.cells if cell.over is None]
    assert going.predictions.keys() == {cell.key for cell in of.cells if cell.over is not None}
    n_before = len(machine.ran)
    going.measure()
    measured = machine.ran[n_before + len(going.searched) :]
    n = len(of.cells)
    assert len(measured) >= 3 * n
    for start in range(0, len(measured), n):
        block = measured[start : start + n]
        assert {key for _, key in block} == {cell.key for cell in of.cells}
        assert {of_block for of_block, _ in block} == {start // n}
    assert going.notes == ("n",)


def test_blocks_end_with_the_time(tmp_path: Path) -> None:
    of = stage(1)  # Five cells at 5 s each are 25 s a block; a look takes 5 s.
    machine = Machine(of)
    going = conductor(of, machine, tmp_path, seconds=110.0)
    going.look()
    going.measure()
    assert going.seconds == 5.0 + 4 * 25.0  # A fifth block would end at 130 s.
    assert len(going.runs) == 20


def test_there_are_three_blocks_however_slow_the_machine(tmp_path: Path) -> None:
    of = stage(1)
    machine = Machine(of, run_s=60.0)
    going = conductor(of, machine, tmp_path)
    going.measure()
    assert len(going.runs) == 3 * len(of.cells)


def test_there_are_twelve_blocks_at_most(tmp_path: Path) -> None:
    of = stage(1)
    going = conductor(of, Machine(of, run_s=0.001), tmp_path)
    going.measure()
    assert len(going.runs) == 12 * len(of.cells)


def test_a_search_finds_what_is_best_by_far_before_anything_is_measured(tmp_path: Path) -> None:
    of = stage(10)
    machine = Machine(of, {cell.key: 2.0 if cell.key.startswith("Q4_K_M") else 1.0 for cell in of.cells})
    machine._speeds["Q4_K_M, drafts of 3"] = 3.0
    going = conductor(of, machine, tmp_path)
    going.measure()
    assert len(going.searched) == of.search_runs == 8
    assert machine.ran[:8] == [(run.block, of.cells[run.cell].key) for run in going.searched]
    assert going.chosen is not None
    assert going.chosen.startswith("Q4_K_M")
    seen = {of.cells[run.cell].key for run in going.searched}
    if "Q4_K_M, drafts of 3" in seen:
        assert going.chosen == "Q4_K_M, drafts of 3"


def test_what_ran_before_it_was_stopped_is_kept(tmp_path: Path) -> None:
    of = stage(1)
    machine = Machine(of)
    going = conductor(of, machine, tmp_path, is_stopping=lambda: len(machine.ran) >= 8)
    going.look()
    with pytest.raises(Stopped):
        going.measure()
    assert len(going.runs) == 7


def test_how_far_it_is_never_says_more_than_all(tmp_path: Path) -> None:
    of = stage(12)
    told: list[Standing] = []
    going = conductor(of, Machine(of), tmp_path, progress=told.append)
    going.look()
    going.measure()
    assert [one.n_done for one in told] == list(range(len(told)))
    assert all(one.n_done < one.n_total for one in told)
    assert told[0].left_s is None
    assert told[-1].left_s == pytest.approx(5.0)


@pytest.mark.parametrize("number", [number for number, lesson in CATALOGUE.items() if isinstance(lesson, Lesson)])
def test_a_quick_stage_is_no_larger_and_says_what_it_leaves_out(number: int) -> None:
    whole, quick = stage(number), stage(number, is_quick=True)
    assert {cell.key for cell in quick.cells} <= {cell.key for cell in whole.cells}
    assert sum(cell.workload.requests or 0 for cell in quick.cells) < sum(
        cell.workload.requests or 0 for cell in whole.cells
    )
    assert quick.quick


@pytest.mark.parametrize("number", [1, 2, 6, 9, 10, 12])
def test_without_a_draft_model_n_grams_draft(number: int) -> None:
    lesson = CATALOGUE[number]
    assert isinstance(lesson, Lesson)
    cells = lesson.stage(FakeModels(draft=None), False).cells
    sources = {cell.config.speculation for cell in cells}
    assert "draft" not in sources
    assert "ngram" in sources


@pytest.mark.parametrize("number", [3, 8])
def test_a_lesson_about_a_draft_model_wants_one(number: int) -> None:
    from stackscope.errors import UsageError

    lesson = CATALOGUE[number]
    assert isinstance(lesson, Lesson)
    with pytest.raises(UsageError, match="draft model"):
        lesson.stage(FakeModels(draft=None), False)
