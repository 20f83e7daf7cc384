"""Writing to a terminal that reads, that stands still, and that is gone."""

from __future__ import annotations

import os
import pty
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.tui.driver import RESTORE_S, STALLED, TerminalWriter, opened_anew

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S: Final = 20.0


class Terminal:
    """Both ends of a terminal."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self._is_open = True

    def hang_up(self) -> None:
        os.close(self.master)
        self._is_open = False

    def read(self, n: int) -> bytes:
        """Exactly so many bytes."""
        found = b""
        while len(found) < n:
            found += os.read(self.master, n - len(found))
        return found

    def close(self) -> None:
        os.close(self.slave)
        if self._is_open:
            os.close(self.master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    found.close()


def test_what_is_written_arrives_whole_and_in_order(terminal: Terminal) -> None:
    writer = TerminalWriter(terminal.slave)
    writer.start()
    pieces = [f"<{n}>" * 500 for n in range(50)]
    for piece in pieces:
        writer.write(piece)
    whole = "".join(pieces)
    assert terminal.read(len(whole)) == whole.encode()
    writer.write("é")
    assert terminal.read(2) == "é".encode()
    writer.stop()
    assert writer.has_written_all


def test_nobody_waits_for_a_terminal_that_stands_still(terminal: Terminal) -> None:
    """Case 62."""
    writer = TerminalWriter(terminal.slave)
    writer.start()
    began = time.monotonic()
    for _ in range(100):
        writer.write("x" * 100_000)
    assert time.monotonic() - began < 1.0
    assert writer.n_waiting >= STALLED
    began = time.monotonic()
    writer.stop()
    assert RESTORE_S <= time.monotonic() - began < RESTORE_S + 1.0
    assert not writer.has_written_all


def test_a_terminal_that_wakes_up_gets_everything(terminal: Terminal) -> None:
    writer = TerminalWriter(terminal.slave)
    writer.start()
    for _ in range(10):
        writer.write("x" * 100_000)
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    assert terminal.read(1_000_000) == b"x" * 1_000_000
    stopping.join(DEADLINE_S)
    assert writer.has_written_all


def test_a_terminal_that_is_gone_is_told_once_and_harms_nobody(terminal: Terminal) -> None:
    gone = threading.Event()
    writer = TerminalWriter(terminal.slave, on_gone=gone.set)
    writer.start()
    terminal.hang_up()
    writer.write("x")
    assert gone.wait(DEADLINE_S)
    writer.join(DEADLINE_S)
    writer.write("y")
    assert writer.n_waiting == 0
    writer.stop()


def test_the_terminal_of_the_shell_stays_as_it_is(terminal: Terminal) -> None:
    """Case 27: what is drawn goes through a descriptor of its own."""
    own = opened_anew(terminal.slave)
    assert not os.get_blocking(own)
    assert os.get_blocking(terminal.slave)
    os.close(own)


def test_a_terminal_that_cannot_be_opened_is_duplicated() -> None:
    read, write = os.pipe()
    own = opened_anew(write)
    os.write(own, b"x")
    assert os.read(read, 1) == b"x"
    for descriptor in (own, read, write):
        os.close(descriptor)
