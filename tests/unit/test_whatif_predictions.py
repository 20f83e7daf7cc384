"""Predictions against the simulated truth: a machine whose parameters are known exactly, and the engine's scheduler."""

from __future__ import annotations

import math
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.whatif.predict import Predictor, predict
from stackscope.analysis.whatif.ranking import rank
from stackscope.analysis.whatif.watch import Watch
from tests.unit.whatif_engine import Engine, Traffic, header, recorded, truth
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, Machine, pricing

if TYPE_CHECKING:
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import EngineConfig, Setting

MACHINE: Final = Machine()
WIDE: Final = msgspec.structs.replace(CONFIG, slots=16)

SINGLES: Final[tuple[dict[str, Setting], ...]] = (
    {"speculation": "ngram", "draft_length": 1},
    {"speculation": "ngram", "draft_length": 3},
    {"speculation": "ngram", "draft_length": 8},
    {"speculation": "draft", "draft_length": 1},
    {"speculation": "draft", "draft_length": 3},
    {"speculation": "draft", "draft_length": 5},
    {"model": FOUR_BITS},
    {"kv_type_k": "q8_0", "kv_type_v": "q8_0"},
    {"kv_type_k": "q8_0"},
    {"flash_attention": False},
    {"slots": 1},
    {"slots": 4},
    {"token_budget": 32},
    {"token_budget": 512},
    {"threads": 1},
)
PAIRS: Final[tuple[dict[str, Setting], ...]] = (
    {"model": FOUR_BITS, "speculation": "ngram", "draft_length": 3},
    {"model": FOUR_BITS, "kv_type_k": "q4_0", "kv_type_v": "q4_0"},
    {"speculation": "draft", "draft_length": 3, "slots": 2},
    {"speculation": "ngram", "draft_length": 4, "threads": 1},
)


@cache
def point(concurrency: int, config: EngineConfig = WIDE) -> WorkingPoint:
    return recorded(MACHINE, config, Traffic(concurrency=concurrency))


@cache
def speed(concurrency: int, config: EngineConfig) -> float:
    return truth(MACHINE, config, Traffic(concurrency=concurrency), 1000 if concurrency > 4 else 2000)


def error(concurrency: int, changes: dict[str, Setting], config: EngineConfig = WIDE) -> float:
    """ln(predicted ÷ simulated) of the ratio of tokens per second."""
    tokens = predict(point(concurrency, config), changes).tokens
    assert tokens is not None
    after = msgspec.structs.replace(config, **changes)
    return math.log(tokens.value / (speed(concurrency, after) / speed(concurrency, config)))


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_each_toggle_is_predicted_within_three_percent(concurrency: int) -> None:
    errors = [error(concurrency, changes) for changes in SINGLES]
    assert median(map(abs, errors)) <= 0.01
    assert max(map(abs, errors)) <= 0.03


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_pairs_are_predicted_within_three_percent(concurrency: int) -> None:
    assert max(abs(error(concurrency, changes)) for changes in PAIRS) <= 0.03


def test_switching_off_what_runs_is_predicted_as_well() -> None:
    running = msgspec.structs.replace(WIDE, speculation="ngram", draft_length=4)
    assert abs(error(4, {"speculation": "off"}, running)) <= 0.02
    assert abs(error(4, {"draft_length": 3}, running)) <= 0.02


def test_a_split_cache_is_slower_and_its_interval_holds_the_truth() -> None:
    changes: dict[str, Setting] = {"unified_kv": False}
    tokens = predict(point(4), changes).tokens
    assert tokens is not None
    after = msgspec.structs.replace(WIDE, unified_kv=False)
    assert tokens.holds(speed(4, after) / speed(4, WIDE))
    assert tokens.high < 1.0


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_the_prefix_cache_is_predicted_on_and_off(prefix_cache: bool) -> None:
    config = msgspec.structs.replace(WIDE, prefix_cache=prefix_cache)
    # About half of what this traffic stores in a minute, which is what a cache is taken to hold after the change.
    traffic = Traffic(concurrency=4, prompt=300, idle_cells=15_000)
    at = recorded(MACHINE, config, traffic)
    after = msgspec.structs.replace(config, prefix_cache=not prefix_cache)
    prediction = predict(at, {"prefix_cache": not prefix_cache})
    assert prediction.tokens is not None
    real = truth(MACHINE, after, traffic, 2500) / truth(MACHINE, config, traffic, 2500)
    assert math.log(prediction.tokens.value / real) == pytest.approx(0.0, abs=0.03)
    assert prediction.ttft is not None
    assert prediction.ttft.low > 1.5 if prefix_cache else prediction.ttft.high < 0.6


def test_the_first_token_comes_sooner_by_the_steps_that_are_saved() -> None:
    """A prompt of 300 takes two steps of at most 256 rows; the 90 that a cache leaves of it take one."""
    traffic = Traffic(concurrency=4, prompt=300, output=60, idle_cells=15_000)
    before = recorded(MACHINE, WIDE, traffic, 1500)
    made: tuple[dict[str, Setting], ...] = ({"prefix_cache": True}, {"token_budget": 512})
    for changes in made:
        prediction = predict(before, changes)
        later = recorded(MACHINE, msgspec.structs.replace(WIDE, **changes), traffic, 1500)
        assert prediction.ttft is not None
        assert before.ttft_ns is not None
        assert later.ttft_ns is not None
        assert math.log(prediction.ttft.value / (later.ttft_ns / before.ttft_ns)) == pytest.approx(0.0, abs=0.15)


def test_nothing_is_said_of_latencies_where_prompts_crowd_out_decoding() -> None:
    """Chunks of 48 rows beside 16 that decode: prompts of 300 need more steps than there are."""
    at = recorded(MACHINE, WIDE, Traffic(concurrency=16, prompt=300, output=60), 1000)
    prediction = predict(at, {"token_budget": 64})
    assert prediction.tokens is not None
    assert prediction.ttft is None
    assert prediction.step_gap is None
    assert prediction.tokens.high / prediction.tokens.low > 1.1


def test_latencies_follow_what_was_recorded_after_the_change() -> None:
    made: tuple[dict[str, Setting], ...] = (
        {"speculation": "draft", "draft_length": 3}, {"token_budget": 32}, {"slots": 2},
    )  # fmt: skip
    for changes in made:
        after = msgspec.structs.replace(WIDE, **changes)
        before, later = point(4), point(4, after)
        prediction = predict(before, changes)
        assert prediction.step_gap is not None
        assert before.gap_ns is not None
        assert later.gap_ns is not None
        assert prediction.step_gap.value == pytest.approx(later.gap_ns / before.gap_ns, rel=0.03)


def test_the_field_s_picture_speculation_wins_alone_and_loses_in_a_crowd() -> None:
    """Rows cost: at batch 32 all the compute that drafts would use is taken."""
    dear = Machine(row_ns=0.5e6)
    drafts: dict[str, Setting] = {"speculation": "ngram", "draft_length": 3}
    config = msgspec.structs.replace(CONFIG, slots=32)
    alone, crowd = (
        predict(recorded(dear, config, Traffic(concurrency=n, accepted={"ngram": 0.5, "draft": 0.5})), drafts).tokens
        for n in (1, 32)
    )
    assert alone is not None
    assert crowd is not None
    assert alone.low > 1.0
    assert crowd.high < 1.0


def test_an_open_loop_that_keeps_up_changes_in_latency_alone() -> None:
    at = msgspec.structs.replace(
        point(4), concurrency=None, rate=2.0, slots_busy=4.0, idle_share=0.2, wait_ns=1e6, ttft_ns=50e6
    )
    prediction = predict(at, {"model": FOUR_BITS})
    assert prediction.tokens is not None
    assert (prediction.tokens.value, prediction.tokens.low, prediction.tokens.high) == (1.0, 1.0, 1.0)
    assert prediction.step_gap is not None
    assert prediction.step_gap.high < 1.0
    assert prediction.reason.startswith("Requests arrive more slowly than they are served, so tokens/s stay")


def test_an_open_loop_that_cannot_keep_up_any_more_is_said_to() -> None:
    at = msgspec.structs.replace(point(4), concurrency=None, rate=2.0, slots_busy=4.0, idle_share=0.2)
    prediction = predict(at, {"slots": 1})
    assert prediction.tokens is not None
    assert prediction.tokens.high < 1.0
    assert prediction.ttft is None
    assert "faster than they can be served" in prediction.reason


def test_faster_service_leaves_fewer_in_flight_in_an_open_loop() -> None:
    at = msgspec.structs.replace(point(16), concurrency=None, rate=2.0, slots_busy=8.0)
    predictor = Predictor(at)
    now, faster = predictor.evaluate(predictor.state), predictor.evaluate(predictor.state.after({"model": FOUR_BITS}))
    assert not isinstance(now, str)
    assert not isinstance(faster, str)
    assert now.load == 1.0
    assert 0.5 < faster.load < 1.0


def test_an_interval_is_wider_where_the_machine_is_known_less() -> None:
    at = point(4)
    vague = msgspec.structs.replace(at, times=Machine(spread=0.15).times(WIDE, pricing(WIDE)))
    sure, unsure = predict(at, {"model": FOUR_BITS}).tokens, predict(vague, {"model": FOUR_BITS}).tokens
    assert sure is not None
    assert unsure is not None
    assert unsure.high / unsure.low > 1.05 * sure.high / sure.low
    assert unsure.value == pytest.approx(sure.value)


def test_a_queue_makes_first_tokens_wait_for_those_before_them() -> None:
    """16 are offered, 8 fit: the wait of the other 8 is 8 ÷ throughput; with 16 slots there is none."""
    narrow = msgspec.structs.replace(CONFIG, slots=8)
    watch = Watch()
    traffic = Traffic(concurrency=16)
    watch.write(header(narrow, traffic))
    engine = Engine(narrow, traffic, MACHINE.times(narrow, pricing(narrow)))
    for step in engine.run(3000):
        watch.write(step)
    for request in engine.finished[8:]:
        watch.write(request)
    at = watch.point(MACHINE.times(narrow, pricing(narrow)))
    assert not isinstance(at, str)
    prediction = predict(at, {"slots": 16})
    assert prediction.ttft is not None
    assert at.wait_ns is not None
    assert at.ttft_ns is not None
    assert at.wait_ns > 0.5 * at.ttft_ns
    assert prediction.ttft.high < 0.6


def test_one_slot_decodes_after_its_prompt_where_every_recent_step_had_one() -> None:
    """With four in flight, decoding shared each step with a prompt; with one, no step with a prompt decodes."""
    at = recorded(MACHINE, WIDE, Traffic(concurrency=4, prompt=300), 1000)
    crowded = msgspec.structs.replace(at, rounds=tuple(one for one in at.rounds if one.chunks))
    assert any(one.decoding for one in crowded.rounds)
    steps = []
    for each in (at, crowded):
        predictor = Predictor(each)
        one = predictor.evaluate(predictor.state.after({"slots": 1}))
        assert not isinstance(one, str)
        assert one.sequences == pytest.approx(1.0)
        steps.append(one.terms.total)
    assert steps[1] == pytest.approx(steps[0], rel=0.1)
    slower = predict(crowded, {"slots": 1})
    assert slower.tokens is not None
    assert slower.tokens.value < 1.0
    assert " 0 ms" not in slower.reason


def test_an_open_loop_has_no_more_in_flight_than_there_are_slots() -> None:
    at = msgspec.structs.replace(point(4), concurrency=None, rate=2.0, slots_busy=1.3, idle_share=0.5)
    predictor = Predictor(at)
    one = predictor.evaluate(predictor.state.after({"slots": 1}))
    assert not isinstance(one, str)
    assert one.sequences <= 1.0


def test_sooner_tokens_are_not_recommended_where_nobody_knows_how_late_the_first_one_comes() -> None:
    at = msgspec.structs.replace(point(4), concurrency=None, rate=2.0, slots_busy=2.0, idle_share=0.2)
    ranking = rank(Predictor(msgspec.structs.replace(at, wait_ns=None, ttft_ns=None)))
    by_gap = [one for one in ranking.singles if one.gain is not None and one.gain is not one.prediction.tokens]
    assert by_gap
    assert not any(one.is_recommended for one in by_gap if one.prediction.ttft is None)
