"""Configurations that did not run side by side: figures on one footing, and what chance leaves of the Pareto set."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from stackscope.experiments import search_results as results
from stackscope.experiments.footing import is_uneven, levelled, spread
from stackscope.experiments.search import EXPLORING
from stackscope.experiments.search_goals import Goals, pareto, parse_objectives
from stackscope.experiments.state import CellRun
from stackscope.records import Estimate, Prediction
from stackscope.report import sweep as report
from stackscope.report.page import swept
from stackscope.report.page.markdown import document_markdown
from tests.integration.cli_support import ROOT
from tests.unit.test_ablate_search import plan

SEEN = "speculation=off,ngram,draft; draft_length=2,4; slots=1,4; kv_type=f16,q8_0"
"""As a search of ten runs left it behind on a machine that slowed to less than half before the race."""
RUNS = (
    (EXPLORING, 0, 254, 17.2, 161_808_384), (EXPLORING, 11, 445, 26.5, 172_253_184),
    (EXPLORING, 7, 628, 18.4, 171_995_136), (EXPLORING, 15, 349, 39.2, 174_686_208),
    (EXPLORING, 6, 296, 30.1, 186_171_392), (EXPLORING, 3, 559, 15.2, 171_773_952),
    (0, 7, 268, 41.5, 172_208_128), (0, 3, 295, 29.8, 171_634_688),
    (1, 7, 242, 45.8, 171_970_560), (1, 3, 236, 36.5, 171_749_376),
)  # fmt: skip


def slowed() -> list[CellRun]:
    return [
        CellRun(
            block=block,
            cell=cell,
            figures={"tokens_per_s": float(rate), "step_gap_p95_ns": gap * 1e6, "memory_bytes": float(memory)},
            duration_ns=10**9,
        )
        for block, cell, rate, gap, memory in RUNS
    ]


def made(runs: list[CellRun], text: str = SEEN, *, budget: int | None = 10) -> report.SweepReport:
    of = replace(plan(text, budget=budget), goals=Goals())
    first = Prediction(at_ns=0, changes={}, tokens=Estimate(1.25, 1.0, 1.5), reason="It is so.")
    predictions = dict.fromkeys(range(1, len(of.configurations)), first)
    return report.SweepReport(plan=of, result=results.analyse(of, runs, {}), folder=ROOT, predictions=predictions)


def test_the_winner_was_raced_and_what_never_ran_beside_it_takes_nothing_from_that() -> None:
    found = made(slowed())
    winner = found.result.winner
    assert winner is not None
    assert winner.cell in {3, 7}
    rates = {row.cell: row.figures["tokens_per_s"].value for row in found.result.rows}
    # 628 ÷ 445 were measured one after the other; the plain means say 344 ÷ 445.
    assert rates[7] / rates[11] > 1.2
    assert [row.cell for row in found.result.rows] == [7, 3, 11, 15, 6, 0]
    # As in the average run: the mean of all logarithms is what it was.
    plain = [math.log(run.figures["tokens_per_s"]) for run in slowed()]
    level = [math.log(run.figures["tokens_per_s"]) for run in levelled(slowed())]
    assert sum(level) == pytest.approx(sum(plain))


def test_blocks_that_differ_drop_out_of_the_figures() -> None:
    random = np.random.default_rng(0)
    truth = {0: 20.0, 1: 30.0, 2: 45.0, 3: 10.0}
    speed = {EXPLORING: 1.0, 0: 0.5, 1: 0.4}
    ran = [(EXPLORING, cell) for cell in truth] + [(0, 1), (0, 2), (1, 1), (1, 2)]
    runs = [
        CellRun(block=block, cell=cell, figures={
            "tokens_per_s": truth[cell] * speed[block] * math.exp(random.normal(0, 0.001)), "memory_bytes": 1e8 + cell})
        for block, cell in ran
    ]  # fmt: skip
    rates: dict[int, set[float]] = {}
    for one in levelled(runs):
        rates.setdefault(one.cell, set()).add(one.figures["tokens_per_s"])
        assert one.figures["memory_bytes"] == 1e8 + one.cell  # No machine is slow in that.
    for cell, some in rates.items():
        assert max(some) / min(some) < 1.01
        assert min(some) / min(rates[0]) == pytest.approx(truth[cell] / truth[0], rel=0.01)
    noise = spread(runs, "tokens_per_s")
    assert noise is not None
    assert noise.deviation < 0.003
    assert noise.freedom == 8 - 4 - 2


def test_what_ran_in_the_same_blocks_keeps_its_figures() -> None:
    runs = [CellRun(block=block, cell=cell, figures={"tokens_per_s": 20.0 + cell + block}) for block in range(3)
            for cell in range(2)]  # fmt: skip
    assert not is_uneven(runs)
    assert levelled(runs) == runs
    assert is_uneven(runs[:-1])
    text = " ".join(report.shown(made(runs, "slots=1,4", budget=None), 100).plain.split())
    assert "as in the average run" not in text


def test_blocks_that_nothing_connects_are_taken_to_be_alike() -> None:
    runs = [CellRun(block=block, cell=block, figures={"tokens_per_s": 20.0 + block}) for block in range(2)]
    assert [one.figures["tokens_per_s"] for one in levelled(runs)] == pytest.approx([20.0, 21.0])
    assert spread(runs, "tokens_per_s") is None


# The Pareto set


def test_memory_that_differs_less_than_its_runs_do_decides_nothing() -> None:
    found = made(slowed())
    best = {row.cell for row in found.result.rows if row.is_best}
    assert 11 not in best  # 0.2 % more memory than 3 and 7, slower, and with larger gaps
    assert best <= {0, 3, 7}


def test_what_is_as_good_to_one_per_cent_is_as_good() -> None:
    goals = Goals(objectives=parse_objectives("tokens_per_s,memory"))
    figures = {
        0: {"tokens_per_s": 20.0, "memory_bytes": 172.25e6},
        1: {"tokens_per_s": 30.0, "memory_bytes": 172.30e6},
        2: {"tokens_per_s": 30.0, "memory_bytes": 190.0e6},
        3: {"tokens_per_s": 29.9, "memory_bytes": 172.30e6},
    }
    assert pareto(figures, goals) == [1, 3]


@pytest.mark.parametrize("chance", [None, 0.005, 0.02, 0.04, 0.3])
def test_what_is_slower_by_three_per_cent_is_not_as_good(chance: float | None) -> None:
    """Nobody knows whether that is chance, or it is none, or it may be as well 7 % as chance."""
    goals = Goals(objectives=parse_objectives("tokens_per_s,memory"))
    figures = {
        0: {"tokens_per_s": 30.0, "memory_bytes": 4e8},
        1: {"tokens_per_s": 29.1, "memory_bytes": 2e8},
    }
    assert pareto(figures, goals, lambda *_: chance) == [0, 1]


def test_a_difference_that_is_surely_small_and_may_be_chance_is_none() -> None:
    goals = Goals(objectives=parse_objectives("tokens_per_s,memory"))
    figures = {0: {"tokens_per_s": 30.0, "memory_bytes": 4e8}, 1: {"tokens_per_s": 29.5, "memory_bytes": 2e8}}
    assert pareto(figures, goals, lambda *_: 0.02) == [1]
    assert pareto(figures, goals, lambda *_: 0.01) == [0, 1]


def test_what_may_be_chance_is_not_better() -> None:
    goals = Goals(objectives=parse_objectives("tokens_per_s,memory"))
    figures = {0: {"tokens_per_s": 30.0, "memory_bytes": 2e8}, 1: {"tokens_per_s": 26.0, "memory_bytes": 2e8}}
    assert pareto(figures, goals, lambda *_: 0.3) == [0, 1]
    assert pareto(figures, goals, lambda *_: 0.1) == [0]


def test_agreement_is_found_once_and_counts_exactly() -> None:
    goals = Goals(objectives=parse_objectives("tokens_per_s,agreement"))
    figures = {
        0: {"tokens_per_s": 30.0, "greedy_agreement": 0.995},
        1: {"tokens_per_s": 30.0, "greedy_agreement": 1.0},
    }
    assert pareto(figures, goals) == [1]


# What is said of it


def test_a_search_says_how_many_ran_how_often_and_on_what_footing_they_are_shown() -> None:
    found = made(slowed())
    text = " ".join(report.shown(found, 80).plain.split())
    assert "20 configurations, searched with 10 runs at most · 6 of them ran" in text
    header = next(line for line in report.shown(found, 80).plain.split("\n") if "tok/s  runs" in line)
    row = next(line for line in report.shown(found, 80).plain.split("\n") if line.startswith("*"))
    assert row[header.index("runs") : header.index("runs") + 4].strip() == "3"
    assert max(len(line) for line in report.shown(found, 80).plain.split("\n") if "/" not in line) <= 80
    page = " ".join(document_markdown(swept.document(found)).replace("\\", "").split())
    for each in (text, page.replace("Figures as", "figures as")):
        assert "6 of them ran" in each
        assert "figures as in the average run, because not all ran side by side" in each
        assert "beyond 1 % and what may be chance" in each


def test_a_column_that_a_limit_is_on_stays() -> None:
    from stackscope.experiments.search_goals import parse_constraints

    figures = {"ttft_p95_ns": 5e7, "greedy_agreement": 0.99, "mean_kl": 1e-4}
    found = made([replace(one, figures={**one.figures, **figures}) for one in slowed()])
    assert "TTFT p95" not in report.shown(found, 80).plain
    goals = Goals(constraints=parse_constraints("ttft_p95 < 300ms"))
    assert (
        "TTFT p95"
        in report.shown(
            report.SweepReport(plan=replace(found.plan, goals=goals), result=found.result, folder=ROOT), 80
        ).plain
    )


def test_a_prediction_has_its_reference_and_what_was_measured_beside_it() -> None:
    found = made(slowed())
    rates = {row.cell: row.figures["tokens_per_s"].value for row in found.result.rows}
    assert found.result.winner is not None
    ratio = rates[found.result.winner.cell] / rates[0]
    assert (
        f"measured {ratio:.2f}× of the first configuration (speculation=off slots=1 kv_type=f16), "
        "predicted 1.25×: It is so"
    ) in report.why(found)


def test_where_others_are_shown_as_better_than_the_winner_it_says_why() -> None:
    runs = slowed()
    runs[1] = replace(runs[1], figures={**runs[1].figures, "tokens_per_s": 900.0})
    found = made(runs)
    assert found.result.winner is not None
    assert found.result.winner.cell in {3, 7}
    assert "another is shown as better, of fewer or less alike runs: what ran side by side in the race decides" in (
        report.why(found)
    )
