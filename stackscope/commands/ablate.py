"""`stackscope ablate`: what each optimisation buys alone, what all buy together, and how they get along."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import config as settings
from stackscope.characters import harmless
from stackscope.commands.experiment_judge import judged_by
from stackscope.commands.experiment_models import ModelMaker, teller
from stackscope.commands.experiment_progress import ExperimentProgress, planned
from stackscope.commands.experiment_reports import ABLATION, ablation_report
from stackscope.commands.experiment_traffic import DEFAULTS, QUICK_REQUESTS, REQUESTS, with_lengths
from stackscope.commands.interrupts import SIGNALLED, Interrupts, keeping
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError, ToggleRefusedError, UsageError
from stackscope.experiments import effects
from stackscope.experiments import effects_explained as explained
from stackscope.experiments.blocks import conduct, wants_block
from stackscope.experiments.cells import masks, parse_factors
from stackscope.experiments.plan import (
    MOST_BLOCKS,
    QUICK_BLOCKS,
    Blocks,
    Limits,
    Plan,
    with_warmup,
)
from stackscope.experiments.runs import Stopped, run_cell
from stackscope.experiments.state import StateFile, is_begun, plan_as
from stackscope.model.ftypes import split_type
from stackscope.report import ablation as report
from stackscope.report import output
from stackscope.session.format import SUFFIX
from stackscope.session.paths import recording_folder, recording_name
from stackscope.workload import check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.experiments.state import CellRun
    from stackscope.toggles import EngineConfig

KIND: Final = ABLATION

WEIGHTS: Final = "Q8_0"

MOST_PREDICTED_FROM: Final = 8
"""Runs of the baseline: what they could not tell, further ones will not."""

FLOATS: Final = ("f16", "bf16", "f32")


class AblateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of an ablation beside the options of a run."""

    factors: str | None = None
    """Settings with their values, separated by commas. `None`: weights, prefix cache and speculation."""
    is_full: bool = False
    blocks: int | None = None
    """Exactly so many. `None`: as many as the intervals need."""
    minutes: float | None = None
    """No block is added that would end later. `None`: ten."""
    is_quick: bool = False
    has_quality: bool = True
    folder: Path | None = None
    """For the recordings and the results; one that has an ablation is gone on with, by itself with its own plan."""
    json: bool = False


def ablate(given: Mapping[str, object], asked: AblateOptions, *, config: Path | None = None) -> int:
    """Run the ablation, or what is missing of it, print what it shows; the exit status. Raises `StackscopeError`."""
    maker = ModelMaker(teller(is_quiet=asked.json))
    is_alone = (
        asked.folder is not None
        and not any(
            value is not None for value in [*given.values(), config, asked.factors, asked.blocks, asked.minutes]
        )
        and not (asked.is_full or asked.is_quick or not asked.has_quality)
    )
    if is_alone and asked.folder is not None and not is_begun(asked.folder):
        print(f"stackscope: {asked.folder} is empty: an ablation with the defaults begins there.", file=sys.stderr)
        is_alone = False
    plan = None if is_alone else plan_of(given, asked, config=config, maker=maker)
    folder = asked.folder or _new_folder(plan)
    if plan is not None:
        StateFile.refuse_other(folder, KIND, plan)
        _require_cells(plan)  # as far as it can be told from the models that there are
        maker.make()
        _require_cells(plan)
    with StateFile.open(folder, KIND, plan) as state:
        plan = plan_as(Plan, state.plan, state.path)
        with keeping(folder, "ablate"):
            return _Conducted(plan, state, folder, is_json=asked.json).run()


def _require_cells(plan: Plan) -> None:
    """Raise `ToggleRefusedError` for a cell that is known not to run: a block takes all of them."""
    configs = [plan.config(cell) for cell in plan.cells]
    for place, why in explained.refusals_of(configs, Allowances(usable_cores())).items():
        raise ToggleRefusedError(f"{plan.label(plan.cells[place])}: {why}")


def plan_of(given: Mapping[str, object], asked: AblateOptions, *, config: Path | None, maker: ModelMaker) -> Plan:
    """The plan for what was asked; `maker` knows then which models it needs. Raises `StackscopeError`."""
    options = settings.resolve(
        given,
        config=config,
        default_requests=QUICK_REQUESTS if asked.is_quick else REQUESTS,
        defaults=DEFAULTS,
    )
    blocks = blocks_of(asked.blocks, asked.minutes, is_quick=asked.is_quick)
    for remark in options.remarks:
        print(f"stackscope: {harmless(remark)}", file=sys.stderr)
    workload = with_warmup(with_lengths(options.workload))
    check.check(workload)
    service = options.limits.service
    base = maker.with_target(options.engine)
    texts = _factor_texts(options.engine, base) if asked.factors is None else asked.factors.split(",")
    factors = parse_factors(texts, base, partial(maker.weights, base.model))
    masks(len(factors), is_full=asked.is_full)
    return Plan(
        base=base,
        factors=factors,
        is_full=asked.is_full,
        workload=workload,
        limits=Limits(ttft_ns=service.ttft_ns, tpot_ns=service.tpot_ns),
        blocks=blocks,
        is_quick=asked.is_quick,
        is_recorded=options.output.record,
        has_quality=asked.has_quality,
    )


def blocks_of(n: int | None, minutes: float | None, *, is_quick: bool) -> Blocks:
    """How often everything is repeated. Raises `UsageError`."""
    if n is not None and not 2 <= n <= 1_000:
        raise UsageError(f"There cannot be {n:,} blocks.", remedy="Give 2 to 1,000 --blocks: one has no interval.")
    if minutes is not None and not 0 < minutes <= 100_000:
        raise UsageError(
            f"A limit of {minutes:g} minutes makes no sense.", remedy="Give a number above 0, up to 100,000."
        )
    if minutes is not None and (n is not None or is_quick):
        what = "--quick has three blocks" if n is None else "--blocks says how many there are"
        raise UsageError(f"{what}, so that --minutes would do nothing.", remedy="Leave one out.")
    if n is None and is_quick:
        n = QUICK_BLOCKS
    if n is not None:
        return Blocks(first=n, least=n, most=max(n, MOST_BLOCKS), is_adaptive=False, seconds=None)
    return Blocks() if minutes is None else Blocks(seconds=minutes * 60)


def _factor_texts(engine: EngineConfig, base: EngineConfig) -> list[str]:
    """The optimisations of the field that these models can have."""
    _, kind = split_type(Path(base.model).stem)
    texts = [f"weights={WEIGHTS}"] if not engine.model or kind.strip("-._").lower() in FLOATS else []
    return [*texts, "prefix_cache=on", f"speculation={'ngram' if base.draft_model is None else 'draft'}"]


def _new_folder(plan: Plan | None) -> Path:
    """A folder of its own, beside the recordings of runs."""
    assert plan is not None
    name = recording_name(datetime.now().astimezone(), KIND, Path(plan.base.model).stem).removesuffix(SUFFIX)
    return recording_folder() / name


class _Conducted:
    """An ablation from its first missing run to the report."""

    def __init__(self, plan: Plan, state: StateFile, folder: Path, *, is_json: bool) -> None:
        self._plan = plan
        self._state = state
        self._folder = folder
        self._is_json = is_json
        self._interrupts = Interrupts()
        self._facts = check.check(plan.workload)
        self._notes: list[str] = []
        self._n_predicted_from = 0
        """Runs of the baseline that predictions were last made from."""

    def run(self) -> int:
        plan = self._plan
        is_enough = partial(effects.is_precise, plan)
        progress = ExperimentProgress(is_quiet=self._is_json)
        is_over = not wants_block(self._state.runs, plan.cells, plan.blocks, is_enough)
        progress.opening(planned(plan.blocks, len(plan.cells), "cell"), len(self._state.runs), is_over=is_over)
        with progress, self._interrupts, suppress(Stopped):
            conduct(
                self._state,
                plan.cells,
                plan.blocks,
                plan.workload.seed,
                run=self._run_cell,
                is_enough=is_enough,
                progress=lambda standing: progress.take(standing, plan.label(standing.cell)),
            )
        if plan.has_quality and not self._is_stopping():
            with self._interrupts:
                self._judge()
        self._report()
        received = self._interrupts.received
        return 0 if received is None else SIGNALLED + received

    def _run_cell(self, block: int, cell: int) -> CellRun:
        if self._is_stopping():
            raise Stopped
        self._predict()
        plan = self._plan
        try:
            return run_cell(
                plan.config(cell),
                plan.workload,
                self._facts,
                block=block,
                cell=cell,
                limits=plan.limits.service,
                recording=self._folder / f"block-{block + 1:02}-cell-{cell}{SUFFIX}" if plan.is_recorded else None,
                is_stopping=self._is_stopping,
            )
        except StackscopeError as error:
            error.message = f"{plan.label(cell)} in block {block + 1}: {error.message}"
            raise

    def _predict(self) -> None:
        """Store what the other cells are going to do, by the runs of the baseline so far; what is known stays.

        Shadows see little of a short run, so that some predictions take several. Of a cell that has none, the newest
        reason is kept: an older one may hold no longer.
        """
        plan, known = self._plan, self._state.predictions
        left = [cell for cell in plan.cells if cell != 0 and (cell not in known or known[cell].tokens is None)]
        recorded = [run.recording for run in self._state.runs if run.cell == 0 and run.recording is not None]
        if not left or not self._n_predicted_from < len(recorded) <= MOST_PREDICTED_FROM:
            return
        self._n_predicted_from = len(recorded)
        configs = {cell: plan.config(cell) for cell in left}
        found = explained.predictions([self._folder / name for name in recorded], configs, plan.config(0))
        for cell, prediction in found.items():
            if cell not in known or prediction.tokens is not None or prediction.reason != known[cell].reason:
                self._state.predict(cell, prediction)

    def _judge(self) -> None:
        """Store how far from the baseline's the answers of cells are that may have others."""
        plan = self._plan
        configs = {cell: plan.config(cell) for cell in plan.cells if cell not in self._state.quality}
        judged, note = judged_by(configs, plan.config(0), self._is_stopping)
        self._notes += note
        for cell, figures in judged.items():
            self._state.judge(cell, figures)

    def _is_stopping(self) -> bool:
        return self._interrupts.received is not None

    def _report(self) -> None:
        found = ablation_report(
            self._plan, self._state, self._folder, notes=self._notes, is_interrupted=self._is_stopping()
        )
        if self._is_json:
            output.write_json(report.document(found))
        else:
            output.show(partial(report.shown, found))
