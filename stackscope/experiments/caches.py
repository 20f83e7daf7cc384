"""Forwards with the KV cache kept in other types, or gone through by the other way of attention: their kernels differ
by more than their bytes say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.engine.backend import Backend
from stackscope.errors import StackscopeError
from stackscope.experiments.depths import OVERTIME, TILE, TILE_DEPTHS, Filler, visit
from stackscope.records.ceilings import CacheKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.experiments.measurements import Sampler
    from stackscope.experiments.protocol import Budget
    from stackscope.experiments.rounds import Rounds
    from stackscope.experiments.stages import Log
    from stackscope.toggles import EngineConfig, KvType

CHUNK: Final = 128
"""Tokens that are computed."""
DEEPEST: Final = 4096
COMMON: Final = 512
"""Depths where it is measured, beside an empty context, whose span is mostly padding."""

QUANTISED: Final[tuple[KvType, ...]] = ("q8_0", "q4_0")
"""Types that are tried where the cache is in f16. Most go through it as the first one does."""
PLAIN: Final[frozenset[str]] = frozenset({"f16", "f32", "bf16"})


def others(config: EngineConfig, *, is_full: bool) -> list[CacheKind]:
    """What to try instead: one other type, two when `is_full`, and the other way of attention, as far as they go."""
    mine = CacheKind(kv_type_k=config.kv_type_k, kv_type_v=config.kv_type_v, flash_attention=config.flash_attention)
    is_plain = {config.kv_type_k, config.kv_type_v} <= PLAIN
    found: list[CacheKind] = []
    if not is_plain:
        found.append(msgspec.structs.replace(mine, kv_type_k="f16", kv_type_v="f16"))
    elif config.flash_attention:  # Values in blocks need it.
        kinds = QUANTISED if is_full else QUANTISED[:1]
        found += [msgspec.structs.replace(mine, kv_type_k=kind, kv_type_v=kind) for kind in kinds]
    if is_plain:
        found.append(msgspec.structs.replace(mine, flash_attention=not config.flash_attention))
    return found


def caches(
    backend: Backend, sampler: Sampler, log: Log, rounds: Rounds, budget: Budget, progress: Callable[[str], None]
) -> Backend:
    """Measure each of `others` in contexts of its own; the last backend. What the context cannot do has its reason."""
    config = backend.config
    kinds = others(config, is_full=budget.is_full)
    each_ns = budget.caches_s * 1e9 / len(kinds)
    for kind in kinds:
        begun_ns = sampler.now()
        rounds.maybe()
        progress(kind.described)
        other = msgspec.structs.replace(
            config, kv_type_k=kind.kv_type_k, kv_type_v=kind.kv_type_v, flash_attention=kind.flash_attention
        )
        backend.close_contexts()
        try:
            backend = Backend(other, backend.abort, progress=lambda _path, _done: None, previous=backend)
        except StackscopeError as error:
            log.unknown[kind.described] = error.message
            continue
        _visit_all(backend, kind, sampler, log, begun_ns + OVERTIME * each_ns)
    return backend


def _visit_all(backend: Backend, kind: CacheKind, sampler: Sampler, log: Log, until_ns: float) -> None:
    """The empty context, then the deepest that there is room for, and a common depth on the way back."""
    context, row_ns = backend.target, log.row_ns()
    if backend.trim_refusal is not None:
        return
    visit(context, 0, sampler, log, tiles=(), cache=kind)
    room = min(context.size.n_ctx_seq, context.n_ctx) - TILE
    is_in_time = row_ns is None or sampler.now() + CHUNK * row_ns < until_ns
    if not Filler.is_possible(context) or room < CHUNK or not is_in_time:
        return
    filler = Filler(context, CHUNK)
    filler.to(min(DEEPEST, room))
    for depth in sorted({filler.depth, min(filler.depth, COMMON)}, reverse=True):
        if sampler.now() < until_ns:
            context.remove(0, depth)
            visit(context, depth, sampler, log, tiles=TILE_DEPTHS[:1], cache=kind)
