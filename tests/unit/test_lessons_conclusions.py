"""What each lesson says of planted figures: where the claim holds, where it does not, and where nobody can say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from stackscope.experiments.lessons import lengths, searching, speculating
from stackscope.experiments.lessons.data import Data, Point, crossings
from stackscope.experiments.limits import Limit
from stackscope.experiments.state import CellRun
from stackscope.records import Estimate, Prediction
from tests.unit.lessons_builders import concluded, data, lesson, stage

if TYPE_CHECKING:
    from stackscope.experiments.lessons.contracts import Stage

NUMBERS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12)

W, C, S, ALL = "weights Q8_0", "prefix cache", "speculation", "all together"


def test_three_that_save_the_same_time_do_not_multiply() -> None:
    found = data(stage(1), {W: 1.5, C: 1.4, S: 1.3, ALL: 2.0})
    conclusion, text = concluded(1, found)
    assert conclusion.holds is True
    assert "a product of 2.7" in text  # 1.5 · 1.4 · 1.3 = 2.73
    assert "0.73× [" in text  # 2.0 ÷ 2.73
    assert "take from each other" in text


def test_three_that_multiply_are_said_to() -> None:
    conclusion, text = concluded(1, data(stage(1), {W: 1.5, C: 1.4, S: 1.3, ALL: 2.73}))
    assert conclusion.holds is False
    assert "they do multiply here" in text


def test_three_that_help_each_other_are_said_to() -> None:
    conclusion, text = concluded(
        1, data(stage(1), {W: 1.2, C: 1.1, S: 0.8, ALL: 1.5}, {S: {"tokens_per_forward": 1.6}})
    )
    assert conclusion.holds is True
    assert "help each other" in text
    assert "Alone, speculation already loses here." in text
    # 1.6 tokens ÷ 0.8 of the speed: a round takes two plain steps.
    assert "costs 2.00 plain steps and brings 1.60 tokens" in text


def _limits(first: str | None, last: str | None, *, before: float = 0.8, after: float = 0.3) -> dict[str, Limit]:
    shares = {"weight bandwidth": before, "draft overhead": 0.1}, {"weight bandwidth": after, "draft overhead": 0.5}
    return {
        "F16": Limit(name=first, share=before, sentence="too little has run", shares=shares[0]),
        "Q8_0": Limit(name=first, share=before, shares=shares[0]),
        "Q4_K_M": Limit(name=last, share=0.5 if last != first else after, shares=shares[1]),
    }


def test_a_name_that_moves() -> None:
    found = data(stage(2), {"Q8_0": 1.6, "Q4_K_M": 2.1}, limits=_limits("weight bandwidth", "draft overhead"))
    conclusion, text = concluded(2, found)
    assert conclusion.holds is True
    assert "from 80 % to 30 %" in text.replace("80.0", "80").replace("30.0", "30")
    assert "from weight bandwidth to draft overhead" in text


def test_a_name_beside_which_the_first_takes_more_still_leaves_it_open() -> None:
    limits = _limits("weight bandwidth", "draft overhead", after=0.55)
    limits["Q8_0"] = Limit(name=None, sentence="two seconds of steps are needed", shares={"compute": 0.6, "x": 0.1})
    conclusion, text = concluded(2, data(stage(2), {"Q8_0": 1.6, "Q4_K_M": 2.1}, limits=limits))
    assert conclusion.holds is None
    assert "With Q8_0, compute takes most, 60.0 %, and nothing is named (two seconds of steps are needed)." in text
    assert "Yet weight bandwidth takes more still" in text


def test_a_name_that_stays() -> None:
    limits = _limits("weight bandwidth", "weight bandwidth", after=0.6)
    conclusion, text = concluded(2, data(stage(2), {"Q8_0": 1.6, "Q4_K_M": 2.1}, limits=limits))
    assert conclusion.holds is False
    assert "it stays the name" in text


def test_without_a_name_nothing_can_move() -> None:
    conclusion, text = concluded(2, data(stage(2), {}, limits=_limits(None, "draft overhead")))
    assert conclusion.holds is None
    assert "too little has run" in text


def _swept(costs: float) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Speeds and A by acceptance, when a round costs so many plain steps."""
    speeds, figures = {}, {}
    for rate in speculating.ACCEPTANCES:
        tokens = 1 + rate + rate**2 + rate**3
        key = f"{round(rate * 100)} % accepted"
        speeds[key] = tokens / costs
        figures[key] = {"tokens_per_forward": tokens}
    return speeds, figures


def test_acceptance_has_a_break_even() -> None:
    conclusion, text = concluded(3, data(stage(3), *_swept(2.0)))
    assert conclusion.holds is True
    assert "costs 2.0" in text or "costs 1.99" in text
    # 1 + a + a² + a³ = 2 at a = 0.544; between the points at 40 % and 60 % the line is nearly straight.
    at = float(text.partition("acceptance of ")[2].partition(" %")[0])
    assert at == pytest.approx(54.4, abs=1.0)


def test_speculation_that_loses_at_every_acceptance() -> None:
    conclusion, text = concluded(3, data(stage(3), *_swept(4.5)))
    assert conclusion.holds is True
    assert "loses here at every acceptance" in text
    assert "brings 4.00 tokens at best" in text


def test_speculation_that_gains_at_every_acceptance() -> None:
    conclusion, text = concluded(3, data(stage(3), *_swept(0.9)))
    assert conclusion.holds is False
    assert "gains here at every acceptance" in text


SHORT, LONG, CACHED = "128 tokens, with cache", "1,536 tokens, no cache", "1,536 tokens, with cache"
LONG_Q8 = "1,536 tokens, with cache, KV q8_0"


def _prefix(ttft: float, gap: float, depth: float, lighter: float = 0.9) -> dict[str, dict[str, float]]:
    first, next_ = "ttft_p50_ns", "step_gap_p50_ns"
    return {
        "128 tokens, no cache": {first: 1e8, next_: 4e6},
        SHORT: {first: 5e7, next_: 4e6 * gap},
        LONG: {first: 1e9, next_: 4e6 * depth},
        CACHED: {first: 1e9 * ttft, next_: 4e6 * depth * gap},
        LONG_Q8: {first: 1e9 * ttft, next_: 4e6 * depth * gap * lighter},
    }


def test_prefill_goes_and_attention_stays() -> None:
    conclusion, text = concluded(4, data(stage(4), {}, _prefix(0.03, 1.0, 1.5)))
    assert conclusion.holds is True
    assert "0.03×" in text
    assert "1.5" in text
    assert "KV cache of 8 bits cuts it" in text


def test_a_cache_that_finds_nothing() -> None:
    conclusion, text = concluded(4, data(stage(4), {}, _prefix(0.95, 1.0, 1.5, 1.2)))
    assert conclusion.holds is False
    assert "the first token comes hardly sooner" in text
    assert "unpacking costs more" in text


def test_attention_too_cheap_to_show() -> None:
    conclusion, text = concluded(4, data(stage(4), {}, _prefix(0.03, 1.0, 1.0)))
    assert conclusion.holds is False
    assert "costs too little here" in text


def _crowded(rate: float, wait: float) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    keys = [cell.key for cell in stage(5).cells]
    speeds = {key: 1.0 if key == keys[0] else rate for key in keys}
    tails = {
        key: {"ttft_p95_ns": 1e8 * (1 if key == keys[0] else wait), "step_gap_p95_ns": 1e7} for key in keys
    }  # fmt: skip
    speeds[keys[2]] *= 1.01
    return speeds, tails


def test_more_throughput_and_a_longer_wait() -> None:
    conclusion, text = concluded(5, data(stage(5), *_crowded(3.0, 8.0)))
    assert conclusion.holds is True
    assert "16 at a time" in text
    assert "each user sees a wait" in text


def test_more_throughput_for_nothing() -> None:
    conclusion, text = concluded(5, data(stage(5), *_crowded(3.0, 1.0)))
    assert conclusion.holds is False
    assert "no clear latency" in text


def test_no_more_throughput() -> None:
    conclusion, text = concluded(5, data(stage(5), *_crowded(0.9, 8.0)))
    assert conclusion.holds is None
    assert "The latency is lost for nothing." in text


def _batched(gains: dict[int, float], tokens: float = 2.4) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    speeds, figures = {}, {}
    for kind in speculating.KINDS:
        for batch, gain in gains.items():
            key = f"{kind}, {batch} at a time, drafts"
            if any(cell.key == key for cell in stage(6).cells):
                speeds[key], figures[key] = gain, {"tokens_per_forward": tokens}
    return speeds, figures


def test_batches_that_starve_drafts() -> None:
    found = data(stage(6), *_batched({1: 1.6, 2: 1.4, 4: 1.2, 8: 0.8, 16: 0.7}))
    conclusion, text = concluded(6, found)
    assert conclusion.holds is True
    # ln 1.2 : ln 0.8 cuts the way from 4 to 8 at 45 %: 4 · 2^0.45 = 5.46
    assert "With F16 weights they help at 1, 2 and 4 at a time and lose at 8 and 16 at a time; they stop " in text
    assert "stop helping at about 5.4" in text


def test_batches_that_help_drafts() -> None:
    conclusion, text = concluded(6, data(stage(6), *_batched({1: 0.8, 2: 0.85, 4: 0.9, 8: 0.95, 16: 1.2})))
    assert conclusion.holds is False
    assert "begin to help" in text
    assert "a round costs 3.00 plain steps at 1 at a time" in text
    assert "no idle compute to begin with" in text


def _lengths(low: dict[int, float], high: dict[int, float]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    speeds, figures = {}, {}
    for rate, gains in ((40, low), (90, high)):
        for length, gain in gains.items():
            key = f"drafts of {length}, {rate} % accepted"
            a = rate / 100
            speeds[key] = gain
            figures[key] = {"tokens_per_forward": sum(a**i for i in range(length + 1))}
    return speeds, figures


def test_a_draft_that_rarely_agrees_is_best_short() -> None:
    found = data(
        stage(8), *_lengths({1: 1.2, 3: 1.1, 4: 0.9, 7: 0.8, 8: 0.7}, {1: 1.4, 3: 1.9, 4: 1.8, 7: 2.2, 8: 2.0})
    )
    conclusion, text = concluded(8, found)
    assert conclusion.holds is True
    assert "the best of these lengths is 1" in text
    assert "at 90 % it is 7" in text
    # Costs at 90 %: A ÷ gain = 1.81, 2.28, 2.59, 3.06 (8 rows), ... : the fifth row costs as much as the next three.
    assert lengths.row_blocks(found) is not None
    assert "are the ones to take" in text


def test_one_length_that_is_best_for_both() -> None:
    gains = {1: 1.1, 3: 1.5, 4: 1.2, 7: 1.1, 8: 1.0}
    conclusion, text = concluded(8, data(stage(8), *_lengths(gains, gains)))
    assert conclusion.holds is False
    assert "One length is best for both here" in text


def _eight(heavy: float, light: float) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    keys = {
        f"{kind}, KV {kv}, drafts": gain
        for kind, gain in (("Q8_0", heavy), ("Q4_K_M", light))
        for kv in ("f16", "q8_0")
    }
    return keys, {key: {"tokens_per_forward": 2.0} for key in keys}


def test_drafts_help_heavier_weights_more() -> None:
    conclusion, text = concluded(9, data(stage(9), *_eight(1.6, 1.2)))
    assert conclusion.holds is True
    assert "they bring 1.33× [1.33, 1.34] as much with the heavier ones" in text  # 1.6 ÷ 1.2
    assert "costs 1.25 plain steps with Q8_0" in text  # 2.0 ÷ 1.6


def test_drafts_help_lighter_weights_more() -> None:
    conclusion, text = concluded(9, data(stage(9), *_eight(0.8, 1.1)))
    assert conclusion.holds is False
    assert "the other way round" in text
    assert "costs 2.50 plain steps and brings 2.00 tokens" in text


def test_drafts_help_both_alike() -> None:
    conclusion, text = concluded(9, data(stage(9), *_eight(1.3, 1.3)))
    assert conclusion.holds is False
    assert "no difference that could be told" in text


def _searched(speeds: dict[str, float], chosen: str) -> tuple[bool | None, str]:
    runs = [CellRun(block=-1, cell=cell, figures={"tokens_per_s": 50.0}) for cell in (0, 3, 5, 7)]
    conclusion, text = concluded(10, data(stage(10), speeds, searched=runs, chosen=chosen))
    return conclusion.holds, text


def test_a_best_configuration_that_is_not_what_single_settings_say() -> None:
    speeds = {
        "Q4_K_M, plain": 1.8, "Q8_0, plain": 1.5, "F16, drafts of 3": 1.4, "Q4_K_M, drafts of 3": 1.2,
        "Q4_K_M, n-gram drafts of 3": 2.2,
    }  # fmt: skip
    holds, text = _searched(speeds, "Q4_K_M, n-gram drafts of 3")
    assert holds is True
    assert "The best of 12 within blocks is Q4_K_M, n-gram drafts of 3" in text
    assert "of Q4_K_M, drafts of 3, which the best single settings make" in text
    assert "Q4_K_M and drafts of 3 each help alone; together they run at 0.6" in text  # 1.2 ÷ 1.8
    assert "looked at 4 of 12 in 4 runs and chose the best" in text


def test_a_best_configuration_that_is_obvious() -> None:
    speeds = {"Q4_K_M, plain": 1.8, "F16, drafts of 3": 1.4, "Q4_K_M, drafts of 3": 2.5}
    holds, text = _searched(speeds, "Q4_K_M, plain")
    assert holds is False
    assert "here intuition does" in text
    assert "chose Q4_K_M, plain, which runs at 0.7" in text  # 1.8 ÷ 2.5


def test_no_pair_hurts_where_one_does_not_help_alone() -> None:
    assert (
        searching.hurting(data(stage(10), {"Q8_0, plain": 1.5, "F16, drafts of 3": 0.9, "Q8_0, drafts of 3": 0.8}))
        == []
    )


def _traffic(code: dict[str, float], unique: dict[str, float]) -> dict[str, float]:
    return {
        f"{setting}, {kind}": gain
        for kind, gains in (("shared code", code), ("long unique prompts", unique))
        for setting, gain in gains.items()
    }


ON_CODE = {"prefix cache": 2.0, "drafts": 1.2, "cache and drafts": 2.9}


def test_a_winner_that_loses_elsewhere() -> None:
    found = data(
        stage(12),
        _traffic(ON_CODE, {"prefix cache": 1.0, "drafts": 0.7, "cache and drafts": 0.69}),
        {
            "cache and drafts, shared code": {"tokens_per_forward": 3.3},
            "cache and drafts, long unique prompts": {"tokens_per_forward": 1.4},
        },
    )
    conclusion, text = concluded(12, found)
    assert conclusion.holds is True
    assert "the winner is cache and drafts (2.9" in text
    assert "has 0.69× [" in text
    assert "tuned for the first traffic, it loses under the second." in text
    assert "A round of up to 4 rows brings 3.30 tokens on shared code and 1.40 on long unique prompts" in text


def test_a_winner_that_wins_everywhere() -> None:
    conclusion, text = concluded(12, data(stage(12), _traffic(ON_CODE, ON_CODE)))
    assert conclusion.holds is False
    assert "One setting wins under both" in text


def test_a_winner_that_is_as_good_as_the_other_elsewhere_decides_as_well() -> None:
    """A difference that is known to be small is an answer, and no open question."""
    near = {"prefix cache": 1.0, "drafts": 1.12, "cache and drafts": 1.1}
    conclusion, text = concluded(12, data(stage(12), _traffic(ON_CODE, near)))
    assert conclusion.holds is False
    assert "nothing is lost by keeping it" in text


def _uneven(of: Stage, blocks: dict[str, list[float]]) -> Data:
    """Of three blocks: the tokens per second of the cells that are named, 50 of the others."""
    runs = [
        CellRun(block=n, cell=place, figures={"tokens_per_s": blocks.get(cell.key, [50.0] * 3)[n]}, duration_ns=10**9)
        for n in range(3)
        for place, cell in enumerate(of.cells)
    ]
    return Data(of.cells, runs)


def test_the_winner_is_the_one_with_the_largest_ratio_and_not_the_largest_median() -> None:
    speeds = {"cache and drafts, long unique prompts": [52.0, 52.0, 30.0], "drafts, long unique prompts": [51.0] * 3}
    found = _uneven(stage(12), {"cache and drafts, shared code": [90.0, 91.0, 92.0], **speeds})
    text = concluded(12, found)[1]
    assert "on long unique prompts drafts (1.02×" in text


def test_a_setting_that_may_only_seem_to_win_everywhere_leaves_it_open() -> None:
    speeds = {"cache and drafts, long unique prompts": [50.0, 90.0, 45.0], "drafts, long unique prompts": [51.0] * 3}
    found = _uneven(stage(12), {"cache and drafts, shared code": [90.0, 91.0, 92.0], **speeds})
    conclusion, text = concluded(12, found)
    assert conclusion.holds is None
    assert "too wide to say whether another does better" in text


@pytest.mark.parametrize("number", NUMBERS)
def test_without_a_whole_block_nothing_is_concluded(number: int) -> None:
    conclusion = lesson(number).conclude(Data(stage(number).cells, []))
    assert conclusion.holds is None
    assert conclusion.sentences


def test_a_crossing_lies_between_the_points_around_it() -> None:
    low, high = math.log(0.5), math.log(2.0)
    (found,) = crossings([Point(0.0, low, -1), Point(1.0, high, 1), Point(2.0, 1.1, 1)])
    assert found.at == pytest.approx(0.5)  # ln 0.5 = −ln 2
    assert not found.falls
    assert crossings([Point(0.0, 0.4, 1), Point(1.0, high, 1)]) == []


def test_the_prefix_lesson_expects_both_times_however_wide_their_intervals() -> None:
    wide, gap, lighter = Estimate(0.12, 0.05, 0.4), Estimate(1.0, 0.9, 1.1), Estimate(1.1, 0.9, 1.3)
    predictions = {
        CACHED: Prediction(at_ns=0, changes={}, tokens=Estimate(4.0, 1.9, 7.4), ttft=wide, step_gap=gap),
        LONG_Q8: Prediction(at_ns=0, changes={}, tokens=Estimate(3.0, 1.1, 6.8), step_gap=lighter),
    }
    told = lesson(4).expect(Data(stage(4).cells, [], predictions))
    assert "comes after 0.12× [0.05, 0.40] of the time" in told
    assert told.endswith("A KV cache of 8 bits makes that 1.10×.")
