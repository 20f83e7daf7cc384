"""The terminal, driven so that it may stand still, vanish, be suspended or be shared without doing harm."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from codecs import getincrementaldecoder
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

from stackscope.tui.terminal import MOST_COLUMNS, MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

RESTORE_S: Final = 0.5
"""How long the last words may take on a terminal that does not read."""
TICK_S: Final = 0.1
SEQUENCE_S: Final = 1.0
"""How long the rest of a key's sequence is waited for at most."""
STALLED: Final = 2
"""Writes that wait, from which on the terminal is slower than what is drawn."""

STDOUT: Final = 1
"""The file descriptor, whatever object `sys.stdout` is."""

_PIECE_BYTES: Final = 1 << 14


class TerminalWriter(threading.Thread):
    """Writes to the terminal from a thread of its own, so that nobody waits for it and its end harms nobody."""

    def __init__(self, descriptor: int, *, on_gone: Callable[[], None] = lambda: None) -> None:
        """`on_gone` is called, by the thread, when the terminal takes nothing any more because it is gone."""
        super().__init__(daemon=True, name="terminal writer")
        self._descriptor = opened_anew(descriptor)
        self._on_gone = on_gone
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._n_taken = 0
        """Of the waiting, those that are being written."""
        self._deadline_ns: int | None = None
        """When to give up. `None`: not while the program runs."""
        self._is_gone = False
        self.has_written_all = True
        """False: it was stopped before the terminal had taken everything."""

    @property
    def n_waiting(self) -> int:
        """Writes that the terminal has not taken yet."""
        return len(self._waiting)

    def write(self, text: str) -> None:
        """Have a text written."""
        with self._changed:
            if not self._is_gone:
                self._waiting.append(text.encode("utf-8", "replace"))
                self._changed.notify()

    def stop(self) -> None:
        """Write what waits, as far as the terminal takes it soon, and end."""
        with self._changed:
            self._deadline_ns = time.monotonic_ns() + round(RESTORE_S * 1e9)
            self._changed.notify()
        self.join()

    def run(self) -> None:
        """Write until it is stopped, or the terminal is gone."""
        try:
            while data := self._next():
                if not self._write(data):
                    break
        except OSError:
            self._on_gone()
        finally:
            with self._changed:
                self._is_gone = True
                self.has_written_all = not self._waiting
                self._waiting.clear()
            os.close(self._descriptor)

    def _next(self) -> bytes:
        """Everything that waits, once there is something. Empty: nothing will come any more."""
        with self._changed:
            for _ in range(self._n_taken):
                self._waiting.popleft()
            self._changed.wait_for(lambda: self._waiting or self._deadline_ns is not None)
            self._n_taken = len(self._waiting)
            return b"".join(self._waiting)

    def _write(self, data: bytes) -> bool:
        """False: the terminal did not take it in time."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left[:_PIECE_BYTES]) :]
            except BlockingIOError:
                if self._deadline_ns is not None and time.monotonic_ns() > self._deadline_ns:
                    return False
                select.select((), (self._descriptor,), (), 0.1)
        return True


def opened_anew(descriptor: int) -> int:
    """The same terminal once more: as non-blocking as its writer likes, which the shell does not notice.

    Where it cannot be opened (it belongs to another user, after `su`), a duplicate, which may block.
    """
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.dup(descriptor)


class TerminalDriver(LinuxDriver):
    """Textual's driver for a terminal on standard input and output. What goes to standard error is left alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._output = STDOUT
        self._input_end = os.pipe()
        """Holds a byte when no more keys are to be read."""
        self._terminal: TerminalWriter | None = None
        self._is_suspended = False
        self.has_written_all = True
        """False: the terminal did not take the last that was written to it."""

    @property
    def is_stalled(self) -> bool:
        """The terminal does not keep up, or stands still."""
        terminal = self._terminal
        return terminal is not None and terminal.n_waiting >= STALLED

    # The output

    def write(self, data: str) -> None:
        """Have data written, without waiting for it."""
        if self._terminal is not None:
            self._terminal.write(data)

    def start_application_mode(self) -> None:
        """Take the terminal over."""
        self._is_suspended = False
        self._terminal = TerminalWriter(self._output, on_gone=self._hang_up)
        self._terminal.start()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Give the terminal back for good, or until it is resumed."""
        super().close()
        if self._terminal is not None:
            self._terminal.stop()
            self.has_written_all = self._terminal.has_written_all
            self._terminal = None

    def _hang_up(self) -> None:
        """End the program as the kernel would have it, also where that signal is ignored."""
        self._loop.call_soon_threadsafe(self._app.exit)

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and rows as the terminal says, whatever `COLUMNS` says, as far as it can be believed."""
        with suppress(OSError):
            size = os.get_terminal_size(self._output)
            if size.columns > 0 and size.lines > 0:
                return min(size.columns, MOST_COLUMNS), min(size.lines, MOST_ROWS)
        return (80, 24)

    def _enable_mouse_support(self) -> None:
        """Have clicks reported, but not every movement: nothing here follows the mouse."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    # The input

    def disable_input(self) -> None:
        """Read no more keys."""
        os.write(self._input_end[1], b".")
        super().disable_input()
        os.read(self._input_end[0], 1)

    def run_input_thread(self) -> None:
        """Read keys until told otherwise: as Textual's own does, but without looking ten times a second."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        read_at = -SEQUENCE_S
        while not self.exit_event.is_set():
            # The rest of a key's sequence may be on its way; where none comes, the parser has to know that.
            patience_s = TICK_S if time.monotonic() - read_at < SEQUENCE_S else None
            ready, _, _ = select.select((self.fileno, self._input_end[0]), (), (), patience_s)
            if self.fileno in ready:
                try:
                    data = os.read(self.fileno, _PIECE_BYTES)
                except OSError:
                    data = b""  # It is gone.
                if not data:
                    self._hang_up()
                    return
                read_at = time.monotonic()
                for event in parser.feed(decode(data)):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    # Being suspended

    def suspend_application_mode(self) -> None:
        """Give the terminal back until `resume_application_mode`."""
        self._is_suspended = True
        super().suspend_application_mode()

    def resume_application_mode(self) -> None:
        """Take the terminal back, whose other screen is empty by now."""
        super().resume_application_mode()
        self._loop.call_soon_threadsafe(self._repaint)

    def _repaint(self) -> None:
        for widget in (self._app.screen, *self._app.screen.walk_children()):
            widget.refresh()

    def _sigtstp_application(self, *_: object) -> None:
        """Stop as any program does on ^Z; where no shell could wake it, the kernel does not stop it."""
        if self._auto_restart:
            self.suspend_application_mode()
            self._must_signal_resume = True
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        if self._auto_restart and self._is_suspended:
            self.resume_application_mode()

    def _sigcont_application(self, *_: object) -> None:
        """Come back. From a stop that nobody announced, too: the shell has changed the terminal's modes meanwhile."""
        if self._auto_restart:
            if not self._is_suspended:
                self.suspend_application_mode()
            self.resume_application_mode()
