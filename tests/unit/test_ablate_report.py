"""The report of an ablation: it fits, says what is known, and is the same for machines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from stackscope.experiments import effects
from stackscope.experiments.plan import Blocks
from stackscope.records import Estimate, Prediction
from stackscope.report import ablation as report
from tests.unit.ablate_builders import plan, run, simulated

if TYPE_CHECKING:
    from stackscope.experiments.plan import Plan

FOLDER = Path("results")


def made(of: Plan, n_blocks: int = 8, **more: object) -> report.AblationReport:
    singles = {0: 1.5, 1: 1.3, 2: 1.6}
    truth = {
        cell: math.log(20)
        + sum(math.log(value) for i, value in singles.items() if cell >> i & 1)
        + (math.log(0.7) if cell & 5 == 5 else 0)
        for cell in of.cells
    }
    runs = [
        run(
            one.block,
            one.cell,
            one.figures["tokens_per_s"],
            ttft_p50_ns=5e6,
            ttft_p95_ns=9e6,
            ttft_n=12.0,
            memory_bytes=4e8,
            tokens_per_forward=1.0,
            host_share=0.1,
            **{"share.decode": 0.9},
        )
        for one in simulated(of, truth, n_blocks, np.random.default_rng(0), run_sd=0.01)
    ]
    predicted = {
        1: Prediction(at_ns=0, changes={}, tokens=Estimate(1.45, 1.3, 1.6)),
        2: Prediction(at_ns=0, changes={}, reason="Nobody has looked."),
    }
    result = effects.analyse(of, runs, predicted, {0: "weight bandwidth 80.0 %"}, {1: {"greedy_agreement": 0.98}})
    return report.AblationReport(
        plan=of,
        result=result,
        n_runs=len(runs),
        folder=FOLDER,
        predictions=predicted,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("width", [72, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int, is_full: bool) -> None:
    lines = report.shown(made(plan(is_full=is_full)), width).plain.split("\n")
    assert [line for line in lines if len(line) > width] == []


def test_product_and_combination_stand_side_by_side_with_intervals() -> None:
    text = " ".join(report.shown(made(plan(is_full=True)), 80).plain.split())
    assert "product of singles 3.1" in text
    assert "of the product" in text
    assert "averaged over the others" in text
    assert "weights × speculation stand in each other's way: together 0.70× [0.6" in text
    assert "limited by 0 weight bandwidth 80.0 %" in text
    assert "1.45×" in text
    assert "Not everything was predicted: Nobody has looked." in text
    assert "9.00*" in text  # a p95 of 12 values
    assert "98.0" in text


def test_an_unfinished_ablation_says_how_to_go_on() -> None:
    text = report.shown(made(plan(), is_interrupted=True), 80).plain
    assert "stackscope ablate --folder results" in text
    empty = report.AblationReport(plan=plan(), result=None, n_runs=3, folder=FOLDER)
    assert "nothing to compare" in report.shown(empty, 80).plain
    assert report.document(empty)["cells"] == []


def test_three_blocks_name_pairs_with_reserve_and_eight_do_not() -> None:
    few = plan(is_full=True, blocks=Blocks(first=3, least=3, is_adaptive=False, seconds=None))
    hinted = " ".join(report.shown(made(few, n_blocks=3), 80).plain.split())
    assert "seem to stand in each other's way: together 0.7" in hinted
    assert "seems overlapping" in hinted
    assert "What seems so is a hint, no finding: 3 blocks hardly know their own spread." in hinted
    flat = " ".join(report.shown(made(plan(is_full=True)), 80).plain.split())
    assert "seem" not in flat


def test_two_blocks_claim_nothing() -> None:
    found = made(plan(blocks=Blocks(first=2, least=2, is_adaptive=False, seconds=None)), n_blocks=2)
    text = " ".join(report.shown(found, 80).plain.split())
    assert "With fewer than 3 blocks nothing can be told from chance." in text
    assert "[" not in text.partition("together")[2].partition("÷")[0]


def test_a_quick_one_says_what_it_gives_up() -> None:
    quick = msgspec.structs.replace(plan(), is_quick=True, blocks=Blocks(first=3, least=3, is_adaptive=False))
    text = " ".join(report.shown(made(quick, n_blocks=3), 80).plain.split())
    assert "Quick: 3 blocks instead of 8" in text
    assert "what pairs are called is a hint at most" in text


def test_the_document_has_ratios_with_their_ends() -> None:
    document = msgspec.json.decode(msgspec.json.encode(report.document(made(plan()))))
    whole = document["interactions"][0]
    assert whole["ratio"]["low"] < 0.7 < whole["ratio"]["high"]
    assert document["cells"][0]["speed_up"] is None
    assert document["cells"][1]["predicted"] == [1.45, 1.3, 1.6]
    assert document["cells"][1]["figures"]["greedy_agreement"] == 0.98
    assert document["blocks"] == 8
    assert document["plan"]["is_full"] is False


@pytest.mark.parametrize("width", [72, 80])
def test_three_blocks_in_noise_fit_as_well(width: int) -> None:
    """Their intervals go from a ten-thousandth to thousands."""
    of, random = plan(is_full=True, blocks=Blocks(first=3, most=3)), np.random.default_rng(3)
    names = ("ttft_p50_ns", "tpot_p50_ns", "step_gap_p95_ns", "e2e_p50_ns", "memory_bytes")
    runs = [
        run(block, cell, float(np.exp(random.normal(4, 2))), **{n: float(np.exp(random.normal(15, 3))) for n in names})
        for block in range(3)
        for cell in of.cells
    ]
    found = report.AblationReport(
        plan=of, result=effects.analyse(of, runs, {}, {}, {}), predictions={}, n_runs=len(runs), folder=FOLDER
    )
    lines = report.shown(found, width).plain.splitlines()
    assert [line for line in lines if len(line) > width] == []


def test_a_cell_has_the_number_of_its_recordings_in_every_table() -> None:
    """Of three settings without all combinations these are no consecutive numbers."""
    found = made(plan())
    assert found.result is not None
    assert report.named_cells(found.result) == {
        0: "0  baseline",
        1: "1  weights=Q8_0",
        2: "2  prefix_cache=on",
        4: "4  speculation=draft",
        7: "7  1 + 2 + 4",
    }
    lines = report.shown(found, 100).plain.split("\n")
    assert any(line.split() == ["cell", "0", "1", "2", "4", "7"] for line in lines)
    assert "cell 1 of block 1 is block-01-cell-1" in " ".join(" ".join(lines).split())
