"""Runs a lesson: a look at the cells that others are held against, predictions, and then blocks of all cells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.errors import StackscopeError
from stackscope.experiments.blocks import order
from stackscope.experiments.lessons.foresight import foresee
from stackscope.experiments.limits import limit_of
from stackscope.experiments.runs import Stopped, run_cell
from stackscope.experiments.search import Search
from stackscope.experiments.search_goals import Goals
from stackscope.session.format import SUFFIX
from stackscope.workload import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stackscope.experiments.lessons.contracts import Budget, LessonCell, Stage
    from stackscope.experiments.limits import Limit
    from stackscope.experiments.state import CellRun
    from stackscope.records import Prediction

LOOKING: Final = -1
"""Block of the looks: they are no part of what is measured."""
LOOKING_SHARE: Final = 0.5
"""Of the time of a look, for the shadows: it lasts a second or two, and what they are usually given would follow nobody
to the end. Their time is stamped, so that what the steps take is seen all the same."""


class Standing(NamedTuple):
    """How far a lesson is, when it is about to run something."""

    doing: str
    n_done: int
    n_total: int
    left_s: float | None
    """`None`: not known yet."""


class Conductor:
    """A lesson on its way. What it has so far may be read at any time."""

    def __init__(
        self,
        stage: Stage,
        budget: Budget,
        folder: Path,
        *,
        progress: Callable[[Standing], None] = lambda _: None,
        is_stopping: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        run: Callable[..., CellRun] = run_cell,
    ) -> None:
        """`folder` is for recordings, which nobody needs afterwards. `run` does what `run_cell` does."""
        self._stage = stage
        self._budget = budget
        self._folder = folder
        self._progress = progress
        self._is_stopping = is_stopping
        self._clock = clock
        self._run_cell = run
        self._begun_s = clock()
        self._places = {cell.key: place for place, cell in enumerate(stage.cells)}
        self._run_s: list[float] = []
        self.looked: list[CellRun] = []
        self.predictions: dict[str, Prediction] = {}
        self.runs: list[CellRun] = []
        self.searched: list[CellRun] = []
        self.chosen: str | None = None
        self.limits: dict[str, Limit] = {}

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._begun_s

    @property
    def n_total(self) -> int:
        """Runs that there will be, by what is known now."""
        n_blocks = max(self._budget.least, self._n_affordable())
        return len(self._stage.references) + self._stage.search_runs + n_blocks * len(self._stage.cells)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the engine had to say, each once."""
        return tuple(dict.fromkeys(note for run in [*self.looked, *self.searched, *self.runs] for note in run.notes))

    def look(self) -> None:
        """Run each cell that others are held against once, and predict the others by it. Raises as `run_cell`."""
        for reference in self._stage.references:
            path = self._folder / f"look-{len(self.looked)}{SUFFIX}"
            self.looked.append(self._run(self._longer(reference), LOOKING, f"a first look: {reference.key}", path))
            others = [cell for cell in self._stage.cells if cell.over == reference.key]
            if others:
                self.predictions |= foresee(path, reference, others)
            path.unlink(missing_ok=True)

    def _longer(self, cell: LessonCell) -> LessonCell:
        """The cell with as many requests as its look takes, and shadows that may take time."""
        workload = cell.workload
        if self._stage.look_requests > (workload.requests or 0):
            workload = msgspec.structs.replace(workload, requests=self._stage.look_requests)
        config = msgspec.structs.replace(cell.config, shadow_share=LOOKING_SHARE)
        return msgspec.structs.replace(cell, config=config, workload=workload)

    def measure(self) -> None:
        """Search, where the lesson has one; then run blocks of all cells. Raises as `run_cell`."""
        if self._stage.search_runs:
            self._search()
        block = 0
        while block < self._budget.least or (block < self._budget.most and self._has_time()):
            for place in order(0, block, range(len(self._stage.cells))):
                cell = self._stage.cells[place]
                path = self._folder / f"block-{block}-cell-{place}{SUFFIX}"
                is_named = self._stage.names_limits and block == 0
                self.runs.append(self._run(cell, block, f"block {block + 1}: {cell.key}", path if is_named else None))
                if is_named:
                    self.limits[cell.key] = limit_of(path)
                    path.unlink(missing_ok=True)
            block += 1

    def _search(self) -> None:
        """Let a search find the best with few runs, knowing nothing that is measured later."""
        stage = self._stage
        places = [_places(stage, number) for number in range(len(stage.cells))]
        guesses = {0: 1.0}
        for number, cell in enumerate(stage.cells):
            prediction = self.predictions.get(cell.key)
            if prediction is not None and prediction.tokens is not None:
                guesses[number] = prediction.tokens.value
        goals = Goals(objectives=("tokens_per_s",))
        known = {"tokens_per_s": guesses} if 2 * len(guesses) >= len(places) else None
        search = Search(places, goals, budget=stage.search_runs, seed=0, guesses=known)
        while (pick := search.next(self.searched)) is not None:
            cell = stage.cells[pick.cell]
            self.searched.append(self._run(cell, pick.block, f"searching: {cell.key}", None))
        best = search.best(self.searched)
        self.chosen = None if best is None else stage.cells[best].key

    def _run(self, cell: LessonCell, block: int, doing: str, recording: Path | None) -> CellRun:
        if self._is_stopping():
            raise Stopped
        n_done = len(self._run_s)
        left_s = (self.n_total - n_done) * sum(self._run_s) / n_done if n_done else None
        self._progress(Standing(doing, n_done, max(self.n_total, n_done + 1), left_s))
        begun_s = self._clock()
        try:
            done = self._run_cell(
                cell.config,
                cell.workload,
                check.check(cell.workload),
                block=block,
                cell=self._places[cell.key],
                limits=ServiceLimits(),
                recording=recording,
                is_stopping=self._is_stopping,
            )
        except StackscopeError as error:
            error.message = f"{cell.key}: {error.message}"
            raise
        self._run_s.append(self._clock() - begun_s)
        return done

    def _block_s(self) -> float | None:
        """What a block takes. `None`: nothing has run."""
        if not self._run_s:
            return None
        return len(self._stage.cells) * sum(self._run_s) / len(self._run_s)

    def _has_time(self) -> bool:
        block_s = self._block_s()
        return block_s is None or self.seconds + block_s <= self._budget.seconds

    def _n_affordable(self) -> int:
        """Blocks that fit the time, by what runs took."""
        block_s = self._block_s()
        if block_s is None:
            return self._budget.least
        before_s = (len(self._stage.references) + self._stage.search_runs) * block_s / len(self._stage.cells)
        return min(self._budget.most, int((self._budget.seconds - before_s) / block_s))


def _places(stage: Stage, number: int) -> tuple[int, ...]:
    """Of a configuration on the axes: the last one turns fastest."""
    places: list[int] = []
    for axis in reversed(stage.axes):
        number, place = divmod(number, len(axis.values))
        places.insert(0, place)
    return tuple(places)
