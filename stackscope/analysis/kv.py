"""Bytes of the KV cache: per element type, per token, and of one sequence's saved state, to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.model.architectures import not_modelled
from stackscope.model.ggml_types import row_bytes

if TYPE_CHECKING:
    from stackscope.records import LayerSummary, ModelSummary
    from stackscope.toggles import EngineConfig, KvType

CHUNKED_WINDOWS: Final = frozenset({"llama4"})
"""Architectures whose windows are fixed chunks of the positions and do not slide (llama.cpp LLAMA_SWA_TYPE_CHUNKED)."""

_EXTRA_POSITIONS: Final = frozenset(
    {"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3tts"}
)
"""Architectures with several positions per token: each cell carries 12 more bytes (llama_kv_cell_ext)."""

_UNDECIDED: Final = frozenset({"glm4", "glm4moe", "hunyuan_vl", "bailingmoe3"})
"""Architectures that have several positions per token only when their file says so, which a summary does not carry."""

_STATE_HEADER: Final = 4 + 4
"""Magic and sequence id (llama-context.cpp, state_seq_get_size)."""
_CELL: Final = 4 + 4 + 4
"""Position, number of sequence ids, the id (llama-kv-cache.cpp, state_write_meta)."""
_CELL_EXTRA: Final = 12
_LAYER_ROWS: Final = 4 + 8
"""Type and row size, ahead of a layer's keys or values (state_write_data)."""
_LAYER_TRANSPOSED: Final = 4 + 4 + 4
"""Type, element size and width, ahead of a layer's transposed values."""


def key_bytes(layer: LayerSummary, kv_type: KvType) -> int:
    """Bytes of one token's keys in one layer, whichever layer stores them.

    Raises `ValueError` when they are not a whole number of blocks of the type; the library has no such cache.
    """
    if layer.mla_rank is not None:
        return row_bytes(kv_type, layer.mla_rank)
    return row_bytes(kv_type, layer.kv_heads * layer.key_length)


def value_bytes(layer: LayerSummary, kv_type: KvType) -> int:
    """Bytes of one token's values in one layer: none with MLA, where keys hold both. Raises as `key_bytes`."""
    if layer.mla_rank is not None:
        return 0
    return row_bytes(kv_type, layer.kv_heads * layer.value_length)


def kv_bytes_per_token(model: ModelSummary, kv_type_k: KvType, kv_type_v: KvType) -> int:
    """Bytes that one token adds to the cache over all layers (equation 5)."""
    return sum(
        key_bytes(layer, kv_type_k) + value_bytes(layer, kv_type_v)
        for layer in model.layers
        if layer.kv_heads > 0 and not layer.shares_kv
    )


def sequence_state_bytes(
    model: ModelSummary, config: EngineConfig, tokens: int, *, n_seq_max: int | None = None
) -> int | None:
    """What `llama_state_seq_get_size` answers for a sequence of `tokens` tokens at positions 0, 1, 2 …

    Headers, then for every unmasked cell its keys, its values and 12 bytes; sliding-window layers hold the cells in
    the window of the last position only. Layout: llama.cpp's state_write of llama-kv-cache.cpp,
    llama-kv-cache-iswa.cpp, llama-memory-hybrid.cpp and llama-memory-recurrent.cpp, as of 0.3.36's copy.

    `n_seq_max` is the context's number of sequences; split KV writes a header for each (`ValueError` without it).
    `None`: the architecture keeps memory that this layout does not cover, or was never checked.
    """
    if model.architecture in _UNDECIDED or not_modelled(model.architecture):
        return None
    if config.unified_kv:
        streams = 1
    elif n_seq_max is None:
        raise ValueError("split KV writes one header per sequence of the context: n_seq_max is needed")
    else:
        streams = n_seq_max
    size = _STATE_HEADER
    stored = [layer for layer in model.layers if layer.kv_heads > 0 and not layer.shares_kv]
    cell = _CELL + (_CELL_EXTRA if model.architecture in _EXTRA_POSITIONS else 0)
    if any(layer.kv_heads > 0 for layer in model.layers):
        full = [layer for layer in stored if layer.window is None]
        size += _cache_bytes(full, config, tokens, streams, cell)
    windows = {layer.window for layer in model.layers if layer.kv_heads > 0 and layer.window is not None}
    for window in windows:
        sliding = [layer for layer in stored if layer.window == window]
        visible = cells_in_window(tokens, window, is_chunked=model.architecture in CHUNKED_WINDOWS)
        size += _cache_bytes(sliding, config, visible, streams, cell)
    recurrent = [layer.recurrent_state for layer in model.layers if layer.recurrent_state > 0]
    if recurrent:
        size += _recurrent_bytes(recurrent, cells=1 if tokens > 0 else 0)
    return size


def cells_in_window(tokens: int, window: int, *, is_chunked: bool) -> int:
    """Cells that the last of `tokens` positions sees in a windowed layer."""
    if is_chunked and tokens > 0:
        return (tokens - 1) % window + 1
    return min(tokens, window)


def _cache_bytes(layers: list[LayerSummary], config: EngineConfig, cells: int, streams: int, cell: int) -> int:
    """One cache: the number of streams, then per stream its cell count and, for the sequence's own, the cells."""
    size = 4 + 4 * streams
    if cells == 0:
        return size
    size += cells * cell + 4 + 4
    for layer in layers:
        size += _LAYER_ROWS + cells * key_bytes(layer, config.kv_type_k)
        if layer.mla_rank is None:
            header = _LAYER_ROWS if config.flash_attention else _LAYER_TRANSPOSED
            size += header + cells * value_bytes(layer, config.kv_type_v)
    return size


def _recurrent_bytes(state_elements: list[int], cells: int) -> int:
    """Cell count, (position, 0) per cell, two flags, then per layer two typed f32 rows per cell."""
    return 4 + 8 * cells + 4 + 4 + sum(2 * _LAYER_ROWS + cells * 4 * elements for elements in state_elements)
