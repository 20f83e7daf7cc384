"""The state of a sequence against arithmetic on paper; the integration tests ask the library itself."""

from __future__ import annotations

import pytest

from stackscope.analysis.kv import kv_bytes_per_token, sequence_state_bytes
from stackscope.records import LayerSummary
from stackscope.toggles import EngineConfig
from tests.analysis_builders import attention, dense_model, lab_target

F16 = EngineConfig()
ROW = 2 * 64 * 2
"""Bytes of one token's keys, or values, in one layer: 2 heads of 64 in F16."""
HEADER = 4 + 4
"""Magic and sequence id."""


def test_a_plain_cache() -> None:
    """One stream; 5 cells of 12 bytes; two flags; per layer twice a type, a row size and 5 rows."""
    cache = 4 + 4 + 5 * 12 + 8 + 6 * 2 * (12 + 5 * ROW)
    assert sequence_state_bytes(lab_target(), F16, 5) == HEADER + cache


def test_an_empty_sequence_is_headers_only() -> None:
    assert sequence_state_bytes(lab_target(), F16, 0) == HEADER + 4 + 4


def test_quantised_rows() -> None:
    """128 elements are 4 blocks of 34 bytes in q8_0, 4 of 18 in q4_0."""
    config = EngineConfig(kv_type_k="q8_0", kv_type_v="q4_0")
    cache = 4 + 4 + 5 * 12 + 8 + 6 * (12 + 5 * 136 + 12 + 5 * 72)
    assert sequence_state_bytes(lab_target(), config, 5) == HEADER + cache


def test_split_kv_writes_a_count_for_every_stream() -> None:
    split = EngineConfig(unified_kv=False)
    unified = sequence_state_bytes(lab_target(), F16, 5)
    assert unified is not None
    assert sequence_state_bytes(lab_target(), split, 5, n_seq_max=24) == unified + 23 * 4
    with pytest.raises(ValueError, match="n_seq_max"):
        sequence_state_bytes(lab_target(), split, 5)


def test_windowed_layers_are_a_cache_of_their_own_and_stop_growing() -> None:
    model = dense_model(layers=[attention(window=4), attention(window=4), attention()])
    full = 4 + 4 + 9 * 12 + 8 + 1 * 2 * (12 + 9 * ROW)
    windowed = 4 + 4 + 4 * 12 + 8 + 2 * 2 * (12 + 4 * ROW)
    assert sequence_state_bytes(model, F16, 9) == HEADER + full + windowed


def test_chunked_windows_hold_the_current_chunk() -> None:
    """9 tokens in chunks of 4: the last is alone in the third chunk."""
    model = dense_model(layers=[attention(window=4)], architecture="llama4")
    full = 4 + 4 + 9 * 12 + 8
    windowed = 4 + 4 + 1 * 12 + 8 + 2 * (12 + 1 * ROW)
    assert sequence_state_bytes(model, F16, 9) == HEADER + full + windowed


def test_layers_that_share_kv_store_nothing() -> None:
    model = dense_model(layers=[attention(), attention(shares_kv=True)])
    cache = 4 + 4 + 5 * 12 + 8 + 1 * 2 * (12 + 5 * ROW)
    assert sequence_state_bytes(model, F16, 5) == HEADER + cache
    assert kv_bytes_per_token(model, "f16", "f16") == 2 * ROW


def test_latent_attention_stores_keys_only() -> None:
    layer = LayerSummary(heads=16, kv_heads=1, key_length=576, value_length=512, mla_rank=576)
    model = dense_model(layers=[layer], architecture="deepseek2")
    assert sequence_state_bytes(model, F16, 5) == HEADER + 4 + 4 + 5 * 12 + 8 + 12 + 5 * 1152


def test_a_hybrid_model_adds_its_recurrent_rows() -> None:
    """One recurrent cell: count, (position, 0), two flags, per layer two typed rows of f32."""
    recurrent = LayerSummary(heads=0, kv_heads=0, key_length=0, value_length=0, recurrent_state=1000)
    model = dense_model(layers=[recurrent, recurrent, attention()], architecture="jamba")
    cache = 4 + 4 + 5 * 12 + 8 + 2 * (12 + 5 * ROW)
    state = 4 + 8 + 8 + 2 * (24 + 4000)
    assert sequence_state_bytes(model, F16, 5) == HEADER + cache + state
    assert sequence_state_bytes(dense_model(layers=[recurrent], architecture="mamba"), F16, 5) == HEADER + 20 + 4024


def test_several_positions_per_token_take_twelve_more_bytes_a_cell() -> None:
    plain = sequence_state_bytes(dense_model(layers=[attention()]), F16, 5)
    assert plain is not None
    vision = dense_model(layers=[attention()], architecture="qwen2vl")
    assert sequence_state_bytes(vision, F16, 5) == plain + 5 * 12


@pytest.mark.parametrize("architecture", ["deepseek32", "glm4", "from-the-future"])
def test_memory_that_the_layout_does_not_cover_is_unknown(architecture: str) -> None:
    assert sequence_state_bytes(dense_model(layers=[attention()], architecture=architecture), F16, 5) is None
