"""Ctrl-C, SIGTERM and a closed terminal as a wish that a loop looks at: nothing is torn in the middle of a record."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType, TracebackType

SIGNALLED: Final = 128
"""Exit status after a signal, as shells count: this and its number."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def told_when_interrupted(text: str) -> Iterator[None]:
    """Say on standard error, when Ctrl-C ends the block, what became of what it did."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"stackscope: interrupted: {text}", file=sys.stderr)
        raise


def kept_in(folder: Path, kind: str) -> str:
    """What becomes of an experiment that is interrupted, and how to go on with it."""
    return f"finished runs are kept. Go on with them: stackscope {kind} --folder {shlex.quote(str(folder))}"


class Interrupts:
    """While it is entered, the first of `SIGNALS` only sets `received`; a second raises `KeyboardInterrupt` at once.

    A signal that this process ignores stays ignored (a job in the background of a script ignores Ctrl-C). Outside the
    main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self, on_received: Callable[[], None] | None = None) -> None:
        """`on_received` is called with the first of them, in the main thread, between any two of its instructions."""
        self.received: signal.Signals | None = None
        """The first signal. `None`: none came."""
        self._on_received = on_received
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if self._on_received is not None:
            self._on_received()
