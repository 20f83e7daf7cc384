"""A model's tensors, summed by when a forward reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from stackscope.records import ModelSummary, TensorClass

LATE_GATHER: Final = frozenset(
    {
        "bailingmoe3", "cohere2moe", "deepseek4", "gemma3n", "gemma4", "glm5-next", "gpt-oss", "hrm_text", "hy_v3",
        "hy_v4", "kimi-k3", "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35",
    }
)  # fmt: skip
"""Architectures whose graph keeps every row through the last block's feed-forward. In all others llama.cpp gathers the
rows that need logits (`inp_out_ids`, src/models/*.cpp) between the last block's attention and its feed-forward: the
attention, its output projection included, runs on all rows, what follows on output rows only, and not at all in a pass
without outputs."""


class TensorSum(msgspec.Struct, frozen=True):
    """Bytes of some tensors and the elements of those that multiply activations."""

    bytes: int = 0
    elements: int = 0

    @classmethod
    def of(cls, tensor: TensorClass) -> TensorSum:
        return cls(tensor.bytes, tensor.elements if tensor.is_matrix else 0)

    def __add__(self, other: TensorSum) -> TensorSum:
        return TensorSum(self.bytes + other.bytes, self.elements + other.elements)


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A model's tensors, summed by when a forward reads them. Bytes and matrix elements; experts per single expert."""

    attention: TensorSum
    ffn: TensorSum
    """Of the blocks that run on every row."""
    output_ffn: TensorSum
    """Of the last block, when it runs on output rows only."""
    recurrent: TensorSum
    other: TensorSum
    output_other: TensorSum
    """The norm in front of the head."""
    head: TensorSum
    expert: TensorSum
    """All experts, of the blocks that run on every row."""
    output_expert: TensorSum
    embedding_row: int
    """Bytes looked up per token."""
    ffn_width: int
    """Feed-forward widths of all blocks, summed, as far as a token uses them (assuming gate, up and down). Modelled."""

    @classmethod
    def of(cls, model: ModelSummary) -> Weights:
        """Sum a model's tensors. Raises `ValueError` for a summary that contradicts itself."""
        if model.experts == 0 and any(tensor.role == "expert" for tensor in model.tensors):
            raise ValueError(f"{model.name}: expert tensors in a model without experts")
        gathers = model.architecture not in LATE_GATHER
        last = len(model.layers) - 1
        sums: dict[str, TensorSum] = {}
        for tensor in model.tensors:
            place = _place(tensor, last if gathers else None)
            if place is not None:
                sums[place] = sums.get(place, TensorSum()) + TensorSum.of(tensor)
        if model.tied_head:
            sums["head"] = sums.get("head", TensorSum()) + _tied_head(model)
        parts = {name: sums.get(name, TensorSum()) for name in _PLACES}
        dense = parts["ffn"].elements + parts["output_ffn"].elements
        routed = parts["expert"].elements + parts["output_expert"].elements
        active = routed * model.experts_used // model.experts if model.experts > 0 else 0
        width = (dense + active) // (3 * model.embedding) if model.embedding > 0 else 0
        return cls(**parts, embedding_row=_embedding_row(model), ffn_width=width)


_PLACES: Final = (
    "attention", "ffn", "output_ffn", "recurrent", "other", "output_other", "head", "expert", "output_expert",
)  # fmt: skip


def _place(tensor: TensorClass, gathered: int | None) -> str | None:
    """Which sum of `Weights` a tensor class belongs to. `None`: looked up row by row, not read whole."""
    role = tensor.role
    if role == "embedding":
        return None
    if role in ("ffn", "expert"):
        return f"output_{role}" if tensor.layer is not None and tensor.layer == gathered else role
    if role == "norm" and tensor.layer is None:
        return "output_other"
    return role if role in ("attention", "recurrent", "head") else "other"


def _embeddings(model: ModelSummary) -> list[TensorClass]:
    return [tensor for tensor in model.tensors if tensor.role == "embedding"]


def _embedding_row(model: ModelSummary) -> int:
    """Bytes of the embedding rows of one token (equation 2). A table that is not indexed by token gives one row too."""
    total = 0
    for table in _embeddings(model):
        by_token = model.vocabulary > 0 and table.elements % model.vocabulary == 0
        elements = table.elements // model.vocabulary if by_token else model.embedding
        total += elements * table.bytes // table.elements
    return total


def _tied_head(model: ModelSummary) -> TensorSum:
    """The token embedding, read whole as the output matrix."""
    elements = model.vocabulary * model.embedding
    tables = [table for table in _embeddings(model) if table.elements >= elements]
    if not tables:
        raise ValueError(f"{model.name}: the head is tied to an embedding matrix that the summary does not hold")
    table = min(tables, key=lambda table: table.elements)
    return TensorSum(elements * table.bytes // table.elements, elements)
