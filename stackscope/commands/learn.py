"""`stackscope learn`: a claim of the field, staged on this machine, predicted, measured, and judged."""

from __future__ import annotations

import platform
import tempfile
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope import __version__
from stackscope.commands.experiment_models import ModelMaker, require_models, teller
from stackscope.commands.experiment_progress import ExperimentProgress, left
from stackscope.commands.interrupts import SIGNALLED, Interrupts, told_when_interrupted
from stackscope.engine.openmp import usable_cores
from stackscope.errors import UsageError
from stackscope.experiments.lessons import record as records
from stackscope.experiments.lessons.catalogue import CATALOGUE, lesson_of
from stackscope.experiments.lessons.conducting import Conductor, Standing
from stackscope.experiments.lessons.contracts import Budget, Lesson, Waiting
from stackscope.experiments.lessons.record import LessonRecord
from stackscope.experiments.runs import Stopped
from stackscope.hardware.host import processor_name
from stackscope.model.catalog import bundled_draft, bundled_target, resolve
from stackscope.report import lesson as report
from stackscope.report import output
from stackscope.report.export.output import require_writable, whole_file

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = 210.0
QUICK_SECONDS: Final = 52.0
"""What a lesson may take; four minutes with what comes before the first run and after the last one."""


class LearnOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    lesson: int | None = None
    """`None`: the list."""
    model: str | None = None
    """`None`: the bundled pair."""
    draft: str | None = None
    is_quick: bool = False
    is_shown: bool = False
    """Show what was recorded, and run nothing."""
    output: Path | None = None
    """Where the result goes. `None`: to the user's own."""
    is_replacing: bool = False
    """Write over `output`. The user's own is always replaced by a newer one."""
    json: bool = False

    @property
    def asks_for_a_run(self) -> bool:
        """Something is given that only matters when a lesson runs."""
        about = (self.model, self.draft, self.output)
        return self.is_quick or self.is_replacing or any(one is not None for one in about)


class LessonModels:
    """The files of a lesson, by their names: `maker` makes them."""

    def __init__(self, model: str | None, draft: str | None, maker: ModelMaker) -> None:
        """Raises `ModelFileError` for a name or file that there is not."""
        self._is_own = model is not None
        self._model = None if model is None else str(resolve(model))
        self._maker = maker
        if draft is not None:
            self.draft: str | None = str(resolve(draft))
        else:
            self.draft = None if self._is_own else str(bundled_draft())
        require_models(self._model, self.draft)

    @cached_property
    def target(self) -> str:
        return str(self._maker.inflated_target()) if self._model is None else self._model

    @property
    def small(self) -> str:
        return str(bundled_target()) if self._model is None else self._model

    def weights(self, kind: str) -> str:
        return self._maker.weights(self.target, kind)


def learn(asked: LearnOptions) -> int:
    """Show the list, a recorded result, or run a lesson; the exit status. Raises `StackscopeError`."""
    if asked.lesson is None:
        if asked.is_shown or asked.asks_for_a_run:
            raise UsageError("That is about one lesson.", remedy="Name it by its number: stackscope learn 3.")
        return _list(is_json=asked.json)
    lesson = lesson_of(asked.lesson)
    if asked.is_shown and asked.asks_for_a_run:
        raise UsageError(
            "--show runs nothing, and the other options are about a run.", remedy="Leave --show out, or the others."
        )
    if asked.is_replacing and asked.output is None:
        raise UsageError("Your own result is always replaced by a newer one.", remedy="Leave --replace out.")
    if isinstance(lesson, Waiting):
        _print(report.waiting_document(lesson), partial(report.waiting, lesson), is_json=asked.json)
        return 0
    if asked.is_shown:
        return _show(lesson, is_json=asked.json)
    return _Taught(lesson, asked).run()


def _print(document: Any, shown: Callable[[int], Any], *, is_json: bool) -> None:
    if is_json:
        output.write_json(document)
    else:
        output.show(shown)


def recorded_path(number: int) -> tuple[Path, bool] | None:
    """Where a lesson's result is, and whether it is from here: the user's own before the one that ships."""
    own = records.own_path(number)
    if own.is_file():
        return own, True
    shipped = records.shipped_path(number)
    return None if shipped is None else (shipped, False)


def _list(*, is_json: bool) -> int:
    entries = []
    for number, lesson in CATALOGUE.items():
        found = recorded_path(number)
        entries.append(
            report.Entry(lesson=lesson, path=None if found is None else found[0], is_own=bool(found and found[1]))
        )
    _print(report.list_document(entries), partial(report.listing, entries), is_json=is_json)
    return 0


def _show(lesson: Lesson, *, is_json: bool) -> int:
    found = recorded_path(lesson.number)
    if found is None:
        document = {"lesson": lesson.number, "title": lesson.title, "claim": lesson.claim, "recorded": None}
        _print(document, partial(report.unrecorded, lesson), is_json=is_json)
        return 0
    record = records.read(found[0])
    _print(report.document(lesson, record), partial(report.whole, lesson, record, found[0]), is_json=is_json)
    return 0


class _Taught:
    """A lesson from its staging to its conclusion."""

    def __init__(self, lesson: Lesson, asked: LearnOptions) -> None:
        self._lesson = lesson
        self._asked = asked
        self._path = records.own_path(lesson.number) if asked.output is None else asked.output
        self._may_replace = asked.output is None or asked.is_replacing
        self._interrupts = Interrupts()

    def run(self) -> int:
        lesson, asked = self._lesson, self._asked
        require_writable(self._path, replace=self._may_replace)
        maker = ModelMaker(teller(is_quiet=asked.json))
        stage = lesson.stage(LessonModels(asked.model, asked.draft, maker), asked.is_quick)
        maker.make()
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        budget = Budget(seconds=QUICK_SECONDS if asked.is_quick else SECONDS)
        self._tell(partial(report.staged, lesson, stage, is_quick=asked.is_quick))
        with (
            told_when_interrupted("nothing was stored."),
            tempfile.TemporaryDirectory(prefix="stackscope-learn-") as folder,
            ExperimentProgress(is_quiet=asked.json) as progress,
            self._interrupts,
        ):
            conductor = Conductor(
                stage, budget, Path(folder), progress=partial(_show_standing, progress), is_stopping=self._is_stopping
            )
            try:
                conductor.look()
                with progress.aside():
                    self._tell(partial(report.predicted, lesson, stage, conductor.predictions))
                conductor.measure()
            except Stopped:
                pass
            seconds = conductor.seconds
        received = self._interrupts.received
        record = LessonRecord(
            lesson=lesson.number,
            stackscope=__version__,
            date=started,
            host=platform.node(),
            device=processor_name() or platform.machine(),
            cores=usable_cores(),
            stage=records.with_names(stage),
            is_quick=asked.is_quick,
            is_interrupted=received is not None,
            seconds=round(seconds, 1),
            predictions={key: records.prediction_with_names(one) for key, one in conductor.predictions.items()},
            runs=tuple(conductor.runs),
            searched=tuple(conductor.searched),
            chosen=conductor.chosen,
            limits=conductor.limits,
            notes=conductor.notes,
        )
        return self._end(record, received)

    def _end(self, record: LessonRecord, received: int | None) -> int:
        lesson, asked = self._lesson, self._asked
        document = report.document(lesson, record)
        try:  # Shown first: what cannot be stored has been seen at least, and what cannot be shown is stored.
            _print(document, partial(report.measured, lesson, record), is_json=asked.json)
        finally:
            if received is None:  # Half a lesson does not take the place of a whole one.
                with whole_file(self._path, replace=self._may_replace) as unfinished:
                    records.write(unfinished, document)
        if received is not None:
            return SIGNALLED + received
        self._tell(partial(report.stored, self._path))
        return 0

    def _is_stopping(self) -> bool:
        return self._interrupts.received is not None

    def _tell(self, shown: Callable[[int], Any]) -> None:
        if not self._asked.json:
            output.show(shown)


def _show_standing(progress: ExperimentProgress, standing: Standing) -> None:
    told = "" if standing.left_s is None else f", {left(standing.left_s)}"
    progress.show(
        f"run {standing.n_done + 1} of {standing.n_total}, {standing.doing}{told}", standing.n_done / standing.n_total
    )
