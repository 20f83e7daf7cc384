"""Experiments as their reports have them: the same from one that has just run and from one that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.errors import SessionFileError
from stackscope.experiments import effects, search_results
from stackscope.experiments import effects_explained as explained
from stackscope.experiments.plan import Plan
from stackscope.experiments.quality import with_quality
from stackscope.experiments.search_plan import SweepPlan
from stackscope.experiments.state import NAME, plan_as, read
from stackscope.report.ablation import AblationReport
from stackscope.report.sweep import SweepReport

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.experiments.state import StateFile, Stored

ABLATION, SWEEP = "ablation", "sweep"
"""Kinds of experiments, as their files have them."""


def stored_report(folder: Path) -> AblationReport | SweepReport:
    """The report of the experiment in a folder, finished or not. Raises `SessionFileError`."""
    stored = read(folder)
    if stored.kind == ABLATION:
        return ablation_report(plan_as(Plan, stored.plan, folder / NAME), stored, folder)
    if stored.kind == SWEEP:
        return sweep_report(plan_as(SweepPlan, stored.plan, folder / NAME), stored, folder)
    raise SessionFileError(
        f"There is no report of an experiment of the kind {stored.kind}.", remedy="Give that of an ablation or a sweep."
    )


def ablation_report(
    plan: Plan, state: StateFile | Stored, folder: Path, *, notes: Sequence[str] = (), is_interrupted: bool = False
) -> AblationReport:
    """What an ablation shows so far. `notes` are further ones than those of its runs."""
    runs = state.runs
    # What the namer says limits a cell, by its last recording; a cell of which it says nothing is not there.
    last = {run.cell: run.recording for run in runs if run.recording is not None}
    named = {cell: explained.limits_of(folder / name) for cell, name in last.items()}
    limits = {cell: name for cell, name in named.items() if name is not None}
    return AblationReport(
        plan=plan,
        result=effects.analyse(plan, runs, state.predictions, limits, state.quality),
        predictions=state.predictions,
        n_runs=len(runs),
        notes=(*dict.fromkeys(note for run in runs for note in run.notes), *notes),
        folder=folder,
        is_interrupted=is_interrupted,
    )


def sweep_report(
    plan: SweepPlan, state: StateFile | Stored, folder: Path, *, notes: Sequence[str] = (), is_interrupted: bool = False
) -> SweepReport:
    """What a sweep has found so far. `notes` are further ones than those of its runs."""
    runs = with_quality(state.runs, state.quality)
    guesses = search_results.guesses_of(state.predictions, len(plan.configurations))
    return SweepReport(
        plan=plan,
        result=search_results.analyse(plan, runs, guesses),
        predictions=state.predictions,
        refusals=state.refusals,
        notes=(*dict.fromkeys(note for run in runs for note in run.notes), *notes),
        folder=folder,
        is_interrupted=is_interrupted,
    )
