"""Changes, refusals and marks as the lines and labels that are shown."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.live.snapshot import Event, Ratio
from stackscope.model.variants import weights_label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stackscope.analysis.diagnosis.naming import NameChange
    from stackscope.analysis.live.snapshot import Effect
    from stackscope.records import ConfigEvent, Mark, Prediction, TrafficEvent
    from stackscope.toggles import Setting

MOST_EVENTS: Final = 50
_MOST_NAMED: Final = 2
"""Changes named in a label; of more, it says only that there are."""
_SHORT: Final = {
    "concurrency": "load", "rate": "load", "speculation": "spec", "kv_type_k": "K", "kv_type_v": "V",
    "flash_attention": "flash", "prefix_cache": "cache", "draft_length": "draft", "token_budget": "budget",
    "model": "weights", "unified_kv": "unified", "adaptive_draft": "adapt", "cache_tokens": "limit",
    "split_mode": "split", "synthetic_acceptance": "accept",
}  # fmt: skip
"""What a label calls a setting: as the toggles do, where their names are shorter."""
_SPECULATIONS: Final = {"ngram": "n-gram", "mtp": "MTP"}
_UNMARKED: Final = frozenset({"refused", "verdict"})
"""Kinds of events that no chart has a mark for."""
_MEASURED: Final = frozenset({"live", "rebuild", "traffic"})


class Events:
    """The newest events, and what has become of each."""

    def __init__(self, effect_of: Callable[[int], Effect | None]) -> None:
        self._effect_of = effect_of
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        """Newest first."""

    def add_change(self, event: ConfigEvent, predicted: Prediction | None = None) -> None:
        """Take a change with what was predicted of it, or the refusal of one."""
        self._events.appendleft(
            Event(
                at_ns=event.at_ns,
                kind=event.kind,
                by=event.by,
                changes=event.changes,
                label=(event.reason or "") if event.kind == "refused" else "",
                duration_ns=event.duration_ns,
                requeued=event.requeued,
                predicted=_ratio(predicted),
                unpredicted=_why_none(predicted),
            )
        )

    def add_traffic(
        self,
        event: TrafficEvent,
        changes: Mapping[str, tuple[Setting, Setting]],
        predicted: Prediction | None = None,
    ) -> None:
        """Take a change of the load, as values before and after, with what was predicted of it."""
        self._events.appendleft(
            Event(
                at_ns=event.at_ns,
                kind="traffic",
                changes=dict(changes),
                predicted=_ratio(predicted),
                unpredicted=_why_none(predicted),
            )
        )

    def add_mark(self, mark: Mark) -> None:
        self._events.appendleft(Event(at_ns=mark.at_ns, kind="mark", label=mark.label))

    def add_verdict(self, change: NameChange) -> None:
        """Something else is named than before. Nothing being named is no event, but the next name says what was."""
        if change.after is not None:
            self._events.appendleft(Event(at_ns=change.at_ns, kind="verdict", label=str(change.after)))

    def newest(self) -> tuple[Event, ...]:
        """Newest first, with their effects as far as they are measured now."""
        for place, event in enumerate(self._events):
            if event.kind in _MEASURED:
                effect = self._effect_of(event.at_ns)
                if effect is not event.effect:
                    self._events[place] = msgspec.structs.replace(event, effect=effect)
        return tuple(self._events)

    def labels(self, from_ns: int) -> tuple[tuple[int, str], ...]:
        """When something changed or was marked since then, and what, oldest first."""
        recent = [event for event in self._events if event.at_ns >= from_ns and event.kind not in _UNMARKED]
        return tuple([(event.at_ns, label_of(event)) for event in reversed(recent)])


def _ratio(predicted: Prediction | None) -> Ratio | None:
    """Of tokens per second. `None`: nothing was predicted, or no number."""
    if predicted is None or predicted.tokens is None:
        return None
    tokens = predicted.tokens
    return Ratio(value=tokens.value, low=tokens.low, high=tokens.high)


def _why_none(predicted: Prediction | None) -> str | None:
    """Why a prediction has no number. `None`: it has, or there was none."""
    return None if predicted is None or predicted.tokens is not None else predicted.reason or None


def label_of(event: Event) -> str:
    """What an event was, short enough to stand at a line of a chart: `slots 4`, `KV q8_0`, a mark's name."""
    if event.kind == "mark":
        return event.label
    if not event.changes:
        return event.kind
    changes = {name: after for name, (_, after) in event.changes.items()}
    named = []
    if "kv_type_k" in changes and changes["kv_type_k"] == changes.get("kv_type_v"):
        named.append(f"KV {_value('kv_type_k', changes.pop('kv_type_k'))}")
        del changes["kv_type_v"]
    named += [f"{_SHORT.get(name, name.replace('_', ' '))} {_value(name, after)}" for name, after in changes.items()]
    more = " and more" if len(named) > _MOST_NAMED else ""
    return ", ".join(named[:_MOST_NAMED]) + more


def _value(name: str, value: Setting) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case float():
            return units.number(value)
        case str() if name.endswith("model"):
            return weights_label(value)
        case str() if name == "speculation":
            return _SPECULATIONS.get(value, value)
        case _:
            return str(value)
