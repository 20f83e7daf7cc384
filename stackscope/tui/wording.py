"""Words that several panes share: what was changed, what is awaited, what speculation is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.model.variants import weights_label
from stackscope.tui.lines import cells, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.records import Estimate
    from stackscope.toggles import Setting
    from stackscope.tui.look import Look

NAMES: Final = {
    "model": "weights", "draft_model": "draft model", "draft_length": "draft length",
    "adaptive_draft": "adaptive drafts",
    "synthetic_acceptance": "synthetic acceptance", "prefix_cache": "prefix cache", "cache_tokens": "cache limit",
    "token_budget": "token budget", "context_tokens": "context", "kv_type_k": "K cache", "kv_type_v": "V cache",
    "flash_attention": "flash attention", "unified_kv": "unified KV", "concurrency": "load", "rate": "load",
    "slots_max": "slots at most", "draft_length_max": "draft length at most", "split_mode": "device split",
}  # fmt: skip
"""Settings whose names are not plain words already."""
FOLLOWERS: Final = frozenset({"slots_max", "draft_length_max", "context_tokens"})
"""Settings that change because another did; told only where nothing else was changed."""
_BUSY: Final = (
    "measured on a busy machine: stackscope calibrate", "measured on a busy machine", "measured while busy",
)  # fmt: skip
SPECULATIONS: Final = {"ngram": "n-gram", "draft": "draft model", "mtp": "MTP"}


def spelled(name: str, setting: Setting) -> str:
    """The value of a setting, exactly."""
    if name == "synthetic_acceptance":
        return "off" if not isinstance(setting, int | float) else f"{units.exact(round(100 * setting, 9))} %"
    if name == "cache_tokens" and setting is None:
        return "none"
    match setting:
        case None:
            return "auto"
        case bool():
            return "on" if setting else "off"
        case int() | float():
            return f"{units.exact(setting)}/s" if name == "rate" else units.exact(setting)
        case tuple():
            return ",".join(map(units.exact, setting)) or "auto"
    if name in ("model", "draft_model"):
        return printable(weights_label(setting))
    return SPECULATIONS.get(setting, printable(setting)) if name == "speculation" else printable(setting)


def changed(changes: Mapping[str, tuple[Setting, Setting]], look: Look, *, is_short: bool = False) -> str:
    """What was changed, most important first: `speculation off → draft model, draft length 3 → 5`.

    `is_short`: without what was in force before.
    """
    told = {name: pair for name, pair in changes.items() if name not in FOLLOWERS} or dict(changes)
    if "kv_type_k" in told and told.get("kv_type_v") == told["kv_type_k"]:
        del told["kv_type_v"]
        told = {"KV cache" if name == "kv_type_k" else name: pair for name, pair in told.items()}
    return ", ".join(
        f"{called(name)} {'' if is_short else f'{spelled(name, before)} '}{look.arrow} {spelled(name, after)}"
        for name, (before, after) in told.items()
    )


def wanted(changes: Mapping[str, Setting]) -> str:
    """What could be changed: `weights Q4_K_M, draft length 3`."""
    return ", ".join(f"{called(name)} {spelled(name, value)}" for name, value in changes.items())


def called(name: str) -> str:
    """What a setting is called in a sentence."""
    return NAMES.get(name, name.replace("_", " "))


def awaited(snapshot: Snapshot, what: str) -> str:
    """Why there is nothing to show yet, in one sentence."""
    match snapshot.state:
        case "starting" if snapshot.header is None:
            return f"The engine starts; {what} once its first step is done."
        case "starting":
            # As true at the beginning of a recording, in which nothing loads.
            return f"No step has run yet; {what} once the first is done."
        case "finished":
            return "This session has no steps."
        case "dead" if snapshot.header is None:
            return "The engine could not start."
        case "dead":
            return "The engine died before its first step."
    return f"This source does not tell {what}."


def has_begun(snapshot: Snapshot) -> bool:
    """Whether there is anything to show at all."""
    return snapshot.n_steps > 0 or snapshot.n_tokens > 0 or bool(snapshot.history.points)


def was_busy(snapshot: Snapshot) -> bool:
    """Whether what is in force was measured here, but while others kept the machine busy: that is no ceiling."""
    ceilings = None if snapshot.header is None else snapshot.header.ceilings
    if ceilings is None or not ceilings.is_busy or snapshot.config is None:
        return False
    return ceilings.conditions.names_model(snapshot.config) and ceilings.conditions.has_cores(snapshot.config)


def no_ceiling(snapshot: Snapshot, room: int) -> str:
    """Why there is no ceiling, in as many words as there is room for."""
    return next((text for text in _BUSY if cells(text) <= room), _BUSY[-1]) if was_busy(snapshot) else "not measured"


def break_even_tokens(snapshot: Snapshot) -> Estimate | None:
    """A below which drafts lose here, as predicted: how long a step with drafts takes, in steps without.

    Of the drafts in force, or of those that would be best. `None`: not known.
    """
    explanation = snapshot.explanation
    if explanation is None or explanation.ranking is None:
        return None
    found = (one.value for one in explanation.ranking.break_evens if one.kind == "tokens per round")
    return next(found, None)
