"""The cost model without a run: the worked example of the field, its limits, and laws that hold for any model."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.roofline import (
    MOST_BATCH,
    Case,
    Exact,
    Machine,
    Sized,
    acceptance_for,
    crossover_batch,
    crossover_context,
    explain,
    forward,
    free_drafts,
    ladder,
    tokens_per_forward,
    variants,
)
from tests.analysis_builders import decode, lab_target, sparse_model, step

MS: Final = 1e6
MACHINE: Final = Machine(bandwidth=1e12, flops=100e12)
EIGHT_BILLION: Final = Sized(parameters=8e9, bits=16)


def case(batch: int = 1, **changes: object) -> Case:
    return Case(**{"model": EIGHT_BILLION, "machine": MACHINE, "batch": batch, **changes})  # type: ignore[arg-type]


def test_one_sequence_reads_for_16_ms_and_computes_for_a_hundredth() -> None:
    one = explain(case()).forward
    assert one.weights_ns == one.memory_ns == one.ns == pytest.approx(16 * MS)
    assert one.compute_ns == pytest.approx(0.16 * MS)
    assert one.bound == "memory"
    assert one.intensity == pytest.approx(1.0)


def test_a_hundred_sequences_leave_no_slack() -> None:
    found = explain(case(100))
    assert found.forward.memory_ns == pytest.approx(16 * MS)
    assert found.forward.compute_ns == pytest.approx(16 * MS)
    assert found.forward.bound == "both"
    assert found.free_drafts == 0
    assert found.crossover_batch == 100
    assert explain(case(99)).forward.bound == "memory"
    assert explain(case(101)).forward.bound == "compute"


def test_four_bit_weights_take_a_quarter_and_move_the_crossover() -> None:
    by_name = {one.name: one for one in variants(case())}
    assert by_name["4 bits"].forward.weights_ns == pytest.approx(4 * MS)
    assert by_name["4 bits"].crossover_batch == 25
    assert by_name["q4_K"].forward.weights_ns == pytest.approx(4.5 * MS)
    assert by_name["q4_K"].crossover_batch == 29
    assert by_name["f16"].crossover_batch == 100
    assert [one.bits for one in variants(case())] == [16.0, 8.5, 4.5, 4.0]


def test_a_width_of_its_own_is_among_the_variants() -> None:
    found = variants(case(model=Sized(parameters=8e9, bits=5.5)))
    assert [(one.name, one.bits) for one in found] == [
        ("f16", 16.0), ("q8_0", 8.5), ("given", 5.5), ("q4_K", 4.5), ("4 bits", 4.0),
    ]  # fmt: skip


def test_speculation_is_free_at_one_sequence_and_costs_at_a_hundred() -> None:
    alone, many = (explain(case(batch, draft_length=3, acceptance=(0.8,))).speculation for batch in (1, 100))
    assert alone is not None
    assert many is not None
    assert alone.break_even_tokens == pytest.approx(1.0)
    assert alone.break_even_acceptance == 0.0
    assert alone.speed_up == alone.tokens == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert many.break_even_tokens == pytest.approx(4.0)
    assert many.break_even_acceptance == pytest.approx(1.0)
    assert many.speed_up == pytest.approx(2.952 / 4)
    # 4 rows each: 0.64 ms of compute a sequence against 16 ms × 2.952.
    assert many.loses_from == alone.loses_from == 74


def test_a_draft_model_adds_its_forwards() -> None:
    draft = Sized(parameters=1e9, bits=16, kv_bytes_per_token=0)
    found = explain(case(draft=draft, draft_length=3)).speculation
    assert found is not None
    assert found.draft_ns == pytest.approx(6 * MS)
    assert found.round_ns == pytest.approx(22 * MS)
    assert found.break_even_tokens == pytest.approx(22 / 16)
    assert tokens_per_forward((found.break_even_acceptance or 0.0,), 3) == pytest.approx(22 / 16)
    assert (found.tokens, found.speed_up, found.loses_from) == (None, None, None)


def test_where_not_even_all_accepted_would_do_there_is_no_break_even() -> None:
    found = explain(case(100, draft=Sized(parameters=8e9, bits=16), draft_length=2)).speculation
    assert found is not None
    assert found.break_even_tokens > 3
    assert found.break_even_acceptance is None


def test_the_kv_cache_adds_to_reading_and_outweighs_the_weights_in_the_end() -> None:
    model = Sized(parameters=8e9, bits=16, kv_bytes_per_token=131_072)
    one = forward(model, MACHINE, 4, 1000)
    assert one.kv_bytes == 4 * 1002 * 131_072
    assert one.memory_ns == pytest.approx(16 * MS + 4 * 1002 * 131_072 / 1e3)
    context = crossover_context(model, 4)
    assert context is not None
    assert 4 * (context + 2) * 131_072 >= 16e9 > 4 * (context + 1) * 131_072


def test_at_a_long_context_no_batch_computes_as_long_as_it_reads() -> None:
    model = Sized(parameters=8e9, bits=16, kv_bytes_per_token=131_072)
    assert crossover_batch(model, MACHINE, 0) == 101
    # 0.16 ms of compute a sequence; 1,221 tokens are read in as long.
    assert crossover_batch(model, MACHINE, 1_300) is None
    assert free_drafts(case(model=model, context=100_000)) == 181


def test_what_is_not_known_stays_unknown() -> None:
    blind = explain(case(context=1000, draft_length=3))
    assert blind.forward.weights_ns == pytest.approx(16 * MS)
    assert blind.forward.compute_ns == pytest.approx(0.16 * MS)
    assert (blind.forward.kv_ns, blind.forward.memory_ns, blind.forward.ns, blind.forward.bound) == (None,) * 4
    assert (blind.crossover_batch, blind.crossover_context, blind.free_drafts, blind.speculation) == (None,) * 4
    slow = explain(case(machine=Machine(bandwidth=1e12)))
    assert (slow.forward.memory_ns, slow.forward.ns, slow.ridge, slow.crossover_batch) == (16 * MS, None, None, None)


@pytest.mark.parametrize("context", [0, 300])
def test_a_file_is_counted_by_the_ledger(context: int) -> None:
    ledger = Ledger(lab_target())
    three = step(*(decode(n, cached=context) for n in range(3)))
    account = ledger.account(three)
    demand = Exact(ledger).demand(3, context, 1)
    assert demand.weights + (demand.kv or 0) == account.total_bytes
    assert demand.kv == account.kv_bytes
    assert demand.flops == account.flops.total


def test_drafts_of_a_sparse_model_wake_more_experts() -> None:
    ledger, dense = Ledger(sparse_model(experts=8, used=2)), Ledger(lab_target())
    more = Exact(ledger).demand(1, 0, 4).weights - Exact(ledger).demand(1, 0, 1).weights
    assert more > ledger.weights.expert.bytes / 8
    rows = Exact(dense).demand(1, 0, 4).weights - Exact(dense).demand(1, 0, 1).weights
    assert rows == 3 * dense.weights.embedding_row


def test_acceptance_by_place_goes_on_with_its_last() -> None:
    assert tokens_per_forward((0.5,), 1) == 1.5
    assert tokens_per_forward((0.9, 0.5), 4) == pytest.approx(1 + 0.9 + 0.45 + 0.225 + 0.1125)
    assert tokens_per_forward((0.9, 0.5, 0.1), 1) == pytest.approx(1.9)
    assert tokens_per_forward((0.0,), 8) == 1.0


@given(st.floats(0.0, 1.0), st.integers(1, 16))
def test_break_even_is_the_inverse_of_tokens(acceptance: float, length: int) -> None:
    tokens = tokens_per_forward((acceptance,), length)
    found = acceptance_for(tokens, length)
    assert found is not None
    assert tokens_per_forward((found,), length) == pytest.approx(tokens)


@given(
    st.floats(1e7, 1e12), st.sampled_from([4.0, 4.5, 16.0]), st.floats(1e9, 1e13), st.floats(1e10, 1e15),
    st.sampled_from([None, 0, 1000, 50_000]),
)  # fmt: skip
def test_crossovers_are_where_they_say(
    parameters: float, bits: float, bandwidth: float, flops: float, context: int | None
) -> None:
    model = Sized(parameters=parameters, bits=bits, kv_bytes_per_token=parameters / 1e5)
    machine = Machine(bandwidth=bandwidth, flops=flops)
    batch = crossover_batch(model, machine, context)
    bounds = [forward(model, machine, n, context).bound for n in ({batch or 1, (batch or 2) - 1, MOST_BATCH} - {0})]
    if batch is None:
        assert set(bounds) == {"memory"}
    else:
        assert forward(model, machine, batch, context).bound != "memory"
        assert batch == 1 or forward(model, machine, batch - 1, context).bound == "memory"
    free = free_drafts(Case(model=model, machine=machine, context=context))
    assert free is not None
    assert free < MOST_BATCH or forward(model, machine, 1, context, 1 + free).bound in ("memory", "both")
    assert free == 0 or forward(model, machine, 1, context, free).bound != "compute"


def test_the_ladder_holds_the_batch_asked_for_and_the_crossover() -> None:
    assert [one.rows for one in ladder(case(7))] == [1, 4, 7, 16, 64, 100, 256]


@pytest.mark.parametrize("wrong", [{"draft_length": 0}, {"draft_length": 2, "acceptance": (1.2,)}])
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="drafts have at least one token"):
        explain(case(**wrong))  # type: ignore[arg-type]
