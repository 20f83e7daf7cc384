"""What llama.cpp hard-codes per architecture: sliding windows, shared KV, recurrent blocks, and what is not modelled.

Read from `load_arch_hparams` in `src/models/*.cpp` and `create_memory` in `src/llama-model.cpp` of the tested version.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class WindowRule(NamedTuple):
    """How an architecture spreads its sliding window over the blocks when the file does not list it per block."""

    period: int | None
    """Every period-th block attends to everything, the others to the window; 0: all have the window. `None`: the file
    must list the blocks."""
    dense_first: bool = False
    """The first block of a period is the full one, instead of the last."""
    default: int | None = None
    """Window in tokens when the file gives none. `None`: then there is no window."""
    fixed: int | None = None
    """Window in tokens whatever positive number the file gives. `None`: the file's number counts."""
    only_layers: int | None = None
    """The rule holds for models of that many blocks only."""


WINDOWS: Final = {
    "afmoe": WindowRule(4),
    "cohere2": WindowRule(4),
    "cohere2moe": WindowRule(4, dense_first=True),
    "deepseek4": WindowRule(0),
    "dots3note": WindowRule(None),
    "exaone-moe": WindowRule(4, default=128),
    "exaone4": WindowRule(4, default=4096, only_layers=64),
    "gemma2": WindowRule(2, default=4096),
    "gemma3": WindowRule(6),
    "gemma3n": WindowRule(5),
    "gemma4": WindowRule(None),
    "gpt-oss": WindowRule(2),
    "granite_swa": WindowRule(None),
    "laguna": WindowRule(4, dense_first=True),
    "lfm2": WindowRule(0),
    "llama4": WindowRule(4, default=8192, fixed=8192),
    "maple": WindowRule(None),
    "mellum": WindowRule(4),
    "mimo2": WindowRule(None),
    "muse-glimmer": WindowRule(4),
    "olmo2": WindowRule(4),
    "plamo3": WindowRule(8),
    "smallthinker": WindowRule(4, dense_first=True, fixed=4096),
    "spark2_5": WindowRule(None),
    "step35": WindowRule(None),
}
"""Architectures with a sliding window; all others attend to everything, even when the file has the key (phi3)."""

OWN_KV_LAYERS: Final = {"gemma3n": 20}
"""Number of leading blocks that store keys and values; the others read those of an earlier block."""

RECURRENT: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""Every block is recurrent, none attends."""

RECURRENT_WITHOUT_KV: Final = frozenset(
    {
        "bailingmoe3", "glm5-next", "granitehybrid", "jamba", "kimi-k3", "kimi-linear", "lfm2", "lfm2moe",
        "nemotron_h", "nemotron_h_moe", "plamo2",
    }
)  # fmt: skip
"""A block without KV heads is recurrent."""

MLP_BLOCKS: Final = frozenset({"nemotron_h", "nemotron_h_moe"})
"""A block with a feed-forward width is nothing but that: neither recurrent nor attending."""

RECURRENT_AND_ATTENDING: Final = frozenset({"falcon-h1"})
"""Every block is both."""

FULL_ATTENTION_INTERVAL: Final = {"minimax-01": 8, "qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4}
"""Default distance between the blocks that attend; those in between are recurrent."""

_INDEXER: Final = "the key cache of its sparse-attention indexer"
_LOOPED: Final = "that its blocks run several times per forward"

NOT_MODELLED: Final = {
    "deepseek32": _INDEXER,
    "deepseek4": "its compressed key-value caches",
    "dots3note": _INDEXER,
    "glm-dsa": _INDEXER,
    "glm5-next": _INDEXER,
    "graniteswitch": "the key-value layer of its adapter router",
    "hrm_text": _LOOPED,
    "hy_v4": _INDEXER,
    "minimax-m3": _INDEXER,
    "nanbeige": _LOOPED,
    "qwen4exp": _INDEXER,
}
"""What the geometry leaves out, by architecture."""

PLAIN: Final = frozenset(
    {
        "llama", "deci", "falcon", "grok", "gpt2", "gptj", "gptneox", "mpt", "baichuan", "starcoder", "refact",
        "bloom", "stablelm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe",
        "phi2", "phi3", "phimoe", "plamo", "codeshell", "orion", "internlm2", "minicpm", "minicpm3", "gemma",
        "starcoder2", "xverse", "command-r", "dbrx", "olmo", "olmoe", "openelm", "arctic", "deepseek", "deepseek2",
        "deepseek2-ocr", "chatglm", "glm4", "glm4moe", "bitnet", "jais", "jais2", "nemotron", "exaone", "granite",
        "granitemoe", "chameleon", "plm", "bailingmoe", "bailingmoe2", "dots1", "arcee", "ernie4_5", "ernie4_5-moe",
        "hunyuan-moe", "hunyuan-dense", "hunyuan_vl", "hy_v3", "smollm3", "seed_oss", "grovemoe", "apertus",
        "minimax-m2", "cogvlm", "pangu-embedded", "mistral3", "mistral4", "paddleocr", "maincoder", "talkie",
    }
)  # fmt: skip
"""Architectures whose geometry follows from the common keys alone."""

CHECKED: Final = (
    PLAIN
    | frozenset(WINDOWS)
    | RECURRENT
    | RECURRENT_WITHOUT_KV
    | RECURRENT_AND_ATTENDING
    | frozenset(FULL_ATTENTION_INTERVAL)
    | frozenset(NOT_MODELLED)
)
"""Every architecture of the tested version that generates text."""


def not_modelled(architecture: str) -> tuple[str, ...]:
    """What a reader of the geometry must be told is missing from it; empty when nothing is."""
    if architecture in NOT_MODELLED:
        return (NOT_MODELLED[architecture],)
    if architecture not in CHECKED:
        return ("whatever is particular to its architecture, which is not one that was checked",)
    return ()
