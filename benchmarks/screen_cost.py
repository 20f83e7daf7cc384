"""What the live screen costs: the CPU time of its process, shown and paused, and the engine's speed with it ÷ without.

*Speed*: runs of the same workload, each for the same time, with `stackscope live` in a terminal of its own (120 × 40,
drained as fast as it is filled) and with `stackscope run`, in a random order and then in its reverse. Tokens per second
are those of the recordings, warm-up left out. The interval is Student's t on the logarithms, over rounds. Both sides
record, so that nothing but the screen differs. Goals: ≥ 0.98 with one engine thread, where a core is left for the
screen, and ≥ 0.95 with two.

*Cost*: CPU time of the live process (the engine is another), over the stretch after the warm-up, ÷ wall time; then the
same after `space` has paused the display. Goals: 3 % and 1 % of one core.

    python -m benchmarks.screen_cost
    python -m benchmarks.screen_cost --rounds 2 --seconds 6 --threads 1
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.common import (
    Round,
    machine,
    mean_interval,
    palindrome,
    quiet_rounds,
    speed_ratio,
    state,
    table,
    verdict,
)
from stackscope.hardware.quiet import Neighbours, process_ticks
from stackscope.records import StepRecord
from stackscope.session.replay import Replay

SHOWN, HEADLESS = "screen", "headless"
COLUMNS, ROWS = 120, 40
CPU_GOAL, PAUSED_GOAL = 0.03, 0.01
SPEED_GOAL = {1: 0.98, 2: 0.95}
SEEN_BYTES = 1 << 16
END_S = 15.0
"""How long a run may take to end beyond its time."""


class Terminal:
    """`stackscope live` in a pseudo-terminal that is read as fast as it is written."""

    def __init__(self, arguments: list[str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stackscope", "live", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.n_bytes = 0
        self.seen = b""
        """The last of what it wrote."""

    def drain(self, seconds: float) -> None:
        """Read what is written, for so long or until the process has closed its terminal."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                return
            try:
                chunk = os.read(self._master, 1 << 16)
            except OSError:  # The other end has been closed.
                return
            self.n_bytes += len(chunk)
            self.seen = (self.seen + chunk)[-SEEN_BYTES:]

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def cpu_ticks(self) -> int:
        return process_ticks(Path(f"/proc/{self.process.pid}/stat").read_text())

    def end(self) -> int | None:
        """Quit, as a user does, and say with which status; kill what does not, and say `None`."""
        if self.process.poll() is None:
            self.drain(0.5)  # A key right behind an escape would be another key.
            self.press("q")
            self.drain(2.0)
        status: int | None = None
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        return status


class Cost(NamedTuple):
    """CPU time of the live process ÷ wall time, and what it wrote to its terminal."""

    shown: float
    paused: float
    bytes_per_s: float


def options(args: argparse.Namespace, threads: int, seconds: float, recording: Path) -> list[str]:
    """Arguments that both verbs take."""
    return [
        *["--workload", args.workload, "--concurrency", str(args.concurrency), "--duration", str(seconds)],
        *["--threads", str(threads), "--record", str(recording)],
    ]


def tokens_per_s(recording: Path, warmup_s: float) -> float:
    """Of the steps that began after the warm-up."""
    steps = [each for each in Replay(recording).records() if isinstance(each, StepRecord)]
    begun_ns = steps[0].start_ns + round(warmup_s * 1e9)
    counted = [step for step in steps if step.start_ns >= begun_ns]
    return sum(step.emitted for step in counted) * 1e9 / (counted[-1].end_ns - counted[0].start_ns)


def speed(side: str, args: argparse.Namespace, threads: int, folder: Path) -> float:
    """Tokens per second of one run."""
    recording = folder / f"{side}-{time.monotonic_ns()}.jsonl.zst"
    seconds = args.seconds + args.warmup
    arguments = options(args, threads, seconds, recording)
    if side == HEADLESS:
        command = [sys.executable, "-m", "stackscope", "run", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    else:
        terminal = Terminal(arguments)
        terminal.drain(seconds + 4.0)
        terminal.end()
    return tokens_per_s(recording, args.warmup)


def speed_rounds(args: argparse.Namespace, threads: int) -> list[Round]:
    """Rounds of both sides. A side's time is that of a thousand tokens."""
    order = random.Random(args.seed)
    watcher = Neighbours([])
    rounds: list[Round] = []
    with TemporaryDirectory() as folder:
        n_quiet = 0
        while n_quiet < args.rounds and len(rounds) < args.rounds * args.tries:
            spent_ns: dict[str, int] = dict.fromkeys((SHOWN, HEADLESS), 0)

            def work(spent_ns: dict[str, int] = spent_ns) -> None:
                for side in palindrome((SHOWN, HEADLESS), order):
                    spent_ns[side] += round(1e12 / speed(side, args, threads, Path(folder)))

            rounds.append(Round(0, spent_ns, watcher.watch(work)))
            n_quiet += rounds[-1].is_quiet
    return rounds


def cost(args: argparse.Namespace, threads: int, folder: Path) -> Cost:
    """Of one run of the screen: first shown, then paused."""
    tick = os.sysconf("SC_CLK_TCK")
    terminal = Terminal(options(args, threads, 2 * args.cost_seconds + 30, folder / "cost.jsonl.zst"))
    terminal.drain(args.warmup + 2.0)

    def share(seconds: float) -> tuple[float, float]:
        begun, ticks, n_bytes = time.monotonic(), terminal.cpu_ticks(), terminal.n_bytes
        while (left := seconds - (time.monotonic() - begun)) > 0:
            terminal.drain(left)
        wall = time.monotonic() - begun
        return (terminal.cpu_ticks() - ticks) / tick / wall, (terminal.n_bytes - n_bytes) / wall

    shown, written = share(args.cost_seconds)
    terminal.press(" ")
    terminal.drain(1.0)
    paused, _ = share(args.cost_seconds / 2)
    terminal.end()
    return Cost(shown, paused, written)


def show_speed(threads: int, rounds: list[Round]) -> list[str]:
    judged, is_quiet = quiet_rounds(rounds)
    ratio = speed_ratio(judged, SHOWN, HEADLESS)
    goal = SPEED_GOAL[threads]
    said = verdict(ratio, at_least=goal) if is_quiet else "NOT QUIET"
    n_quiet = sum(each.is_quiet for each in rounds)
    return [f"{threads}", f">= {goal}", str(ratio), said, f"{n_quiet} of {len(rounds)}"]


def show_cost(threads: int, costs: list[Cost]) -> list[str]:
    shown, paused = mean_interval([each.shown for each in costs]), mean_interval([each.paused for each in costs])
    written = sum(each.bytes_per_s for each in costs) / len(costs)
    return [
        f"{threads}",
        *[str(shown), verdict(shown, at_most=CPU_GOAL), str(paused), verdict(paused, at_most=PAUSED_GOAL)],
        f"{written / 1000:.1f} kB/s",
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=4, help="quiet rounds to reach")
    parser.add_argument("--tries", type=int, default=3, help="times as many rounds as asked for, at most")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run, behind the warm-up")
    parser.add_argument("--warmup", type=float, default=3.0)
    parser.add_argument("--cost-seconds", type=float, default=60.0)
    parser.add_argument("--cost-runs", type=int, default=2)
    parser.add_argument("--workload", default="code")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    print(machine(), "\n")
    rows = [["engine threads", "screen, of one core", "goal 0.03", "paused", "goal 0.01", "written"]]
    for threads in args.threads:
        with TemporaryDirectory() as folder:
            rows.append(show_cost(threads, [cost(args, threads, Path(folder)) for _ in range(args.cost_runs)]))
    print(table(rows), "\n")
    rows = [["engine threads", "goal", "screen / headless", "verdict", "quiet rounds"]]
    rows += [show_speed(threads, speed_rounds(args, threads)) for threads in args.threads]
    print(table(rows), "\n")
    print(state())


if __name__ == "__main__":
    main()
