"""What each change did to the speed: comparable stretches before and after it, and the interval of their ratio.

*Comparable* means: one configuration and one offered load in each stretch (any other change ends it), warm-up left out,
and the same work on the same share of the engine's cores in both, within a tolerance or within chance, save what the
change itself explains. See `stretches`.

The screen looks again and again while the stretch after a change grows, and each look is another chance to be wrong. So
looks are few (each needs half as much again as the one before), and each gives an interval of 99 %: together they then
hold in 95 % of all cases. The level is Pocock's constant boundary (*Biometrika* 64, 1977) for nine such looks: 2.60
standard errors by simulation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope import units
from stackscope.analysis.live.snapshot import Effect
from stackscope.analysis.live.stretches import (
    LEAST_NS,
    LOAD,
    WINDOW_NS,
    Stretch,
    difference_in_work,
    explains_reuse,
    is_starved,
    measured,
    prompt_share,
)
from stackscope.records import ConfigEvent

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Ratio
    from stackscope.records import TrafficEvent

WARM_UP_NS: Final = 1_000_000_000
"""Left out after every change, and at the beginning of the session."""

MOST_WARM_UP_NS: Final = 30_000_000_000
"""How long the prefill of what was put back, and of what the prefix cache lost, is waited for."""

GROWTH: Final = 1.5
"""How much longer the stretch after a change must be for the next look."""

VAGUE: Final = 2.0
"""An interval that holds 1 and reaches farther than by this factor says nothing."""

MOST_EFFECTS: Final = 256
"""Effects remembered."""

_SECOND_NS: Final = 1_000_000_000
_REFILLING: Final = frozenset({"slots", *LOAD})
"""Live changes that let new requests in at once, all of them with a prompt to prefill."""


class Block(msgspec.Struct, frozen=True, gc=False):
    """Sums over one closed stretch of the session, half a second or so; longer where one step takes longer."""

    at_ns: int
    """Its end."""
    wall_ns: int
    """Its length, idle time included."""
    tokens: float
    """Emitted."""
    prompt_tokens: float
    """Prompt tokens demanded: prefilled, or found in the prefix cache. What was put back and prefilled again counts."""
    busy_slot_ns: float
    """Busy slots × time."""
    slot_ns: float
    """Slots × time. 0: not known, or no step ran."""
    epoch: int
    """Of its last step, or what is in force when it has none."""
    is_settling: bool
    """Some step in it was still paying for a change."""
    concurrency: int | None
    """Requests offered at a time. `None`: they arrive at a rate of their own, or it is not known."""
    prefilled: float | None = None
    """Of `prompt_tokens`, those that were computed rather than found. `None`: not known."""
    cpu_ns: float = 0.0
    """CPU time of the engine's threads in forwards."""
    thread_ns: float = 0.0
    """Threads × time in forwards: `cpu_ns` at most. 0: not known, or nothing to know, as on a GPU."""


class _Change(msgspec.Struct):
    """A change whose effect is being measured."""

    at_ns: int
    names: frozenset[str]
    """What changed since `before`."""
    before: Stretch
    n_skipped: int
    """Changes between `before` and this one: each stood too briefly to be compared with."""
    after: Stretch
    next_look_ns: float = LEAST_NS


class Effects:
    """Watches blocks and changes go by, and measures what each change did. Bounded memory."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._load: dict[str, float | None] = {}
        """What was offered last, as far as events said."""
        self._latest = Stretch()
        """Of the configuration in force."""
        self._change: _Change | None = None
        self._quiet_from_ns = 0
        """When the last change had been made and WARM_UP_NS had passed."""
        self._usual_share: float | None = None
        """Part of prompts in the work that is waited for. `None`: nothing is waited for."""
        self._sees_computed = False
        """Whether that is a part of the tokens computed, rather than demanded."""
        self._effects: dict[int, Effect] = {}

    def add_block(self, block: Block) -> None:
        """Take the next block, in the order of time."""
        begins_ns = block.at_ns - block.wall_ns
        if self._epoch is None or block.epoch > self._epoch:  # the beginning, or a change whose event was lost
            self._interrupt("changed again")
            self._epoch, self._usual_share = block.epoch, None
            self._quiet_from_ns = begins_ns + WARM_UP_NS
        if block.wall_ns <= 0 or block.epoch != self._epoch:
            return
        if block.concurrency is not None:
            self._load["concurrency"] = block.concurrency
        waiting_for = self._waiting_for(block, begins_ns)
        change = self._change
        if waiting_for is not None:
            if change is not None and not change.after:
                self._effects[change.at_ns] = Effect(state="settling", why=waiting_for)
            return
        self._latest.add(block)
        if change is None or change.after.is_full:
            return
        change.after.add(block)
        if change.after.wall_ns >= change.next_look_ns or change.after.is_full:
            self._look(change)
        elif change.after.wall_ns < LEAST_NS:
            self._effects[change.at_ns] = Effect(state="measuring", why=_another(LEAST_NS - change.after.wall_ns))

    def add_change(self, event: ConfigEvent | TrafficEvent) -> None:
        """Take a change of configuration or load. Refusals, and events that change nothing, are passed over."""
        names = self._changed(event)
        if not names:
            return
        before, n_skipped, earlier_names = self._before(event.at_ns)
        measured_ns = self._latest.wall_ns
        self._interrupt("changed again", event.at_ns)
        duration_ns = 0
        if isinstance(event, ConfigEvent):
            self._epoch, duration_ns = event.epoch, event.duration_ns or 0
        self._quiet_from_ns = event.at_ns + duration_ns + WARM_UP_NS
        self._usual_share = None
        if before is None:
            self._remember(event.at_ns, Effect(state="not comparable", why=_too_little_before(measured_ns)))
            return
        change = _Change(event.at_ns, names | earlier_names, before, n_skipped, Stretch())
        self._change = change
        if (isinstance(event, ConfigEvent) and event.kind == "rebuild") or not _REFILLING.isdisjoint(names):
            self._sees_computed = not explains_reuse(change.names)
            self._usual_share = before.prompt_share(is_computed=self._sees_computed)
        self._remember(event.at_ns, Effect(state="settling", why=_another(duration_ns + WARM_UP_NS)))

    def effect_of(self, at_ns: int) -> Effect | None:
        """What the change at this time did, as far as is known now. `None`: no such change is remembered."""
        return self._effects.get(at_ns)

    def end(self, at_ns: int) -> None:
        """The session is over: what has not been measured by now never will be."""
        self._interrupt("the session ended", at_ns)

    def _changed(self, event: ConfigEvent | TrafficEvent) -> frozenset[str]:
        """What an event changed."""
        if isinstance(event, ConfigEvent):
            return frozenset() if event.kind == "refused" else frozenset(event.changes)
        offered = {"concurrency": event.concurrency, "rate": event.rate}
        changed = {name for name, value in offered.items() if value is not None and self._load.get(name) != value}
        self._load.update((name, offered[name]) for name in changed)
        return frozenset(changed)

    def _before(self, at_ns: int) -> tuple[Stretch | None, int, frozenset[str]]:
        """What a change now is compared with, how many changes lie between, and what those changed.

        When the configuration in force stood too briefly, it is that of before the change to it, if not too long ago.
        """
        latest, change = self._latest, self._change
        if latest.is_long_enough and latest.has_enough_tokens:
            return latest, 0, frozenset()
        if change is not None and at_ns - change.before.ends_ns <= WINDOW_NS:
            return change.before, change.n_skipped + 1, change.names
        return None, 0, frozenset()

    def _waiting_for(self, block: Block, begins_ns: int) -> str | None:
        """Why a block is left out. `None`: it counts."""
        if begins_ns < self._quiet_from_ns:
            return _another(max(self._quiet_from_ns - block.at_ns, 0))
        if block.is_settling:
            return "the draft model is catching up"
        if is_starved(block):
            return "little is in flight"
        if self._usual_share is None:
            return None
        prompts, tokens = prompt_share(block, is_computed=self._sees_computed)
        is_back = prompts <= self._usual_share * tokens
        if is_back or block.at_ns > self._quiet_from_ns + MOST_WARM_UP_NS:
            self._usual_share = None  # From the next block on: this one was chosen for having few prompts.
        return "prompts are being prefilled"

    def _look(self, change: _Change, *, is_last: bool = False) -> None:
        """Measure with what there is, and say when to look again."""
        before, after = change.before, change.after
        change.next_look_ns = max(change.next_look_ns, after.wall_ns) * GROWTH
        if not after.has_enough_tokens:
            change.next_look_ns = after.wall_ns
            why = "too few tokens came after it" if after.is_full else "more tokens"
            state = "not comparable" if after.is_full else "measuring"
            self._effects[change.at_ns] = Effect(state=state, why=why)  # type: ignore[arg-type]
            return
        figures = Effect(
            state="not comparable",
            before=before.tokens_per_s,
            after=after.tokens_per_s,
            before_s=before.wall_ns / 1e9,
            after_s=after.wall_ns / 1e9,
            why=difference_in_work(before, after, change.names),
        )
        if figures.why is None:
            changes = _told(measured(before, after), change.n_skipped, is_last=is_last or after.is_full)
            figures = msgspec.structs.replace(figures, **changes)
        self._effects[change.at_ns] = figures

    def _interrupt(self, what: str, at_ns: int | None = None) -> None:
        """End the stretch in progress, and the measurement with it."""
        change, self._change, self._latest = self._change, None, Stretch()
        if change is None:
            return
        if change.after.is_long_enough and change.after.has_enough_tokens:
            self._look(change, is_last=True)
        else:
            when = "" if at_ns is None else f" after {units.duration(at_ns - change.at_ns)}"
            self._effects[change.at_ns] = Effect(state="not comparable", why=f"{what}{when}, too soon to measure")

    def _remember(self, at_ns: int, effect: Effect) -> None:
        self._effects[at_ns] = effect
        if len(self._effects) > MOST_EFFECTS:
            del self._effects[next(iter(self._effects))]


def _another(duration_ns: int) -> str:
    return f"another {units.duration(max(math.ceil(duration_ns / _SECOND_NS), 1) * _SECOND_NS)}"


def _too_little_before(measured_ns: int) -> str:
    told = "nothing" if measured_ns == 0 else f"only {units.duration(measured_ns)}"
    return f"{told} of the configuration before it could be measured"


def _told(ratio: Ratio, n_skipped: int, *, is_last: bool) -> dict[str, Any]:
    """What an interval comes to: state, ratio, and what is to be said with it."""
    if ratio.is_distinguishable or ratio.high <= VAGUE * ratio.value:
        state = "measured" if ratio.is_distinguishable else "not distinguishable"
        return {"state": state, "tokens": ratio, "why": _together(n_skipped)}
    if is_last:
        return {"state": "not comparable", "why": "the speed varied too much to tell"}
    return {"state": "measuring", "why": "the speed varies too much to tell yet"}


def _together(n_skipped: int) -> str | None:
    """What else lies between the stretches. `None`: nothing."""
    if n_skipped == 0:
        return None
    return f"with the {'change' if n_skipped == 1 else f'{units.count(n_skipped)} changes'} before it"
