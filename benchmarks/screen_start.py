"""How soon the live screen is there, how soon its first tokens, and how soon it has gone.

Each round starts `stackscope live` on the bundled pair in a pseudo-terminal of 120 × 40, waits for three seconds of
tokens and presses `q`. *Picture*: from the start of the command until the terminal has the other screen with the
program's name on it. *Tokens*: from there to the first one, by the recording's own times. *Gone*: from the key to the
end of the process. Goals: 1.5 s, 3 s and 2 s. Modules are compiled before, as `make run` does when it sets up.

    python -m benchmarks.screen_start
    python -m benchmarks.screen_start --rounds 3
"""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.common import Round, machine, mean_interval, quiet_rounds, state, table, verdict
from benchmarks.screen_cost import Terminal
from stackscope.hardware.quiet import Neighbours
from stackscope.session.reader import read_session

GOALS: Final = {"picture": 1.5, "tokens": 3.0, "gone": 2.0}
PICTURE: Final = re.compile(rb"\x1b\[\?1049h.*stackscope", re.DOTALL)
LOOK_S: Final = 0.005
MOST_S: Final = 60.0
"""Longer than anything takes that ever comes."""
RUN_S: Final = 3.0


class Times(NamedTuple):
    """Seconds of one start and end."""

    picture: float
    tokens: float
    gone: float


def start(recording: Path) -> Times:
    """Start the screen, let it run, and leave it."""
    began, clock = time.monotonic(), time.time()
    terminal = Terminal(["--record", str(recording)])
    while PICTURE.search(terminal.seen) is None:
        terminal.drain(LOOK_S)
        if time.monotonic() - began > MOST_S:
            raise RuntimeError("the screen never came")
    picture = time.monotonic() - began
    while not recording.exists() and time.monotonic() - began < MOST_S:
        terminal.drain(LOOK_S)
    until = time.monotonic() + RUN_S
    while (left := until - time.monotonic()) > 0:
        terminal.drain(left)
    pressed = time.monotonic()
    terminal.press("q")
    while terminal.process.poll() is None and time.monotonic() - pressed < MOST_S:
        terminal.drain(LOOK_S)
    gone = time.monotonic() - pressed
    terminal.end()
    return Times(picture, first_token(recording) - clock - picture, gone)


def first_token(recording: Path) -> float:
    """When the first token came, in seconds of the wall clock."""
    session = read_session(recording)
    origin = datetime.fromisoformat(session.header.started).timestamp()
    step = next(step for step in session.steps if step.emitted)
    return origin + step.end_ns / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="quiet rounds to reach")
    parser.add_argument("--tries", type=int, default=3, help="times as many rounds as asked for, at most")
    args = parser.parse_args()
    print(machine(), "\n")
    watcher = Neighbours([])
    found: list[tuple[Round, Times]] = []
    with TemporaryDirectory() as folder:
        start(Path(folder) / "warm.jsonl.zst")  # Files are in the system's cache, and modules compiled, from here on.
        while sum(each.is_quiet for each, _ in found) < args.rounds and len(found) < args.rounds * args.tries:
            times: list[Times] = []

            def work(times: list[Times] = times) -> None:
                times.append(start(Path(folder) / f"{time.monotonic_ns()}.jsonl.zst"))

            found.append((Round(0, {}, watcher.watch(work)), times[0]))
    judged, is_quiet = quiet_rounds([each for each, _ in found])
    chosen = [times for each, times in found if each in judged]
    rows = [["seconds to", "goal", "time", "verdict", "quiet rounds"]]
    for name, goal in GOALS.items():
        interval = mean_interval([getattr(times, name) for times in chosen])
        said = verdict(interval, at_most=goal) if is_quiet else "NOT QUIET"
        n_quiet = sum(each.is_quiet for each, _ in found)
        rows.append([name, f"<= {goal}", str(interval), said, f"{n_quiet} of {len(found)}"])
    print(table(rows), "\n")
    print(state())


if __name__ == "__main__":
    main()
