"""The values of each toggle in a situation, in the order in which its key goes through them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, get_args

from stackscope import units
from stackscope.model.catalog import BUNDLED_FOLDER
from stackscope.model.ggml_types import BY_NAME
from stackscope.model.variants import weights_label
from stackscope.toggles import KvType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stackscope.toggles import EngineConfig, Setting
    from stackscope.tui.situation import Situation

DRAFT_LENGTHS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
SLOTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
BUDGETS: Final = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
KV_CYCLE: Final[tuple[KvType, ...]] = ("f16", "q8_0", "q5_0", "q4_0")
"""What the key goes through; the menu has every type."""
CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATES: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
ACCEPTANCES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_THREADS: Final = 16
"""Offered where it is not known how many cores there are."""


@dataclass(frozen=True)
class Value:
    """One value of a toggle, and the settings that choosing it sets."""

    label: str
    changes: Mapping[str, Setting] = field(default_factory=dict)
    """All the settings that make it up, and those that have to follow."""
    refusal: str | None = None
    """Why it cannot be had here, where that is known without asking the engine."""
    note: str | None = None
    """What else choosing it changes, as a sentence: it is said when it is chosen."""
    detail: str | None = None
    """What else there is to know about it, as a sentence: the menu has it."""
    is_cycled: bool = True
    """The key goes through it; the others are in the menu only."""
    is_current: bool | None = None
    """`None`: found out by the settings."""


def switch(setting: str) -> tuple[Value, ...]:
    """Off and on."""
    return (Value("off", {setting: False}), Value("on", {setting: True}))


def speculation(_: Situation) -> tuple[Value, ...]:
    """Sources of drafts."""
    sources = ("off", "ngram", "draft", "mtp")
    labels = {"ngram": "n-gram", "mtp": "MTP"}
    return tuple(Value(labels.get(source, source), {"speculation": source}) for source in sources)


def draft_length(now: Situation) -> tuple[Value, ...]:
    """Tokens per draft; beyond what the context is sized for, its size follows."""
    note = None if now.asked("speculation") != "off" else "It has an effect once speculation is on."
    return tuple(
        Value(units.count(n), _with_limit(now, "draft_length", n, "draft_length_max"), note=note)
        for n in _whole(DRAFT_LENGTHS, now, "draft_length")
    )


def adaptive(_: Situation) -> tuple[Value, ...]:
    """Whether draft lengths follow what is accepted."""
    return switch("adaptive_draft")


def prefix_cache(now: Situation) -> tuple[Value, ...]:
    """Off and on; where layers have windows, on keeps their cells."""
    off, on = switch("prefix_cache")
    has_windows = now.model is not None and any(layer.window is not None for layer in now.model.layers)
    if has_windows and now.asked("swa_full") is False:
        note = "Sliding-window layers keep all their cells with it: a prefix needs them."
        on = Value(on.label, {**on.changes, "swa_full": True}, note=note)
    return (off, on)


def kv_type(now: Situation) -> tuple[Value, ...]:
    """Types of the KV cache, K and V alike; a pair of the user's own stays in the list."""
    cycle: list[tuple[str, str]] = [(kind, kind) for kind in KV_CYCLE]
    own = zip(now.offered("kv_type_k"), now.offered("kv_type_v"), strict=True)
    cycle += [(str(k), str(v)) for k, v in dict.fromkeys(own) if (k, v) not in cycle]
    others = [(kind, kind) for kind in get_args(KvType) if (kind, kind) not in cycle]
    return tuple(_kv_value(now, *pair, is_cycled=pair in cycle) for pair in (*cycle, *others))


def _kv_value(now: Situation, k: str, v: str, *, is_cycled: bool) -> Value:
    changes: dict[str, Setting] = {"kv_type_k": k, "kv_type_v": v}
    note = None
    if BY_NAME[v].is_quantized and now.asked("flash_attention") is False:
        changes["flash_attention"] = True
        note = "Flash attention is switched on with it: a quantised V cache needs it."
    return Value(k if k == v else f"{k}/{v}", changes, note=note, is_cycled=is_cycled)


def flash(now: Situation) -> tuple[Value, ...]:
    """Off and on; off takes a quantised V cache back to f16."""
    off, on = switch("flash_attention")
    v = now.asked("kv_type_v")
    if isinstance(v, str) and BY_NAME[v].is_quantized:
        note = f"The KV cache goes back to f16 with it: a quantised V cache ({v}) needs flash attention."
        off = Value(off.label, {**off.changes, "kv_type_k": "f16", "kv_type_v": "f16"}, note=note)
    return (off, on)


def weights(now: Situation) -> tuple[Value, ...]:
    """Files with the weights of the same model, largest first."""
    values = {v.label: Value(v.label, {"model": v.path}, detail=f"{units.data_size(v.bytes)} on disk.") for v in
              now.variants or ()}  # fmt: skip
    known = {value.changes["model"] for value in values.values()}
    for path in dict.fromkeys(str(path) for path in now.offered("model") if path not in known):
        label = next(name for name in (weights_label(path), PurePath(path).stem, path) if name not in values)
        values[label] = Value(label, {"model": path})
    if len(values) > 1:
        return tuple(values.values())
    if now.variants is None:
        return (
            *values.values(),
            Value("others", refusal="It is not known yet what other variants there are.", is_cycled=False),
        )
    return (*values.values(), Value("others", refusal=_only_one(now), is_cycled=False))


def _only_one(now: Situation) -> str:
    """That there is one variant only, and how to come by another."""
    path = str(now.asked("model"))
    start = "There is no other variant of this model here."
    matrices = () if now.model is None else tuple(t for t in now.model.tensors if t.is_matrix)
    if any(t.type.lower() in BY_NAME and BY_NAME[t.type.lower()].is_quantized for t in matrices):
        return f"{start} Put another GGUF file of it beside this one, or quantise the one it was made from."
    name = Path(path).stem if Path(path).parent == BUNDLED_FOLDER else shlex.quote(path)
    return f"{start} Make one: stackscope models quantise {name} Q8_0"


def slots(now: Situation) -> tuple[Value, ...]:
    """Requests in the batch at most; beyond what the context is sized for, its size follows."""
    return tuple(Value(units.count(n), _with_limit(now, "slots", n, "slots_max")) for n in _whole(SLOTS, now, "slots"))


def budget(now: Situation) -> tuple[Value, ...]:
    """Rows of one forward at most."""
    return tuple(Value(units.count(n), {"token_budget": n}) for n in _whole(BUDGETS, now, "token_budget"))


def threads(now: Situation) -> tuple[Value, ...]:
    """Powers of two up to the usable cores, and all of them."""
    most = now.cores or MOST_THREADS
    offered = now.offered("threads")
    counts = {n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n < most}
    counts |= {n for n in offered if isinstance(n, int)}
    if None not in offered:
        return tuple(Value(units.count(n), {"threads": n}) for n in sorted(counts | {most}))
    automatic = "auto" if now.cores is None else f"auto {units.count(now.cores)}"
    numbered = tuple(Value(units.count(n), {"threads": n}) for n in sorted(counts))
    return (*numbered, Value(automatic, {"threads": None}))


def load(now: Situation) -> tuple[Value, ...]:
    """Requests in flight of a closed loop, or requests a second of an open one."""
    if now.in_force("rate") is not None:
        rates = {float(rate) for rate in now.offered("rate") if isinstance(rate, int | float)}
        return tuple(Value(f"{units.number(rate)}/s", {"rate": rate}) for rate in sorted({*RATES, *rates}))
    if now.in_force("concurrency") is None:
        return ()
    return tuple(Value(units.count(n), {"concurrency": n}) for n in _whole(CONCURRENCIES, now, "concurrency"))


def unified(_: Situation) -> tuple[Value, ...]:
    """One KV cache for all sequences, or a part for each."""
    return switch("unified_kv")


def capacity(now: Situation) -> tuple[Value, ...]:
    """Fractions of the KV cache in whole blocks, and all that is free."""
    config, size = now.wanted, now.size
    fractions: set[int] = set()
    if config is not None and size is not None:
        blocks = [size.n_ctx // part // config.block_tokens for part in (16, 8, 4, 2)]
        fractions = {n * config.block_tokens for n in blocks if n > 0}
    fractions |= {n for n in now.offered("cache_tokens") if isinstance(n, int)}
    note = None if now.asked("prefix_cache") else "It has an effect once the prefix cache is on."
    numbered = tuple(Value(f"{units.count(n)} tok", {"cache_tokens": n}, note=note) for n in sorted(fractions))
    return (*numbered, Value("none", {"cache_tokens": None}, note=note))


def split(now: Situation) -> tuple[Value, ...]:
    """How a model is laid over several GPUs."""
    n_gpus = len(now.gpus or ())
    if n_gpus > 1:
        names = {"none": "off", "layer": "by layer", "row": "by row", "tensor": "by tensor"}
        return tuple(Value(label, {"split_mode": mode}) for mode, label in names.items())
    which = "There is one GPU here" if n_gpus == 1 else "No GPU is known here"
    reason = f"{which}: there is nothing to split the model over."
    return (Value("off", is_current=True), Value("by layer or row", refusal=reason))


def disaggregation(_: Situation) -> tuple[Value, ...]:
    """Prefill and decode in contexts of their own."""
    reason = "This engine prefills and decodes in one context: it cannot hand KV over from one to another."
    return (Value("off", is_current=True), Value("on", refusal=reason))


def synthetic(now: Situation) -> tuple[Value, ...]:
    """Acceptance that is decided by lot."""
    is_off = now.asked("speculation") == "off"
    refusal = "Synthetic acceptance needs drafts: switch speculation on first." if is_off else None
    note = "Times stay real; the text is then invalid, and marked so."
    rates = {float(rate) for rate in now.offered("synthetic_acceptance") if isinstance(rate, int | float)}
    numbered = (
        Value(units.percent(rate), {"synthetic_acceptance": rate}, refusal=refusal, note=note)
        for rate in sorted({*ACCEPTANCES, *rates})
    )
    return (Value("off", {"synthetic_acceptance": None}), *numbered)


def _whole(usual: Iterable[int], now: Situation, setting: str) -> list[int]:
    """Usual values and those that must stay within reach, in order."""
    own = {n for n in now.offered(setting) if isinstance(n, int)}
    return sorted({*usual, *own})


def _with_limit(now: Situation, setting: str, n: int, limit: str) -> dict[str, Setting]:
    """A setting, and with it the size of the context where the configuration states one that is too small."""
    config: EngineConfig | None = now.wanted
    most = None if config is None else getattr(config, limit)
    return {setting: n} if most is None or n <= most else {setting: n, limit: n}
