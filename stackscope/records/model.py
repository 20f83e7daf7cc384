"""A model as the ledger needs it: tensors by role, and the geometry of attention."""

from __future__ import annotations

from typing import Literal

import msgspec


class TensorClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tensors of one role and type, summed: what a forward reads of the weights."""

    role: Literal["embedding", "head", "attention", "ffn", "expert", "norm", "recurrent", "other"]
    type: str
    layer: int | None = None
    """`None` for tensors outside the blocks."""
    elements: int
    bytes: int
    is_matrix: bool = True
    """Multiplied by activations (counts FLOPs); biases and norms are not."""


class LayerSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attention geometry of one block."""

    heads: int
    kv_heads: int
    """0: no attention KV in this layer (a recurrent one)."""
    key_length: int
    value_length: int
    window: int | None = None
    """Sliding window in tokens. `None`: full attention."""
    shares_kv: bool = False
    """Reads an earlier layer's KV and stores none."""
    recurrent_state: int = 0
    """f32 elements of recurrent state per sequence (n_embd_r + n_embd_s)."""
    mla_rank: int | None = None
    """Compressed KV width (kv_lora_rank + rope dims) when the layer is MLA; K only is stored then."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the ledger needs to know of a model: small enough for a session header."""

    name: str
    path: str
    architecture: str
    file_bytes: int
    tensor_bytes: int
    parameters: int
    vocabulary: int
    context: int
    embedding: int
    layers: tuple[LayerSummary, ...]
    tensors: tuple[TensorClass, ...]
    tied_head: bool = False
    """The head is the embedding matrix read whole."""
    experts: int = 0
    experts_used: int = 0
    sha256: str | None = None
