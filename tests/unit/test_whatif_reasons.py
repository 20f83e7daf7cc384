"""The sentence that goes with a prediction: its numbers are those of the terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.timing.terms import TERMS, Terms
from stackscope.analysis.whatif import reasons
from stackscope.analysis.whatif.predict import predict
from tests.unit.whatif_engine import LotCurve, Traffic, recorded
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, MODEL, Machine, StatedTimes, pricing, stated_point

if TYPE_CHECKING:
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape


def sixteen_and_nine(_: Shape, own: Pricing) -> Terms:
    """16 ms of weights at 16 bits, and 9 ms of KV reads with an f16 cache."""
    assert own.target is not None
    whole = sum(t.bytes for t in MODEL.tensors if t.is_matrix and t.role == "ffn")
    return Terms(
        weights=16e6 * own.target.weights.ffn.bytes / whole * 6 / 5,
        attention=9e6 * own.target.kv_bytes_per_token / 3072,
    )


def test_four_bit_weights_cut_the_weight_term_and_kv_reads_then_dominate() -> None:
    prediction = predict(stated_point(sixteen_and_nine), {"model": FOUR_BITS})
    assert prediction.reason == (
        "4.5-bit weights cut weight reads from 16.0 ms to 4.50 ms a step; KV reads then dominate at 9.00 ms a step."
    )
    assert prediction.bottleneck == "KV and attention"
    assert prediction.tokens is not None
    assert prediction.tokens.value == pytest.approx(25 / 13.5)


def test_a_smaller_cache_type_is_told_by_kv_reads() -> None:
    prediction = predict(stated_point(sixteen_and_nine), {"kv_type_k": "q8_0", "kv_type_v": "q8_0"})
    assert prediction.reason == (
        "A KV cache in q8_0 cuts KV reads from 9.00 ms to 4.78 ms a step; weight reads then dominate at 16.0 ms a step."
    )
    assert prediction.bottleneck == "weight bandwidth"


def test_a_pair_is_told_part_by_part() -> None:
    reason = predict(stated_point(sixteen_and_nine), {"model": FOUR_BITS, "kv_type_k": "q8_0"}).reason
    assert reason.startswith("4.5-bit weights cut weight reads from 16.0 ms to 4.50 ms a step; a KV cache in q8_0 cuts")


def test_drafts_are_told_by_what_they_bring_and_what_they_cost() -> None:
    point = stated_point(
        lambda shape, _: Terms(weights=10e6, compute=1e6 * (shape.rows - 1), draft=3e6 if shape.draft else 0.0),
        curves={"draft": LotCurve(0.5, 1.0, frozenset({2}))},
    )
    assert predict(point, {"speculation": "draft", "draft_length": 2}).reason == (
        "A forward brings 1.75 rather than 1.00 tokens per sequence and takes 15.0 ms rather than 10.0 ms, of which "
        "drafting 3.00 ms; weight reads then dominate at 10.0 ms a step."
    )


def test_a_larger_batch_is_told_by_its_sequences() -> None:
    point = stated_point(
        lambda shape, _: Terms(weights=10e6, compute=1e6 * shape.rows), msgspec.structs.replace(CONFIG, slots=8)
    )
    reason = predict(point, {"concurrency": 4}).reason
    assert reason.startswith("A forward serves 4.00 rather than 1.00 sequences and takes 14.0 ms rather than 11.0 ms")


def test_slots_without_requests_change_nothing() -> None:
    prediction = predict(stated_point(lambda *_: Terms(weights=10e6)), {"slots": 16})
    assert prediction.tokens is not None
    assert (prediction.tokens.low, prediction.tokens.high) == (1.0, 1.0)
    assert prediction.reason.startswith("No more requests are in flight than before")


def test_the_value_in_force_is_no_change() -> None:
    prediction = predict(stated_point(lambda *_: Terms(weights=10e6)), {"slots": CONFIG.slots})
    assert prediction.changes == {}
    assert prediction.reason == "Nothing changes."


def test_a_smaller_budget_makes_steps_with_prompts_shorter() -> None:
    reason = predict(recorded(Machine(), CONFIG, Traffic(prompt=200)), {"token_budget": 64}).reason
    assert reason.startswith("Prompts come in chunks of up to 64 rather than 256 rows, and a step with a prompt falls")


def test_without_the_cache_prefill_takes_longer() -> None:
    config = msgspec.structs.replace(CONFIG, prefix_cache=True)
    reason = predict(recorded(Machine(), config, Traffic(prompt=200)), {"prefix_cache": False}).reason
    assert reason.startswith("Prefill rises from ")
    assert "(70.0 % of prompt tokens are found now)" in reason


def test_what_changes_only_steps_with_prompts_is_told_by_prefill() -> None:
    """60 rows at 1 ms each and 80 tokens: 0.75 ms of prefill per token, and half of that with a smaller cache type."""

    def prompts_only(shape: Shape, own: Pricing) -> Terms:
        assert own.target is not None
        each = 1e6 * own.target.kv_bytes_per_token / 3072
        return Terms(weights=1e6, compute=each * max(0, shape.rows - 4))

    point = recorded(Machine(), CONFIG, Traffic(prompt=60, output=80))
    point = msgspec.structs.replace(point, times=StatedTimes(prompts_only, pricing(CONFIG)))
    reason = predict(point, {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}).reason
    assert reason.startswith("A KV cache in q8_0 cuts prefill from ")
    assert "per token" in reason


def test_every_term_has_a_name_and_only_fixed_costs_are_no_cause() -> None:
    assert set(reasons.NAMES) == {*TERMS, "prefill"}
    assert set(TERMS) - set(reasons.CAUSES) == {"fixed"}
    assert reasons.bottleneck({"fixed": 2.0, "weights": 1.0}) is None
    assert reasons.bottleneck({"weights": 0.0}) is None
