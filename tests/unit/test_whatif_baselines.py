"""The simpler predictors, each wrong in the way that it is known for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from stackscope.analysis.timing.terms import Terms
from stackscope.analysis.whatif import baselines
from stackscope.analysis.whatif.predict import predict
from stackscope.records import Estimate, LengthCounts
from tests.unit.whatif_engine import LotCurve, Traffic, recorded, truth
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, MODEL, Machine, in_four_bits, stated_point

if TYPE_CHECKING:
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.toggles import Setting

THREE: Final = frozenset({3})
DRAFTS: Final[dict[str, Setting]] = {"speculation": "draft", "draft_length": 3}


def worked_example(shape: Shape, own: Pricing) -> Terms:
    """Shares of a step: weights .70, KV .15, compute .05 a row, host .10, and .30 of drafting for three tokens."""
    assert own.target is not None
    weights = sum(t.bytes for t in own.target.model.tensors if t.is_matrix)
    whole = sum(t.bytes for t in MODEL.tensors if t.is_matrix)
    return Terms(
        weights=0.70e6 * weights / whole,
        attention=0.15e6,
        compute=0.05e6 * shape.rows,
        host=0.10e6,
        draft=0.30e6 if shape.draft else 0.0,
    )


class Fixed(LotCurve):
    """2.4 tokens a round."""

    def tokens_per_round(self, length: int) -> Estimate | None:
        return Estimate(2.4, 2.4, 2.4) if length in self.lengths else None


def half_as_large() -> dict[str, object]:
    tensors = tuple(msgspec.structs.replace(t, bytes=t.bytes // 2) if t.is_matrix else t for t in MODEL.tensors)
    return {"half.gguf": msgspec.structs.replace(MODEL, tensors=tensors, path="half.gguf")}


def test_the_worked_interaction_of_the_cost_model() -> None:
    """Halved weights 1.54×, drafts 1.66×, together 2.18× where the product says 2.55×: 0.857 of it."""
    point = stated_point(worked_example, curves={"draft": Fixed(0.6, 1.0, THREE)}, variants=half_as_large())
    weights: dict[str, Setting] = {"model": "half.gguf"}
    quantised, drafted, both = (predict(point, change).tokens for change in (weights, DRAFTS, {**weights, **DRAFTS}))
    assert quantised is not None
    assert drafted is not None
    assert both is not None
    assert quantised.value == pytest.approx(1 / 0.65, rel=1e-3)
    assert drafted.value == pytest.approx(2.4 / 1.45, rel=1e-3)
    assert both.value == pytest.approx(2.4 / 1.10, rel=1e-3)
    product = baselines.product(point, {**weights, **DRAFTS})
    assert product is not None
    assert product == pytest.approx(quantised.value * drafted.value)
    assert both.value / product == pytest.approx(0.857, abs=0.001)


def test_the_product_of_singles_overstates_the_simulated_pair() -> None:
    machine, traffic = Machine(row_ns=0.4e6), Traffic()
    changes: dict[str, Setting] = {"model": FOUR_BITS, "speculation": "ngram", "draft_length": 3}
    point = recorded(machine, CONFIG, traffic)
    real = truth(machine, msgspec.structs.replace(CONFIG, **changes), traffic, 2500) / truth(
        machine, CONFIG, traffic, 2500
    )
    tokens, product = predict(point, changes).tokens, baselines.product(point, changes)
    assert tokens is not None
    assert product is not None
    assert abs(tokens.value / real - 1.0) < 0.03
    assert product > 1.1 * real


def test_always_memory_bound_takes_drafts_to_be_free() -> None:
    """A verification reads what one row reads: with 2.4 tokens a round the gain is 2.4 less the drafts' own bytes."""
    point = stated_point(worked_example, curves={"ngram": Fixed(0.6, 1.0, THREE)})
    gain = baselines.memory_bound(point, {"speculation": "ngram", "draft_length": 3})
    assert gain == pytest.approx(2.4, rel=0.01)


def test_always_memory_bound_scales_with_the_bytes_of_the_weights() -> None:
    point = stated_point(worked_example, cached=0)
    gain = baselines.memory_bound(point, {"model": FOUR_BITS})
    small = in_four_bits(MODEL)
    whole, fewer = (sum(t.bytes for t in model.tensors) for model in (MODEL, small))
    assert gain == pytest.approx(whole / fewer, rel=0.01)


def test_the_roofline_turns_where_compute_takes_over() -> None:
    """A batch of one is under the memory roof, of many under the compute roof: then more bits cost nothing."""
    changes: dict[str, Setting] = {"model": FOUR_BITS}
    few, many = (stated_point(worked_example, sequences=n, cached=0) for n in (1, 64))
    roofs = {"bandwidth": 1e9, "flops_per_s": 16e9}
    at_one, at_many = (baselines.uncalibrated_roofline(point, changes, **roofs) for point in (few, many))
    assert at_one == pytest.approx(baselines.memory_bound(few, changes), rel=0.01)
    assert at_many == pytest.approx(1.0)


def test_geometric_acceptance_misses_a_drafter_that_hits_or_misses() -> None:
    """The first token is accepted half the time, and then all others are: A(3) is 2.5, the law says 1.875."""

    class HitOrMiss(LotCurve):
        def tokens_per_round(self, length: int) -> Estimate | None:
            won = 1.0 + 0.5 * length
            return Estimate(won, won, won)

        def counts(self, length: int) -> LengthCounts | None:
            return LengthCounts(length=length, rounds=1000, covered=1000, drafted=1000 * length, accepted=500 * length)

    point = stated_point(lambda *_: Terms(weights=1e6), curves={"draft": HitOrMiss(0.5, 1.0, frozenset(range(1, 9)))})
    tokens = predict(point, DRAFTS).tokens
    assert tokens is not None
    assert tokens.value == pytest.approx(2.5)
    assert baselines.geometric(point, DRAFTS) == pytest.approx(1.875)


def test_what_is_not_known_is_not_known_to_a_baseline_either() -> None:
    point = stated_point(worked_example)
    for baseline in baselines.BASELINES.values():
        assert baseline(point, {**DRAFTS, "model": FOUR_BITS}) is None
