"""What the live screen costs: the CPU time of its process, shown and paused, and the engine's speed with it ÷ without.

*Cost*: CPU time of the live process (the engine is another), over stretches behind the warm-up, ÷ wall time; then the
same after `space` has paused the display. The interval is Student's t over the stretches of one run. Goals: 3 % and 1 %
of one core.

*Speed*: runs of the same workload, each for the same time, with `stackscope live` in a terminal of its own (120 × 40,
drained as fast as it is filled) and with `stackscope run`, in a random order and then in its reverse. Short runs and
many rounds: the machine drifts by more than the screen takes, and what a process draws once, such as where its pages
lie, is drawn anew each time. Tokens per second are those of the recordings, over the same seconds of each run: behind
the warm-up, and before the load ends. The interval is Student's t on the logarithms, over rounds. Both sides record, so
that nothing but the screen differs. Goals: ≥ 0.98 with one engine thread, where a core is left for the screen, and
≥ 0.95 with two.

A run in which the engine stood still, or that does not cover its seconds, spoils its round: nothing is said of it but
why. Rounds go on until so many were quiet, or the time is over, which the numbers of threads share.

    python -m benchmarks.screen_cost                        # both numbers of threads, less than 12 minutes
    python -m benchmarks.screen_cost --threads 1 --minutes 6
    python -m benchmarks.screen_cost --threads 2 --no-cost  # the speed alone
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
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

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
from stackscope.errors import StackscopeError
from stackscope.hardware.quiet import QUIET_SHARE, Neighbours, process_ticks
from stackscope.records import StepRecord
from stackscope.session.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN, HEADLESS = "screen", "headless"
COLUMNS, ROWS = 120, 40
CPU_GOAL, PAUSED_GOAL = 0.03, 0.01
SPEED_GOAL = {1: 0.98, 2: 0.95}
SEEN_BYTES = 1 << 16
END_S = 15.0
"""How long a run may take to end beyond its time."""
SPARE_S = 0.5
"""Load goes on for so long after the seconds that count: what comes then are the last requests, fewer and fewer."""
STILL_NS = 500_000_000
"""No step of the bundled pair takes a fifth of that."""
FINISHED = b"finished"
"""What the screen says once its run is over."""
MOST_SPOILED = 6
STRETCHES = 4
"""Into which the time shown is divided, and the time paused."""


class Terminal:
    """`stackscope live`, or another verb with a screen, in a pseudo-terminal that is read as fast as it is written."""

    def __init__(self, arguments: list[str], *, verb: str = "live") -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stackscope", verb, *arguments],
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


class SpoiledError(Exception):
    """A run of which nothing can be said, and why."""


class Cost(NamedTuple):
    """CPU time of the live process ÷ wall time, stretch by stretch of one run, and what it wrote to its terminal."""

    shown: list[float]
    paused: list[float]
    bytes_per_s: float
    foreign: float | None
    """Share of one CPU that others took meanwhile. `None`: this system does not say."""


class Speeds(NamedTuple):
    """What came of the rounds with one number of threads."""

    rounds: list[Round]
    """A side's time is that of a thousand tokens in each of its runs."""
    spoiled: list[str]
    """Why other rounds came to nothing."""


def options(args: argparse.Namespace, threads: int, seconds: float, recording: Path) -> list[str]:
    """Arguments that both verbs take."""
    return [
        *["--workload", args.workload, "--concurrency", str(args.concurrency), "--duration", str(seconds)],
        *["--threads", str(threads), "--record", str(recording)],
    ]


def steps_of(recording: Path) -> list[StepRecord]:
    """The steps of a recording. Raises `SpoiledError` where there is none that can be read."""
    try:
        return [each for each in Replay(recording).records() if isinstance(each, StepRecord)]
    except StackscopeError as error:
        raise SpoiledError(f"it left no recording: {error}") from error


def check_moving(steps: Sequence[StepRecord]) -> None:
    """Raises `SpoiledError` where the engine stood still between two steps or in one: somebody stopped it."""
    longest_ns = max((after.end_ns - before.end_ns for before, after in pairwise(steps)), default=0)
    if longest_ns > STILL_NS:
        raise SpoiledError(f"the engine stood still for {longest_ns / 1e9:.1f} s")


def tokens_per_s(steps: Sequence[StepRecord], warmup_s: float, seconds: float) -> float:
    """Of the steps within `seconds` behind the warm-up, which begins with the first step.

    Raises `SpoiledError` for a run that does not cover them, or in which the engine stood still.
    """
    if not steps:
        raise SpoiledError("no step was recorded")
    begun_ns = steps[0].start_ns + round(warmup_s * 1e9)
    ends_ns = begun_ns + round(seconds * 1e9)
    if steps[-1].end_ns < ends_ns:
        short_s = (ends_ns - steps[-1].end_ns) / 1e9
        raise SpoiledError(f"it ended {short_s:.1f} s before its time")
    counted = [step for step in steps if step.start_ns >= begun_ns and step.end_ns <= ends_ns]
    check_moving(counted)
    n_tokens = sum(step.emitted for step in counted)
    if n_tokens == 0:
        raise SpoiledError("no token came")
    return n_tokens * 1e9 / (counted[-1].end_ns - counted[0].start_ns)


def speed(side: str, args: argparse.Namespace, threads: int, folder: Path) -> float:
    """Tokens per second of one run. Raises `SpoiledError`."""
    recording = folder / f"{side}-{time.monotonic_ns()}.jsonl.zst"
    status: int | None
    arguments = options(args, threads, args.warmup + args.seconds + SPARE_S, recording)
    if side == HEADLESS:
        command = [sys.executable, "-m", "stackscope", "run", *arguments]
        status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    else:
        terminal = Terminal(arguments)
        # The recording is complete once the screen says so; a run that never comes to that is looked at all the same.
        until = time.monotonic() + args.warmup + args.seconds + SPARE_S + END_S
        while FINISHED not in terminal.seen and terminal.process.poll() is None and time.monotonic() < until:
            terminal.drain(0.25)
        status = terminal.end()
    if status != 0:
        raise SpoiledError(f"{side} ended with status {status}")
    found = tokens_per_s(steps_of(recording), args.warmup, args.seconds)
    recording.unlink()
    return found


def speed_rounds(args: argparse.Namespace, threads: int, deadline_s: float) -> Speeds:
    """Rounds of both sides until enough were quiet, or another one would end beyond the deadline (monotonic, s)."""
    order = random.Random(args.seed + threads)
    watcher = Neighbours([])
    found = Speeds([], [])
    longest_s = 0.0
    with TemporaryDirectory() as folder:
        while sum(each.is_quiet for each in found.rounds) < args.rounds and len(found.spoiled) < MOST_SPOILED:
            began_s = time.monotonic()
            if found.rounds and began_s + longest_s > deadline_s:
                break
            spent_ns: dict[str, int] = dict.fromkeys((SHOWN, HEADLESS), 0)

            def work(spent_ns: dict[str, int] = spent_ns) -> None:
                for side in palindrome((SHOWN, HEADLESS), order):
                    spent_ns[side] += round(1e12 / speed(side, args, threads, Path(folder)))

            try:
                found.rounds.append(Round(0, spent_ns, watcher.watch(work)))
            except SpoiledError as error:
                found.spoiled.append(str(error))
            longest_s = max(longest_s, time.monotonic() - began_s)
    return found


def cost(args: argparse.Namespace, threads: int, folder: Path) -> Cost:
    """Of one run of the screen: first shown, then paused. Raises `SpoiledError`."""
    tick = os.sysconf("SC_CLK_TCK")
    recording = folder / "cost.jsonl.zst"
    watcher = Neighbours([])
    watcher.begin()
    terminal = Terminal(options(args, threads, 2 * args.cost_seconds + 30, recording))
    terminal.drain(args.warmup + 2.0)

    def share(seconds: float) -> tuple[float, float]:
        begun, ticks, n_bytes = time.monotonic(), terminal.cpu_ticks(), terminal.n_bytes
        while (left := seconds - (time.monotonic() - begun)) > 0 and terminal.process.poll() is None:
            terminal.drain(left)
        if terminal.process.poll() is not None:
            raise SpoiledError(f"the screen ended with status {terminal.process.returncode}")
        wall = time.monotonic() - begun
        return (terminal.cpu_ticks() - ticks) / tick / wall, (terminal.n_bytes - n_bytes) / wall

    try:
        shown = [share(args.cost_seconds / STRETCHES) for _ in range(STRETCHES)]
        terminal.press(" ")
        terminal.drain(1.0)
        paused = [share(args.cost_seconds / 2 / STRETCHES) for _ in range(STRETCHES)]
    finally:
        terminal.end()
    # What was stopped takes no time: the shares would be too small.
    check_moving(steps_of(recording))
    written = sum(written for _, written in shown) / STRETCHES
    return Cost([cpu for cpu, _ in shown], [cpu for cpu, _ in paused], written, watcher.share())


def show_speed(threads: int, found: Speeds) -> list[str]:
    """A line of the table."""
    goal = SPEED_GOAL.get(threads)
    shown = [f"{threads}", "-" if goal is None else f">= {goal}"]
    n_quiet = sum(each.is_quiet for each in found.rounds)
    counted = f"{n_quiet} of {len(found.rounds)}" + (f", {len(found.spoiled)} spoiled" if found.spoiled else "")
    if not found.rounds:
        return [*shown, "-", "-", "-", counted]
    judged, is_quiet = quiet_rounds(found.rounds)
    ratio = speed_ratio(judged, SHOWN, HEADLESS)
    said = "NOT QUIET" if not is_quiet else "-" if goal is None else verdict(ratio, at_least=goal)
    # Two runs of a side are in a round.
    headless = sorted(2e12 / each.spent_ns[HEADLESS] for each in judged)[len(judged) // 2]
    return [*shown, str(ratio), said, f"{headless:,.0f}", counted]


def show_cost(threads: int, found: Cost) -> list[str]:
    """A line of the table."""
    shown, paused = mean_interval(found.shown), mean_interval(found.paused)
    is_quiet = found.foreign is not None and found.foreign < QUIET_SHARE
    judged = [verdict(shown, at_most=CPU_GOAL), verdict(paused, at_most=PAUSED_GOAL)] if is_quiet else ["NOT QUIET"] * 2
    return [f"{threads}", str(shown), judged[0], str(paused), judged[1], f"{found.bytes_per_s / 1000:.1f} kB/s"]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--minutes", type=float, default=11.5, help="for all of it; more rounds narrow the interval")
    parser.add_argument("--rounds", type=int, default=24, help="quiet rounds that are enough, for each of --threads")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run, behind the warm-up")
    parser.add_argument("--warmup", type=float, default=3.0)
    parser.add_argument("--cost-seconds", type=float, default=60.0, help="shown, and half of that paused")
    parser.add_argument("--cost", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--speed", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workload", default="code")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("an interval takes two rounds")
    return args


def costs(args: argparse.Namespace) -> None:
    """Measure and print the first table."""
    rows = [["engine threads", "screen, of one core", f"goal {CPU_GOAL}", "paused", f"goal {PAUSED_GOAL}", "written"]]
    for threads in args.threads:
        try:
            with TemporaryDirectory() as folder:
                rows.append(show_cost(threads, cost(args, threads, Path(folder))))
        except SpoiledError as error:
            rows.append([f"{threads}", *["-"] * 5])
            print(f"Cost with {threads} threads: not measured, as {error}.")
    print(table(rows), "\n", flush=True)


def main() -> None:
    args = parsed()
    begun_s = time.monotonic()
    print(machine(), "\n", flush=True)
    if args.cost:
        costs(args)
    if args.speed:
        rows = [["engine threads", "goal", "screen / headless", "verdict", "headless tokens/s", "quiet rounds"]]
        left_s = args.minutes * 60 - (time.monotonic() - begun_s)
        begun_s = time.monotonic()
        for number, threads in enumerate(args.threads, 1):
            found = speed_rounds(args, threads, begun_s + left_s * number / len(args.threads))
            rows.append(show_speed(threads, found))
            for why in found.spoiled:
                print(f"A round with {threads} threads was spoiled: {why}.", flush=True)
        print(table(rows), "\n")
    print(state())


if __name__ == "__main__":
    main()
