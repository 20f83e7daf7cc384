"""A task in a process of its own, beside the engine's library: how it is started, and how it answers.

The task is a line on its standard input, answers are lines on its standard output; what native code prints goes to
standard error.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

import msgspec

from stackscope.engine.openmp import usable_cores
from stackscope.engine.wire import Failed, failure_of, not_utf8
from stackscope.engine.worker import EXIT_BUG, die_with, leave_ending_to_parent
from stackscope.errors import EngineError, StackscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import BinaryIO

T = TypeVar("T", bound=msgspec.Struct)
Say: TypeAlias = "Callable[[msgspec.Struct], None]"


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The task could not be done; the last answer."""

    failure: Failed


def start(
    worker: Sequence[str], environment: Mapping[str, str], said: BinaryIO, *, what: str
) -> subprocess.Popen[bytes]:
    """Start a process that dies with this one.

    `worker` are the interpreter's arguments; what the process prints besides its answers goes to `said`. Raises
    `EngineError`, in which `what` is what the process is called.
    """
    command = [sys.executable, *worker]
    if threading.current_thread() is threading.main_thread():
        command.append(f"--parent={os.getpid()}")
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one.
        )
    except OSError as error:
        raise EngineError(f"The {what} process cannot be started: {error.strerror}.") from error


def give(process: subprocess.Popen[bytes], task: msgspec.Struct) -> None:
    """Give the process its task. Raises `UsageError` when that cannot be written down."""
    try:
        line = msgspec.json.encode(task) + b"\n"
    except UnicodeEncodeError:
        raise not_utf8(task) from None
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:  # How it ended is what its silence says.
        pipe.write(line)


def serve(about: str | None, kind: type[T], work: Callable[[T, Say], None]) -> NoReturn:
    """Be such a process: do a task of this kind, and end.

    `work` takes the task, and what says an answer. The `StackscopeError` that prevents it is answered by `Refused`, and
    its exit code is the status; after any other exception that is `EXIT_BUG`.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--parent", type=int, help="process to die with")
    args = parser.parse_args()
    leave_ending_to_parent()
    faulthandler.enable(all_threads=False)
    if args.parent is not None:
        die_with(args.parent)
    usable_cores()  # Before the library binds this thread to one of them.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(answer: msgspec.Struct) -> None:
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()

    status = EXIT_BUG
    try:
        work(msgspec.json.decode(sys.stdin.buffer.readline(), type=kind), say)
        status = 0
    except StackscopeError as error:
        say(Refused(failure=failure_of(error)))
        status = error.exit_code
    finally:
        if status == EXIT_BUG:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # As the engine does: destructors of libraries with a GPU behind them are known to crash.
