"""Drive the live screen in tmux as a user does, and check what came of it: every toggle by its key, in one run.

    python scripts/tour.py OUT            # needs tmux; OUT gets the screens as text, the recordings and a report

Each toggle is marked in the recording, its key is pressed, and its chip has to say so. The recording then tells whether
each change came into force at the next step boundary (live) or with one rebuild; whether a request was lost, doubled or
cut short; and whether the texts are those of the same requests in a run without changes. The exit status is 1 when
something did not hold. Whatever stands behind OUT is given to both runs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.records import RequestRecord
from stackscope.session.reader import SessionReader, read_session
from tour_report import OUTPUT_TOKENS, STOPS, Found, predictions, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stackscope.session.reader import Session
    from tour_report import Stop

ROOT: Final = Path(__file__).parents[1]
COLUMNS, ROWS = 120, 40
PATIENCE_S: Final = 60.0
STAY_S: Final = 1.5
"""How long what was asked for runs before the next key."""
# No request depends on the text of another: each is the same one with and without changes.
TRAFFIC: Final = (
    "--workload", "code", "--concurrency", "4", "--output-tokens", str(OUTPUT_TOKENS), "--ignore-eos",
    "--record-text",
)  # fmt: skip


class TourError(Exception):
    """The tour could not go on."""


class Terminal:
    """A tmux session of its own server, with the live screen in it."""

    def __init__(self, command: str) -> None:
        self._name = f"tour-{os.getpid()}"
        # tmux shows what is not ASCII only where its locale says so, and a machine for tests may have none.
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        environment.pop("CI", None)
        new = ["new-session", "-d", "-s", "tour", "-x", str(COLUMNS), "-y", str(ROWS), command]
        subprocess.run(["tmux", "-u", "-f", os.devnull, "-L", self._name, *new], check=True, env=environment)

    def _run(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-L", self._name, *arguments]
        return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout

    @property
    def text(self) -> str:
        return self._run("capture-pane", "-p", "-t", "tour")

    def press(self, *keys: str) -> None:
        """Type keys, by tmux's names."""
        self._run("send-keys", "-t", "tour", *keys)

    def type(self, text: str) -> None:
        """Type a text as it is."""
        self._run("send-keys", "-l", "-t", "tour", text)

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], capture_output=True)


def drive(output: Path, arguments: Iterable[str], stay_s: float) -> Path:
    """Run the tour; the recording."""
    recording, told = output / "tour.jsonl.zst", output / "after.txt"
    for left in (recording, told):
        left.unlink(missing_ok=True)
    options = [*TRAFFIC, "--record", str(recording), *arguments]
    command = f"cd {shlex.quote(str(ROOT))} && {shlex.quote(sys.executable)} -m stackscope live {shlex.join(options)}"
    terminal = Terminal(f"sh -c {shlex.quote(command + f'; echo rc $? > {shlex.quote(str(told))}')}")
    try:
        until(lambda: "tok/s" in terminal.text, "no tokens came")
        pause(max(stay_s, 3.0))  # What other weights there are is looked for meanwhile.
        for number, stop in enumerate(STOPS, 1):
            visit(terminal, stop)
            pause(stay_s)
            (output / f"{number}-{stop.name.replace(' ', '-')}.txt").write_text(terminal.text, encoding="utf-8")
        terminal.press("q")
        until(told.exists, "it does not end")
        pause(0.1)
        if told.read_text() != "rc 0\n":
            raise TourError(f"The screen ended with {told.read_text().strip()}.")
    finally:
        terminal.close()
    return recording


def visit(terminal: Terminal, stop: Stop) -> None:
    """Mark the moment, press a key, and see the chip of its toggle change."""
    if stop.chip in terminal.text:
        raise TourError(f"{stop.name}: the screen says “{stop.chip}” before its key was pressed.")
    terminal.press("m")
    until(lambda: "Mark this moment" in terminal.text, f"{stop.name}: no dialog for a mark")
    terminal.type(stop.name)
    terminal.press("Enter")
    until(lambda: "Mark this moment" not in terminal.text, f"{stop.name}: the dialog stays")
    terminal.press(stop.key)
    until(lambda: stop.chip in terminal.text, f"{stop.name}: the screen does not say “{stop.chip}”")


def pause(seconds: float) -> None:
    """Let what was asked for run for a while."""
    threading.Event().wait(seconds)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something on the screen."""
    for _ in range(round(PATIENCE_S / 0.1)):
        if holds():
            return
        pause(0.1)
    raise TourError(f"{what}, in {PATIENCE_S:.0f} s.")


def plain_texts(session: Session, output: Path, arguments: Sequence[str]) -> dict[int, str]:
    """The texts of the same requests, by their ids, in a run in which nothing is changed."""
    recording = output / "plain.jsonl.zst"
    recording.unlink(missing_ok=True)
    last = 1 + max((request.id for request in session.requests), default=0)
    options = [*TRAFFIC, "--requests", str(last), "--record", str(recording), *arguments]
    command = [sys.executable, "-m", "stackscope", "run", *options]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    requests = (record for record in SessionReader(recording) if isinstance(record, RequestRecord))
    return {request.id: request.output or "" for request in requests}


def tour(output: Path, arguments: Sequence[str] = (), *, stay_s: float = STAY_S) -> Found:
    """Drive, and judge. Raises `TourError` where it cannot go on. `output` is a folder; it need not exist."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    # There must be other weights to change to; written anew, which takes a second.
    command = [sys.executable, "-m", "stackscope", "models", "quantise", "lab-target-f16", "Q8_0", "--replace"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    recording = drive(output, arguments, stay_s)
    session = read_session(recording)
    found = report(session, predictions(recording), plain_texts(session, output, arguments))
    text = "\n".join([*found.lines, *(f"FAULT {fault}" for fault in found.faults)])
    (output / "report.txt").write_text(text + "\n", encoding="utf-8")
    return found


def main() -> int:
    """Drive, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    given, rest = parser.parse_known_args()
    try:
        found = tour(given.output, rest)
    except TourError as error:
        print(f"The tour stopped: {error}", file=sys.stderr)
        return 1
    print((given.output / "report.txt").read_text(encoding="utf-8"), end="")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
