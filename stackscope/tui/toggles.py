"""Every optimisation as a toggle: its key, its values in a situation, and what each would change or why it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stackscope import units
from stackscope.engine import refusals
from stackscope.engine.sizing import fits_live, resolve
from stackscope.engine.wire import applied
from stackscope.errors import StackscopeError
from stackscope.toggles import ToggleKind, kind_of_change
from stackscope.tui import toggle_values as values
from stackscope.tui.situation import TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stackscope.toggles import EngineConfig, Setting
    from stackscope.tui.situation import Situation
    from stackscope.tui.toggle_values import Value

Family: TypeAlias = Literal[
    "quantisation", "speculation", "caching", "batching", "parallelism", "disaggregation", "attention", "experiment",
    "load",
]  # fmt: skip
Direction: TypeAlias = Literal[1, -1]
"""1 is the next value, -1 the one before."""


@dataclass(frozen=True)
class Toggle:
    """One optimisation that can be switched while the engine runs."""

    id: str
    name: str
    """As in a menu."""
    short: str
    """As on a chip."""
    key: str
    back: str | None
    """Key that goes through the values backwards. `None`: there are two values only."""
    family: Family
    settings: tuple[str, ...]
    """What it shows: fields of the configuration, or of `TRAFFIC`. Empty: this engine has no such setting."""
    values: Callable[[Situation], tuple[Value, ...]]
    """Its values once its state is known."""
    is_ordered: bool = False
    """Its values are a scale with two ends, rather than a circle."""
    help: str = ""
    """One sentence: what it does, and what it costs."""


@dataclass(frozen=True)
class Choice:
    """A value of a toggle as it can be chosen now."""

    label: str
    changes: Mapping[str, Setting]
    """What choosing it would change. Empty for the current one."""
    kind: ToggleKind = ToggleKind.LIVE
    is_current: bool = False
    refusal: str | None = None
    """Why it cannot be chosen. `None`: it can."""
    note: str | None = None
    """What else it changes, as a sentence: it is said when it is chosen."""
    detail: str | None = None
    """What else there is to know about it, as a sentence."""
    is_cycled: bool = True
    has_been_refused: bool = False
    """It was the engine that refused it. Asking again is allowed: memory may have become free."""


@dataclass(frozen=True)
class Refusal:
    """There is nothing to go to, as a sentence."""

    reason: str


TOGGLES: Final[tuple[Toggle, ...]] = (
    Toggle("speculation", "Speculation", "spec", "s", "S", "speculation", ("speculation",), values.speculation,
           help="Guess tokens cheaply and verify them in one forward; it pays where the forward has compute to spare."),
    Toggle("draft_length", "Draft length", "draft", "right_square_bracket", "left_square_bracket", "speculation",
           ("draft_length",), values.draft_length, is_ordered=True,
           help="Tokens guessed at most before each verification; every rejected one is a wasted row."),
    Toggle("prefix_cache", "Prefix cache", "cache", "p", None, "caching", ("prefix_cache",), values.prefix_cache,
           help="Keep the KV of prompts for requests that begin with the same tokens; it takes cells of the KV cache."),
    Toggle("kv_type", "KV cache type", "KV", "k", "K", "quantisation", ("kv_type_k", "kv_type_v"), values.kv_type,
           help="Store keys and values in fewer bits: fewer bytes to read per token, at some cost in accuracy."),
    Toggle("weights", "Weights", "", "w", "W", "quantisation", ("model",), values.weights,
           help="Another file of the same model, with its weights in more or fewer bits."),
    Toggle("slots", "Slots", "slots", "b", "B", "batching", ("slots",), values.slots, is_ordered=True,
           help="Requests in the batch at most: each forward reads the weights once for all of them."),
    Toggle("load", "Load", "load", "c", "C", "load", TRAFFIC, values.load, is_ordered=True,
           help="Requests that are offered at a time, or per second in an open loop."),
    Toggle("flash", "Flash attention", "flash", "f", None, "attention", ("flash_attention",), values.flash,
           help="Attention in one fused pass that never stores the score matrix."),
    Toggle("threads", "Threads", "threads", "t", "T", "parallelism", ("threads",), values.threads, is_ordered=True,
           help="Threads of the forward; more than there are free cores makes it slower."),
    Toggle("budget", "Token budget", "budget", "g", "G", "batching", ("token_budget",), values.budget, is_ordered=True,
           help="Rows of one forward at most: prefill comes in chunks of what decoding leaves."),
    Toggle("adaptive", "Adaptive drafts", "adapt", "a", None, "speculation", ("adaptive_draft",), values.adaptive,
           help="Lengthen or shorten each sequence's drafts by what was recently accepted."),
    Toggle("unified", "Unified KV", "unified", "u", None, "attention", ("unified_kv",), values.unified,
           help="One KV cache for all sequences, which shares prefixes without copying; off, a part for each."),
    Toggle("capacity", "Cache limit", "limit", "h", "H", "caching", ("cache_tokens",), values.capacity,
           is_ordered=True, help="Most tokens that cached prefixes may hold while nobody uses them."),
    Toggle("split", "Device split", "split", "d", "D", "parallelism", ("split_mode",), values.split,
           help="How the model is laid over several GPUs."),
    Toggle("disaggregation", "Disaggregation", "disagg", "e", None, "disaggregation", (), values.disaggregation,
           help="Prefill and decode in contexts of their own, with a hand-over of KV between them."),
    Toggle("synthetic", "Synthetic acceptance", "accept", "x", "X", "experiment", ("synthetic_acceptance",),
           values.synthetic, help="Accept drafts by lot at a rate of your choice: an experiment, its text is invalid."),
)  # fmt: skip
"""In the order of importance: those at the end leave a narrow bar first."""

BY_ID: Final = {toggle.id: toggle for toggle in TOGGLES}

UNKNOWN_CONFIGURATION: Final = "This source does not say how it is configured."
UNKNOWN_LOAD: Final = "This source does not say what load it is offered."


def state(toggle: Toggle, situation: Situation) -> str:
    """The value in force, as on a chip."""
    if not _is_known(toggle, situation):
        return units.UNKNOWN
    found = (v.label for v in toggle.values(situation) if _is_chosen(v, toggle, situation.in_force))
    return next(found, units.UNKNOWN)


def awaited(toggle: Toggle, situation: Situation) -> str | None:
    """The value asked for and not in force yet. `None`: nothing is."""
    if not situation.pending.keys() & set(toggle.settings) or not _is_known(toggle, situation):
        return None
    return next((v.label for v in toggle.values(situation) if _is_chosen(v, toggle, situation.asked)), None)


def is_settling(toggle: Toggle, situation: Situation) -> bool:
    """Whether the after-effects of its last change are still being paid."""
    return bool(situation.settling & set(toggle.settings))


def choices(toggle: Toggle, situation: Situation) -> tuple[Choice, ...]:
    """All its values, with what each would change or why it cannot. Empty: its state is not known."""
    if not _is_known(toggle, situation):
        return ()
    return tuple(_choice(value, toggle, situation) for value in toggle.values(situation))


def next_choice(toggle: Toggle, situation: Situation, direction: Direction = 1) -> Choice | Refusal:
    """Where its key leads: the next value that can be had; else why there is none."""
    if situation.unavailable is not None:
        return Refusal(situation.unavailable)
    offered = choices(toggle, situation)
    here = next((index for index, choice in enumerate(offered) if choice.is_current), None)
    if here is None:
        return Refusal(UNKNOWN_LOAD if toggle.settings == TRAFFIC else UNKNOWN_CONFIGURATION)
    ahead = offered[here + 1 :] if direction > 0 else offered[:here][::-1]
    if not toggle.is_ordered:
        ahead += offered[:here] if direction > 0 else offered[here + 1 :][::-1]
    for choice in ahead:
        if choice.is_cycled and choice.refusal is None:
            return choice
    why = next((choice.refusal for choice in ahead if choice.refusal is not None), None)
    if why is not None:
        return Refusal(why)
    end = "most" if direction > 0 else "least"
    return Refusal(f"{toggle.name}: {offered[here].label} is the {end} that is offered.")


def is_stuck(toggle: Toggle, situation: Situation) -> str | None:
    """Why no other value can be had at all. `None`: one can."""
    onward = next_choice(toggle, situation, 1)
    if isinstance(onward, Choice) or isinstance(next_choice(toggle, situation, -1), Choice):
        return None
    return onward.reason


def _is_known(toggle: Toggle, situation: Situation) -> bool:
    if toggle.settings == TRAFFIC:
        return situation.concurrency is not None or situation.rate is not None
    return situation.config is not None


def _is_chosen(value: Value, toggle: Toggle, of: Callable[[str], Setting]) -> bool:
    """Whether the settings that a toggle shows have this value's."""
    if value.is_current is not None:
        return value.is_current
    own = {name: setting for name, setting in value.changes.items() if name in toggle.settings}
    return bool(own) and all(of(name) == setting for name, setting in own.items())


def _choice(value: Value, toggle: Toggle, situation: Situation) -> Choice:
    if _is_chosen(value, toggle, situation.asked):
        return Choice(value.label, {}, is_current=True, is_cycled=value.is_cycled)
    changes = {name: new for name, new in value.changes.items() if situation.asked(name) != new}
    refusal, kind, note = value.refusal, ToggleKind.LIVE, value.note
    after = None
    if situation.wanted is not None and toggle.settings != TRAFFIC and refusal is None:
        try:
            after = applied(situation.wanted, changes)
        except StackscopeError as error:
            refusal = str(error)
    if after is not None and situation.wanted is not None:
        refusal = cannot_run(after, situation)
        kind, why = _kind(situation.wanted, after, situation)
        note = " ".join(part for part in (note, why) if part) or None
    engines = next((r.reason for r in situation.refused if dict(r.changes) == changes), None)
    return Choice(
        value.label,
        changes,
        kind=kind,
        refusal=situation.unavailable or refusal or engines,
        note=note,
        detail=value.detail,
        is_cycled=value.is_cycled,
        has_been_refused=engines is not None and refusal is None,
    )


def cannot_run(config: EngineConfig, situation: Situation) -> str | None:
    """Why a configuration cannot run, as far as that is known without asking the engine."""
    model = situation.model
    if model is None:
        return None
    try:
        resolve(config, model, usable_threads=situation.cores or 1)
    except StackscopeError as error:
        return str(error)
    draft = situation.draft_model
    return refusals.refusal(
        config,
        model,
        target_cannot=refusals.running_state(model),
        draft_cannot=None if draft is None else refusals.running_state(draft),
    )


def _kind(before: EngineConfig, after: EngineConfig, situation: Situation) -> tuple[ToggleKind, str | None]:
    """How the change would come into force, and why by rebuild where that is not plain."""
    kind = kind_of_change(before, after)
    if kind is ToggleKind.LIVE and situation.size is not None:
        too_small = fits_live(after, situation.size)
        if too_small is not None:
            return ToggleKind.REBUILD, f"It needs a rebuild: {too_small}."
    return kind, None
