"""Signals as a wish: the first waits to be looked at, the second does not; what was ignored stays so."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from stackscope.commands.interrupts import SIGNALS, Interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_is_noted_and_the_second_interrupts(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        assert interrupts.received is None
        signal.raise_signal(number)
        assert interrupts.received is number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.received is number


def test_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.received is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_elsewhere_than_in_the_main_thread_it_does_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def enter() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]
