"""Comparing recordings in a process of its own, which can be given up at any moment.

For who has a screen to keep moving: reading a million steps holds an interpreter for seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from stackscope.analysis.comparing.comparison import Comparison
from stackscope.engine.logring import clean
from stackscope.engine.wire import error_of
from stackscope.errors import SessionFileError
from stackscope.experiments.apart import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

WORKER: Final = ("-P", "-m", "stackscope.experiments.comparing_worker")

LOOK_S: Final = 0.1
"""How often it is asked whether the answer is still wanted."""


class Compared(msgspec.Struct, frozen=True, kw_only=True, tag="compared"):
    """It could be done."""

    comparison: Comparison


Answer: TypeAlias = Compared | Refused


def compare_apart(
    paths: Sequence[Path], is_wanted: Callable[[], bool], *, worker: Sequence[str] = WORKER
) -> Comparison | None:
    """Compare two or more recordings, each with the first. `None`: it was wanted no longer.

    `worker` are the interpreter's arguments that start the process. Raises the `StackscopeError` that prevents it.
    """
    with tempfile.TemporaryFile() as answered, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                [sys.executable, *worker, f"--parent={os.getpid()}", "--", *map(os.fspath, paths)],
                stdin=subprocess.DEVNULL,
                stdout=answered,
                stderr=said,
                start_new_session=True,  # Ended together with the processes that it starts in turn.
            )
        except OSError as error:
            raise SessionFileError(f"The comparing process cannot be started: {error.strerror}.") from error
        try:
            while process.poll() is None:
                if not is_wanted():
                    return None
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
        finally:
            _end(process)
        return _answer(process.returncode, answered, said)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, if it has not ended, and those that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answer(status: int, answered: BinaryIO, said: BinaryIO) -> Comparison:
    answered.seek(0)
    try:
        answer = msgspec.msgpack.decode(answered.read(), type=Answer)
    except msgspec.DecodeError:
        said.seek(0)
        lines = [line for line in map(clean, said.read().splitlines()) if line.strip()]
        why = lines[-1] if status > 0 and lines else f"their process ended with status {status}"
        raise SessionFileError(f"They could not be compared: {why}.") from None
    if isinstance(answer, Refused):
        raise error_of(answer.failure)
    return answer.comparison
