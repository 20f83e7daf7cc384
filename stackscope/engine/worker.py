"""The engine process: runs the engine over its traffic, obeys commands, and sends records to its parent.

Started by `engine.process`. Standard output and error are the parent's log ring; commands and records have a pipe each.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from stackscope.engine import wire
from stackscope.engine.inbox import Inbox
from stackscope.engine.listener import EXIT_ORPHANED, Listener
from stackscope.engine.openmp import usable_cores
from stackscope.engine.outbox import Outbox
from stackscope.errors import EngineError, StackscopeError
from stackscope.records import Log, Mark, TrafficEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.engine.contracts import EngineLike, TrafficLike
    from stackscope.engine.turn import Turn

EXIT_BUG: Final = 70
"""Exit status after an exception that is no `StackscopeError` (EX_SOFTWARE)."""

PREPARED: Final = 64
"""Jobs made at most before the traffic begins: each takes up to 10 ms, in which the engine would stand still."""

_PR_SET_PDEATHSIG: Final = 1

LITTER: Final = 1_000
"""Objects allocated and not freed since the last collection that make one worth while when there is nothing to do."""

GARBAGE: Final = 10_000
"""The same between two steps of an engine that never rests: a pause of 0.2 ms, where 100,000 objects would take 8."""

COLLECTION_NS: Final = 20_000_000
"""A rest shorter than this is not used for a collection."""


class Worker:
    """The loop of the engine process, from `Begin` to the last message."""

    def __init__(
        self, engine: EngineLike, traffic: TrafficLike, inbox: Inbox, outbox: Outbox, clock: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._traffic = traffic
        self._inbox = inbox
        self._outbox = outbox
        self._now = clock
        self._shows_text = engine.text_is_read = False
        self._n_noted = 0
        self._offer_ns: int | None = 0
        """When the traffic is to be asked for jobs again. `None`: once a request has ended or a command has come."""
        self._is_draining = False
        self._is_quitting = False

    def run(self, early: Sequence[wire.AnyCommand] = ()) -> None:
        """Offer the traffic until it is done or somebody quits. Raises `StackscopeError` when the engine fails.

        `early` are commands that have arrived already.
        """
        commands = list(early)
        self._traffic.start(self._now())
        while True:
            if commands:
                self._offer_ns = 0
                for command in commands:
                    self._obey(command)
            if self._is_quitting:
                break
            if self._offer_ns is not None and not self._is_draining:
                self._offer()
            if self._inbox.begin_step(self._engine.interrupt):
                try:
                    turn = self._engine.step()
                finally:
                    self._inbox.end_step()
                if turn is not None:
                    self._deliver(turn)
                elif self._is_over():
                    break
                else:
                    commands = self._rest()
                    self._offer_ns = 0
                    continue
            commands = self._inbox.take()
        self._outbox.record(*self._engine.drain("cancelled"))
        is_cut_short = self._is_quitting or self._is_draining
        self._outbox.message(wire.Done(reason="interrupted" if is_cut_short else "done"))

    def fail(self, error: StackscopeError) -> None:
        """Say why the session ends, and what became of the requests in flight."""
        try:
            self._outbox.record(*self._engine.drain("error"))
        except StackscopeError as another:
            sys.stderr.write(f"Ending the requests in flight failed as well: {another}\n")
        self._outbox.message(wire.failure_of(error))

    def _offer(self) -> None:
        """Submit what is due, and pass on what the traffic has to say about it."""
        now = self._now()
        assert self._offer_ns is not None
        if now < self._offer_ns:
            return
        jobs = self._traffic.due(now, self._engine.in_flight)
        self._offer_ns = self._traffic.next_arrival_ns()
        for job in jobs:
            self._engine.submit(job)
        if jobs and len(self._traffic.notes) > self._n_noted:
            new = self._traffic.notes[self._n_noted :]
            self._n_noted += len(new)
            for note in new:
                self._outbox.record(Log(at_ns=self._now(), text=note))
                self._outbox.message(wire.Note(text=note))

    def _is_over(self) -> bool:
        """Nothing runs, and nothing will. Raises `EngineError` when something is in flight that does not run."""
        if self._engine.in_flight > 0:
            raise EngineError(f"The engine holds {self._engine.in_flight} requests and can run none of them.")
        return self._is_draining or self._traffic.done

    def _deliver(self, turn: Turn) -> None:
        outbox = self._outbox
        outbox.record(turn.step, *turn.finished, *turn.aside)
        if turn.answers:
            self._offer_ns = 0
            now = self._now()
            for answer in turn.answers:
                self._traffic.finished(answer.request, answer.tokens, now_ns=now)
        if self._shows_text and turn.texts:
            outbox.show(turn.texts)
        if outbox.flush_if_due():
            if outbox.is_full:
                self._wait_for_reader()
            if gc.get_count()[0] > GARBAGE:
                gc.collect(0)

    def _rest(self) -> list[wire.AnyCommand]:
        """Wait for the next arrival or command, sending what is due meanwhile; the commands that ended it."""
        self._engine.idle()
        while True:
            self._outbox.flush_if_due()
            now = self._now()
            arrival = None if self._is_draining else self._traffic.next_arrival_ns()
            if arrival is not None and arrival <= now:
                return []
            if gc.get_count()[0] > LITTER and (arrival is None or arrival - now > COLLECTION_NS):
                gc.collect()
                continue
            waits = [] if arrival is None else [arrival - now]
            write = self._outbox.wait_ns
            if write is not None:
                waits.append(write)
            commands = self._inbox.wait(min(waits, default=None))
            if commands:
                return commands

    def _wait_for_reader(self) -> None:
        """Rest until the reader, away for minutes, has taken half of what waits; only quitting ends it before."""
        self._outbox.record(Log(at_ns=self._now(), text="The engine rests: its records are not being read."))
        self._engine.idle()
        self._offer_ns = 0
        while self._outbox.is_half_full and not self._is_quitting:
            self._outbox.flush_if_due()
            for command in self._inbox.wait(self._outbox.wait_ns):
                self._obey(command)
        self._outbox.record(Log(at_ns=self._now(), text="The engine goes on: its records are being read again."))

    def _obey(self, command: wire.AnyCommand) -> None:
        try:
            match command:
                case wire.Reconfigure():
                    config = wire.applied(self._engine.config, command.changes)
                    self._outbox.record(self._engine.reconfigure(config, command.by))
                case wire.SetConcurrency():
                    self._traffic.set_concurrency(command.concurrency)
                    self._outbox.record(TrafficEvent(at_ns=self._now(), concurrency=command.concurrency))
                case wire.SetRate():
                    now = self._now()
                    self._traffic.set_rate(command.rate, now_ns=now)
                    self._outbox.record(TrafficEvent(at_ns=now, rate=command.rate))
                case wire.Cancel():
                    self._engine.cancel(command.request)
                case wire.SetMark():
                    self._outbox.record(Mark(at_ns=self._now(), label=command.label))
                case wire.ShowText():
                    self._shows_text = self._engine.text_is_read = command.shown
                case wire.Quit():
                    self._is_draining = True
                    self._is_quitting |= not command.drain
                case wire.Start() | wire.Begin():
                    raise AssertionError(f"{type(command).__name__} in the middle of a session")
        except EngineError:
            raise
        except StackscopeError as error:
            self._outbox.message(wire.Refused(text=error.message, remedy=error.remedy))


def open_session(
    args: argparse.Namespace, inbox: Inbox, outbox: Outbox, listener: Listener
) -> tuple[Worker, list[wire.AnyCommand]]:
    """Load what `Start` asks for and wait for `Begin`: the worker, and what it is to do first."""
    commands: list[wire.AnyCommand] = []
    while not commands:
        commands = inbox.wait()
    start, *commands = commands
    assert isinstance(start, wire.Start), start

    origin_ns = start.origin_ns
    monotonic_ns = time.monotonic_ns

    def now() -> int:
        return monotonic_ns() - origin_ns

    engine_class: type[EngineLike] = named(args.engine)
    traffic_class = named(args.traffic)
    engine = engine_class.open(start.config, clock=now, progress=Progress(outbox), keep_text=start.record_text)
    listener.engine = engine
    traffic: TrafficLike = traffic_class(
        start.workload, engine.tokenizer, context_tokens=engine.context_tokens, keep_text=start.record_text
    )
    traffic.prepare(min(start.workload.concurrency, PREPARED))
    outbox.message(
        wire.Ready(
            library=engine.library,
            model=engine.model,
            draft=engine.draft,
            config=engine.config,
            capabilities=engine.capabilities,
            context_tokens=engine.context_tokens,
            devices=engine.devices,
            note=engine.softened,
        )
    )
    outbox.flush()
    gc.collect()
    gc.freeze()  # What is loaded stays; later collections need not look at it.
    gc.disable()
    while not any(isinstance(command, wire.Begin | wire.Quit) for command in commands):
        commands += inbox.wait()
    return Worker(engine, traffic, inbox, outbox, now), [c for c in commands if not isinstance(c, wire.Begin)]


class Progress:
    """Sends how far loading has got, no oftener than it is written."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._what: str | None = None

    def __call__(self, what: str, fraction: float) -> None:
        if what != self._what or fraction >= 1.0 or self._outbox.due_ns is None:
            self._what = what
            self._outbox.message(wire.Loading(what=what, fraction=fraction))
        self._outbox.flush_if_due()


def named(path: str) -> Any:
    """The object that `module:name` stands for."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def run_session(args: argparse.Namespace, inbox: Inbox, outbox: Outbox, listener: Listener) -> int:
    """The whole session; the exit status. An exception that is no `StackscopeError` passes through, a bug."""
    worker = None
    try:
        worker, early = open_session(args, inbox, outbox, listener)
        worker.run(early)
    except StackscopeError as error:
        if worker is None:
            outbox.message(wire.failure_of(error))
        else:
            worker.fail(error)
        return error.exit_code
    finally:
        outbox.finish()
    return 0


def leave_ending_to_parent() -> None:
    """Ignore the signals that ask to end: they reach the parent as well, which decides."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of `parent` that started it ends.

    That must be its main thread, or one that waits for this process.

    The end of the command pipe says so as well, but not to a process that is stopped or deep in native code.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, required=True, help="descriptor to read commands from")
    parser.add_argument("--records", type=int, required=True, help="descriptor to write records and messages to")
    parser.add_argument("--parent", type=int, help="process to die with")
    parser.add_argument("--engine", default="stackscope.engine.loop:Engine", help=argparse.SUPPRESS)
    parser.add_argument("--traffic", default="stackscope.workload.traffic:Traffic", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    leave_ending_to_parent()
    faulthandler.enable(all_threads=False)
    if args.parent is not None:
        die_with(args.parent)
    usable_cores()  # Before the library binds this thread to one of them.
    inbox = Inbox()
    outbox = Outbox(args.records)
    listener = Listener(args.commands, inbox, outbox)
    listener.start()
    status = EXIT_BUG
    try:
        status = run_session(args, inbox, outbox, listener)
    finally:
        if status == EXIT_BUG:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not through the interpreter's end: libraries with a GPU behind them are known to crash in their destructors.
        os._exit(status)


if __name__ == "__main__":
    main()
