"""Every change worth predicting: each value of each toggle, and pairs of the best."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope.model.ggml_types import BY_NAME
from stackscope.toggles import KvType, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import EngineConfig

DRAFT_LENGTHS: Final = range(1, 9)
SLOTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
BUDGETS: Final = (32, 64, 128, 256, 512, 1024, 2048)
KV_TYPES: Final[tuple[KvType, ...]] = ("f16", "q8_0", "q5_0", "q4_0")
CAPACITY_PARTS: Final = (16, 8, 4, 2)
"""Parts of the KV cache that cached prefixes may be limited to."""
MOST_PAIRS: Final = 20


class Candidate(msgspec.Struct, frozen=True):
    """A change that might be made."""

    family: str
    """Candidates of one family exclude each other. Of a pair: both families, joined by ` + `."""
    changes: dict[str, Setting]
    """The value that each setting would have."""

    def __add__(self, other: Candidate) -> Candidate:
        return Candidate(f"{self.family} + {other.family}", {**self.changes, **other.changes})


def singles(point: WorkingPoint) -> list[Candidate]:
    """Every toggle with every value that differs from the one in force. What the engine refuses is among them."""
    config = point.config
    made = [*_speculation(config), *_weights(point), *_kv(config), *_layout(config), *_cache(point), *_batch(config)]
    cores = None if point.rules is None else point.rules.cores
    if cores is not None:
        now = cores if config.threads is None else config.threads
        counts = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < cores] + [cores]
        made += [Candidate("threads", {"threads": n}) for n in counts if n != now]
    return made


def pairs(best: Sequence[Candidate]) -> list[Candidate]:
    """Pairs of candidates of different families, the first of them first."""
    together = [
        one + other
        for one, other in combinations(best, 2)
        if one.family != other.family and not one.changes.keys() & other.changes.keys()
    ]
    return together[:MOST_PAIRS]


def _speculation(config: EngineConfig) -> Iterable[Candidate]:
    family = "speculation"
    if config.speculation != "off":
        yield Candidate(family, {"speculation": "off"})
        yield Candidate(family, {"adaptive_draft": not config.adaptive_draft})
    sources = ("ngram", "draft") if config.draft_model is not None else ("ngram",)
    for source in sources:
        for length in DRAFT_LENGTHS:
            if source != config.speculation:
                changes: dict[str, Setting] = {"speculation": source, "draft_length": length}
            elif length != config.draft_length:
                changes = {"draft_length": length}
            else:
                continue
            if config.draft_length_max is not None and length > config.draft_length_max:
                changes["draft_length_max"] = length
            yield Candidate(family, changes)


def _weights(point: WorkingPoint) -> Iterable[Candidate]:
    for path in point.variants:
        if path != point.config.model:
            yield Candidate("weights", {"model": path})


def _kv(config: EngineConfig) -> Iterable[Candidate]:
    for kind in KV_TYPES:
        if (kind, kind) == (config.kv_type_k, config.kv_type_v):
            continue
        changes: dict[str, Setting] = {"kv_type_k": kind, "kv_type_v": kind}
        if BY_NAME[kind].is_quantized and not config.flash_attention:
            changes["flash_attention"] = True  # The library has no quantised V cache without it.
        yield Candidate("KV type", changes)


def _layout(config: EngineConfig) -> Iterable[Candidate]:
    changes: dict[str, Setting] = {"flash_attention": not config.flash_attention}
    if config.flash_attention and BY_NAME[config.kv_type_v].is_quantized:
        changes |= {"kv_type_k": "f16", "kv_type_v": "f16"}
    yield Candidate("flash attention", changes)
    yield Candidate("unified KV", {"unified_kv": not config.unified_kv})


def _cache(point: WorkingPoint) -> Iterable[Candidate]:
    config, family = point.config, "prefix cache"
    yield Candidate(family, {"prefix_cache": not config.prefix_cache})
    if not config.prefix_cache:
        return
    cells = None if point.rules is None or point.model is None else point.rules.cells(config, point.model)
    limits: list[int | None] = []
    if cells is not None:
        limits += [cells // part // config.block_tokens * config.block_tokens for part in CAPACITY_PARTS]
    limits.append(None)
    for limit in limits:
        if limit != config.cache_tokens and limit != 0:
            yield Candidate(family, {"cache_tokens": limit})


def _batch(config: EngineConfig) -> Iterable[Candidate]:
    for n in SLOTS:
        if n != config.slots:
            changes: dict[str, Any] = {"slots": n}
            if config.slots_max is not None and n > config.slots_max:
                changes["slots_max"] = n
            yield Candidate("slots", changes)
    for n in BUDGETS:
        if n != config.token_budget:
            yield Candidate("token budget", {"token_budget": n})
