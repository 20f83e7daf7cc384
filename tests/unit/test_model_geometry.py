"""Per-layer geometry from metadata alone, for each of llama.cpp's rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import ModelFileError
from stackscope.model import geometry
from stackscope.model.architectures import CHECKED, PLAIN, WINDOWS, not_modelled

if TYPE_CHECKING:
    from stackscope.records import LayerSummary

HERE = Path("model.gguf")


def layers(architecture: str, **values: object) -> tuple[LayerSummary, ...]:
    base: dict[str, object] = {"block_count": 4, "embedding_length": 64, "attention__head_count": 4}
    metadata = {f"{architecture}.{name.replace('__', '.')}": value for name, value in (base | values).items()}
    return geometry.layers(geometry.Keys(HERE, architecture, metadata))


def windows(architecture: str, **values: object) -> str:
    """One letter per layer: w for a window, F for full attention."""
    return "".join("F" if layer.window is None else "w" for layer in layers(architecture, **values))


def test_heads_share_keys_and_values_evenly() -> None:
    layer = layers("llama", attention__head_count_kv=2)[0]
    assert (layer.heads, layer.kv_heads, layer.key_length, layer.value_length) == (4, 2, 16, 16)  # 64 / 4 heads
    assert layers("llama")[0].kv_heads == 4  # as many as heads when the file does not say


def test_lengths_of_a_head_can_be_stated() -> None:
    layer = layers("qwen3", attention__key_length=32, attention__value_length=24)[3]
    assert (layer.key_length, layer.value_length) == (32, 24)


def test_heads_per_layer() -> None:
    found = layers("openelm", attention__head_count=[2, 4, 4, 8], attention__head_count_kv=[1, 2, 2, 4])
    assert [(layer.heads, layer.kv_heads) for layer in found] == [(2, 1), (4, 2), (4, 2), (8, 4)]
    assert {layer.key_length for layer in found} == {32}  # 64 / the first layer's 2 heads


def test_layers_without_attention() -> None:
    found = layers("deci", attention__head_count=[4, 0, 4, 4], attention__head_count_kv=[2, 0, 2, 2])
    assert [layer.kv_heads for layer in found] == [2, 0, 2, 2]
    assert (found[1].heads, found[1].key_length) == (0, 0)


@pytest.mark.parametrize(
    ("architecture", "values", "pattern"),
    [
        ("llama", {"attention__sliding_window": 512}, "FFFFFFFFFFFF"),
        ("phi3", {"attention__sliding_window": 512}, "FFFFFFFFFFFF"),
        ("gemma2", {"attention__sliding_window": 512}, "wFwFwFwFwFwF"),
        ("gemma3", {"attention__sliding_window": 512}, "wwwwwFwwwwwF"),
        ("gemma3", {}, "FFFFFFFFFFFF"),
        ("gemma3", {"attention__sliding_window": 0}, "FFFFFFFFFFFF"),
        ("gemma3n", {"attention__sliding_window": 512}, "wwwwFwwwwFww"),
        ("cohere2", {"attention__sliding_window": 512}, "wwwFwwwFwwwF"),
        ("cohere2moe", {"attention__sliding_window": 512}, "FwwwFwwwFwww"),
        ("gpt-oss", {"attention__sliding_window": 128}, "wFwFwFwFwFwF"),
        ("plamo3", {"attention__sliding_window": 512}, "wwwwwwwFwwww"),
        ("llama4", {}, "wwwFwwwFwwwF"),
        ("llama4", {"attention__sliding_window": 0}, "FFFFFFFFFFFF"),
        ("exaone4", {"attention__sliding_window": 512}, "FFFFFFFFFFFF"),
        ("smallthinker", {"attention__sliding_window": 512}, "FwwwFwwwFwww"),
        ("deepseek4", {"attention__sliding_window": 512}, "wwwwwwwwwwww"),
        ("gemma3", {"attention__sliding_window": 8, "attention__sliding_window_pattern": 3}, "wwFwwFwwFwwF"),
        ("gemma3", {"attention__sliding_window": 8, "attention__sliding_window_pattern": 1}, "FFFFFFFFFFFF"),
        ("gemma3", {"attention__sliding_window": 8, "attention__sliding_window_pattern": 0}, "wwwwwwwwwwww"),
        (
            "gemma4",
            {"attention__sliding_window": 8, "attention__sliding_window_pattern": [True, True, False] * 4},
            "wwFwwFwwFwwF",
        ),
        ("step35", {"attention__sliding_window": 8, "attention__sliding_window_pattern": [0, 1] * 6}, "FwFwFwFwFwFw"),
    ],
)
def test_windows(architecture: str, values: dict[str, object], pattern: str) -> None:
    assert windows(architecture, block_count=12, **values) == pattern


def test_windows_of_a_64_layer_exaone4_only() -> None:
    assert windows("exaone4", block_count=64) == "wwwF" * 16
    assert layers("exaone4", block_count=64)[0].window == 4096


def test_sizes_of_windows() -> None:
    assert layers("gemma2")[0].window == 4096  # the architecture's default
    assert layers("gemma2", attention__sliding_window=7)[0].window == 7
    assert layers("exaone-moe")[0].window == 128
    assert layers("llama4", attention__sliding_window=7)[0].window == 8192  # fixed, whatever the file says
    assert layers("smallthinker", attention__sliding_window=7)[1].window == 4096


def test_windowed_layers_may_have_heads_of_their_own() -> None:
    found = layers(
        "gemma4",
        attention__key_length=512, attention__value_length=512, attention__key_length_swa=256,
        attention__value_length_swa=128, attention__sliding_window=8,
        attention__sliding_window_pattern=[True, False, True, False], attention__head_count_kv=[2, 1, 2, 1],
    )  # fmt: skip
    assert [(layer.kv_heads, layer.key_length, layer.value_length) for layer in found] == [
        (2, 256, 128), (1, 512, 512), (2, 256, 128), (1, 512, 512),
    ]  # fmt: skip


def test_layers_that_share_earlier_keys_and_values() -> None:
    found = layers(
        "gemma4",
        attention__sliding_window=8,
        attention__sliding_window_pattern=[True] * 4,
        attention__shared_kv_layers=3,
    )
    assert [layer.shares_kv for layer in found] == [False, True, True, True]
    in_3n = layers("gemma3n", block_count=30, attention__sliding_window=8)
    assert [layer.shares_kv for layer in in_3n] == [False] * 20 + [True] * 10


def test_latent_attention_stores_one_compressed_key() -> None:
    """DeepSeek-V2: rank 512 and 64 rotated elements for all 16 heads."""
    values: dict[str, object] = {
        "embedding_length": 2048, "attention__head_count": 16, "attention__head_count_kv": 1,
        "attention__key_length": 576, "attention__value_length": 512,
    }  # fmt: skip
    latent = layers("deepseek2", **values, attention__key_length_mla=192, attention__value_length_mla=128)[0]
    assert (latent.heads, latent.kv_heads, latent.mla_rank) == (16, 1, 576)
    assert layers("deepseek2", **values)[0].mla_rank is None  # older files: decompressed keys and values


def test_mamba_is_all_state() -> None:
    """Rolling inputs: (4 − 1) × 128; state: 8 × 128."""
    found = layers("mamba", attention__head_count=0, ssm__conv_kernel=4, ssm__inner_size=128, ssm__state_size=8)
    assert {(layer.kv_heads, layer.recurrent_state) for layer in found} == {(0, 3 * 128 + 8 * 128)}


def test_mamba2_rolls_its_groups_too() -> None:
    """(4 − 1) × (128 + 2 × 2 groups × 16) + 16 × 128."""
    found = layers(
        "mamba2",
        attention__head_count=0, ssm__conv_kernel=4, ssm__inner_size=128, ssm__state_size=16, ssm__group_count=2,
    )  # fmt: skip
    assert found[0].recurrent_state == 3 * (128 + 64) + 16 * 128


def test_rwkv_keeps_two_shifted_tokens_and_its_heads() -> None:
    assert layers("rwkv7", attention__head_count=0, wkv__head_size=16)[0].recurrent_state == 2 * 64 + 64 * 16
    one = layers("arwkv7", attention__head_count=0, wkv__head_size=16, token_shift_count=1)[0]
    assert one.recurrent_state == 64 + 64 * 16


def test_hybrids_mix_states_and_heads() -> None:
    jamba = layers(
        "jamba",
        attention__head_count_kv=[0, 2, 0, 0], ssm__conv_kernel=4, ssm__inner_size=128, ssm__state_size=16,
    )  # fmt: skip
    assert [layer.kv_heads for layer in jamba] == [0, 2, 0, 0]
    assert [layer.recurrent_state > 0 for layer in jamba] == [True, False, True, True]
    lfm2 = layers("lfm2", attention__head_count_kv=[0, 2, 0, 2], shortconv__l_cache=3)
    assert [layer.recurrent_state for layer in lfm2] == [64 * 2, 0, 64 * 2, 0]
    windowed = layers("lfm2", attention__head_count_kv=[0, 2, 0, 2], shortconv__l_cache=3, attention__sliding_window=9)
    assert [layer.window for layer in windowed] == [None, 9, None, 9]


def test_falcon_h1_is_both_in_every_layer() -> None:
    found = layers("falcon-h1", attention__head_count_kv=2, ssm__conv_kernel=4, ssm__inner_size=8, ssm__state_size=2)
    assert all(layer.kv_heads == 2 and layer.recurrent_state == 3 * 8 + 16 for layer in found)


def test_nemotron_h_has_blocks_that_are_neither() -> None:
    found = layers(
        "nemotron_h",
        attention__head_count_kv=[0, 0, 2, 0], feed_forward_length=[0, 128, 0, 128], ssm__conv_kernel=4,
        ssm__inner_size=8, ssm__state_size=2,
    )  # fmt: skip
    assert [(layer.kv_heads, layer.recurrent_state) for layer in found] == [(0, 40), (0, 0), (2, 0), (0, 0)]


def test_every_fourth_layer_of_qwen3next_attends() -> None:
    state: dict[str, object] = {"ssm__conv_kernel": 4, "ssm__inner_size": 8, "ssm__state_size": 2}
    found = layers("qwen3next", block_count=8, attention__head_count_kv=2, **state)
    assert [layer.kv_heads for layer in found] == [0, 0, 0, 2, 0, 0, 0, 2]
    second = layers("qwen3next", attention__head_count_kv=2, full_attention_interval=2, **state)
    assert [layer.kv_heads for layer in second] == [0, 2, 0, 2]
    listed = layers("qwen35", attention__head_count_kv=2, attention__recurrent_layers=[0, 1, 1, 0], **state)
    assert [layer.kv_heads for layer in listed] == [2, 0, 0, 2]


def test_kimi_s_state_is_a_matrix_per_head() -> None:
    """Rolling: 3 × (4 − 1) × 4 heads × 8; state: 8 × 8 × 4 heads."""
    found = layers("kimi-linear", attention__head_count_kv=[0, 0, 0, 1], ssm__conv_kernel=4, kda__head_dim=8)
    assert [layer.recurrent_state for layer in found] == [3 * 3 * 32 + 256] * 3 + [0]


def test_prediction_layers_are_not_run() -> None:
    assert len(layers("glm4moe", block_count=5, nextn_predict_layers=1)) == 4


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"block_count": None}, "no usable value for llama.block_count"),
        ({"block_count": 0}, "claims 0 blocks"),
        ({"block_count": 1 << 31}, "claims 2147483648 blocks"),
        ({"nextn_predict_layers": 4}, "4 of them for prediction"),
        ({"embedding_length": "64"}, "'64' for llama.embedding_length"),
        ({"attention__head_count": -1}, "-1 for llama.attention.head_count"),
        ({"attention__head_count_kv": [2, 2]}, "2 values for 4 layers"),
        ({"attention__head_count_kv": 0.5}, "0.5 for llama.attention.head_count_kv"),
    ],
)
def test_metadata_that_makes_no_sense(values: dict[str, object], says: str) -> None:
    with pytest.raises(ModelFileError, match=says):
        layers("llama", **values)


def test_missing_keys_are_named() -> None:
    with pytest.raises(ModelFileError, match=r"does not say its llama\.block_count"):
        geometry.layers(geometry.Keys(HERE, "llama", {}))
    with pytest.raises(ModelFileError, match="does not list its sliding-window layers"):
        layers("gemma4", attention__sliding_window=8)


def test_what_is_left_out_is_said() -> None:
    assert not_modelled("llama") == ()
    assert not_modelled("gemma3") == ()
    assert "indexer" in not_modelled("deepseek32")[0]
    assert "not one that was checked" in not_modelled("llama99")[0]


def test_the_lists_of_architectures_do_not_overlap() -> None:
    assert not PLAIN & set(WINDOWS)
    assert set(WINDOWS) <= CHECKED
