"""The sentence that goes with a prediction: its numbers are those of the terms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.timing.terms import TERMS, Terms
from stackscope.analysis.whatif import moves, reasons
from stackscope.analysis.whatif.predict import Predictor, predict
from stackscope.analysis.whatif.working_point import Decoding
from tests.unit.whatif_engine import LotCurve, Traffic, recorded
from tests.unit.whatif_machine import CONFIG, FOUR_BITS, MODEL, Machine, StatedTimes, pricing, stated_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import Setting


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
    assert reason == (
        "4.5-bit weights cut weight reads from 16.0 ms to 4.50 ms a step; a KV cache in q8_0 cuts KV reads from 9.00 "
        "ms to 6.89 ms a step; KV reads then dominate at 6.89 ms a step."
    )


def by_layout(at_16_bits: float, at_4_bits: float, split: float, reads: float = 1.0) -> Callable[..., Terms]:
    """Weight reads in ms by the model's bits, times `reads` when the cache is split, and then KV reads of `split` ms
    rather than 3 ms."""

    def state(shape: Shape, own: Pricing) -> Terms:
        assert own.target is not None
        is_split = len(shape.passes) > 1
        is_small = own.target.weights.ffn.bytes < pricing(CONFIG).target.weights.ffn.bytes  # type: ignore[union-attr]
        weights = (at_4_bits if is_small else at_16_bits) * (reads if is_split else 1.0)
        return Terms(weights=1e6 * weights, attention=1e6 * (split if is_split else 3.0))

    return state


def two_sequences(state: Callable[..., Terms]) -> WorkingPoint:
    """In slots of which the second is no neighbour, so that a split cache takes two passes."""
    point = stated_point(state, sequences=2)
    one = point.rounds[0]
    apart = msgspec.structs.replace(one, decoding=(one.decoding[0], Decoding(100, 0, 3)))
    return msgspec.structs.replace(point, rounds=(apart,))


def test_a_part_is_not_credited_with_what_another_does() -> None:
    """A split cache does nothing to weight reads here, so that only the weights cut them."""
    point = two_sequences(by_layout(16.0, 5.0, split=2.0))
    reason = predict(point, {"model": FOUR_BITS, "unified_kv": False}).reason
    assert reason == (
        "4.5-bit weights cut weight reads from 16.0 ms to 5.00 ms a step; a KV cache for each sequence cuts KV reads "
        "from 3.00 ms to 2.00 ms a step; weight reads then dominate at 5.00 ms a step."
    )


def test_what_two_parts_do_to_one_term_is_told_once() -> None:
    point = two_sequences(by_layout(16.0, 5.0, split=2.0, reads=2.0))
    assert predict(point, {"unified_kv": False}).reason.startswith(
        "A KV cache for each sequence cuts KV reads from 3.00 ms to 2.00 ms a step but raises weight reads from "
        "16.0 ms to 32.0 ms a step; "
    )
    assert predict(point, {"model": FOUR_BITS, "unified_kv": False}).reason == (
        "4.5-bit weights and a KV cache for each sequence together cut weight reads from 16.0 ms to 10.0 ms a step; "
        "weight reads then dominate at 10.0 ms a step."
    )


def test_a_number_that_the_other_part_changes_is_told_as_of_one_alone() -> None:
    point = two_sequences(by_layout(16.0, 5.0, split=12.0, reads=1.5))
    reason = predict(point, {"model": FOUR_BITS, "unified_kv": False}).reason
    assert reason.startswith(
        "4.5-bit weights alone cut weight reads from 16.0 ms to 5.00 ms a step; a KV cache for each sequence raises KV "
        "reads from 3.00 ms to 12.0 ms a step; "
    )


def test_parts_that_hardly_change_anything_are_said_to_do_so_each() -> None:
    point = two_sequences(lambda *_: Terms(weights=10e6))
    changes: dict[str, Setting] = {"unified_kv": False, "kv_type_k": "q8_0", "model": FOUR_BITS}
    assert predict(point, changes).reason.startswith(
        "4.5-bit weights, a KV cache in q8_0 and a KV cache for each sequence would each hardly change a step of "
        "10.0 ms; "
    )


def test_drafts_and_a_batch_are_told_in_one_clause() -> None:
    point = stated_point(
        lambda shape, _: Terms(weights=10e6, compute=1e6 * (shape.rows - 1), draft=3e6 if shape.draft else 0.0),
        msgspec.structs.replace(CONFIG, slots=8),
        curves={"draft": LotCurve(0.5, 1.0, frozenset({2}))},
    )
    reason = predict(point, {"speculation": "draft", "draft_length": 2, "concurrency": 2}).reason
    assert reason.startswith(
        "A forward serves 2.00 rather than 1.00 sequences and brings 1.75 rather than 1.00 tokens per sequence but "
        "takes 18.0 ms rather than 10.0 ms, of which drafting 3.00 ms; weight reads"
    )


def test_the_time_of_a_step_is_that_of_all_changes_together() -> None:
    point = stated_point(sixteen_and_nine, curves={"ngram": LotCurve(0.5, 1.0, frozenset({2}))})
    reason = predict(point, {"speculation": "ngram", "draft_length": 2, "model": FOUR_BITS}).reason
    assert reason == (
        "4.5-bit weights cut weight reads from 16.0 ms to 4.50 ms a step; a forward brings 1.75 rather than 1.00 "
        "tokens per sequence; together the changes make a step take 13.5 ms rather than 25.0 ms; KV reads then "
        "dominate at 9.00 ms a step."
    )


def test_what_is_not_known_of_a_part_alone_is_told_of_all() -> None:
    point = stated_point(sixteen_and_nine)
    predictor = Predictor(point)
    changes: dict[str, Setting] = {"model": FOUR_BITS, "kv_type_k": "q8_0"}
    compared = predictor.compare(predictor.state, predictor.state.after(changes))
    assert not isinstance(compared, str)
    made = {name: (getattr(CONFIG, name), value) for name, value in changes.items()}
    told = reasons.reason(point, compared, made, lambda _: "It was never timed.")
    assert told.startswith("Together the changes make a step take 11.4 ms rather than 25.0 ms; ")


def test_a_fused_pass_that_a_cache_type_needs_is_told_with_it() -> None:
    point = stated_point(sixteen_and_nine, msgspec.structs.replace(CONFIG, flash_attention=False))
    reason = predict(point, {"kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attention": True}).reason
    assert reason.startswith("A KV cache in q8_0 and attention in one fused pass together cut KV reads from 9.00 ms to")


def test_a_longer_draft_is_told_without_what_the_context_is_sized_for() -> None:
    point = stated_point(
        lambda *_: Terms(weights=10e6),
        msgspec.structs.replace(CONFIG, draft_length_max=3),
        curves={"ngram": LotCurve(0.5, 1.0, frozenset({4}))},
    )
    reason = predict(point, {"speculation": "ngram", "draft_length": 4, "draft_length_max": 4}).reason
    assert "draft length max" not in reason


def test_prefill_is_told_once_for_all_that_change_it() -> None:
    """60 rows at 1 ms each: without what is found more of them, and with a smaller cache type each is cheaper."""

    def prompts_only(shape: Shape, own: Pricing) -> Terms:
        assert own.target is not None
        each = 1e6 * own.target.kv_bytes_per_token / 3072
        return Terms(weights=1e6, compute=each * max(0, shape.rows - 4))

    config = msgspec.structs.replace(CONFIG, prefix_cache=True)
    point = recorded(Machine(), config, Traffic(prompt=200))
    point = msgspec.structs.replace(point, times=StatedTimes(prompts_only, pricing(config)))
    changes: dict[str, Setting] = {"prefix_cache": False, "kv_type_k": "q8_0", "kv_type_v": "q8_0"}
    reason = predict(point, changes).reason
    assert reason.startswith("With a KV cache in q8_0 and the change of the prefix cache, prefill rises from ")
    assert reason.count("per token") == 1


def test_drafts_are_told_by_what_they_bring_and_what_they_cost() -> None:
    point = stated_point(
        lambda shape, _: Terms(weights=10e6, compute=1e6 * (shape.rows - 1), draft=3e6 if shape.draft else 0.0),
        curves={"draft": LotCurve(0.5, 1.0, frozenset({2}))},
    )
    assert predict(point, {"speculation": "draft", "draft_length": 2}).reason == (
        "A forward brings 1.75 rather than 1.00 tokens per sequence but takes 15.0 ms rather than 10.0 ms, of which "
        "drafting 3.00 ms; weight reads then dominate at 10.0 ms a step."
    )


def test_drafts_that_are_switched_off_are_told_by_the_time_that_this_spares() -> None:
    config = msgspec.structs.replace(CONFIG, speculation="ngram", draft_length=3)
    point = stated_point(lambda shape, _: Terms(weights=10e6, compute=2e6 * (shape.rows - 1)), config)
    one = point.rounds[0]
    verified = msgspec.structs.replace(one.shape, spans=((100, 4),), outputs=4, drafted=3)
    drafted = msgspec.structs.replace(one, shape=verified, decoding=(Decoding(100, 3, 0),))
    point = msgspec.structs.replace(point, rounds=(drafted,), tokens_per_round=1.2)
    assert predict(point, {"speculation": "off"}).reason.startswith(
        "A forward takes 10.0 ms rather than 16.0 ms but brings 1.00 rather than 1.20 tokens per sequence; "
    )


def test_what_one_change_makes_better_is_told_before_what_it_makes_worse() -> None:
    """One thread: KV reads take 8 rather than 3 ms, but it is spared 9 ms of waiting for the other one."""

    def alone(_: Shape, own: Pricing) -> Terms:
        is_one = own.threads == 1
        return Terms(weights=5e6, attention=8e6 if is_one else 3e6, fixed=1e6 if is_one else 10e6)

    assert predict(stated_point(alone), {"threads": 1}).reason == (
        "1 thread cuts fixed overhead from 10.0 ms to 1.00 ms a step but raises KV reads from 3.00 ms to 8.00 ms a "
        "step; KV reads then dominate at 8.00 ms a step."
    )


def test_idle_cells_that_are_spared_are_told_before_the_prompts_that_take_longer() -> None:
    config = msgspec.structs.replace(CONFIG, prefix_cache=True)
    machine = Machine(resident_ns=4000.0)
    reason = predict(recorded(machine, config, Traffic(found=0.1, idle_cells=2000)), {"prefix_cache": False}).reason
    assert re.match(
        r"Idle cells no longer take \S+ ms a step but prefill rises from \S+ ms to \S+ ms per token", reason
    )


def test_larger_chunks_are_told_by_the_prefill_that_they_spare() -> None:
    config = msgspec.structs.replace(CONFIG, token_budget=32)
    reason = predict(recorded(Machine(), config, Traffic(concurrency=1, prompt=400)), {"token_budget": 256}).reason
    assert re.match(
        r"Prompts come in chunks of up to 256 rather than 32 rows, and prefill falls from \S+ ms to \S+ ms per token "
        r"but a step with a prompt rises from ", reason,
    )  # fmt: skip


def test_larger_chunks_have_their_gain_told_beside_another_change_of_prefill() -> None:
    config = msgspec.structs.replace(CONFIG, token_budget=32, prefix_cache=True)
    point = recorded(Machine(), config, Traffic(concurrency=1, prompt=400, output=40, found=0.3))
    reason = predict(point, {"token_budget": 256, "prefix_cache": False}).reason
    assert reason.count("prefill rises") == 1
    assert re.search(
        r" 256 rather than 32 rows, and (with that alone )?fewer steps have a prompt but a step with", reason
    )


def test_a_larger_batch_is_told_by_its_sequences() -> None:
    point = stated_point(
        lambda shape, _: Terms(weights=10e6, compute=1e6 * shape.rows), msgspec.structs.replace(CONFIG, slots=8)
    )
    reason = predict(point, {"concurrency": 4}).reason
    assert reason.startswith("A forward serves 4.00 rather than 1.00 sequences but takes 14.0 ms rather than 11.0 ms")


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
    assert "(70.0 % of prompt tokens were found in the last minute)" in reason


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
    assert set(moves.NAMES) == {*TERMS, "prefill"}
    assert set(TERMS) - set(reasons.CAUSES) == {"fixed"}
    assert reasons.bottleneck({"fixed": 2.0, "weights": 1.0}) is None
    assert reasons.bottleneck({"weights": 0.0}) is None


def test_what_follows_a_clause_in_a_clause_is_set_off_from_it() -> None:
    takes, brings = moves.Told(-0.1, "takes 2 ms, of which drafting 1 ms"), moves.Told(-0.05, "brings 1 token")
    assert moves.gains_first([brings, takes]) == "takes 2 ms, of which drafting 1 ms, and brings 1 token"
    assert (
        moves.gains_first([takes._replace(gain=0.1), brings])
        == "takes 2 ms, of which drafting 1 ms, but brings 1 token"
    )
    assert moves.gains_first([takes._replace(gain=0.1, text="takes 2 ms"), brings]) == "takes 2 ms but brings 1 token"


def test_what_does_not_differ_as_written_is_told_as_the_same() -> None:
    """By a hundredth it rises, from 0.070 to 0.071 ms; with three digits that is seen."""
    assert moves.changes(70_000, 71_000) == "stays at 0.07 ms"
    assert moves.changes(7_000_000, 7_100_000) == "rises from 7.00 ms to 7.10 ms"
    point = stated_point(lambda *_: Terms(weights=10e6), curves=Traffic(accepted={"ngram": 0.0, "draft": 0.0}).curves())
    reason = predict(point, {"speculation": "ngram", "draft_length": 1}).reason
    assert reason.startswith("A forward brings the same 1.00 tokens per sequence and takes the same 10.0 ms")
