"""Commands and the step that they wait for."""

from __future__ import annotations

import threading

from stackscope.engine import wire
from stackscope.engine.inbox import PATIENCE_NS, Inbox


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ns = 10**12

    def __call__(self) -> int:
        return self.ns


class Step:
    """Counts how often it was cut short."""

    def __init__(self) -> None:
        self.n_interrupts = 0

    def interrupt(self) -> None:
        self.n_interrupts += 1


CANCEL = wire.Cancel(request=1)
QUIT = wire.Quit()


def test_commands_come_out_in_order_and_once() -> None:
    inbox = Inbox()
    assert inbox.is_empty
    inbox.put(CANCEL)
    inbox.put(QUIT)
    assert not inbox.is_empty
    assert inbox.take() == [CANCEL, QUIT]
    assert inbox.take() == []


def test_a_step_does_not_begin_while_a_command_waits() -> None:
    inbox, step = Inbox(), Step()
    inbox.put(CANCEL)
    assert not inbox.begin_step(step.interrupt)
    inbox.take()
    assert inbox.begin_step(step.interrupt)


def test_a_patient_command_waits_for_the_end_of_the_step() -> None:
    clock, step = Clock(), Step()
    inbox = Inbox(clock=clock)
    inbox.begin_step(step.interrupt)
    inbox.put(wire.ShowText(shown=True))
    clock.ns += 10**12
    inbox.interrupt_if_due()
    assert step.n_interrupts == 0
    assert inbox.wait_ns is None


def test_an_urgent_command_interrupts_when_its_patience_ends() -> None:
    clock, step = Clock(), Step()
    inbox = Inbox(clock=clock)
    inbox.begin_step(step.interrupt)
    inbox.put(CANCEL, patience_ns=PATIENCE_NS)
    assert inbox.wait_ns == PATIENCE_NS
    clock.ns += PATIENCE_NS - 1
    inbox.interrupt_if_due()
    assert step.n_interrupts == 0
    clock.ns += 1
    inbox.interrupt_if_due()
    inbox.interrupt_if_due()
    assert step.n_interrupts == 1  # Once is enough.


def test_the_least_patient_command_decides() -> None:
    clock, step = Clock(), Step()
    inbox = Inbox(clock=clock)
    inbox.begin_step(step.interrupt)
    inbox.put(CANCEL, patience_ns=PATIENCE_NS)
    inbox.put(QUIT, patience_ns=0)
    assert step.n_interrupts == 1


def test_a_step_that_ended_in_time_is_not_interrupted_nor_is_the_next() -> None:
    clock, step = Clock(), Step()
    inbox = Inbox(clock=clock)
    inbox.begin_step(step.interrupt)
    inbox.put(CANCEL, patience_ns=PATIENCE_NS)
    inbox.end_step()
    clock.ns += PATIENCE_NS
    inbox.interrupt_if_due()
    assert inbox.take() == [CANCEL]
    assert inbox.begin_step(step.interrupt)
    clock.ns += PATIENCE_NS
    inbox.interrupt_if_due()
    assert step.n_interrupts == 0


def test_an_urgent_command_between_steps_interrupts_nothing() -> None:
    inbox, step = Inbox(), Step()
    inbox.put(QUIT, patience_ns=0)
    assert step.n_interrupts == 0
    inbox.take()
    assert inbox.begin_step(step.interrupt)
    assert step.n_interrupts == 0


def test_waiting_ends_with_a_command_or_with_the_time() -> None:
    inbox = Inbox()
    assert inbox.wait(0) == []
    assert inbox.wait(-5) == []
    thread = threading.Thread(target=lambda: inbox.put(CANCEL))
    thread.start()
    assert inbox.wait() == [CANCEL]
    thread.join()
