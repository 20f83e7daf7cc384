"""What a tensor does in a forward, told from its name: llama.cpp fixes the names (`src/llama-arch.cpp`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from stackscope.model.header import TensorInfo

Role: TypeAlias = Literal["embedding", "head", "attention", "ffn", "expert", "norm", "recurrent", "other"]

_BLOCK: Final = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERT: Final = re.compile(r"ffn_\w+_(ch)?exps\.|ffn_(gate|up|down)\.\d+\.")
_EMBEDDINGS: Final = ("token_embd.", "per_layer_token_embd.", "position_embd.", "token_types.")
_ELEMENTWISE: Final = ("time_mix_first", "time_mix_lerp")
"""Two-dimensional weights that multiply element by element."""


def layer_of(name: str) -> int | None:
    """Block that a tensor belongs to. `None`: it stands outside the blocks."""
    found = _BLOCK.match(name)
    return None if found is None else int(found[1])


def role_of(name: str) -> Role:
    """What a tensor is for. Embeddings are looked up by row; everything else is read whole, experts as routed.

    The router of a mixture of experts and its shared experts are `ffn`: every token uses them.
    """
    found = _BLOCK.match(name)
    part = name if found is None else found[2]
    if "norm" in part:
        return "norm"
    return _outside(part) if found is None else _inside(part)


def _outside(part: str) -> Role:
    if part.startswith(_EMBEDDINGS):
        return "embedding"
    return "head" if part.startswith("output.") else "other"


def _inside(part: str) -> Role:
    if _EXPERT.match(part):
        return "expert"
    if part.startswith(("ffn_", "exp_probs_b", "channel_mix_")):
        return "ffn"
    if part.startswith(("attn_", "indexer.", "indexer_")):
        return "attention"
    return "recurrent" if part.startswith(("ssm_", "time_mix_", "shortconv.")) else "other"


def is_matrix(tensor: TensorInfo) -> bool:
    """Whether activations are multiplied by it, at 2 FLOP per element and row.

    Norms, biases, looked-up embeddings and element-wise weights are not; a tied head is counted by whoever knows of it.
    """
    if role_of(tensor.name) in ("embedding", "norm") or not tensor.name.endswith(".weight"):
        return False
    found = _BLOCK.match(tensor.name)
    part = tensor.name if found is None else found[2]
    return len(tensor.shape) >= 2 and tensor.shape[1] > 1 and not part.startswith(_ELEMENTWISE)
