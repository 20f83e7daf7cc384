"""A long run of the live screen under a user who cannot sit still: does it live, and how much memory does it gather?

A real engine on the bundled models, in a pseudo-terminal. Every few seconds one optimisation is switched; between that,
random keys are pressed (other screens, menus, help, pausing, marks, recording off and on) and the terminal changes its
size. In the end it must still answer, quit with status 0 and have left no traceback; the memory of its process is
compared with that after the first minute, when everything has been shown once.

    python -m benchmarks.screen_soak                       # ten minutes
    python -m benchmarks.screen_soak --minutes 2 --every 2 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import machine, table
from benchmarks.screen_cost import Terminal
from stackscope import units

TOGGLES = "s[]apkwbgftcuSAPKBGFTCU"
OTHERS = [
    "2",
    "3",
    "4",
    "1",
    "?",
    "\x1b",
    "o",
    "\x1b",
    "\t",
    " ",
    " ",
    "\x1bOP",
    "\x1b",
    "\x1b[5~",
    "\x1b[6~",
    "\x1b[B",
    "msoak\r",
    "r",
    "r",
    "n",
    "N",
    "y",
    ":\x1b",
]
"""Keys, and what is typed into the dialog that one opens."""
SIZES = [(80, 24), (120, 40), (200, 60), (100, 30), (50, 12), (120, 40)]
GROWTH_GOAL = 20_000_000
WARM_S = 60.0


def resident_bytes(pid: int) -> int:
    """RSS of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Soak:
    """One long run, and what was seen in it."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._order = random.Random(args.seed)
        self._args = args
        recording = folder / "soak.jsonl.zst"
        options = ["--workload", "code", "--concurrency", "4", "--duration", "36000", "--record", str(recording)]
        self.terminal = Terminal(options)
        self.resident: list[tuple[float, int]] = []
        self.n_toggles = self.n_keys = self.n_sizes = 0
        self.tail = b""

    def run(self) -> int | None:
        """Go on for the time asked for; the exit status. `None`: it had to be killed."""
        terminal, order = self.terminal, self._order
        begun = time.monotonic()
        terminal.drain(5.0)
        while (spent := time.monotonic() - begun) < self._args.minutes * 60 and terminal.process.poll() is None:
            terminal.drain(0.2)
            terminal.press("1")
            terminal.press(order.choice(TOGGLES))
            self.n_toggles += 1
            for _ in range(order.randint(0, 4)):
                terminal.drain(order.uniform(0.05, 0.8))
                terminal.press(order.choice(OTHERS))
                self.n_keys += 1
            if order.random() < 0.2:
                terminal.resize(*order.choice(SIZES))
                self.n_sizes += 1
            terminal.drain(self._args.every - (time.monotonic() - begun - spent))
            terminal.press("\x1b")
            if terminal.process.poll() is None:
                self.resident.append((time.monotonic() - begun, resident_bytes(terminal.process.pid)))
        self.tail = terminal.seen[-20_000:]
        return terminal.end()

    @property
    def growth(self) -> int | None:
        """Bytes gained since the warm-up, by medians of ten looks. `None`: it was too short."""
        warm = [size for at, size in self.resident if at >= WARM_S]
        if len(warm) < 20:
            return None
        return sorted(warm[-10:])[5] - sorted(warm[:10])[5]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds from toggle to toggle")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    print(machine(), "\n")
    with TemporaryDirectory() as folder:
        soak = Soak(args, Path(folder))
        status = soak.run()
    has_traceback = re.search(rb"Traceback|Error:", soak.tail) is not None
    rows = [
        ["", ""],
        ["toggles, other keys, sizes", f"{soak.n_toggles}, {soak.n_keys}, {soak.n_sizes}"],
        ["exit status", "killed" if status is None else f"{status}"],
        ["traceback on the terminal", "yes" if has_traceback else "no"],
        ["memory grown since the first minute", units.data_size(soak.growth)],
        ["goal", f"below {units.data_size(GROWTH_GOAL)}"],
        ["memory at the end", units.data_size(soak.resident[-1][1] if soak.resident else None)],
    ]
    print(table(rows))
    if has_traceback:
        print(soak.tail.decode(errors="replace"))
    grown = soak.growth
    if grown is None:
        print("That was too short to say how memory grows: it takes twenty looks after the first minute.")
    sys.exit(0 if status == 0 and not has_traceback and grown is not None and grown < GROWTH_GOAL else 1)


if __name__ == "__main__":
    main()
