"""What set-up says while it works: one live line on a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PLAIN_INTERVAL_S = 15.0
LIVE_INTERVAL_S = 0.25


class SetupError(Exception):
    """Set-up cannot go on; the message is what the user reads."""


def clock(seconds: float) -> str:
    """`0:07`, `2:19`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Step:
    """One step of set-up on screen, from its announcement to how long it took."""

    def __init__(self, title: str, *, note: str | None = None) -> None:
        self._title = title
        self._started = time.monotonic()
        self._is_live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._next_line = self._started + PLAIN_INTERVAL_S
        self.detail = ""
        """What is being done right now, e.g. `41/75 files`."""
        print(f"  {title}{f' ({note})' if note is not None else ''}", flush=True)

    def tick(self) -> None:
        """Show that time passes; call often."""
        now = time.monotonic()
        text = f"    {clock(now - self._started)}  {self.detail}"
        if self._is_live:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{text[: width - 1]}", end="", flush=True)
        elif now >= self._next_line:
            self._next_line = now + PLAIN_INTERVAL_S
            print(text.rstrip(), flush=True)

    def end(self, *, done: bool) -> None:
        """Take the live line away, and say how long a finished step took."""
        if self._is_live:
            print("\r\x1b[K", end="", flush=True)
        elapsed = time.monotonic() - self._started
        if done and elapsed >= 1.0:
            print(f"    done in {clock(elapsed)}", flush=True)


def run_step(
    title: str,
    command: Sequence[str],
    log: Path,
    *,
    note: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    keep_open: Sequence[int] = (),
    detail_of: Callable[[str], str | None] = lambda _line: None,
) -> bool:
    """Run a command with its output in `log`, shown as one step. Returns whether it succeeded.

    `detail_of` picks what to show out of an output line; `keep_open` are descriptors that the command inherits.
    """
    step = Step(title, note=note)
    log.parent.mkdir(parents=True, exist_ok=True)
    is_done = False
    try:
        with (
            log.open("ab") as record,
            subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(environment) if environment is not None else None,
                cwd=folder,
                pass_fds=tuple(keep_open),
                start_new_session=True,
            ) as process,
        ):
            try:
                _follow(process, step, record.write, detail_of)
            except BaseException:
                _end_group(process)
                raise
            is_done = process.wait() == 0
    finally:
        step.end(done=is_done)
    return is_done


def _follow(
    process: subprocess.Popen[bytes],
    step: Step,
    record: Callable[[bytes], object],
    detail_of: Callable[[str], str | None],
) -> None:
    """Drain the command's output until it closes it, keeping the step's line alive in between."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if selector.select(LIVE_INTERVAL_S):
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    return
                record(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    detail = detail_of(line.decode(errors="replace"))
                    if detail is not None:
                        step.detail = detail
            step.tick()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the command with all that it started: an interrupted set-up leaves no compiler running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def failure(sentence: str, log: Path, telling: Sequence[str] | None = None) -> str:
    """What went wrong, the telling lines of the log (`None`: its last), and where the rest of it is."""
    if telling is None:
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        noise = ("note:", "hint:", "WARNING:")
        telling = [line for line in lines if line.strip() and not line.strip().startswith(noise)][-10:]
    return "\n".join([sentence.strip(), *(f"    {line}" for line in telling), f"  The whole log: {log}"])
