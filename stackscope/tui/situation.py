"""What toggles need to know of the moment: the configuration, what was asked for, and what models and machine allow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.engine.sizing import ContextSize, resolve
from stackscope.errors import ToggleRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stackscope.analysis.live.snapshot import Event
    from stackscope.model.variants import Variant
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig, Setting

TRAFFIC: Final = ("concurrency", "rate")
"""Settings of the load, which are none of the engine's."""

SIZES_A_CONTEXT: Final = frozenset({"slots", "draft_length", "token_budget"})
"""Live settings that the next context is sized by."""


@dataclass(frozen=True)
class Refused:
    """A change that the engine refused."""

    changes: Mapping[str, Setting]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything that decides what a toggle can do now. Equal situations look and act the same."""

    config: EngineConfig | None = None
    """In force. `None`: this source does not say."""
    concurrency: int | None = None
    rate: float | None = None
    pending: Mapping[str, Setting] = field(default_factory=dict)
    """Settings asked for and not in force yet."""
    settling: frozenset[str] = frozenset()
    """Settings of the last change while its after-effects are being paid."""
    started: Mapping[str, Setting] = field(default_factory=dict)
    """Values at the start of the session: they stay among those that are offered."""
    built: EngineConfig | None = None
    """The configuration that the present context was made for. `None`: not known."""
    model: ModelSummary | None = None
    """Geometry of the target. `None`: not known."""
    draft_model: ModelSummary | None = None
    variants: tuple[Variant, ...] | None = None
    """`None`: nobody has looked yet."""
    gpus: tuple[str, ...] | None = None
    """Names of the GPUs. `None`: nobody looked."""
    cores: int | None = None
    """Physical cores that the engine may use. `None`: not known."""
    refused: tuple[Refused, ...] = ()
    unavailable: str | None = None
    """Why nothing can be toggled at all, as a sentence. `None`: an engine runs."""

    @cached_property
    def wanted(self) -> EngineConfig | None:
        """The configuration once everything asked for is in force."""
        if self.config is None:
            return None
        changes = {name: value for name, value in self.pending.items() if name not in TRAFFIC}
        return msgspec.structs.replace(self.config, **changes)

    @cached_property
    def size(self) -> ContextSize | None:
        """The present context. `None`: not known."""
        config = self.built or self.config
        if config is None or self.model is None:
            return None
        try:
            return resolve(config, self.model, usable_threads=self.cores or 1)
        except ToggleRefusedError:
            return None  # Recorded by another version, whose rules were others.

    def in_force(self, setting: str) -> Setting:
        """The value of a setting now. `None`: not known, or the setting's own `None`."""
        if setting in TRAFFIC:
            load: Setting = getattr(self, setting)
            return load
        return None if self.config is None else getattr(self.config, setting)

    def asked(self, setting: str) -> Setting:
        """The value of a setting once everything asked for is in force."""
        return self.pending[setting] if setting in self.pending else self.in_force(setting)

    def offered(self, setting: str) -> tuple[Setting, ...]:
        """Values that must stay within reach: those in force, asked for, and of the start."""
        return (self.in_force(setting), self.asked(setting), self.started.get(setting, self.in_force(setting)))


def remembered(events: Iterable[Event]) -> tuple[Refused, ...]:
    """Refusals among the events (newest first) that nothing since could have lifted.

    A rebuild lifts them all, and so does a live change of what the next context is sized by.
    """
    refused: list[Refused] = []
    for event in events:
        if event.kind == "rebuild" or (event.kind == "live" and SIZES_A_CONTEXT & event.changes.keys()):
            break
        if event.kind == "refused":
            refused.append(Refused({name: after for name, (_, after) in event.changes.items()}, event.label))
    return tuple(refused)


def built_for(config: EngineConfig | None, events: Iterable[Event]) -> EngineConfig | None:
    """The configuration that the present context was made for: the one in force, live changes since undone."""
    if config is None:
        return None
    for event in events:
        if event.kind == "rebuild":
            break
        if event.kind == "live":
            config = msgspec.structs.replace(config, **{name: before for name, (before, _) in event.changes.items()})
    return config
