"""Made-up sessions for the measuring of changes: blocks of half a second, at rates that the test decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.analysis.live.effects import Block, Effects
from stackscope.records import ConfigEvent, TrafficEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    from stackscope.analysis.live.snapshot import Effect
    from stackscope.toggles import Setting

SECOND: Final = 1_000_000_000
HALF: Final = SECOND // 2
WOBBLE: Final = (98.0, 103.0, 100.0, 97.0, 102.0)
"""Rates around 100 that go on and on."""


class Session:
    """Feeds `Effects` as a session goes on: a block at a time, a change at a time."""

    def __init__(self, *, concurrency: int | None = 4, slots: int = 4) -> None:
        self.effects = Effects()
        self.now_ns = 0
        self.epoch = 0
        self.concurrency = concurrency
        self.slots = slots
        self.cores: float | None = None
        """Share of its cores that the engine has. `None`: not known."""

    def run(
        self,
        seconds: float,
        *,
        speed: float = 1.0,
        rates: Sequence[float] = WOBBLE,
        prompts: float = 2.0,
        found: float = 0.0,
        busy: float = 4.0,
        is_settling: bool = False,
        block_ns: int = HALF,
    ) -> None:
        """Blocks for a while. `prompts`: prompt tokens demanded per output token, of which `found` in the cache."""
        for i in range(round(seconds * SECOND / block_ns)):
            tokens = speed * rates[i % len(rates)] * block_ns / SECOND
            self.block(tokens, tokens * prompts, tokens * found, busy, is_settling=is_settling, block_ns=block_ns)

    def block(
        self,
        tokens: float,
        prompts: float = 0.0,
        found: float = 0.0,
        busy: float = 4.0,
        *,
        is_settling: bool = False,
        block_ns: int = HALF,
    ) -> None:
        self.now_ns += block_ns
        self.effects.add_block(
            Block(
                at_ns=self.now_ns,
                wall_ns=block_ns,
                tokens=tokens,
                prompt_tokens=prompts,
                busy_slot_ns=busy * block_ns,
                slot_ns=self.slots * block_ns,
                epoch=self.epoch,
                is_settling=is_settling,
                concurrency=self.concurrency,
                prefilled=prompts - found,
                cpu_ns=block_ns * (self.cores or 0.0),
                thread_ns=0.0 if self.cores is None else float(block_ns),
            )
        )

    def toggle(
        self, kind: Literal["live", "rebuild"] = "live", *, took_s: float | None = None, **changes: Setting
    ) -> int:
        """Change settings; the time of it, by which its effect is asked for."""
        at_ns = self.now_ns
        self.epoch += 1
        duration_ns = None if took_s is None else round(took_s * SECOND)
        made: dict[str, tuple[Setting, Setting]] = {name: (None, value) for name, value in changes.items()}
        self.effects.add_change(
            ConfigEvent(at_ns=at_ns, epoch=self.epoch, kind=kind, changes=made, duration_ns=duration_ns)
        )
        self.now_ns += duration_ns or 0
        return at_ns

    def offer(self, *, concurrency: int | None = None, rate: float | None = None) -> int:
        """Change the load; the time of it."""
        self.effects.add_change(TrafficEvent(at_ns=self.now_ns, concurrency=concurrency, rate=rate))
        self.concurrency = concurrency
        return self.now_ns

    def effect(self, at_ns: int) -> Effect:
        found = self.effects.effect_of(at_ns)
        assert found is not None
        return found

    def states(self, at_ns: int, blocks: Iterable[float]) -> list[str]:
        """What is shown of a change after each of these blocks, given by their tokens, without repetitions."""
        shown = [self.effect(at_ns).state]
        for tokens in blocks:
            self.block(tokens, tokens * 2.0)
            state = self.effect(at_ns).state
            if state != shown[-1]:
                shown.append(state)
        return [str(state) for state in shown]
