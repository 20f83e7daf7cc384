"""What a change is called."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from stackscope import units

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import Setting

_SOURCES = {"ngram": "n-gram drafts", "draft": "draft-model drafts"}


def label(point: WorkingPoint, changes: Mapping[str, Setting]) -> str:
    """A change in a few words, as the subject of a sentence: `n-gram drafts of 3`, `KV q8_0`, `16 slots`."""
    left = dict(changes)
    named = [*_speculation(point, left), *_memory(point, left), *_cache(left)]
    for name, value in left.items():
        if name.endswith("_max"):
            continue
        words = name.replace("_", " ")
        match value:
            case bool():
                named.append(f"{words} {'on' if value else 'off'}")
            case None:
                named.append(f"{words} not limited")
            case float():
                named.append(f"{words} {units.number(value)}")
            case int() if name in ("slots", "threads"):
                named.append(units.counted(value, words.removesuffix("s")))
            case _:
                named.append(f"{words} {value}")
    return " and ".join(named)


def _speculation(point: WorkingPoint, left: dict[str, Setting]) -> list[str]:
    source = left.pop("speculation", None)
    length = left.pop("draft_length", None)
    if source == "off":
        return ["no speculation"]
    if source is None:
        return [] if length is None else [f"drafts of {length}"]
    return [f"{_SOURCES.get(str(source), str(source))} of {point.config.draft_length if length is None else length}"]


def _memory(point: WorkingPoint, left: dict[str, Setting]) -> list[str]:
    named = []
    if "model" in left:
        path = str(left.pop("model"))
        named.append(f"{weight_bits(point, path)} weights")
    k, v = left.get("kv_type_k"), left.get("kv_type_v")
    if k is not None and k == v:
        named.append(f"KV {k}")
        del left["kv_type_k"], left["kv_type_v"]
        if left.get("flash_attention") is True:
            del left["flash_attention"]  # A quantised cache needs it.
    return named


def _cache(left: dict[str, Setting]) -> list[str]:
    named = []
    if "unified_kv" in left:
        named.append(f"unified KV {'on' if left.pop('unified_kv') else 'off'}")
    if "cache_tokens" in left:
        limit = left.pop("cache_tokens")
        named.append("no cache limit" if limit is None else f"a cache limit of {units.count(int(str(limit)))} tokens")
    return named


def weight_bits(point: WorkingPoint, path: str) -> str:
    """Bits per weight where they are known, as in `4.5-bit`; else the file's name."""
    model = point.variants.get(path)
    matrices = () if model is None else [t for t in model.tensors if t.is_matrix]
    elements = sum(t.elements for t in matrices)
    if elements == 0:
        return PurePath(path).stem
    return f"{units.number(8 * sum(t.bytes for t in matrices) / elements, places=1)}-bit"
