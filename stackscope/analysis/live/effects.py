"""What each change did to the speed: comparable stretches before and after it, and the interval of their ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from stackscope.analysis.live.snapshot import Effect
    from stackscope.records import ConfigEvent, TrafficEvent


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
    """Slots × time. 0: not known."""
    epoch: int
    """Of its last step, or what is in force when it has none."""
    is_settling: bool
    """Some step in it was still paying for a change."""
    concurrency: int | None
    """Requests offered at a time. `None`: they arrive at a rate of their own, or it is not known."""
    prefilled: float | None = None
    """Of `prompt_tokens`, those that were computed rather than found. `None`: not known."""


class Effects:
    """Watches blocks and changes go by, and measures what each change did. Bounded memory."""

    def add_block(self, block: Block) -> None:
        """Take the next block, in the order of time."""

    def add_change(self, event: ConfigEvent | TrafficEvent) -> None:
        """Take a change of configuration or load. Refusals, and events that change nothing, are passed over."""

    def effect_of(self, at_ns: int) -> Effect | None:
        """What the change at this time did, as far as is known now. `None`: no such change is remembered."""

    def end(self) -> None:
        """The session is over: what could not be measured by now never will be."""
