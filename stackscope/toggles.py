"""Every setting of the engine as one frozen value, and which of them switch live, by rebuild, or not at all."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec

Speculation: TypeAlias = Literal["off", "ngram", "draft", "mtp"]
KvType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
SplitMode: TypeAlias = Literal["none", "layer", "row", "tensor"]
Setting: TypeAlias = str | int | float | bool | tuple[float, ...] | None
"""The value of any one setting."""


LEAST_DRAFT_SIZE: Final = 8
"""Draft length that a context is sized for at least, where none is asked for."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is drawn from the target's logits. Truncations apply before the temperature."""

    temperature: float = 0.0
    """0 is greedy: the argmax, whatever the truncations say."""
    top_k: int = 40
    """Keep the k largest logits; 0 keeps all."""
    top_p: float = 0.95
    """Keep the smallest set whose probability reaches p; 1 keeps all."""
    min_p: float = 0.05
    """Keep tokens at least this fraction as probable as the best; 0 keeps all."""
    seed: int = 0
    """Combined with the request's id, so that each request has its own reproducible stream."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature <= 0.0


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of the engine: what the toggles show. A change is a new value and a new epoch."""

    model: str = ""
    """Path of the target's GGUF file (the weights variant)."""
    draft_model: str | None = None
    """Path of the draft model's GGUF file. `None`: there is none, and draft-model speculation is refused."""

    speculation: Speculation = "off"
    draft_length: int = 3
    """Tokens drafted per sequence and step at most."""
    adaptive_draft: bool = False
    """Shorten or lengthen each sequence's draft (up to `draft_length`) by what was recently accepted."""
    ngram_min: int = 2
    ngram_max: int = 4
    """Longest and shortest suffix, in tokens, that the n-gram drafter looks up."""
    synthetic_acceptance: float | None = None
    """Accept each drafted token with this probability, whatever it is. The output is then invalid and marked so."""

    prefix_cache: bool = True
    block_tokens: int = 16
    """Granularity of the prefix cache, in tokens."""
    cache_tokens: int | None = None
    """Most tokens that idle cached prefixes may hold. `None`: whatever the KV cache has free."""
    cache_paths: int = 32
    """Cached paths, each of which owns one sequence id of the context."""

    slots: int = 8
    """Requests in flight at most."""
    token_budget: int = 256
    """Rows of one target forward at most: decode and verify rows first, prefill chunks in what is left."""
    context_tokens: int | None = None
    """KV cells of the whole context. `None`: slots × the model's context or 4,096 tokens, whichever is less, capped;
    with split KV, 1,024 for each sequence id, or as many as the longest request takes."""
    slots_max: int | None = None
    """Slots that the context is sized for; live changes of `slots` stay below. `None`: `max(slots, 16)`."""
    draft_length_max: int | None = None
    """Draft length that the context is sized for. `None`: `max(draft_length, LEAST_DRAFT_SIZE)`."""

    kv_type_k: KvType = "f16"
    kv_type_v: KvType = "f16"
    flash_attention: bool = True
    unified_kv: bool = True
    swa_full: bool = True
    """Keep sliding-window layers' cells beyond the window, so that their prefixes can be reused."""

    threads: int | None = None
    """Engine threads. `None`: the physical cores that this process may use."""
    shadows: bool = True
    """Track beside the traffic what drafting and the prefix cache would do where they are off: 1 % of the time."""
    shadow_share: float = 0.008
    """Of the wall time, what shadows may take together: with the probes and a look at every step it is 1 %."""
    causal_probes: bool = False
    """Now and then delay one part of a step by a known time, to see how much later its end comes."""

    gpu_layers: int = -1
    """Layers offloaded where offload is supported; -1 is all."""
    main_gpu: int = 0
    split_mode: SplitMode = "layer"
    tensor_split: tuple[float, ...] = ()
    """Share of each device; empty leaves it to the library."""
    seed: int = 0


def idle_settings(config: EngineConfig) -> frozenset[str]:
    """Settings that change nothing, because what they are about is off."""
    idle: set[str] = set()
    if not config.shadows:
        idle.add("shadow_share")
    if config.speculation == "off":
        idle.add("adaptive_draft")
        # Without a size of its own, the context is sized for at least the usual longest draft.
        if config.draft_length_max is not None or config.draft_length <= LEAST_DRAFT_SIZE:
            idle.add("draft_length")
    if not config.shadows and config.speculation != "ngram":
        idle |= {"ngram_min", "ngram_max"}
    if not config.shadows and not config.prefix_cache:
        idle |= {"block_tokens", "cache_tokens"}
    return frozenset(idle)


class ToggleKind(StrEnum):
    """When a change of a setting takes effect."""

    LIVE = "live"
    """At the next step boundary."""
    REBUILD = "rebuild"
    """With a new context; requests in flight are put back and prefilled again, and none is lost."""


LIVE_FIELDS: Final = frozenset(
    {
        "speculation", "draft_length", "adaptive_draft", "ngram_min", "ngram_max", "synthetic_acceptance",
        "prefix_cache", "cache_tokens", "slots", "token_budget", "threads", "seed", "shadows",
        "shadow_share", "causal_probes",
    }
)  # fmt: skip


MOST_SEQUENCES: Final = 256
"""The library's LLAMA_MAX_SEQ: one more and it returns no context."""
MOST_ROWS: Final = 8192
"""Of a batch."""
CELL_PADDING: Final = 256
"""The library rounds the cells of a stream up to this."""

RANGES: Final[dict[str, tuple[int, int]]] = {
    "draft_length": (1, 64),
    "ngram_min": (1, 16),
    "ngram_max": (1, 16),
    "synthetic_acceptance": (0, 1),
    "block_tokens": (1, 1024),
    "cache_tokens": (0, 2**31 - 1),
    "cache_paths": (1, MOST_SEQUENCES - 1),
    "slots": (1, MOST_SEQUENCES - 1),
    "slots_max": (1, MOST_SEQUENCES - 1),
    "draft_length_max": (1, 64),
    "token_budget": (1, MOST_ROWS),
    "context_tokens": (CELL_PADDING, 2**31 - CELL_PADDING),
    "threads": (1, 512),
    "gpu_layers": (-1, 10_000),
    "main_gpu": (0, 255),
}
"""Least and most of settings, whatever the model and the machine. `None` is no number, and always allowed."""

ORDERED: Final = (("ngram_min", "ngram_max"), ("slots", "slots_max"), ("draft_length", "draft_length_max"))
"""Settings of which the first may not be above the second, where both are set."""


def changed_fields(before: EngineConfig, after: EngineConfig) -> dict[str, tuple[Setting, Setting]]:
    """The settings that differ, as `{name: (before, after)}`."""
    return {
        name: (getattr(before, name), getattr(after, name))
        for name in EngineConfig.__struct_fields__
        if getattr(before, name) != getattr(after, name)
    }


def kind_of_change(before: EngineConfig, after: EngineConfig) -> ToggleKind:
    """LIVE when every differing setting is live; a context sized too small makes the engine turn it into a rebuild."""
    names = changed_fields(before, after).keys()
    return ToggleKind.LIVE if names <= LIVE_FIELDS else ToggleKind.REBUILD
