"""Which intact GGUF files cannot generate text here, and what to name instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stackscope.characters import harmless
from stackscope.errors import ModelFileError
from stackscope.model.files import shown

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.model.header import Header, Value

_SHARD: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)

_EMBEDDING: Final = (
    "an embedding model (architecture {0}): it turns text into vectors and generates none",
    "Name a model made for generating text.",
)
_DIFFUSION: Final = (
    "a diffusion language model (architecture {0}): it has no step-by-step decoding to look at",
    "Name an autoregressive model.",
)
_DRAFT_HEAD: Final = (
    "a draft head (architecture {0}) that only runs inside its target's context",
    "Name a whole model; a small one of the same family can be the draft.",
)
_SPEECH: Final = ("a speech model (architecture {0})", "Name a model made for generating text.")
_PICTURES: Final = ("an image or video model (architecture {0})", "Name a model made for generating text.")

_REFUSED: Final = {
    "clip": (
        "the projector of a multimodal model (mmproj), not the language model",
        "Name the language model beside it: the file without mmproj in its name.",
    ),
    "t5": (
        "an encoder-decoder model (architecture {0}), which is not supported",
        "Name a decoder-only model.",
    ),
    **dict.fromkeys(
        (
            "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
            "eurobert", "gemma-embedding", "llama-embed", "t5encoder",
        ),
        _EMBEDDING,
    ),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    **dict.fromkeys(("eagle3", "dflash", "gemma4-assistant"), _DRAFT_HEAD),
    **dict.fromkeys(("wavtokenizer-dec", "qwen3tts", "pockettts", "whisper"), _SPEECH),
    **dict.fromkeys(
        (
            "flux", "sd1", "sd3", "sdxl", "aura", "ltxv", "hyvid", "wan", "hidream", "cosmos", "lumina2", "qwen_image",
            "pig",
        ),
        _PICTURES,
    ),
}  # fmt: skip
"""Architectures that cannot generate text here: what the file then is, and the remedy."""

_OTHER_FILES: Final = {
    "adapter": ("a LoRA adapter, not a whole model", "Name the base model; adapters are not supported."),
    "mmproj": _REFUSED["clip"],
    "imatrix": ("an importance matrix, not a model", "Name the model that it was measured on."),
}
"""Values of general.type other than a model."""


def require_text_model(header: Header) -> str:
    """The architecture of a file that can generate text. Raises `ModelFileError` for every other kind of GGUF file."""
    metadata = header.metadata
    _refuse_shard(header.path, metadata)
    kind = metadata.get("general.type")
    if isinstance(kind, str) and kind in _OTHER_FILES:
        raise _refusal(header.path, *_OTHER_FILES[kind])
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ModelFileError(
            f"{shown(header.path)} does not say what architecture it is (general.architecture).",
            remedy="Convert the model anew, or get it from another source.",
        )
    if architecture in _REFUSED:
        kind_of_file, remedy = _REFUSED[architecture]
        raise _refusal(header.path, kind_of_file.format(architecture), remedy)
    _refuse_embeddings(header.path, metadata, architecture)
    if not header.tensors:
        raise ModelFileError(f"{shown(header.path)} holds a vocabulary and no weights.", remedy="Name the whole model.")
    return architecture


def _refuse_shard(path: Path, metadata: dict[str, Value]) -> None:
    named = _SHARD.search(path.name)
    count = metadata.get("split.count")
    if not isinstance(count, int) or isinstance(count, bool):
        count = int(named[2]) if named else 1
    if count <= 1:
        return
    first = _SHARD.sub(f"-00001-of-{count:05d}.gguf", path.name)
    merged = _SHARD.sub(".gguf", path.name)
    remedy = f"Merge the parts: llama-gguf-split --merge {shown(first)} {shown(merged)}."
    raise ModelFileError(f"{shown(path)} is one of {count} parts of a split model.", remedy=remedy)


def _refuse_embeddings(path: Path, metadata: dict[str, Value], architecture: str) -> None:
    """Models with a generative architecture that were trained for embedding or ranking say so by these two keys."""
    pooling = metadata.get(f"{architecture}.pooling_type")
    causal = metadata.get(f"{architecture}.attention.causal")
    if (isinstance(pooling, int) and pooling > 0) or causal is False:
        raise _refusal(path, _EMBEDDING[0].format(harmless(architecture)), _EMBEDDING[1])


def _refusal(path: Path, kind: str, remedy: str) -> ModelFileError:
    return ModelFileError(f"{shown(path)} is {kind}.", remedy=remedy)
