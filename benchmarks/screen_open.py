"""How soon a long recording is on the screen: `stackscope replay` of a session of a million steps at batch 1.

Each round starts the command in a pseudo-terminal of 120 × 40. *Picture*: from the start of the command until the
terminal has the other screen with the program's name on it, the goal being 2 s. *Figures*: until the panes
know its first steps, which says how soon one can work with it. Both sides of each round are a session
of a million steps and one of a thousand, in random order: what a long one adds is the difference of the two. The
sessions are those of `compare_speed`; what is written there with `--folder` is used here.

    python -m benchmarks.screen_open
    python -m benchmarks.screen_open --steps 100000 --rounds 3
    python -m benchmarks.screen_open --folder /tmp/x       keep the sessions there, and use those that are there
"""

from __future__ import annotations

import argparse
import random
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks.common import Interval, Round, machine, mean_interval, quiet_rounds, state, table, verdict
from benchmarks.compare_speed import written
from benchmarks.screen_cost import Terminal
from stackscope.hardware.quiet import Neighbours

GOAL_S: Final = 2.0
LONG, SHORT = "long", "short"
SHORT_STEPS: Final = 1_000
PICTURE: Final = re.compile(rb"\x1b\[\?1049h.*stackscope", re.DOTALL)
FIGURES: Final = re.compile(rb"per step")
"""Stands in the panes as soon as they know a step."""
LOOK_S: Final = 0.005
MOST_S: Final = 60.0
"""Longer than anything takes that ever comes."""


class Times(NamedTuple):
    """Seconds from the start of the command."""

    picture: float
    figures: float


def opened(recording: Path) -> Times:
    """Open a recording, wait for what is to be seen of it, and leave."""
    began = time.monotonic()
    terminal = Terminal([str(recording)], verb="replay")
    found: list[float] = []
    try:
        for wanted in (PICTURE, FIGURES):
            while wanted.search(terminal.seen) is None:
                terminal.drain(LOOK_S)
                if time.monotonic() - began > MOST_S:
                    raise RuntimeError(f"{wanted.pattern!r} never came; seen: {terminal.seen[-400:]!r}")
            found.append(time.monotonic() - began)
    finally:
        terminal.end()
    return Times(*found)


def told(name: str, times: list[Times], *, goal_s: float | None, is_quiet: bool) -> list[list[str]]:
    """Rows of the table for one session."""
    rows = []
    for what in Times._fields:
        interval: Interval = mean_interval([getattr(each, what) for each in times])
        if what != "picture" or goal_s is None:
            goal, said = "-", "-"
        else:
            goal = f"<= {goal_s}"
            said = verdict(interval, at_most=goal_s) if is_quiet else "NOT QUIET"
        rows.append([f"{name}: {what}", goal, str(interval), said])
    return rows


def measure(folder: Path, args: argparse.Namespace) -> None:
    paths = {
        LONG: folder / f"compare-a-{args.steps}.jsonl.zst",
        SHORT: folder / f"compare-a-{SHORT_STEPS}.jsonl.zst",
    }
    for name, n_steps in ((LONG, args.steps), (SHORT, SHORT_STEPS)):
        written(paths[name], n_steps, seed=1, decode_ns=750_000)
    print(f"{args.steps:,} steps, {paths[LONG].stat().st_size / 1e6:.0f} MB on disk, beside {SHORT_STEPS:,} steps\n")
    opened(paths[SHORT])  # Modules are compiled, and in the system's cache, from here on.
    watcher = Neighbours([])
    draw = random.Random(0)
    found: list[tuple[Round, dict[str, Times]]] = []
    while sum(each.is_quiet for each, _ in found) < args.rounds and len(found) < args.rounds * args.tries:
        times: dict[str, Times] = {}

        def work(times: dict[str, Times] = times) -> None:
            for name in draw.sample((LONG, SHORT), 2):
                times[name] = opened(paths[name])

        found.append((Round(0, {}, watcher.watch(work)), times))
    judged, is_quiet = quiet_rounds([each for each, _ in found])
    chosen = [times for each, times in found if each in judged]
    rows = [["seconds to", "goal", "time", "verdict"]]
    for name, goal_s in ((LONG, GOAL_S), (SHORT, None)):
        rows += told(name, [times[name] for times in chosen], goal_s=goal_s, is_quiet=is_quiet)
    print(table(rows))
    print(f"\n{sum(each.is_quiet for each, _ in found)} of {len(found)} rounds were quiet\n{state()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the long session")
    parser.add_argument("--rounds", type=int, default=5, help="quiet rounds to reach")
    parser.add_argument("--tries", type=int, default=3, help="times as many rounds as asked for, at most")
    parser.add_argument("--folder", type=Path, help="where the sessions are kept")
    args = parser.parse_args()
    print(machine(), "\n")
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
        measure(args.folder, args)
        return
    with TemporaryDirectory() as folder:
        measure(Path(folder), args)


if __name__ == "__main__":
    main()
