"""The options of `stackscope explain`: all of them texts, which the command parses itself."""

from __future__ import annotations

from typing import Final

import msgspec


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were typed. `None`: not given."""

    params: str | None = None
    bits: str | None = None
    kv_per_token: str | None = None
    model: str | None = None
    kv_type: str | None = None
    gpu: str | None = None
    bandwidth: str | None = None
    flops: str | None = None
    batch: str | None = None
    context: str | None = None
    draft_length: str | None = None
    acceptance: str | None = None
    draft_params: str | None = None
    draft_bits: str | None = None
    draft_model: str | None = None


TOLD: Final[dict[str, tuple[str, str]]] = {
    "params": ("8B", "Parameters of the model."),
    "bits": ("N|TYPE", "Bits per parameter, or the type of the weights. [default: 16]"),
    "kv_per_token": ("128KiB", "KV cache that a token of context takes."),
    "model": ("FILE|NAME", "A .gguf file, or a name from `models`, instead of these."),
    "kv_type": ("TYPE", "Type of the KV cache, with --model. [default: f16]"),
    "gpu": ("NAME", "A GPU, for its rated figures."),
    "bandwidth": ("1TB/s", "Memory bandwidth."),
    "flops": ("100TFLOP/s", "Arithmetic, dense."),
    "batch": ("N", "Sequences that decode together. [default: 1]"),
    "context": ("N", "Cached tokens of each sequence; without, the KV cache is left out."),
    "draft_length": ("N", "Tokens that are drafted per round."),
    "acceptance": ("0.8|80%", "Of a drafted token, those before it accepted; or by place: 0.7,0.6,0.5."),
    "draft_params": ("500M", "Parameters of a draft model; without one, drafting takes no time."),
    "draft_bits": ("N|TYPE", "Bits per parameter of the draft model. [default: 16]"),
    "draft_model": ("FILE|NAME", "A draft model from a file."),
}
"""What each option takes, and its help."""


def flag(name: str) -> str:
    """An option as one types it."""
    return f"--{name.replace('_', '-')}"
