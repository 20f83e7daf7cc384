"""The thread of the engine process that reads commands while the engine's own is in a forward."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final

from stackscope.engine import wire
from stackscope.engine.inbox import PATIENCE_NS
from stackscope.engine.outbox import OVERDUE_NS
from stackscope.engine.pipes import is_readable
from stackscope.errors import UsageError
from stackscope.toggles import ToggleKind, kind_of_change

if TYPE_CHECKING:
    from stackscope.engine.contracts import EngineLike
    from stackscope.engine.inbox import Inbox
    from stackscope.engine.outbox import Outbox

EXIT_ORPHANED: Final = 71
"""Exit status when the parent is gone; nobody is there to see it."""

QUIT_PATIENCE_NS: Final = 700_000_000
"""How long quitting at once may wait for the engine (loading a model, say) before the process ends without it."""


class Listener(threading.Thread):
    """Reads commands while the engine's own thread is in a forward, and does what cannot wait for it."""

    def __init__(self, descriptor: int, inbox: Inbox, outbox: Outbox) -> None:
        super().__init__(name="commands", daemon=True)
        self._descriptor = descriptor
        self._inbox = inbox
        self._outbox = outbox
        self._force_ns: int | None = None
        """When to quit without the engine. `None`: nobody has asked for quitting at once."""
        self.engine: EngineLike | None = None
        """Set once it is open."""

    def run(self) -> None:
        """Ends with the process: there is nothing to do here once nobody can send commands."""
        tail = b""
        try:
            while True:
                if is_readable(self._descriptor, self._patience_s()):
                    chunk = os.read(self._descriptor, 1 << 16)
                    if not chunk:
                        break
                    *lines, tail = (tail + chunk).split(b"\n")
                    for line in lines:
                        self._take(wire.decode_command(line))
                self._inbox.interrupt_if_due()
                self._outbox.flush_if_overdue()
                self._quit_if_overdue()
        except BrokenPipeError:
            pass  # The same as the end of the commands.
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            # The parent is gone, or cannot be understood. Native code may run on for minutes, so there is no asking.
            os._exit(EXIT_ORPHANED)

    def _patience_s(self) -> float:
        waits = [OVERDUE_NS, self._inbox.wait_ns]
        return min(w for w in waits if w is not None) / 1e9

    def _take(self, command: wire.AnyCommand) -> None:
        if isinstance(command, wire.Quit) and not command.drain and self._force_ns is None:
            self._force_ns = time.monotonic_ns() + QUIT_PATIENCE_NS
        self._inbox.put(command, patience_ns=self._patience_with(command))

    def _patience_with(self, command: wire.AnyCommand) -> int | None:
        """How long a command may wait for the step in progress. `None`: until it ends."""
        match command:
            case wire.Quit(drain=False):
                return 0
            case wire.Cancel():
                return PATIENCE_NS
            case wire.Reconfigure() if self.engine is not None:
                before = self.engine.config
                try:
                    after = wire.applied(before, command.changes)
                except UsageError:
                    return None  # The engine's own thread will refuse it.
                return None if kind_of_change(before, after) is ToggleKind.LIVE else PATIENCE_NS
        return None

    def _quit_if_overdue(self) -> None:
        if self._force_ns is None or time.monotonic_ns() < self._force_ns or self._inbox.is_empty:
            return
        in_flight = 0 if self.engine is None else self.engine.in_flight
        sys.stderr.write(f"Quit without waiting for the engine: {in_flight} requests in flight have no record.\n")
        sys.stderr.flush()
        self._outbox.message(wire.Done(reason="interrupted"))
        self._outbox.finish()
        os._exit(0)
