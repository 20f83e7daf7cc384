"""`stackscope sweep`: many configurations under the same traffic, all of them or those that a search chooses."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import config as settings
from stackscope import units
from stackscope.characters import harmless
from stackscope.commands.experiment_judge import judged_by
from stackscope.commands.experiment_models import ModelMaker, teller
from stackscope.commands.experiment_options import NOT_OF_RUNS
from stackscope.commands.experiment_progress import ExperimentProgress, left, planned
from stackscope.commands.experiment_reports import SWEEP, sweep_report
from stackscope.commands.experiment_traffic import DEFAULTS, REQUESTS, with_lengths
from stackscope.commands.interrupts import SIGNALLED, Interrupts, keeping
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError, ToggleRefusedError, UsageError
from stackscope.experiments import effects_explained as explained
from stackscope.experiments import search_results as results
from stackscope.experiments.blocks import conduct, wants_block
from stackscope.experiments.plan import Blocks, Limits, with_warmup
from stackscope.experiments.quality import AGREEMENT, DIVERGENCE, with_quality
from stackscope.experiments.runs import Stopped, run_cell
from stackscope.experiments.search import EXPLORING
from stackscope.experiments.search_goals import Goals, parse_constraints, parse_objectives
from stackscope.experiments.search_plan import DEFAULT_BLOCKS, SweepFile, SweepPlan, read_sweep
from stackscope.experiments.search_space import configurations, parse_axes, split_axes
from stackscope.experiments.state import NAME, CellRun, StateFile, other_kind, plan_as, read
from stackscope.report import output
from stackscope.report import sweep as report
from stackscope.session.format import SUFFIX
from stackscope.session.paths import recording_folder, recording_name
from stackscope.workload import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.experiments.search import Pick
    from stackscope.experiments.search_space import Axis
    from stackscope.toggles import EngineConfig

KIND: Final = SWEEP
LEAST_BUDGET: Final = 4
QUALITY: Final = frozenset({AGREEMENT, DIVERGENCE})


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a sweep beside the options of a run."""

    file: Path | None = None
    """A sweep in TOML. `None`: `over` has the axes."""
    over: str | None = None
    """Axes as they are typed; they replace those of the file that have the same names."""
    search: int | None = None
    """Runs at most. `None`: everything runs."""
    objectives: str | None = None
    constraints: str | None = None
    blocks: int | None = None
    has_quality: bool = True
    folder: Path | None = None
    json: bool = False


def sweep(given: Mapping[str, object], asked: SweepOptions, *, config: Path | None = None) -> int:
    """Run the sweep, or what is missing of it, print what it found; the exit status. Raises `StackscopeError`."""
    maker = ModelMaker(teller(is_quiet=asked.json))
    own = (
        None if asked.has_quality else False,
        asked.file,
        asked.over,
        asked.search,
        asked.objectives,
        asked.constraints,
        asked.blocks,
        config,
    )
    is_alone = asked.folder is not None and all(value is None for value in (*given.values(), *own))
    plan = None if is_alone else plan_of(given, asked, config=config, maker=maker)
    refusals: dict[int, str] = {}
    folder = asked.folder
    if folder is None:
        assert plan is not None
        name = recording_name(datetime.now().astimezone(), KIND, Path(plan.base.model).stem)
        folder = recording_folder() / name.removesuffix(SUFFIX)
    if plan is not None:
        StateFile.refuse_other(folder, KIND, plan, settled_later=["refused"])
        maker.make()
        refusals = _refused(plan.base, plan.axes)
        plan = msgspec.structs.replace(plan, refused=tuple(refusals))
    with StateFile.open(folder, KIND, plan) as state, keeping(folder, "sweep"):
        for cell, why in refusals.items():
            if cell not in state.refusals:
                state.refuse(cell, why)
        return _Conducted(plan_as(SweepPlan, state.plan, state.path), state, folder, is_json=asked.json).run()


def plan_of(given: Mapping[str, object], asked: SweepOptions, *, config: Path | None, maker: ModelMaker) -> SweepPlan:
    """The plan for what was asked, but for what its models will not run; `maker` knows then which it needs.

    Raises `StackscopeError`.
    """
    file = SweepFile(axes={}) if asked.file is None else read_sweep(asked.file)
    options = settings.resolve(
        given, config=config, default_requests=REQUESTS, defaults={**DEFAULTS, **_options(file, asked.file)}
    )
    if asked.search is not None and asked.search < LEAST_BUDGET:
        raise UsageError(f"A search with {asked.search} runs finds nothing.", remedy=f"Give at least {LEAST_BUDGET}.")
    if asked.search is not None and asked.blocks is not None:
        raise UsageError("A search decides by itself how often to run what.", remedy="Leave out --blocks.")
    for remark in options.remarks:
        print(f"stackscope: {harmless(remark)}", file=sys.stderr)
    workload = with_warmup(with_lengths(options.workload))
    check.check(workload)
    base = maker.with_target(options.engine)
    texts: dict[str, Sequence[object]] = {**file.axes, **split_axes(asked.over or "")}
    # Without axes of their own, options are held against the sweep that they are to go on with.
    stored = () if texts else _axes_in(asked.folder)
    axes = stored or parse_axes(texts, partial(maker.weights, base.model))
    configurations(base, axes)
    service = options.limits.service
    n_blocks = DEFAULT_BLOCKS if asked.blocks is None else asked.blocks
    if not 1 <= n_blocks <= 1_000:
        raise UsageError(f"There cannot be {n_blocks:,} blocks.", remedy="Give 1 to 1,000 --blocks.")
    return SweepPlan(
        base=base,
        axes=axes,
        workload=workload,
        limits=Limits(ttft_ns=service.ttft_ns, tpot_ns=service.tpot_ns),
        goals=_goals(file, asked),
        budget=asked.search,
        blocks=Blocks(first=n_blocks, least=n_blocks, is_adaptive=False, seconds=None),
        is_recorded=options.output.record,
        has_quality=asked.has_quality,
    )


def _axes_in(folder: Path | None) -> tuple[Axis, ...]:
    """Those of the sweep in a folder; empty where there is none. Raises `SessionFileError` and `UsageError`."""
    if folder is None or not (folder / NAME).is_file():
        return ()
    stored = read(folder)
    if stored.kind != KIND:
        raise other_kind(folder, stored.kind)
    return plan_as(SweepPlan, stored.plan, folder / NAME).axes


def _options(file: SweepFile, path: Path | None) -> dict[str, object]:
    """The options of a run in a sweep's file. Raises `UsageError` for one that a run does not have."""
    from stackscope.options import OPTIONS

    names = {option.name for option in OPTIONS}
    left_out = NOT_OF_RUNS | {option.name for option in OPTIONS if option.targets[0].startswith("screen.")}
    for name in file.options:
        if name in left_out:
            raise UsageError(f"{path}: the option {name} would do nothing in a sweep.", remedy="Leave it out.")
        if name not in names:
            raise UsageError(f"{path}: there is no option {name} of a run.", remedy="Name it as --help does.")
    return {name: value if isinstance(value, bool) else str(value) for name, value in file.options.items()}


def _goals(file: SweepFile, asked: SweepOptions) -> Goals:
    objectives, constraints = asked.objectives or file.objectives, asked.constraints or file.constraints
    goals = Goals() if objectives is None else Goals(objectives=parse_objectives(objectives))
    return goals if constraints is None else msgspec.structs.replace(goals, constraints=parse_constraints(constraints))


def _refused(base: EngineConfig, axes: tuple[Axis, ...]) -> dict[int, str]:
    """Why configurations are known not to run, by their place. Raises `ToggleRefusedError` when none is left."""
    space = configurations(base, axes)
    refusals = explained.refusals_of([one.config for one in space], Allowances(usable_cores()))
    if len(refusals) == len(space):
        raise ToggleRefusedError(f"None of the configurations can run: {next(iter(refusals.values()))}")
    return refusals


class _Conducted:
    """A sweep from its first missing run to the report."""

    def __init__(self, plan: SweepPlan, state: StateFile, folder: Path, *, is_json: bool) -> None:
        self._plan = plan
        self._space = plan.configurations
        self._state = state
        self._folder = folder
        self._is_json = is_json
        self._interrupts = Interrupts()
        self._facts = check.check(plan.workload)
        self._notes: list[str] = []

    def run(self) -> int:
        progress = ExperimentProgress(is_quiet=self._is_json)
        self._open(progress)
        with progress, self._interrupts, suppress(Stopped):
            if self._plan.has_quality and QUALITY & self._plan.goals.figures:
                self._judge(range(len(self._space)))
            if self._plan.budget is None:
                self._run_grid(progress)
            else:
                self._run_search(progress)
        if self._plan.has_quality and not self._is_stopping():
            with self._interrupts:
                self._judge({run.cell for run in self._state.runs})
        found = self._report()
        received = self._interrupts.received
        if received is not None:
            return SIGNALLED + received
        return ToggleRefusedError.exit_code if found.result.refused and not found.result.rows else 0

    def _open(self, progress: ExperimentProgress) -> None:
        """Say how much is going to run, before any of it does."""
        plan, runs = self._plan, self._state.runs
        if plan.budget is None:
            cells = self._cells
            is_over = not wants_block(runs, cells, plan.blocks, is_enough=lambda _: False)
            told = planned(plan.blocks, len(cells), "configuration")
        else:
            is_over = bool(runs) and self._next() is None
            n_able = len(self._space) - len(plan.refused)
            told = (
                f"{units.counted(n_able, 'configuration')}, searched with {units.counted(plan.budget, 'run')} at most"
            )
        if plan.refused:
            told += f" (without {units.count(len(plan.refused))} that cannot run)"
        progress.opening(told, len(runs), is_over=is_over)

    @property
    def _cells(self) -> list[int]:
        """Configurations that are not known to be refused."""
        return [cell for cell in range(len(self._space)) if cell not in self._plan.refused]

    def _next(self) -> Pick | None:
        """What a search is to run next. `None`: it is over."""
        known = with_quality(self._state.runs, self._state.quality)
        return results.search_of(self._plan, self._guesses()).next(known)

    def _judge(self, cells: Iterable[int]) -> None:
        """Store how far from the first configuration's the answers of others are that may have others."""
        configs = {cell: self._space[cell].config for cell in cells if cell not in self._state.quality}
        judged, note = judged_by(configs, self._space[0].config, self._is_stopping)
        self._notes += note
        for cell, figures in judged.items():
            self._state.judge(cell, figures)

    def _run_grid(self, progress: ExperimentProgress) -> None:
        plan = self._plan
        conduct(
            self._state,
            self._cells,
            plan.blocks,
            plan.workload.seed,
            run=self._run_cell,
            is_enough=lambda _: False,
            progress=lambda standing: progress.take(standing, self._space[standing.cell].label),
        )

    def _run_search(self, progress: ExperimentProgress) -> None:
        budget = self._plan.budget
        assert budget is not None
        runs = self._state.runs
        while (pick := self._next()) is not None:
            taken_s = sum(run.duration_ns for run in runs) / 1e9
            told = f", {left(taken_s / len(runs) * (budget - len(runs)))}" if runs else ""
            doing = "looking" if pick.block == EXPLORING else f"race, block {pick.block + 1}"
            progress.show(
                f"{doing}, run {len(runs) + 1} of {budget}: {self._space[pick.cell].label}{told}", len(runs) / budget
            )
            self._state.add(self._run_cell(pick.block, pick.cell))

    def _guesses(self) -> dict[str, dict[int, float]]:
        """What the explainer makes of the first run, once there is one; it is asked once."""
        if not self._state.predictions:
            recording = next((run.recording for run in self._state.runs if run.cell == 0 and run.recording), None)
            if recording is not None:
                configs = {cell: one.config for cell, one in enumerate(self._space) if cell != 0}
                found = explained.predictions([self._folder / recording], configs, self._space[0].config)
                for cell, prediction in found.items():
                    self._state.predict(cell, prediction)
        return results.guesses_of(self._state.predictions, len(self._space))

    def _run_cell(self, block: int, cell: int) -> CellRun:
        if self._is_stopping():
            raise Stopped
        name = f"run-{len(self._state.runs) + 1:03}-configuration-{cell}{SUFFIX}"
        try:
            return run_cell(
                self._space[cell].config,
                self._plan.workload,
                self._facts,
                block=block,
                cell=cell,
                limits=self._plan.limits.service,
                recording=self._folder / name if self._plan.is_recorded else None,
                is_stopping=self._is_stopping,
            )
        except ToggleRefusedError as error:
            return CellRun(block=block, cell=cell, refusal=str(error))
        except StackscopeError as error:
            error.message = f"{self._space[cell].label}: {error.message}"
            raise

    def _is_stopping(self) -> bool:
        return self._interrupts.received is not None

    def _report(self) -> report.SweepReport:
        found = sweep_report(
            self._plan, self._state, self._folder, notes=self._notes, is_interrupted=self._is_stopping()
        )
        if self._is_json:
            output.write_json(report.document(found))
        else:
            output.show(partial(report.shown, found))
        return found
