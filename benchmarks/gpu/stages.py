"""Runs stages one after the other, each in a process with a time limit, and remembers which of them are done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from benchmarks.gpu.folders import ROOT, say, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.gpu.folders import Folders

LEAST_S: Final = 5.0
"""A stage is not begun with less than this left."""
GRACE_S: Final = 5.0
"""Between being asked to end and being killed."""
LEFT: Final = 3
"""Exit status when stages are left for another call."""
DOUBTS: Final = 4
"""Exit status of a stage that did all of its work and found something that cannot be: doing it again would cost time
and find the same."""


OUTCOMES: Final = {0: "done", DOUBTS: "doubtful"}


class Stage(NamedTuple):
    """One part of the check."""

    name: str
    module: str
    limit_s: float
    what: str
    needs: tuple[str, ...] = ()
    is_resumable: bool = False
    """A later call goes on where the time limit cut it off."""


class Run(Protocol):
    """Runs a stage for so long at most. Answers its exit status; `None`: the time was up."""

    def __call__(self, stage: Stage, limit_s: float) -> int | None: ...


class State:
    """What became of each stage, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stages: dict[str, dict[str, object]] = json.loads(path.read_text()) if path.exists() else {}

    def is_done(self, name: str) -> bool:
        return self.outcome(name) in ("done", "doubtful")

    def outcome(self, name: str) -> str:
        """`done`, `doubtful`, `failed`, `cut off`, or `not begun`."""
        return str(self._stages.get(name, {}).get("outcome", "not begun"))

    def note(self, name: str, outcome: str, seconds: float) -> None:
        """Remember an outcome. Time adds up over attempts."""
        before = self._stages.get(name, {}).get("seconds", 0.0)
        spent = seconds + (before if isinstance(before, float) else 0.0)
        self._stages[name] = {"outcome": outcome, "seconds": round(spent, 1)}
        write_json(self._path, self._stages)

    def seconds(self, name: str) -> float:
        """Time spent on a stage so far."""
        spent = self._stages.get(name, {}).get("seconds", 0.0)
        return spent if isinstance(spent, float) else 0.0

    def forget(self, names: Sequence[str]) -> None:
        """Have stages done again."""
        self._stages = {name: stage for name, stage in self._stages.items() if name not in names}
        write_json(self._path, self._stages)


def in_process(folders: Folders, options: Sequence[str] = ()) -> Run:
    """Runs stages as processes of this Python, with all that they start ended when their time is up."""

    def run(stage: Stage, limit_s: float) -> int | None:
        command = [sys.executable, "-m", stage.module, *folders.arguments(), *options]
        with subprocess.Popen(command, env=folders.environment(), cwd=ROOT, start_new_session=True) as child:
            try:
                return child.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(child)

    return run


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process and all of its session, even when the process itself has ended already."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def perform(
    stages: Sequence[Stage],
    state: State,
    run: Run,
    *,
    limit_s: float,
    wanted: Sequence[str],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Do what is wanted and not done, in order and within the time. Returns an exit status.

    0: all of it is done. 1: a stage failed. `LEFT`: the time was too short, and another call goes on.
    """
    until = clock() + limit_s
    is_failed = False
    for stage in stages:
        if stage.name not in wanted or state.is_done(stage.name):
            continue
        missing = [name for name in stage.needs if not state.is_done(name)]
        if missing:
            say(f"--- {stage.name}: left out, because {' and '.join(missing)} is not done")
            is_failed = True
            continue
        left = until - clock()
        if left < (LEAST_S if stage.is_resumable else min(stage.limit_s, limit_s - LEAST_S)):
            say(f"--- {stage.name}: left for the next call, {left:.0f} s are not enough")
            return LEFT
        limit = min(stage.limit_s, left)
        say(f"--- {stage.name}: {stage.what}; {limit:.0f} s at most")
        began = clock()
        status = run(stage, limit)
        outcome = "cut off" if status is None else OUTCOMES.get(status, "failed")
        state.note(stage.name, outcome, clock() - began)
        say(f"--- {stage.name}: {outcome} after {clock() - began:.0f} s")
        if outcome == "cut off" and stage.is_resumable:
            return LEFT
        is_failed |= outcome != "done"
    return 1 if is_failed else 0
