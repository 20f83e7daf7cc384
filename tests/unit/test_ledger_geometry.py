"""The ledger against arithmetic on paper: windows, shared KV, latent attention, recurrent state, experts."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.records import LayerSummary, Ubatch
from tests.analysis_builders import attention, decode, dense_model, prefill, sparse_model, step

KV_LAYER = 2 * 2 * 64 * 2
PAIR_LAYER = 2 * 4 * (64 + 64)


@pytest.mark.parametrize(
    ("cached", "new", "tokens", "pairs"),
    [
        (0, 3, 3, 1 + 2 + 3),  # the window is not reached
        (3, 1, 4, 4),  # just full
        (4, 1, 4, 4),  # the oldest token has left
        (2, 4, 6, 3 + 4 + 4 + 4),  # the first query still sees token 0
        (6, 3, 6, 3 * 4),  # 3 before the first query, and 3 new ones
        (100, 8, 11, 8 * 4),
    ],
)
def test_a_sliding_window_bounds_what_is_read_and_computed(cached: int, new: int, tokens: int, pairs: int) -> None:
    account = Ledger(dense_model(layers=[attention(window=4)])).account(step(prefill(0, new=new, cached=cached)))
    assert account.exact.kv_read == tokens * KV_LAYER
    assert account.flops.attention_scores == pairs * PAIR_LAYER
    assert account.exact.kv_written == new * KV_LAYER


@pytest.mark.parametrize(
    ("cached", "new", "tokens", "pairs"),
    [
        (3, 1, 4, 4),  # the last of its chunk sees the chunk
        (4, 1, 1, 1),  # the first of the next sees itself
        (3, 3, 6, 4 + 1 + 2),
        (5, 2, 3, 2 + 3),
        (0, 9, 9, 1 + 2 + 3 + 4 + 1 + 2 + 3 + 4 + 1),
    ],
)
def test_a_chunked_window_starts_anew(cached: int, new: int, tokens: int, pairs: int) -> None:
    model = dense_model(layers=[attention(window=4)], architecture="llama4")
    account = Ledger(model).account(step(prefill(0, new=new, cached=cached)))
    assert account.exact.kv_read == tokens * KV_LAYER
    assert account.flops.attention_scores == pairs * PAIR_LAYER


def test_windowed_and_full_layers_are_counted_each_by_their_own_reach() -> None:
    """Gemma's pattern: five layers of window 512, one full; at 1,000 cached tokens."""
    layers = [attention(window=512)] * 5 + [attention()]
    account = Ledger(dense_model(layers=layers)).account(step(decode(0, cached=1000)))
    assert account.exact.kv_read == (5 * 512 + 1001) * KV_LAYER
    assert account.flops.attention_scores == (5 * 512 + 1001) * PAIR_LAYER


def test_a_layer_that_shares_kv_reads_it_and_stores_none() -> None:
    model = dense_model(layers=[attention(), attention(shares_kv=True)])
    account = Ledger(model).account(step(decode(0, cached=9)))
    assert account.exact.kv_read == 2 * 10 * KV_LAYER
    assert account.exact.kv_written == 1 * KV_LAYER


def test_latent_attention_stores_one_compressed_row() -> None:
    """DeepSeek's geometry: 512 + 64 elements per token, keys only; scores over 576, values over 512, 16 heads."""
    layer = LayerSummary(heads=16, kv_heads=1, key_length=576, value_length=512, mla_rank=576)
    account = Ledger(dense_model(layers=[layer], architecture="deepseek2")).account(step(decode(0, cached=9)))
    assert account.exact.kv_written == 576 * 2
    assert account.exact.kv_read == 10 * 576 * 2
    assert account.flops.attention_scores == 10 * 2 * 16 * (576 + 512)


def test_recurrent_state_is_read_and_written_once_per_sequence_and_forward() -> None:
    """Independent of how many tokens the sequence has or gets: 2 × 4 bytes × elements."""
    layer = LayerSummary(heads=0, kv_heads=0, key_length=0, value_length=0, recurrent_state=1000)
    ledger = Ledger(dense_model(layers=[layer, attention()]))
    account = ledger.account(step(prefill(0, new=50), decode(1, cached=700)))
    assert account.exact.recurrent_state == 2 * 2 * 4 * 1000
    assert account.exact.kv_written == 51 * KV_LAYER


def test_one_token_wakes_exactly_its_experts() -> None:
    account = Ledger(sparse_model()).account(step(decode(0, cached=0)))
    assert account.expected.expert_weights == 2 * 2 * 3000 * 2
    assert account.flops.experts == 2 * 2 * 2 * 3000


def test_expert_bytes_of_a_batch_are_an_expectation_and_say_so() -> None:
    """Two tokens, 2 of 4 experts each: 4 × (1 − (1 − 2/4)²) = 3 distinct ones per block."""
    account = Ledger(sparse_model()).account(step(decode(0, cached=0), decode(1, cached=0)))
    assert account.expected.expert_weights == pytest.approx(2 * 3 * 3000 * 2)
    assert not account.is_exact
    assert isinstance(account.total_bytes, float)
    assert account.named_bytes()["expert_weights_expected"] == account.expected.expert_weights
    assert sum(account.named_bytes().values()) == pytest.approx(account.total_bytes)
    assert account.flops.experts == 2 * 2 * 2 * 2 * 3000  # exact: every token uses two


def test_experts_of_the_last_block_serve_output_rows_only() -> None:
    account = Ledger(sparse_model()).account(step(prefill(0, new=2, outputs=1)))
    assert account.expected.expert_weights == pytest.approx((3 + 2) * 3000 * 2)
    assert account.flops.experts == 2 * (2 + 1) * 2 * 3000


def test_distinct_experts_are_expected_per_pass() -> None:
    """The published figures for 8 of 128: 8, 15.5, 29.1, 51.6 and 82.4 for 1, 2, 4, 8 and 16 tokens."""
    ledger = Ledger(sparse_model(experts=128, used=8, expert_elements=128))
    assert [round(ledger.distinct_experts(n), 1) for n in (0, 1, 2, 4, 8, 16)] == [0, 8.0, 15.5, 29.1, 51.6, 82.4]
    whole = ledger.count(step(prefill(0, new=16)))
    halves = ledger.count(step(prefill(0, new=16), ubatches=(Ubatch(8, 0), Ubatch(8, 0))))
    assert whole.experts == pytest.approx(82.4, abs=0.05)
    assert halves.experts == pytest.approx(2 * 51.6, abs=0.1)


def test_expert_tensors_without_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="without experts"):
        Ledger(msgspec.structs.replace(sparse_model(), experts=0, experts_used=0))
