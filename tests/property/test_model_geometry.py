"""Geometry from whatever metadata a file holds: layers or a sentence, and as many windows as there must be."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from stackscope.errors import ModelFileError
from stackscope.model import geometry
from stackscope.model.architectures import CHECKED, WINDOWS

HERE: Final = Path("model.gguf")

NAMES: Final = (
    "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.key_length_swa", "attention.key_length_mla",
    "attention.value_length_mla", "attention.kv_lora_rank", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.shared_kv_layers", "attention.recurrent_layers",
    "full_attention_interval", "nextn_predict_layers", "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
    "ssm.group_count", "kda.head_dim", "wkv.head_size", "token_shift_count", "shortconv.l_cache",
)  # fmt: skip
ODD: Final = st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(-3, 3)
VALUES: Final = st.integers(0, 300) | ODD | st.lists(st.integers(0, 9) | st.booleans() | ODD, max_size=7)


def layers(architecture: str, values: dict[str, object]) -> int:
    metadata = {f"{architecture}.{name}": value for name, value in values.items()}
    found = geometry.layers(geometry.Keys(HERE, architecture, metadata))
    for layer in found:
        assert min(layer.heads, layer.kv_heads, layer.key_length, layer.value_length, layer.recurrent_state) >= 0
        assert (layer.kv_heads > 0) or (layer.heads, layer.key_length, layer.window, layer.mla_rank) == (
            0,
            0,
            None,
            None,
        )
        assert layer.window is None or layer.window > 0
    return len(found)


@given(st.sampled_from(sorted(CHECKED)), st.integers(1, 7), st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_metadata_gives_layers_or_a_sentence(architecture: str, blocks: int, values: dict[str, object]) -> None:
    with contextlib.suppress(ModelFileError):
        assert layers(architecture, values | {"block_count": blocks}) <= blocks


@given(
    st.sampled_from(sorted(name for name, rule in WINDOWS.items() if rule.period not in (None, 0))),
    st.integers(1, 9),
    st.integers(1, 70),
)
def test_one_layer_of_every_period_attends_to_everything(architecture: str, period: int, count: int) -> None:
    """⌊L / n⌋ full layers when they end a period, ⌈L / n⌉ when they begin one."""
    rule = WINDOWS[architecture]
    values: dict[str, object] = {
        "block_count": count, "embedding_length": 64, "attention.head_count": 4, "attention.sliding_window": 16,
        "attention.sliding_window_pattern": period,
    }  # fmt: skip
    metadata = {f"{architecture}.{name}": value for name, value in values.items()}
    found = geometry.layers(geometry.Keys(HERE, architecture, metadata))
    full = sum(layer.window is None for layer in found)
    if rule.only_layers not in (None, count):
        assert full == count
    elif rule.dense_first:
        assert full == -(-count // period)
    else:
        assert full == count // period
