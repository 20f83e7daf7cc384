"""What the engine does beside its steps, in the time that is stamped `shadow`: the loop tells it what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.engine.probes import Probes
from stackscope.engine.shadows.budget import Clocks
from stackscope.engine.shadows.prefixes import Admission
from stackscope.engine.shadows.shadows import Shadows

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Many

    from stackscope.engine.backend import Backend
    from stackscope.engine.batching import Rows
    from stackscope.engine.sequence import Sequence
    from stackscope.records import AnyRecord
    from stackscope.toggles import EngineConfig


LOOK_NS: Final = 20_000_000
"""Least time between two looks while tokens are all that comes: shadows read them later just as well, and after a
forward even a look that finds nothing to do costs 4 µs, after one of 10 ms 15."""

IDLE_LOOK_NS: Final = 500_000_000
"""The same while prompts are prefilled, whose rows say nothing until the last."""


class Aside:
    """Called once per step, at its end. Its records go out with the step's."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.shadows: Shadows | None = None
        """`None`: they are switched off."""
        self._clocks = Clocks(wall=clock)
        self._probes: Probes | None = None
        """Made when they are wanted first: their memory is to be touched before requests come."""
        self._backend: Backend | None = None
        self._admitted: list[Admission] = []
        self._records: list[AnyRecord] = []
        self._looked_ns: int | None = None
        """When shadows looked on last. `None`: they did not yet."""

    # Configuration

    def install(self, backend: Backend, config: EngineConfig) -> None:
        """Begin with a backend; what was there before was released."""
        self._backend = backend
        if config.shadows:
            self._probes = self._probes or Probes(self._clocks)
            self.shadows = Shadows(backend, config, self._clocks)

    def reconfigure(self, config: EngineConfig, epoch: int) -> None:
        """Follow the live settings. `epoch` is still that of the settings before."""
        self._look_up_admitted(epoch)
        if self.shadows is None:
            if self._backend is not None:
                self.install(self._backend, config)
        elif config.shadows:
            self._records += self.shadows.reconfigure(config, epoch)
        else:
            self.release(epoch)

    def release(self, epoch: int) -> None:
        """Let go of the backend, whose contexts are about to be freed."""
        self._look_up_admitted(epoch)
        if self.shadows is not None:
            self._records += self.shadows.take(epoch)
            self.shadows.close()
            self.shadows = None

    def _look_up_admitted(self, epoch: int) -> None:
        """Show shadows who was admitted under the settings that end now."""
        if self.shadows is not None and self._admitted:
            self._records += self.shadows.observe(self._admitted, (), (), has_ended=False, epoch=epoch)
            self._admitted = []

    # Steps

    def admitted(self, sequences: Many[Sequence]) -> None:
        """Note who was admitted, before the forward changes them."""
        if self.shadows is not None:
            self._admitted += [Admission(s, s.slot, s.n, s.prefilled) for s in sequences]

    def is_due(self, rows: Rows, now_ns: int, *, has_ended: bool) -> bool:
        """Whether there is something to look at, at the end of a step. `has_ended`: a request has left its slot."""
        # Who was admitted is looked up when a prompt ends: in the order of events still, and the caches cold only once.
        if rows.ends_prefill or has_ended or self._records:
            return True
        if self._looked_ns is None:
            return True
        # Where nothing came out, only what goes by the clock can be due.
        return now_ns - self._looked_ns >= (LOOK_NS if rows.n_outputs > 0 else IDLE_LOOK_NS)

    def observe(self, rows: Rows, running: Many[Sequence], *, has_ended: bool, epoch: int) -> tuple[AnyRecord, ...]:
        """Look on at the end of a step. `rows` are those of the forward, already committed."""
        self._looked_ns = now_ns = self._clocks.wall()
        shadows = self.shadows
        if shadows is not None:
            prefilled = [e.sequence for e in rows.entries if e.ends_prefill]
            records = shadows.observe(self._admitted, prefilled, running, has_ended=has_ended, epoch=epoch)
            if self._admitted:
                self._admitted = []
            if records:
                self._records += records
            probes = self._probes
            if probes is not None and probes.due(now_ns):
                self._records.append(probes.run())
        return self._take() if self._records else ()

    def take(self, epoch: int) -> tuple[AnyRecord, ...]:
        """What was not told yet, now that the session ends."""
        self._look_up_admitted(epoch)
        if self.shadows is not None:
            self._records += self.shadows.take(epoch)
        return self._take()

    def _take(self) -> tuple[AnyRecord, ...]:
        taken, self._records = tuple(self._records), []
        return taken
