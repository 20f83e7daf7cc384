"""Sweeps of runs that stray: what may be chance is said to be, and so is what ran beside them."""

from __future__ import annotations

import math
from html import unescape
from typing import TYPE_CHECKING

import numpy as np
import pytest

from stackscope.analysis.factorial import Contrast
from stackscope.analysis.statistics import Interval
from stackscope.experiments import search_results as results
from stackscope.experiments.search_results import Why
from stackscope.experiments.state import CellRun
from stackscope.report import sweep as report
from stackscope.report.page import swept
from stackscope.report.page.html import document_page
from stackscope.report.page.markdown import document_markdown
from stackscope.report.sweep_words import brings
from tests.integration.cli_support import ROOT
from tests.unit.test_ablate_search import plan

if TYPE_CHECKING:
    from stackscope.experiments.search_plan import SweepPlan

IDLE_SLOTS = "weights=F16,Q8_0; speculation=off,draft; slots=1,4,8"
"""With one request in flight, slots do nothing."""
CLEAR, UNCLEAR = Interval(1.5, 1.3, 1.8), Interval(1.38, 0.9, 2.1)


def searched(of: SweepPlan, seed: int, *, busy: float) -> list[CellRun]:
    """A search on a machine where something else takes a quarter of the speed in a part of the runs."""
    search, random, runs = results.search_of(of, {}), np.random.default_rng(seed), list[CellRun]()
    while (pick := search.next(runs)) is not None:
        config = of.configurations[pick.cell].config
        rate = 20.0 * (1.2 if config.model == "q8_0.gguf" else 1.0) * (1.5 if config.speculation == "draft" else 1.0)
        is_busy = random.random() < busy
        figures = {
            "tokens_per_s": rate * math.exp(random.normal(0, 0.03)) * (0.75 if is_busy else 1.0),
            "cpu_share": 0.8 if is_busy else 1.0,
        }
        runs.append(CellRun(block=pick.block, cell=pick.cell, figures=figures, duration_ns=10**9))
    return runs


def made(of: SweepPlan, runs: list[CellRun]) -> report.SweepReport:
    return report.SweepReport(plan=of, result=results.analyse(of, runs, {}), folder=ROOT)


def blocks(rates: dict[int, float], n_blocks: int, *, run_sd: float, **figures: float) -> list[CellRun]:
    random = np.random.default_rng(1)
    return [
        CellRun(
            block=block,
            cell=cell,
            figures={"tokens_per_s": rate * math.exp(random.normal(0, run_sd)), **figures},
        )
        for block in range(n_blocks)
        for cell, rate in rates.items()
    ]


def test_a_setting_without_effect_is_not_said_to_bring_what_a_busy_machine_took_from_others() -> None:
    of = plan(IDLE_SLOTS, budget=8)
    found = [results.analyse(of, searched(of, seed, busy=0.4), {}) for seed in range(30)]
    slots = [one for each in found for one in each.why if one.text.startswith("slots=")]
    assert len(slots) > 10
    ratios = [one.fitted.value for one in slots if one.fitted is not None]
    assert max(ratios) > 1.03  # which is what would have been told
    claimed = [one for one in slots if (told := brings(one)) is None or "cannot be told from chance" not in told]
    assert len(claimed) <= 1
    # Whatever wins, the same with other slots is as good.
    assert all(one.n_open > 0 for one in found)


def test_enough_quiet_runs_still_say_what_brings_how_much() -> None:
    of = plan(IDLE_SLOTS, budget=16)
    text = " ".join(report.why(made(of, searched(of, 1, busy=0.0))))
    assert "speculation=draft brings 1." in text
    assert "here, by what all runs say together" in text


@pytest.mark.parametrize(
    ("alone", "fitted", "told"),
    [
        (Contrast(math.log(1.1), 0.01, 4), None, "x brings 1.10× [1.07, 1.14] alone"),
        (Contrast(math.log(1.1), 0.01, 2), None, "what x brings cannot be told from chance: 2 blocks are too few"),
        (Contrast(math.log(1.1), 0.0, 1), None, "what x brings cannot be told from chance: 1 block is too few"),
        (Contrast(math.log(1.1), 0.1, 4), None, "what x brings cannot be told from chance: 1.10× [0.80, 1.51] alone"),
        (None, CLEAR, "x brings 1.50× [1.30, 1.80] here, by what all runs say together"),
        (None, UNCLEAR, "what x brings cannot be told from chance: 1.38× [0.90, 2.10] here, by what all runs say "
                        "together"),
        (Contrast(math.log(1.1), 0.0, 1), CLEAR, "x brings 1.50× [1.30, 1.80] here, by what all runs say together"),
        (None, None, None),
    ],
)  # fmt: skip
def test_nothing_brings_anything_without_an_interval_that_leaves_out_one(
    alone: Contrast | None, fitted: Interval | None, told: str | None
) -> None:
    assert brings(Why(text="x", alone=alone, fitted=fitted)) == told


def test_a_winner_that_others_may_equal_says_so() -> None:
    of = plan("slots=1,4,8")
    text = " · ".join(report.why(made(of, blocks({0: 20.0, 1: 20.2, 2: 10.0}, 4, run_sd=0.03))))
    assert "whether it is the best is left open: 1 of the 2 others cannot be told from it" in text
    sure = made(of, blocks({0: 20.0, 1: 30.0, 2: 10.0}, 4, run_sd=0.01))
    assert "left open" not in " ".join(report.why(sure))
    assert report.document(sure)["rivals"] == {"n": 2, "open": 0}
    equal = made(of, blocks({0: 20.0, 1: 20.2, 2: 20.1}, 4, run_sd=0.03))
    assert "left open: none of the 2 others can be told from it" in " ".join(report.why(equal))
    few = made(plan("slots=1,4"), blocks({0: 20.0, 1: 30.0}, 2, run_sd=0.01))
    assert "left open: the other one cannot be told from it" in " ".join(report.why(few))


def test_a_ratio_of_few_blocks_says_of_how_many_it_is() -> None:
    """The rates beside it are of all runs: a search runs few configurations in the same block."""
    for n, told in ((1, ", in the one block that ran both"), (2, ", in the 2 blocks that ran both"), (4, "")):
        said = report.why(made(plan("slots=1,4"), blocks({0: 20.0, 1: 30.0}, n, run_sd=0.01)))
        [line] = [one for one in said if " of the next" in one]
        assert line.endswith(f" of the next{told}")
        assert ("[" in line) == (not told)


def test_a_winner_by_another_objective_is_held_against_the_next_in_that() -> None:
    from msgspec.structs import replace

    of = plan("slots=1,4")
    of = replace(of, goals=replace(of.goals, objectives=("step_gap_p95_ns",)))
    runs = blocks({0: 20.0, 1: 30.0}, 4, run_sd=0.01)
    runs = [replace(one, figures={**one.figures, "step_gap_p95_ns": 5e6 * (1 + one.cell) + one.block}) for one in runs]
    found = made(of, runs)
    assert found.result.winner is not None
    assert found.result.winner.cell == 0
    assert "0.50× [0.50, 0.50] of the next in step_gap_p95" in report.why(found)
    assert found.result.n_open == 0


def test_runs_beside_which_something_else_ran_are_told_everywhere() -> None:
    runs = blocks({0: 20.0, 1: 30.0}, 3, run_sd=0.01, cpu_share=0.9)
    runs.append(CellRun(block=3, cell=0, figures={"tokens_per_s": 20.0, "cpu_share": 1.0}))
    runs.append(CellRun(block=3, cell=1, refusal="There is no room."))
    found = made(plan("slots=1,4"), runs)
    told = "In 6 of 7 runs something else had the engine's cores"
    assert told in " ".join(report.shown(found, 100).plain.split())
    assert report.document(found)["disturbed_runs"] == 6
    assert told in " ".join(report.document(found)["notes"])
    assert told in document_markdown(swept.document(found))
    assert told in unescape(document_page(swept.document(found)))
    quiet = made(plan("slots=1,4"), blocks({0: 20.0, 1: 30.0}, 3, run_sd=0.01))
    assert report.document(quiet)["disturbed_runs"] == 0
    assert report.document(quiet)["notes"] == []
