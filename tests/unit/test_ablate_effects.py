"""What an ablation makes of its runs: known effects in, verdicts out, and none where there are none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from stackscope.analysis.factorial import Contrast
from stackscope.experiments import effects
from stackscope.experiments.blocks import wants_block
from stackscope.experiments.plan import Blocks
from stackscope.records import Estimate, Prediction
from stackscope.report.ablation_words import limited_by, verdict
from tests.unit.ablate_builders import CACHE, SPECULATION, WEIGHTS, plan, run, simulated

if TYPE_CHECKING:
    from stackscope.experiments.effects import Ablation
    from stackscope.experiments.plan import Plan

EIGHT = Blocks(first=8, least=8, is_adaptive=False, seconds=None)


def truth_of(of: Plan, singles: tuple[float, ...], pairs: dict[int, float]) -> dict[int, float]:
    """Logarithms of rates: a baseline of 20 tok/s, single speed-ups, and ratios of pairs to their products."""
    return {
        cell: math.log(20.0)
        + sum(math.log(value) for i, value in enumerate(singles) if cell >> i & 1)
        + sum(math.log(value) for pair, value in pairs.items() if cell & pair == pair)
        for cell in of.cells
    }


def analysed(of: Plan, singles: tuple[float, ...], pairs: dict[int, float], *, seed: int = 0, n: int = 8) -> Ablation:
    runs = simulated(of, truth_of(of, singles, pairs), n, np.random.default_rng(seed), run_sd=0.01)
    found = effects.analyse(of, runs)
    assert found is not None
    return found


def test_the_product_stands_beside_the_combination() -> None:
    found = analysed(plan(WEIGHTS, SPECULATION, blocks=EIGHT), (1.54, 1.66), {3: 0.86})
    (one,) = found.interactions
    assert (one.names, one.kind, one.best) == ("weights × speculation", "overlapping", "speculation")
    assert one.product.ratio == pytest.approx(1.54 * 1.66, rel=0.03)
    assert one.measured.ratio == pytest.approx(1.54 * 1.66 * 0.86, rel=0.03)
    interval = found.interval(one.ratio)
    assert interval is not None
    assert interval.holds(0.86)
    assert interval.high < 0.9


@pytest.mark.parametrize(
    ("singles", "ratio", "kind", "words"),
    [
        ((1.5, 1.6), 1.2, "symbiotic", "are symbiotic"),
        ((1.5, 1.6), 0.8, "overlapping", "stand in each other's way"),
        ((1.5, 1.6), 0.6, "conflicting", "are in conflict"),
        ((1.5, 1.6), 1.0, "independent", "do not touch each other"),
    ],
)
def test_pairs_are_named_by_what_they_do_to_each_other(
    singles: tuple[float, float], ratio: float, kind: str, words: str
) -> None:
    of = plan(WEIGHTS, SPECULATION, blocks=EIGHT)
    found = analysed(of, singles, {3: ratio}, seed=3)
    assert found.interactions[0].kind == kind
    assert words in " ".join(verdict(found, of))


@pytest.mark.parametrize(
    ("singles", "ratio", "words"),
    [
        ((1.5, 1.6), 1.3, "seem to be symbiotic"),
        ((1.5, 1.6), 0.8, "seem to stand in each other's way"),
        ((1.5, 1.6), 0.5, "seem to be in conflict"),
    ],
)
def test_few_blocks_are_worded_as_hints(singles: tuple[float, float], ratio: float, words: str) -> None:
    of = plan(WEIGHTS, SPECULATION, blocks=Blocks(first=3, least=3, is_adaptive=False, seconds=None))
    found = analysed(of, singles, {3: ratio}, seed=3, n=3)
    told = " ".join(verdict(found, of))
    assert not found.interactions[0].is_settled
    assert words in told
    assert "seems faster with" in told
    assert "is a hint, no finding" in told


def test_an_interval_that_nearly_reaches_the_product_is_worded_as_a_hint() -> None:
    """Eight blocks that leave out 1, but hardly."""
    ratio = Contrast(-0.05, 0.015, 8)  # at 95 %: 0.92 to 0.985
    assert ratio.is_from_one()
    assert not ratio.is_settled()
    assert Contrast(-0.05, 0.008, 8).is_settled()
    assert not Contrast(-0.05, 0.0, 3).is_settled()


def test_a_conflict_names_the_better_one_alone() -> None:
    of = plan(WEIGHTS, SPECULATION, blocks=EIGHT)
    told = " ".join(verdict(analysed(of, (1.5, 1.6), {3: 0.6}), of))
    assert "slower than speculation alone" in told


def test_each_alone_and_all_together_say_that_pairs_take_more_cells() -> None:
    of = plan(blocks=EIGHT)
    found = analysed(of, (1.5, 1.3, 1.6), {5: 0.8})
    assert [cell.cell for cell in found.cells] == [0, 1, 2, 4, 7]
    assert [one.cell for one in found.interactions] == [7]
    assert "--full" in " ".join(verdict(found, of))


def test_a_whole_factorial_names_the_pair() -> None:
    of = plan(is_full=True, blocks=EIGHT)
    found = analysed(of, (1.5, 1.3, 1.6), {5: 0.8})
    kinds = {one.names: one.kind for one in found.interactions if one.is_pair}
    assert kinds == {
        "weights × prefix_cache": "independent",
        "weights × speculation": "overlapping",
        "prefix_cache × speculation": "independent",
    }
    pair = next(one for one in found.interactions if one.cell == 5)
    assert pair.averaged is not None
    assert pair.averaged.ratio == pytest.approx(0.8, rel=0.03)
    # Averaging over the third setting uses twice as many runs.
    others = [one for one in found.interactions if one.is_pair and one.averaged is not None]
    assert sum(one.averaged.error < one.ratio.error for one in others if one.averaged is not None) >= 2


def test_where_no_pair_is_planted_an_ablation_claims_one_in_twenty_times_at_most() -> None:
    of = plan(is_full=True, blocks=EIGHT)
    truth = truth_of(of, (1.5, 1.3, 1.6), {})
    random = np.random.default_rng(5)
    n, wrong = 300, 0
    for _ in range(n):
        found = effects.analyse(of, simulated(of, truth, 8, random))
        assert found is not None
        wrong += any(one.kind not in ("independent", "unclear") for one in found.interactions)
    # Of 300 at 5 %, 15 are expected and more than 24 come once in a hundred times.
    assert wrong <= 24


def test_intervals_of_blocks_that_were_added_as_needed_hold_the_truth() -> None:
    """With the rule that ends an ablation in force; runs stray by so much that it takes about eight blocks."""
    of = plan(WEIGHTS, SPECULATION, blocks=Blocks(seconds=None))
    truth = truth_of(of, (1.54, 1.66), {3: 0.86})
    random = np.random.default_rng(11)
    n, held, ended = 400, 0, []
    for _ in range(n):
        runs = simulated(of, truth, 5, random, run_sd=0.025)
        while wants_block(runs, of.cells, of.blocks, lambda blocks: effects.is_precise(of, blocks)):
            runs += simulated(of, truth, 1, random, run_sd=0.025, first=len(runs) // 4)
        found = effects.analyse(of, runs)
        assert found is not None
        interval = found.interval(found.interactions[0].ratio)
        assert interval is not None
        held += interval.holds(0.86)
        ended.append(found.n_blocks)
    assert 0.93 <= held / n <= 0.99
    assert min(ended) < 8 < max(ended)


def test_figures_are_medians_counts_and_geometric_means() -> None:
    of = plan(WEIGHTS, blocks=EIGHT)
    runs = [
        run(block, cell, rate, ttft_p50_ns=ttft, ttft_n=5.0, **{"share.decode": 0.9, "host_share": 0.1})
        for block, (rate, ttft) in enumerate([(10.0, 1e6), (40.0, 3e6), (20.0, 9e6)])
        for cell in (0, 1)
    ]
    found = effects.analyse(of, runs)
    assert found is not None
    figures = {name: figure.value for name, figure in found.cells[0].figures.items()}
    assert figures["tokens_per_s"] == pytest.approx(20.0)
    assert (figures["ttft_p50_ns"], figures["ttft_n"]) == (3e6, 15.0)
    assert (found.cells[0].bottleneck, found.cells[0].largest_part) == ("", "the target's forward (90.0 %)")
    assert limited_by(found.cells[0]) == "nothing named; most of the time in the target's forward (90.0 %)"
    part = "nothing named; most of the time in the target's forward (90.0 %)"
    assert verdict(found, of)[-1] == f"What limits: in the baseline {part}; with everything on {part}."
    named = effects.analyse(of, runs, limits={1: "weight bandwidth 80.0 %"})
    assert named is not None
    assert verdict(named, of)[-1].endswith(f"{part}; with everything on weight bandwidth 80.0 %.")
    assert found.cells[1].ratios["ttft_p50_ns"].ratio == pytest.approx(1.0)
    assert found.cells[0].ratios == {}


def test_what_some_runs_do_not_know_is_not_compared() -> None:
    of = plan(WEIGHTS, blocks=EIGHT)
    runs = [run(block, cell, 10.0) for block in range(3) for cell in (0, 1)]
    runs[1] = run(0, 1, 10.0, ttft_p50_ns=1e6)
    found = effects.analyse(of, runs)
    assert found is not None
    assert found.cells[1].ratios == {}
    assert limited_by(found.cells[1]) == ""


def test_no_whole_block_is_no_result() -> None:
    assert effects.analyse(plan(WEIGHTS, blocks=EIGHT), [run(0, 1, 10.0)]) is None


def test_predictions_stand_beside_what_was_measured() -> None:
    of = plan(WEIGHTS, SPECULATION, blocks=EIGHT)
    runs = simulated(of, truth_of(of, (1.5, 1.6), {3: 0.8}), 8, np.random.default_rng(0))
    ratios = {1: Estimate(1.5, 1.4, 1.6), 2: Estimate(1.6, 1.5, 1.7), 3: Estimate(2.04, 1.9, 2.2)}
    guessed = {cell: Prediction(at_ns=0, changes={}, tokens=one) for cell, one in ratios.items()}
    found = effects.analyse(of, runs, guessed, {3: "weight bandwidth 80.0 %"})
    assert found is not None
    assert found.interactions[0].predicted == pytest.approx(0.85)
    assert found.cells[3].predicted == Estimate(2.04, 1.9, 2.2)
    assert [cell.bottleneck for cell in found.cells] == ["", "", "", "weight bandwidth 80.0 %"]
    guessed[2] = Prediction(at_ns=0, changes={}, reason="nobody knows")
    partly = effects.analyse(of, runs, guessed)
    assert partly is not None
    assert partly.interactions[0].predicted is None


def test_disturbed_runs_are_counted() -> None:
    of = plan(CACHE, blocks=EIGHT)
    runs = [run(block, cell, 10.0, cpu_share=0.9 if cell else 0.99) for block in range(3) for cell in (0, 1)]
    found = effects.analyse(of, runs)
    assert found is not None
    assert (found.n_disturbed, found.n_runs) == (3, 6)
