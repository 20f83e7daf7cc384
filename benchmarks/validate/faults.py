"""Neighbours that disturb the engine: one that streams memory, one that computes, and a hand that stops it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.validate.scenarios import Fault

PERIOD_S: Final = 0.02
"""Of the duty cycles: about a step."""
STREAM_BYTES: Final = 64 << 20
"""Far beyond any cache."""


@contextmanager
def disturbed(fault: Fault | None, pid: int) -> Iterator[int | None]:
    """Have the fault act on the engine's process; the process that disturbs it, where there is one."""
    if fault is None:
        yield None
    elif fault.kind == "stop":
        with _stopped(pid, fault.duty):
            yield None
    else:
        command = [sys.executable, "-m", "benchmarks.validate.faults", fault.kind, str(fault.duty)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            yield child.pid
        finally:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()


@contextmanager
def _stopped(pid: int, duty: float) -> Iterator[None]:
    """Stop the process for part of every period, as a quota does."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(PERIOD_S * (1 - duty)):
            if duty > 0:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                is_over.wait(PERIOD_S * duty)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def main(kind: str, duty: float) -> None:
    """Disturb until the parent ends: it holds the other end of standard input."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    work = _stream() if kind == "bandwidth" else _compute()
    while True:
        began = time.monotonic()
        while time.monotonic() - began < PERIOD_S * duty:
            next(work)
        time.sleep(PERIOD_S * (1 - duty))


def _stream() -> Iterator[None]:
    """Copy memory, a piece at a time."""
    import numpy as np

    if hasattr(os, "sched_setaffinity"):  # on one core, so that it costs the engine memory rather than time
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    source, sink = np.ones(STREAM_BYTES // 8), np.zeros(STREAM_BYTES // 8)
    piece = 1 << 17
    while True:
        for start in range(0, len(source), piece):
            sink[start : start + piece] = source[start : start + piece]
            yield


def _compute() -> Iterator[None]:
    """Compute in registers."""
    while True:
        total = 0
        for number in range(10_000):
            total ^= number
        yield


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
