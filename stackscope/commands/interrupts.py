"""Ctrl-C, SIGTERM and a closed terminal: a wish that a loop looks at, or the end at once, with a word about it.

Three answers follow one another in a command. `end_at_once` while modules are imported and options read: nothing has
been begun. `raising` while the verb works: the signal becomes a `KeyboardInterrupt`, so that whatever holds a file or a
process closes it. `Interrupts` around loops that can end in order.

Signals come in bursts: `timeout` signals its child and then its group, wrappers pass on what the terminal has already
sent to all. What follows another within `BURST_S` is the same wish, and not the impatience of a second one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from stackscope.characters import harmless
from stackscope.errors import StackscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType, TracebackType
    from typing import TypeAlias

    Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None

SIGNALLED: Final = 128
"""Exit status after a signal, as shells count: this and its number."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

BURST_S: Final = 0.25
"""Signals this close are one wish. Fingers take about as long to press Ctrl-C again."""


class Interrupted(KeyboardInterrupt):
    """The end by a signal: which, and whether it has been said what that leaves."""

    def __init__(self, number: signal.Signals, *, is_told: bool = False) -> None:
        super().__init__()
        self.number = number
        self.is_told = is_told


class _Bursts:
    """Tells a new wish from the rest of a burst of signals."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._last_s: float | None = None

    def is_new(self) -> bool:
        """Whether a signal that comes now is a wish of its own."""
        now_s = self._clock_s()
        if self._last_s is not None and now_s - self._last_s < BURST_S:
            return False
        self._last_s = now_s
        return True


_bursts = _Bursts()


def end_at_once() -> None:
    """From here on, a signal ends the process with a word: nothing has been begun that wants closing."""
    _answer(_end)


@contextmanager
def raising() -> Iterator[None]:
    """While it is entered, a signal raises `Interrupted`; the rest of its burst does nothing."""
    before = _answer(_raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def status_of(error: KeyboardInterrupt) -> int:
    """Say how it ended, unless that was said or is known to whoever pressed Ctrl-C, and the exit status for it."""
    number = _number_of(error)
    if number != signal.SIGINT and not (isinstance(error, Interrupted) and error.is_told):
        _tell(f"{_how(number)}.")
    return SIGNALLED + number


@contextmanager
def told_when_interrupted(left: str | Callable[[], str]) -> Iterator[None]:
    """Say on standard error, when a signal ends the block, what is left of what it did."""
    try:
        yield
    except KeyboardInterrupt as error:
        number = _number_of(error)
        _tell(f"{_how(number)}: {left if isinstance(left, str) else left()}")
        raise Interrupted(number, is_told=True) from None


@contextmanager
def keeping(folder: Path, kind: str) -> Iterator[None]:
    """Say how to go on with an experiment when a signal, or what fails in it, ends the block."""
    import shlex

    from stackscope.session.paths import ELSEWHERE

    on = f"Go on with them: stackscope {kind} --folder {shlex.quote(str(folder))}"
    try:
        with told_when_interrupted(f"finished runs are kept. {on}"):
            yield
    except StackscopeError as error:
        if error.remedy is not None:  # An experiment records into its folder.
            error.remedy = error.remedy.replace(ELSEWHERE, "another --folder")
        error.remedy = " ".join([*([error.remedy] if error.remedy else []), f"Finished runs are kept. {on}"])
        raise


class Interrupts:
    """While it is entered, the first of `SIGNALS` only sets `received`; a later one raises `Interrupted` at once.

    A signal that this process ignores stays ignored (a job in the background of a script ignores Ctrl-C). Outside the
    main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self, on_received: Callable[[], None] | None = None) -> None:
        """`on_received` is called with the first of them, in the main thread, between any two of its instructions."""
        self.received: signal.Signals | None = None
        """The first signal. `None`: none came."""
        self._on_received = on_received
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Self:
        self._before = _answer(self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if not _bursts.is_new():
            return
        if self.received is not None:
            raise Interrupted(signal.Signals(number))
        self.received = signal.Signals(number)
        if self._on_received is not None:
            self._on_received()


def _answer(handler: Callable[[int, FrameType | None], object]) -> dict[signal.Signals, Handler]:
    """Have a function answer the signals that are not ignored; what answered them before."""
    before: dict[signal.Signals, Handler] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    return before


def _end(number: int, _frame: FrameType | None) -> None:
    if number != signal.SIGINT:
        with suppress(OSError):  # Not through `sys.stderr`, which it may have come in the middle of.
            os.write(2, f"stackscope: {_how(signal.Signals(number))}.\n".encode())
    os._exit(SIGNALLED + number)


def _raise(number: int, _frame: FrameType | None) -> None:
    if _bursts.is_new():
        raise Interrupted(signal.Signals(number))


def _number_of(error: KeyboardInterrupt) -> signal.Signals:
    return error.number if isinstance(error, Interrupted) else signal.SIGINT


def _how(number: signal.Signals) -> str:
    return "interrupted" if number == signal.SIGINT else f"ended by {number.name}"


def _tell(text: str) -> None:
    with suppress(OSError):  # A terminal that was closed takes no more words.
        print(f"stackscope: {harmless(text)}", file=sys.stderr)
