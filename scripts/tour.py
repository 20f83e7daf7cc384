"""Drive the live screen in tmux as a user does, and check what came of it: every toggle by its key, in one run.

    python scripts/tour.py OUT            # needs tmux; OUT gets the screens as text, the recording and a report

Each toggle is marked in the recording, its key is pressed, and after some seconds the screen is captured. The
recording then tells whether each change came into force at a step boundary (live) or with one rebuild, whether a
request was lost, and whether anything failed. The exit status is 1 when something did not hold.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.session.reader import read_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.records import ConfigEvent
    from stackscope.session.reader import Session

ROOT: Final = Path(__file__).parents[1]
COLUMNS, ROWS = 120, 40
PATIENCE_S: Final = 30.0


class Stop(NamedTuple):
    """One key of the tour, and what it should come to."""

    name: str
    key: str
    settings: frozenset[str]
    """That may change with it."""
    kind: str


KV: Final = frozenset({"kv_type_k", "kv_type_v"})
STOPS: Final = (
    Stop("speculation on", "s", frozenset({"speculation"}), "live"),
    Stop("other draft source", "s", frozenset({"speculation"}), "live"),
    Stop("longer drafts", "]", frozenset({"draft_length"}), "live"),
    Stop("prefix cache off", "p", frozenset({"prefix_cache"}), "live"),
    Stop("prefix cache on", "p", frozenset({"prefix_cache"}), "live"),
    Stop("KV type", "k", KV, "rebuild"),
    Stop("more slots", "b", frozenset({"slots"}), "live"),
    Stop("weights", "w", frozenset({"model"}), "rebuild"),
    Stop("speculation off", "s", frozenset({"speculation"}), "live"),
)


class Terminal:
    """A tmux session of its own server, with the live screen in it."""

    def __init__(self, command: str) -> None:
        self._name = f"tour-{os.getpid()}"
        self._run("new-session", "-d", "-s", "tour", "-x", str(COLUMNS), "-y", str(ROWS), command)

    def _run(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._name, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @property
    def text(self) -> str:
        return self._run("capture-pane", "-p", "-t", "tour")

    def press(self, *keys: str) -> None:
        """Type keys, by tmux's names."""
        self._run("send-keys", "-t", "tour", *keys)

    def type(self, text: str) -> None:
        """Type a text as it is."""
        self._run("send-keys", "-l", "-t", "tour", text)

    @property
    def is_open(self) -> bool:
        return subprocess.run(["tmux", "-L", self._name, "has-session"], capture_output=True).returncode == 0

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], capture_output=True)


def drive(output: Path, arguments: Iterable[str]) -> Path:
    """Run the tour; the recording."""
    recording = output / "tour.jsonl.zst"
    python = shlex.quote(sys.executable)
    options = ["--workload", "chat", "--record", str(recording), "--concurrency", "4", *arguments]
    told = output / "after.txt"
    for left in (recording, told):
        left.unlink(missing_ok=True)
    command = f"cd {shlex.quote(str(ROOT))} && {python} -m stackscope live {shlex.join(options)} >&2 2>&1"
    terminal = Terminal(f"sh -c {shlex.quote(command + f'; echo rc $? > {shlex.quote(str(told))}')}")
    try:
        until(lambda: "tok/s" in terminal.text, "no tokens came")
        pause(3.0)
        for number, stop in enumerate(STOPS, 1):
            terminal.press("m")
            until(lambda: "Mark this moment" in terminal.text, "no dialog for a mark")
            terminal.type(stop.name)
            terminal.press("Enter")
            until(lambda: "Mark this moment" not in terminal.text, "the dialog stays")
            terminal.press(stop.key)
            pause(4.0)
            (output / f"{number}-{stop.name.replace(' ', '-')}.txt").write_text(terminal.text)
        terminal.press("q")
        until(lambda: told.exists(), "it does not end")
        if told.read_text() != "rc 0\n":
            raise SystemExit(f"The screen ended with {told.read_text().strip()}.")
    finally:
        terminal.close()
    return recording


def pause(seconds: float) -> None:
    """Let what was asked for run for a while."""
    threading.Event().wait(seconds)


def until(holds: object, what: str) -> None:
    """Wait for something on the screen."""
    assert callable(holds)
    for _ in range(round(PATIENCE_S / 0.05)):
        if holds():
            return
        pause(0.05)
    raise SystemExit(f"The tour stopped: {what} in {PATIENCE_S:.0f} s.")


def report(session: Session) -> tuple[list[str], list[str]]:
    """(what happened, what did not hold)."""
    lines, faults = [], []
    marks = {mark.label: mark.at_ns for mark in session.marks}
    for stop in STOPS:
        begins = marks.get(stop.name)
        if begins is None:
            faults.append(f"{stop.name}: its mark is missing")
            continue
        ends = min((at for at in marks.values() if at > begins), default=sys.maxsize)
        events = [e for e in session.configs if begins <= e.at_ns < ends and e.changes]
        if len(events) != 1 or not set(events[0].changes) <= stop.settings or events[0].kind != stop.kind:
            told = ", ".join(f"{e.kind} of {sorted(e.changes)} {e.reason or ''}" for e in events) or "nothing"
            faults.append(f"{stop.name}: expected one {stop.kind} change, saw {told}")
            continue
        lines.append(f"{stop.name:<20} {told_of(session, events[0], begins)}")
        faults += inside_a_step(session, events[0], stop.name)
    failed = [request for request in session.requests if request.finish_reason == "error"]
    faults += [f"request {request.id} failed: {request.error}" for request in failed]
    ids = [request.id for request in session.requests]
    if len(ids) != len(set(ids)):
        faults.append("a request ended twice")
    running = {slot.request for step in session.steps for slot in step.work}
    if lost := running - set(ids):
        faults.append(f"requests never ended: {sorted(lost)}")
    lines.append(f"{len(session.steps)} steps, {len(ids)} requests, none lost, {len(failed)} failed")
    return lines, faults


def told_of(session: Session, event: ConfigEvent, begins: int) -> str:
    """How a change went."""
    between = sum(begins <= step.start_ns < event.at_ns and step.epoch < event.epoch for step in session.steps)
    name, (before, after) = next(iter(event.changes.items()))
    values = f"{name} {Path(str(before)).name} → {Path(str(after)).name}"
    waited = units.duration(event.at_ns - begins)
    took = "" if event.duration_ns is None else f", rebuilt in {units.duration(event.duration_ns)}"
    return f"{event.kind:<8}{values}: {waited} ({between} steps) from mark to change{took}"


def inside_a_step(session: Session, event: ConfigEvent, name: str) -> list[str]:
    """A change lies between two steps, where commands are taken: in the loop of the first step of its epoch at most."""
    first = next((step for step in session.steps if step.epoch == event.epoch), None)
    if first is None:
        return [f"{name}: no step followed"]
    is_before_its_forward = event.at_ns <= first.end_ns - first.phases.decode
    is_after_the_last = all(step.end_ns <= event.at_ns for step in session.steps if step.epoch < event.epoch)
    return [] if is_before_its_forward and is_after_the_last else [f"{name}: not at a step boundary"]


def main() -> int:
    """Drive, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    given, rest = parser.parse_known_args()
    given.output.mkdir(parents=True, exist_ok=True)
    # There must be other weights to change to; written anew, which takes a second.
    command = [sys.executable, "-m", "stackscope", "models", "quantise", "lab-target-f16", "Q8_0", "--replace"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    recording = drive(given.output.resolve(), rest)
    lines, faults = report(read_session(recording))
    text = "\n".join([*lines, *(f"FAULT {fault}" for fault in faults)])
    (given.output / "report.txt").write_text(text + "\n")
    print(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
