"""The real engine with one fault each, to be run by `cli_support.start_with`."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope.engine.loop import Engine

if TYPE_CHECKING:
    from stackscope.engine.turn import Turn
    from stackscope.toggles import EngineConfig
    from stackscope.workload.jobs import Job

FATAL_STEP: Final = 100
"""Late enough for earlier steps to have left the process."""
BAD_ID: Final = 9_999


class Asserting(Engine):
    """Hands the library a sequence id that it does not have, past the check in Python: it asserts and aborts."""

    def step(self) -> Turn | None:
        turn = super().step()
        if turn is not None and turn.step.n == FATAL_STEP:
            self.backend.target._check = lambda *_: None  # type: ignore[method-assign]
            self.backend.target.remove(BAD_ID, 0)
        return turn


class Refusing(Engine):
    """Finds every request impossible."""

    def submit(self, job: Job) -> None:
        super().submit(msgspec.structs.replace(job, max_tokens=0))


class Loading(Engine):
    """Never done loading, in native code that nothing interrupts."""

    @classmethod
    def open(cls, config: EngineConfig, **options: Any) -> Engine:
        options["progress"](config.model, 0.5)
        ctypes.CDLL(None).sleep(60)
        return super().open(config, **options)
