"""Sweeps that find less than was asked of them: each says why in one sentence. And the pair that the eight show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from stackscope.experiments import search_results as results
from stackscope.experiments.search import EXPLORING, Search
from stackscope.experiments.search_goals import Goals, parse_constraints
from stackscope.experiments.search_plan import DEFAULT_BLOCKS, SweepPlan, read_sweep
from stackscope.experiments.search_space import parse_axes
from stackscope.experiments.state import CellRun
from stackscope.report import sweep as report
from stackscope.report.page import swept
from stackscope.report.page.markdown import document_markdown
from stackscope.report.sweep_words import least_budget
from stackscope.workload.spec import WorkloadSpec
from tests.integration.cli_support import ROOT
from tests.unit.sweep_machine import machine, run_on
from tests.unit.test_ablate_search import BASE, SPEED, plan, runs_of, weights

if TYPE_CHECKING:
    from collections.abc import Sequence

EIGHT = "weights=F16,Q4_K_M; speculation=off,draft; kv_type=f16,q8_0"


def told(of: SweepPlan, runs: Sequence[CellRun]) -> str:
    """The report on one line; the page says it too."""
    made = report.SweepReport(plan=of, result=results.analyse(of, runs, {}), folder=ROOT)
    text = " ".join(report.shown(made, 100).plain.split())
    assert document_markdown(swept.document(made))
    return text


def with_limits(text: str) -> SweepPlan:
    from msgspec.structs import replace

    goals = Goals(objectives=("tokens_per_s",), constraints=parse_constraints(text))
    return replace(plan("speculation=off,draft"), goals=goals)


def gaps(gap_ms: float, memory: float = 1e8) -> list[CellRun]:
    """Two configurations in three blocks; the second has half the gap and twice the memory."""
    return [
        CellRun(
            block=block,
            cell=cell,
            figures={
                "tokens_per_s": 20.0 + cell,
                "step_gap_p95_ns": gap_ms * 1e6 / (1 + cell),
                "memory_bytes": memory * (1 + cell),
            },
        )
        for block in range(3)
        for cell in range(2)
    ]


def test_a_limit_that_nothing_keeps_is_told_with_what_comes_nearest() -> None:
    text = told(with_limits("step_gap_p95 < 1ms"), gaps(8.0))
    assert (
        "winner None: no configuration that ran keeps step_gap_p95 < 1ms, the nearest being speculation=draft with "
        "4 ms."
    ) in text


def test_a_limit_on_what_nobody_knows_says_so() -> None:
    text = told(with_limits("energy < 1"), gaps(8.0))
    assert "None: energy < 1 cannot be judged, because no run knows energy." in text


def test_limits_that_are_only_kept_apart_say_so() -> None:
    text = told(with_limits("step_gap_p95 < 5ms, memory < 150MB"), gaps(8.0))
    assert "no one keeps step_gap_p95 < 5ms and memory < 150MB together" in text


def test_where_everything_is_refused_nothing_has_a_figure() -> None:
    of = plan("speculation=off,draft", budget=8)
    refused = [CellRun(block=EXPLORING, cell=cell, refusal="There is no room.") for cell in range(2)]
    text = told(of, refused)
    assert "Nothing could run. Each of the 2 configurations that were tried was refused" in text
    assert "There is no room." in text
    assert "Nothing has run yet" not in text
    assert "Nothing has run yet." in told(of, [])


def test_a_search_that_only_meets_refusals_ends() -> None:
    search = Search(machine().places, SPEED, budget=12, seed=0)
    runs: list[CellRun] = []
    while (pick := search.next(runs)) is not None:
        runs.append(CellRun(block=pick.block, cell=pick.cell, refusal="no"))
    assert len(runs) <= 12
    assert len({run.cell for run in runs}) == len(runs)
    assert search.best(runs) is None


@pytest.mark.parametrize("budget", range(4, 9))
def test_a_small_budget_looks_around_before_it_races(budget: int) -> None:
    of = machine()
    search = Search(of.places, SPEED, budget=budget, seed=0)
    random, drift = np.random.default_rng(0), [0.0] * 100
    runs: list[CellRun] = []
    while (pick := search.next(runs)) is not None:
        runs.append(run_on(of, pick.block, pick.cell, random, drift))
    explored = [run.cell for run in runs if run.block == EXPLORING]
    assert len(explored) >= budget // 2
    assert explored[0] == 0
    assert len(runs) <= budget
    assert len({run.cell for run in runs if run.block == 0}) == 2
    assert search.best(runs) is not None


def test_a_budget_that_cannot_try_every_value_says_what_would() -> None:
    text = told(plan(EIGHT, budget=4), [])
    assert (
        "4 runs are few for 8 configurations: 2 values of the settings have no run before the best are raced." in text
    )
    enough = least_budget(plan(EIGHT, budget=4))
    assert f"Give --search {enough} or more" in text
    assert "are few for" not in told(plan(EIGHT, budget=enough), [])
    assert "are few for" not in told(plan(EIGHT), [])


def test_the_eight_configurations_show_their_pair_in_as_many_blocks_as_there_are_by_default() -> None:
    """As lesson 9 found them on two cores: each of the two alone helps, and together they are slower than one."""
    of = SweepPlan(
        base=BASE,
        axes=parse_axes(read_sweep(ROOT / "profiles" / "sweeps" / "eight.toml").axes, weights),
        workload=WorkloadSpec(name="code", requests=11, concurrency=1),
    )
    rates = {}
    for cell, one in enumerate(of.configurations):
        is_light, has_drafts = one.config.model == "q4_k_m.gguf", one.config.speculation == "draft"
        rates[cell] = 125.0 * (2.2 if is_light else 1.0) * ((0.59 if is_light else 1.59) if has_drafts else 1.0)
    assert len(rates) == 8
    random = np.random.default_rng(2)
    runs = [
        CellRun(block=block, cell=cell, figures={"tokens_per_s": rate * math.exp(random.normal(0, 0.02))})
        for block in range(DEFAULT_BLOCKS)
        for cell, rate in rates.items()
    ]
    found = results.analyse(of, runs, {})
    assert [(pair.one, pair.other) for pair in found.pairs] == [("weights=Q4_K_M", "speculation=draft")] * 2
    assert {pair.context.split("kv_type=")[1].split()[0] for pair in found.pairs} == {"f16", "q8_0"}
    assert found.n_pairs == 6
    sentence = report.pair_text(found.pairs[0])
    assert sentence in told(of, runs)
    assert "weights=Q4_K_M (2.2" in sentence


def test_a_pair_of_which_one_does_not_help_alone_is_no_such_pair() -> None:
    of = plan("weights=F16,Q4_K_M; speculation=off,draft")
    assert results.analyse(of, runs_of({0: 20.0, 1: 19.0, 2: 40.0, 3: 30.0}, 6), {}).pairs == ()
