"""What cannot be predicted, and what is said instead of a number: the reason, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.timing.terms import Terms
from stackscope.analysis.whatif.predict import predict
from stackscope.engine.allowances import Allowances
from stackscope.records import PrefixShadow
from tests.unit.whatif_engine import LotCurve, Traffic, recorded
from tests.unit.whatif_machine import (
    CONFIG,
    FOUR_BITS,
    MODEL,
    Machine,
    in_four_bits,
    stated_point,
    weights_only,
)

if TYPE_CHECKING:
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import Setting


def unpredicted(point: WorkingPoint, **changes: Setting) -> str:
    prediction = predict(point, changes)
    assert prediction.tokens is None
    assert prediction.ttft is None
    assert prediction.step_gap is None
    assert prediction.bottleneck is None
    return prediction.reason


def test_without_any_times_it_says_to_calibrate() -> None:
    point = msgspec.structs.replace(stated_point(weights_only), times=None)
    assert "run stackscope calibrate" in unpredicted(point, model=FOUR_BITS)


def test_what_the_time_model_cannot_say_is_passed_on() -> None:
    point = recorded(Machine(cores=2), CONFIG, Traffic(), 100)
    reason = unpredicted(point, threads=4)
    assert reason == "More threads than cores were never timed: run stackscope calibrate."


def test_drafts_that_nobody_scored() -> None:
    reason = unpredicted(stated_point(weights_only), speculation="ngram", draft_length=3)
    assert reason == (
        "Drafts of 3 tokens by n-gram look-up were neither made nor shadowed here: let shadows follow some requests, "
        "or try it."
    )


def test_a_length_that_was_not_scored_is_not_extrapolated() -> None:
    point = stated_point(weights_only, curves={"ngram": LotCurve(0.7, 0.5, frozenset({3}))})
    assert predict(point, {"speculation": "ngram", "draft_length": 3}).tokens is not None
    assert "Drafts of 4 tokens" in unpredicted(point, speculation="ngram", draft_length=4)


def test_a_few_rounds_are_too_few() -> None:
    point = stated_point(weights_only, curves={"ngram": LotCurve(0.7, 0.5, frozenset({3}), rounds=20)})
    reason = unpredicted(point, speculation="ngram", draft_length=3)
    assert reason == "Only 20 rounds of drafts by n-gram look-up have been scored yet."


def test_other_suffix_lengths_are_another_drafter() -> None:
    point = stated_point(weights_only, curves={"ngram": LotCurve(0.7, 0.5, frozenset({3}))})
    assert "neither made nor shadowed" in unpredicted(point, speculation="ngram", draft_length=3, ngram_max=6)


def test_adaptive_lengths_are_not_replayed() -> None:
    point = stated_point(weights_only, curves={"ngram": LotCurve(0.7, 0.5, frozenset({3}))})
    assert "adaptive" in unpredicted(point, speculation="ngram", draft_length=3, adaptive_draft=True)


def test_synthetic_acceptance_needs_no_measurement() -> None:
    """A = 1 + 0.5 + 0.25 + 0.125; every forward takes the same."""
    prediction = predict(
        stated_point(weights_only), {"speculation": "draft", "draft_length": 3, "synthetic_acceptance": 0.5}
    )
    assert prediction.tokens is not None
    assert prediction.tokens.value == pytest.approx(1.875)


def test_weights_that_were_not_read() -> None:
    assert "their file has not been read" in unpredicted(stated_point(weights_only), model="other.gguf")


def test_a_prefix_cache_that_was_not_simulated() -> None:
    point = stated_point(weights_only, computed_per_token=1.0, demanded_per_token=1.0)
    assert "let its shadow see some requests" in unpredicted(point, prefix_cache=True)


def test_a_simulated_cache_that_saw_few_requests() -> None:
    shadow = PrefixShadow(at_ns=0, epoch=0, requests=3, lookup_tokens=90, hit_tokens=60, useful_hit_tokens=60)
    point = stated_point(weights_only, prefix_shadows=(shadow,), demanded_per_token=1.0, computed_per_token=1.0)
    assert "let its shadow see some requests" in unpredicted(point, prefix_cache=True)


def test_a_limit_that_was_never_reached_changes_nothing() -> None:
    config = msgspec.structs.replace(CONFIG, prefix_cache=True)
    point = stated_point(weights_only, config, most_resident=500, useful_hit_rate=0.5)
    tokens = predict(point, {"cache_tokens": 1024}).tokens
    assert tokens is not None
    assert (tokens.low, tokens.high) == (1.0, 1.0)
    assert "of that size" in unpredicted(point, cache_tokens=256)


@pytest.mark.parametrize(
    ("name", "value"), [("block_tokens", 32), ("gpu_layers", 0), ("draft_model", "other.gguf"), ("split_mode", "row")]
)
def test_what_no_model_stands_for(name: str, value: Setting) -> None:
    assert unpredicted(stated_point(weights_only), **{name: value}) != ""


def test_what_the_engine_refuses_is_not_predicted() -> None:
    point = stated_point(weights_only, rules=Allowances(cores=2))
    reason = unpredicted(point, kv_type_v="q8_0", flash_attention=False)
    assert "needs flash attention" in reason


def test_an_interval_from_half_to_double_is_no_number() -> None:
    """Rows may cost next to nothing or as much as the weights: eight sequences bring 1.3 or 7 times as much."""

    def rows_cost(shape: Shape, _: Pricing) -> Terms:
        return Terms(weights=1e6, compute=5e5 * (shape.rows - 1))

    point = stated_point(rows_cost, spread=1.0)
    reason = unpredicted(point, slots=8, concurrency=8)
    assert reason.startswith("Anything between")
    assert reason.endswith("times as many tokens is possible.")


def test_memory_is_told_even_where_the_speed_is_not() -> None:
    rules = Allowances(cores=2)
    now = rules.memory_bytes(CONFIG, MODEL, None)
    point = stated_point(weights_only, rules=rules, memory_bytes=now, times=None)
    prediction = predict(point, {"model": FOUR_BITS})
    assert prediction.tokens is None
    assert prediction.memory_bytes == in_four_bits(MODEL).tensor_bytes - MODEL.tensor_bytes


def test_half_the_kv_type_is_half_the_cells_bytes() -> None:
    """f16 has 2 bytes an element, q8_0 34/32; the context's 16,384 cells hold 6 × 2 × 2 × 64 elements each."""
    rules = Allowances(cores=2)
    now = rules.memory_bytes(CONFIG, MODEL, None)
    point = stated_point(weights_only, rules=rules, memory_bytes=now)
    prediction = predict(point, {"kv_type_k": "q8_0", "kv_type_v": "q8_0"})
    cells = rules.cells(CONFIG, MODEL)
    assert cells == 4 * MODEL.context
    assert prediction.memory_bytes == round(cells * 6 * 2 * 2 * 64 * (34 / 32 - 2))


def test_a_setting_that_there_is_not_is_an_error() -> None:
    with pytest.raises((TypeError, AttributeError)):
        predict(stated_point(weights_only), {"speed": 11})
