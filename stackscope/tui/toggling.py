"""The toggles of one screen over time: what was asked for and is awaited, and what a key does now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope.tui.situation import TRAFFIC, Situation, built_for, remembered
from stackscope.tui.toggles import BY_ID, Choice, Refusal, choices, next_choice

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.model.variants import Variant
    from stackscope.toggles import Setting
    from stackscope.tui.control import Control
    from stackscope.tui.toggles import Direction

RECORDED: Final = "This is a recording: what ran in it cannot be switched any more."
LOADING: Final = "The engine is not ready yet: its models are being loaded."
ENDED: Final = "The engine has ended: there is nothing to switch until it is started again."

PATIENCE_NS: Final = 3_000_000_000
PATIENCE_STEPS: Final = 64
"""A change is made between two steps. One that never came in this time, and then in as many steps, was lost."""


class Said(NamedTuple):
    """What a key press has to say."""

    text: str
    is_refusal: bool


class Toggling:
    """Keeps the situation up to date, and sends what keys ask for to the engine."""

    def __init__(self, control: Control, *, cores: int | None = None) -> None:
        """`cores`: physical cores that the engine may use. `None`: not known."""
        self.control = control
        self.cores = cores
        self.variants: tuple[Variant, ...] | None = None
        """Set once somebody has looked, by `variants.find_variants`."""
        self.situation = Situation(unavailable=LOADING)
        self._snapshot: Snapshot | None = None
        self._pending: dict[str, Setting] = {}
        self._asked_at_ns = 0
        self._lost_at_step: int | None = None
        """Step at which what is pending counts as lost. `None`: it has not been pending for long."""

    def see(self, snapshot: Snapshot) -> Situation:
        """The situation at a snapshot. The same object as before when nothing that matters to a toggle has changed."""
        self._snapshot = snapshot
        self._settle(snapshot)
        situation = self._made(snapshot)
        if situation != self.situation:
            self.situation = situation
        return self.situation

    def press(self, toggle_id: str, direction: Direction = 1) -> Said | None:
        """What the key of a toggle does. Returns what there is to say about it; `None`: the screen shows it."""
        onward = next_choice(BY_ID[toggle_id], self.situation, direction)
        return Said(onward.reason, is_refusal=True) if isinstance(onward, Refusal) else self._send(onward)

    def choose(self, toggle_id: str, label: str) -> Said | None:
        """Choose one value of a toggle, by its label. What only the engine refused is asked for again."""
        offered = choices(BY_ID[toggle_id], self.situation)
        choice = next((choice for choice in offered if choice.label == label), None)
        if choice is None:
            return Said(f"There is no {label} to choose here any more.", is_refusal=True)
        if choice.is_current:
            return None
        if choice.refusal is not None and not choice.has_been_refused:
            return Said(choice.refusal, is_refusal=True)
        return self._send(choice)

    def forget(self) -> None:
        """Await nothing any longer: the engine said that it did not understand, or a new one begins."""
        self._pending.clear()
        self.see_again()

    def see_again(self) -> None:
        """Take into account what has changed beside the newest snapshot."""
        if self._snapshot is not None:
            self.see(self._snapshot)

    def _send(self, choice: Choice) -> Said | None:
        refusal = ask(self.control, choice)
        if refusal is not None:
            return Said(refusal, is_refusal=True)
        if self._snapshot is not None:
            if not self._pending:
                self._asked_at_ns = self._snapshot.at_ns
            self._lost_at_step = None
            self._pending.update(choice.changes)
            self.see(self._snapshot)
        return None if choice.note is None else Said(choice.note, is_refusal=False)

    def _settle(self, snapshot: Snapshot) -> None:
        """Strike off what has come into force, was refused, or must have been lost."""
        if not self._pending:
            return
        in_force = Situation(config=snapshot.config, concurrency=snapshot.concurrency, rate=snapshot.rate)
        refused: set[str] = set()
        for event in snapshot.events:
            if event.at_ns < self._asked_at_ns:
                break
            if event.kind == "refused":
                refused |= {name for name, (_, new) in event.changes.items() if self._pending.get(name) == new}
        if self._lost_at_step is None and snapshot.at_ns - self._asked_at_ns > PATIENCE_NS:
            self._lost_at_step = snapshot.n_steps + PATIENCE_STEPS
        is_lost = self._lost_at_step is not None and snapshot.n_steps >= self._lost_at_step
        is_lost = is_lost or snapshot.state in ("finished", "dead")
        for name, value in tuple(self._pending.items()):
            if is_lost or name in refused or in_force.in_force(name) == value:
                del self._pending[name]

    def _made(self, snapshot: Snapshot) -> Situation:
        header = snapshot.header
        started: dict[str, Setting] = {}
        if header is not None and header.config is not None:
            started = msgspec.structs.asdict(header.config)
            started |= {name: load for name in TRAFFIC if isinstance(load := header.workload.get(name), int | float)}
        newest = next((event for event in snapshot.events if event.kind in ("live", "rebuild")), None)
        is_settling = newest is not None and newest.effect is not None and newest.effect.state == "settling"
        gpus = None if snapshot.hardware is None else snapshot.hardware.gpus
        return Situation(
            config=snapshot.config,
            concurrency=snapshot.concurrency,
            rate=snapshot.rate,
            pending=dict(self._pending),
            settling=frozenset(newest.changes) if newest is not None and is_settling else frozenset(),
            started=started,
            built=built_for(snapshot.config, snapshot.events),
            model=None if header is None else header.model,
            draft_model=None if header is None else header.draft_model,
            variants=self.variants,
            gpus=None if gpus is None else tuple(gpu.name for gpu in gpus),
            cores=self.cores,
            refused=remembered(snapshot.events),
            unavailable=self._unavailable(snapshot),
        )

    def _unavailable(self, snapshot: Snapshot) -> str | None:
        if not self.control.is_live:
            return RECORDED
        if snapshot.state in ("finished", "dead"):
            return ENDED
        return LOADING if snapshot.config is None and snapshot.n_steps == 0 else None


def ask(control: Control, choice: Choice) -> str | None:
    """Have a choice made. In one sentence why it cannot be asked for; `None`: it has been."""
    for name, value in choice.changes.items():
        if name == "concurrency" and isinstance(value, int):
            return control.set_concurrency(value)
        if name == "rate" and isinstance(value, int | float):
            return control.set_rate(value)
    return control.reconfigure(choice.changes)


def press(control: Control, situation: Situation, toggle_id: str, direction: Direction) -> str | None:
    """Ask for the next value of a toggle; a sentence when there is none to be had."""
    onward = next_choice(BY_ID[toggle_id], situation, direction)
    return onward.reason if isinstance(onward, Refusal) else ask(control, onward)
