"""Cuts the session into blocks for the comparison of before and after: none holds steps of two configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.analysis.live.effects import Block
from stackscope.analysis.live.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.records import StepRecord


class Blocks:
    """Gathers sums over steps and hands them on as blocks. The idle time of a change is in none."""

    def __init__(self, take: Callable[[Block], None]) -> None:
        self.concurrency: int | None = None
        """In force now."""
        self._take = take
        self._sums = Sums()
        self._last: StepRecord | None = None
        """Last step gathered. `None`: none since the block before."""
        self._is_after_cut = True

    def add(self, sums: Sums, last: StepRecord, idle_before_ns: int) -> None:
        """Take sums over consecutive steps, the last of them, and the idle time before the first, which they hold."""
        if self._last is not None and last.epoch != self._last.epoch:
            self.cut()
        self._sums.add(sums.row)
        if self._is_after_cut:
            self._sums.idle_ns -= idle_before_ns
            self._is_after_cut = False
        self._last = last

    def close(self) -> None:
        """Hand on what was gathered, if it is anything."""
        if self._last is None:
            return
        sums, last = self._sums, self._last
        self._take(
            Block(
                at_ns=last.end_ns,
                wall_ns=round(sums.wall_ns),
                tokens=sums.emitted,
                prompt_tokens=sums.prefill_rows + sums.hit_tokens,
                busy_slot_ns=sums.busy_slot_ns,
                slot_ns=sums.slot_ns,
                epoch=last.epoch,
                is_settling=sums.settling > 0,
                concurrency=self.concurrency,
                prefilled=sums.prefill_rows,
                cpu_ns=sums.cpu_ns,
                thread_ns=sums.thread_ns,
            )
        )
        self._sums, self._last = Sums(), None

    def cut(self) -> None:
        """Something changes: what comes is not of the same kind."""
        self.close()
        self._is_after_cut = True
