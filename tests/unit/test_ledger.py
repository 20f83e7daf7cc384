"""The ledger against arithmetic on paper: a dense model, step by step."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.account import NOTHING
from stackscope.analysis.ledger import Ledger, WorkSum
from stackscope.model.catalog import bundled_target
from stackscope.model.spec import load_spec
from stackscope.records import DraftForward, Ubatch
from tests.analysis_builders import attention, decode, dense_model, lab_target, prefill, step, verify

# The lab target, per block and F16: q 256×256, k and v 256×128 each, o 256×256; gate, up and down 256×768.
ATTENTION = 256 * 256 + 2 * 256 * 128 + 256 * 256
FFN = 3 * 256 * 768
HEAD = 4096 * 256
NORMS = 2 * 256 * 4
KV_LAYER = 2 * 2 * 64 * 2
"""Bytes of one token in one layer: keys and values, 2 heads of 64, 2 bytes each."""
PAIR_LAYER = 2 * 4 * (64 + 64)
"""FLOPs of one query–key pair in one layer: 4 heads, two per element of the key and of the value."""


def test_one_decode_step_part_by_part() -> None:
    account = Ledger(lab_target()).account(step(decode(0, cached=100)))
    assert account.exact.attention_weights == 6 * ATTENTION * 2
    assert account.exact.ffn_weights == 6 * FFN * 2
    assert account.exact.head_weights == HEAD * 2  # tied: the embedding matrix, read whole
    assert account.exact.other_weights == 6 * NORMS + 256 * 4
    assert account.exact.embedding_rows == 256 * 2
    assert account.exact.kv_read == 6 * 101 * KV_LAYER
    assert account.exact.kv_written == 6 * KV_LAYER
    assert account.exact.recurrent_state == 0
    assert account.flops.attention_projections == 2 * 6 * ATTENTION
    assert account.flops.ffn == 2 * 6 * FFN
    assert account.flops.head == 2 * HEAD
    assert account.flops.attention_scores == 6 * 101 * PAIR_LAYER


def test_every_weight_is_read_once_by_a_pass_with_outputs() -> None:
    model = lab_target()
    assert Ledger(model).account(step(decode(0, cached=9))).exact.weights == model.tensor_bytes


def test_the_bundled_file_is_priced_like_its_geometry_on_paper() -> None:
    work = step(decode(0, cached=100), verify(1, cached=30, drafted=3, accepted=1))
    real = Ledger(load_spec(bundled_target()).summary(), "q8_0", "f16")
    assert real.account(work) == Ledger(lab_target(), "q8_0", "f16").account(work)


def test_totals_are_sums_of_the_named_parts() -> None:
    account = Ledger(lab_target()).account(step(decode(0, cached=100)))
    assert account.total_bytes == sum(account.named_bytes().values())
    assert account.flops.total == sum(account.flops.named().values())
    assert account.weight_bytes + account.kv_bytes + account.exact.embedding_rows == account.total_bytes


def test_a_dense_model_has_no_expectation_in_its_totals() -> None:
    account = Ledger(lab_target()).account(step(decode(0, cached=1)))
    assert account.is_exact
    assert isinstance(account.total_bytes, int)
    assert isinstance(account.weight_bytes, int)


def test_a_prefill_without_outputs_reads_neither_head_nor_the_last_feed_forward() -> None:
    """Output rows are gathered behind the last block's attention; with none, what follows has nothing to do."""
    account = Ledger(lab_target()).account(step(prefill(0, new=8)))
    assert account.exact.head_weights == 0
    assert account.exact.ffn_weights == 5 * FFN * 2
    assert account.exact.attention_weights == 6 * ATTENTION * 2
    assert account.exact.other_weights == 6 * NORMS
    assert account.flops.head == 0
    assert account.flops.ffn == 2 * 8 * 5 * FFN
    assert account.flops.attention_projections == 2 * 8 * 6 * ATTENTION


def test_the_last_feed_forward_and_the_head_run_on_output_rows_only() -> None:
    account = Ledger(lab_target()).account(step(prefill(0, new=8, outputs=1)))
    assert account.flops.ffn == 2 * (8 * 5 + 1) * FFN
    assert account.flops.head == 2 * 1 * HEAD
    assert account.exact.ffn_weights == 6 * FFN * 2
    assert account.exact.head_weights == HEAD * 2


def test_architectures_that_gather_late_run_the_last_feed_forward_on_every_row() -> None:
    late = dense_model(layers=[attention()] * 6, architecture="gpt-oss")
    account = Ledger(late).account(step(prefill(0, new=8, outputs=1)))
    assert account.flops.ffn == 2 * 8 * 6 * FFN
    assert account.flops.head == 2 * 1 * HEAD
    assert Ledger(late).account(step(prefill(0, new=8))).exact.ffn_weights == 6 * FFN * 2


def test_prefill_attention_is_causal() -> None:
    """4 tokens behind 2 cached ones see 3, 4, 5 and 6 keys."""
    account = Ledger(lab_target()).account(step(prefill(0, new=4, cached=2)))
    assert account.flops.attention_scores == 6 * (3 + 4 + 5 + 6) * PAIR_LAYER
    assert account.exact.kv_read == 6 * 6 * KV_LAYER
    assert account.exact.kv_written == 6 * 4 * KV_LAYER


def test_weights_are_read_once_per_ubatch_and_the_head_only_where_there_are_outputs() -> None:
    work = step(prefill(0, new=600, outputs=1), ubatches=(Ubatch(512, 0), Ubatch(88, 1)))
    account = Ledger(lab_target()).account(work)
    assert account.exact.attention_weights == 2 * 6 * ATTENTION * 2
    assert account.exact.ffn_weights == (5 + 6) * FFN * 2
    assert account.exact.head_weights == HEAD * 2
    assert account.exact.other_weights == 2 * 6 * NORMS + 256 * 4
    assert account.exact.embedding_rows == 600 * 256 * 2


def test_a_verification_computes_logits_for_every_row() -> None:
    account = Ledger(lab_target()).account(step(verify(0, cached=50, drafted=3, accepted=2)))
    assert account.flops.head == 2 * 4 * HEAD
    assert account.flops.attention_scores == 6 * (51 + 52 + 53 + 54) * PAIR_LAYER
    assert account.exact.head_weights == HEAD * 2
    assert account.modelled.logits == 4 * 4096 * 4


def test_an_untied_head_is_read_and_the_embedding_is_not() -> None:
    model = dense_model(layers=[attention()] * 6, tied_head=False)
    account = Ledger(model).account(step(decode(0, cached=0)))
    assert account.exact.head_weights == HEAD * 2
    assert account.exact.weights == model.tensor_bytes - HEAD * 2


@pytest.mark.parametrize(
    ("kv_type", "bytes_per_head"),
    [("f32", 256), ("f16", 128), ("bf16", 128), ("q8_0", 68), ("q5_1", 48), ("q4_0", 36)],
)
def test_cache_types_change_the_kv_bytes_and_nothing_else(kv_type: str, bytes_per_head: int) -> None:
    """A head of 64 elements is 2 blocks of 32: q8_0 34 bytes a block, q5_1 24, q4_0 18."""
    work = step(decode(0, cached=9))
    account = Ledger(lab_target(), kv_type, kv_type).account(work)  # type: ignore[arg-type]
    assert account.exact.kv_read == 6 * 10 * 2 * 2 * bytes_per_head
    assert account.exact.kv_written == 6 * 2 * 2 * bytes_per_head
    assert account.exact.weights == Ledger(lab_target()).account(work).exact.weights


def test_a_cache_type_that_does_not_divide_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        Ledger(dense_model(layers=[attention(kv_heads=1, head=80)]), "q8_0", "f16")


def test_accounts_add_part_by_part() -> None:
    ledger = Ledger(lab_target())
    first, second = step(decode(0, cached=5)), step(prefill(1, new=7, outputs=1))
    total = ledger.account(first) + ledger.account(second)
    assert total.exact.kv_written == 6 * 8 * KV_LAYER
    assert total.flops.head == 2 * 2 * HEAD
    summed = WorkSum()
    for one in (first, second):
        summed.add(ledger.count(one))
    assert ledger.price(summed.total) == total


def test_draft_forwards_are_priced_by_the_draft_models_ledger() -> None:
    """A catch-up of 5 tokens for one sequence, then two forwards of one token for two sequences."""
    forwards = (
        DraftForward(((0, 5), (3, 1)), 2),
        DraftForward(((5, 1), (4, 1)), 2),
        DraftForward(((6, 1), (5, 1)), 2),
    )
    account = Ledger(lab_target()).account_draft(forwards)
    assert account.exact.attention_weights == 3 * 6 * ATTENTION * 2
    assert account.exact.head_weights == 3 * HEAD * 2
    assert account.exact.kv_written == 6 * (6 + 2 + 2) * KV_LAYER
    assert account.exact.kv_read == 6 * (5 + 4 + 6 + 5 + 7 + 6) * KV_LAYER
    assert account.flops.head == 2 * 6 * HEAD


def test_a_step_without_work_costs_nothing() -> None:
    ledger = Ledger(lab_target())
    assert ledger.account(step()) == NOTHING
    assert ledger.account_draft(()) == NOTHING
    assert NOTHING.total_bytes == 0
    assert NOTHING.is_exact


def test_modelled_traffic_enters_no_total() -> None:
    account = Ledger(lab_target()).account(step(decode(0, cached=5)))
    assert account.modelled.activations > 0
    assert msgspec.structs.replace(account, modelled=NOTHING.modelled).total_bytes == account.total_bytes


def test_a_summary_that_contradicts_itself_is_refused() -> None:
    headless = msgspec.structs.replace(dense_model(layers=[attention()]), tensors=())
    with pytest.raises(ValueError, match="tied"):
        Ledger(headless)


def test_what_an_architecture_leaves_uncounted_is_said() -> None:
    assert Ledger(lab_target()).not_modelled == ()
    assert Ledger(dense_model(layers=[attention()], architecture="deepseek32")).not_modelled != ()
    assert Ledger(dense_model(layers=[attention()], architecture="from-the-future")).not_modelled != ()
