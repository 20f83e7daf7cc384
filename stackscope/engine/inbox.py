"""Commands on their way to the engine: read by one thread, obeyed by another, which may be deep in a forward."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.engine.wire import AnyCommand

PATIENCE_NS: Final = 200_000_000
"""How long an urgent command waits for the forward in progress before it cuts it short: the work of every sequence in
that is lost then, and most forwards end sooner."""


class Inbox:
    """Commands in the order of their arrival, and whether the engine is in a step while they wait."""

    def __init__(self, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        # A plain lock: three times a step it is taken, and a condition's own way in costs five times as much.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._commands: deque[AnyCommand] = deque()
        self._interrupt: Callable[[], None] | None = None
        """How to cut short the step in progress. `None`: there is none."""
        self._interrupt_ns: int | None = None
        """When to. `None`: nothing that waits is urgent."""

    def put(self, command: AnyCommand, *, patience_ns: int | None = None) -> None:
        """Take a command that may wait `patience_ns` for the step in progress to end. `None`: as long as it takes."""
        with self._lock:
            self._commands.append(command)
            if patience_ns is not None:
                due = self._clock() + patience_ns
                self._interrupt_ns = due if self._interrupt_ns is None else min(due, self._interrupt_ns)
            self._changed.notify()
            self._interrupt_if_due()

    def interrupt_if_due(self) -> None:
        """Cut short the step in progress if an urgent command has waited long enough for it."""
        with self._lock:
            self._interrupt_if_due()

    def _interrupt_if_due(self) -> None:
        if self._interrupt is None or self._interrupt_ns is None or self._clock() < self._interrupt_ns:
            return
        self._interrupt()
        self._interrupt_ns = None

    @property
    def wait_ns(self) -> int | None:
        """How long until `interrupt_if_due` has something to do, at the earliest. `None`: nothing is urgent."""
        due = self._interrupt_ns
        return None if due is None else max(0, due - self._clock())

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be obeyed."""
        return not self._commands

    def take(self) -> list[AnyCommand]:
        """Everything that has arrived, oldest first."""
        if not self._commands:  # Without the lock: what arrives this moment might as well arrive after the answer.
            return []
        with self._lock:
            return self._take()

    def wait(self, timeout_ns: int | None = None) -> list[AnyCommand]:
        """As `take`, but waits for a command. `None`: however long it takes."""
        with self._lock:
            self._changed.wait_for(lambda: self._commands, None if timeout_ns is None else max(0, timeout_ns) / 1e9)
            return self._take()

    def _take(self) -> list[AnyCommand]:
        taken = list(self._commands)
        self._commands.clear()
        self._interrupt_ns = None
        return taken

    def begin_step(self, interrupt: Callable[[], None]) -> bool:
        """Announce a step that `interrupt` can cut short. False: a command has arrived that must be obeyed first."""
        with self._lock:
            if self._commands:
                return False
            self._interrupt = interrupt
            return True

    def end_step(self) -> None:
        """The step is over: what waits will be obeyed now."""
        with self._lock:
            self._interrupt = None
