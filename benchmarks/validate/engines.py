"""BENCHMARK ENGINES: the real engine with one thing built in, to see whether it is found. Never used outside of this.

Those with a fault begin with it when the environment says so: `STACKSCOPE_BENCHMARK_DELAY_MS`, from the step that
begins `STACKSCOPE_BENCHMARK_AFTER_S` seconds after the first.
"""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any, Final

from stackscope.engine.loop import Engine

if TYPE_CHECKING:
    from stackscope.engine.backend import Backend
    from stackscope.engine.scheduler import Plan
    from stackscope.engine.turn import Turn
    from stackscope.toggles import EngineConfig

DELAY_MS: Final = "STACKSCOPE_BENCHMARK_DELAY_MS"
AFTER_S: Final = "STACKSCOPE_BENCHMARK_AFTER_S"


class Delay:
    """Keeps the processor busy for a fixed time, once it is time for that."""

    def __init__(self) -> None:
        self._delay_ns = round(float(os.environ.get(DELAY_MS, "0")) * 1e6)
        self._after_ns = round(float(os.environ.get(AFTER_S, "0")) * 1e9)
        self._begin_ns: int | None = None

    def begin(self) -> None:
        """The first step begins."""
        if self._begin_ns is None:
            self._begin_ns = time.monotonic_ns()

    def spend(self) -> None:
        now = time.monotonic_ns()
        if self._begin_ns is None or now - self._begin_ns < self._after_ns:
            return
        until = now + self._delay_ns
        while time.monotonic_ns() < until:
            pass


class _Delayed(Engine):
    delay: Delay

    def install(self, backend: Backend, config: EngineConfig) -> None:
        super().install(backend, config)
        self.delay = Delay()

    def step(self) -> Turn | None:
        self.delay.begin()
        return super().step()


class SlowChooser:
    """Chooses as another does, later."""

    def __init__(self, chooser: Any, delay: Delay) -> None:
        self._chooser = chooser
        self._delay = delay

    def choose(self, *arguments: Any) -> None:
        self._delay.spend()
        self._chooser.choose(*arguments)


class SlowSampler(_Delayed):
    """Every step with logits takes longer to sample."""

    def install(self, backend: Backend, config: EngineConfig) -> None:
        super().install(backend, config)
        self._chooser: Any = SlowChooser(self._chooser, self.delay)


class SlowScheduler(_Delayed):
    """Every step takes longer to plan, as one whose interpreter is held by somebody else."""

    def _plan(self) -> tuple[Plan, int]:
        self.delay.spend()
        return super()._plan()


class FollowsAll(Engine):
    """The shadows may take what time they want, and follow every request: their counts have no error of a sample."""

    def install(self, backend: Backend, config: EngineConfig) -> None:
        super().install(backend, config)
        shadows = self._aside.shadows
        if shadows is not None:
            shadows.budget.share = 1.0
            for purse in shadows.budget.purses.values():
                purse.balance_ns = math.inf
