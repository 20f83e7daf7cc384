"""What recording costs a run: CPU time of the recorder, speed with it ÷ without, and bytes on disk for each step.

*Speed*: one engine process, as `stackscope run` has it, whose recorder is switched on and off between stretches of
work. A round has two stretches of each of `on`, `off` and `off again`, in a random order and then in its reverse.
Nothing but the recorder differs, not even the process; `off again ÷ off` shows what the method makes of no difference
at all. The interval is Student's t on the logarithms, over rounds. A stretch is several times as long as data may wait
for the disk, so that its writing falls into it.

*Cost*: runs of the code workload as `stackscope run` makes them, recorded. The recorder's CPU time is what the
session's footer says: encoding, compressing and writing. That of the whole parent has draining the engine and summing
up in it.

    python -m benchmarks.recorder_cost
    python -m benchmarks.recorder_cost --rounds 2 --seconds 0.3 --run-seconds 2
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.arms import EngineArm, config_for
from benchmarks.common import (
    Round,
    machine,
    palindrome,
    quiet_rounds,
    speed_ratio,
    state,
    table,
)
from benchmarks.lockstep import Ask
from stackscope.analysis.summary import RunSummary
from stackscope.engine import wire
from stackscope.engine.process import EngineProcess
from stackscope.hardware.quiet import QUIET_SHARE, Neighbours
from stackscope.model.catalog import bundled_target
from stackscope.records import Footer, StepRecord
from stackscope.session.writer import FLUSH_NS, SessionWriter
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import Header
    from stackscope.toggles import EngineConfig

ON, OFF, AGAIN = "on", "off", "off again"

CPU_GOAL = 0.01
"""Of wall time."""
BYTES_GOAL = 100
"""On disk for each step, at batch 1."""

AHEAD_NS = FLUSH_NS + 1
"""Puts the writer's clock forward so far that everything is due."""

MOST_STEPS = 200
"""As many as fit 256 cells behind the prompt: the length of a block."""


class SwitchedRecorder:
    """A recorder that can be off: what comes then is not recorded, and costs nothing."""

    def __init__(self, writer: SessionWriter) -> None:
        self.writer = writer
        self.is_on = False

    def write_line(self, raw: bytes) -> None:
        if self.is_on:
            self.writer.write_line(raw)

    def tick(self, rest_ns: int = 0) -> None:
        if self.is_on:
            self.writer.tick(rest_ns)

    def close(self, footer: Footer | None = None) -> None:
        self.writer.close(footer)


@dataclass
class Clock:
    """Monotonic time that can be put forward, so that what waits is written now."""

    ahead_ns: int = 0

    def __call__(self) -> int:
        return time.monotonic_ns() + self.ahead_ns


class SwitchedRun:
    """An engine process and the recorder that can be switched off in it."""

    def __init__(self, config: EngineConfig, folder: Path) -> None:
        self._clock = Clock()
        self._folder = folder
        self._recorder: SwitchedRecorder | None = None
        self.arm = EngineArm("engine", config, is_repeating=True, open_recorder=self._open)

    def _open(self, header: Header) -> SwitchedRecorder:
        writer = SessionWriter(self._folder / "switched.jsonl.zst", header, clock=self._clock)
        self._recorder = SwitchedRecorder(writer)
        return self._recorder

    def stretch(self, ask: Ask, *, is_on: bool, seconds: float) -> tuple[int, int]:
        """Blocks for about so long: (nanoseconds of their decode steps, number of blocks)."""
        recorder = self._recorder
        assert recorder is not None
        recorder.is_on = is_on
        spent_ns, n_blocks = 0, 0
        while spent_ns < seconds * 1e9:
            spent_ns += self.arm.run(ask).ns
            n_blocks += 1
        if is_on:
            # What still waits would be written in the next stretch, on its account.
            self._clock.ahead_ns += AHEAD_NS
            recorder.tick()
        recorder.is_on = False
        return spent_ns, n_blocks


def switched_rounds(config: EngineConfig, batch: int, args: argparse.Namespace) -> list[Round]:
    order = random.Random(args.seed)
    ask = Ask(batch, MOST_STEPS)
    rounds: list[Round] = []
    with TemporaryDirectory() as folder:
        run = SwitchedRun(config, Path(folder))
        with run.arm:
            watcher = Neighbours([run.arm.pid])
            run.stretch(ask, is_on=True, seconds=args.seconds / 4)
            n_quiet = 0
            while n_quiet < args.rounds and len(rounds) < args.rounds * args.tries:
                spent_ns: dict[str, int] = dict.fromkeys((ON, OFF, AGAIN), 0)

                def work(spent_ns: dict[str, int] = spent_ns) -> None:
                    for side in palindrome((ON, OFF, AGAIN), order):
                        took_ns, n_blocks = run.stretch(ask, is_on=side == ON, seconds=args.seconds)
                        spent_ns[side] += took_ns // n_blocks

                foreign = watcher.watch(work)
                rounds.append(Round(0, spent_ns, foreign))
                n_quiet += rounds[-1].is_quiet
    return rounds


def show_ratio(batch: int, rounds: Sequence[Round]) -> list[str]:
    judged, is_quiet = quiet_rounds(rounds)
    ratio = speed_ratio(judged, ON, OFF)
    control = speed_ratio(judged, AGAIN, OFF)
    assert ratio.low is not None
    assert ratio.high is not None
    contains = "includes 1" if ratio.low <= 1 <= ratio.high else "excludes 1"
    n_quiet = sum(each.is_quiet for each in rounds)
    return [
        f"{batch}",
        str(ratio),
        contains if is_quiet else f"{contains}, NOT QUIET",
        str(control),
        f"{n_quiet} of {len(rounds)}",
    ]


@dataclass(frozen=True)
class Cost:
    """What recording one run cost."""

    n_steps: int
    wall_ns: int
    """From the first step to the end of the last."""
    recorder_ns: int
    parent_ns: int
    file_bytes: int
    header_bytes: int
    foreign: float | None


def recorded_run(config: EngineConfig, batch: int, seconds: float, folder: Path) -> Cost:
    """Serve the code workload as `stackscope run` does, recorded."""
    spec = WorkloadSpec(name="code", concurrency=batch, duration_s=seconds)
    summary = RunSummary()
    steps: list[StepRecord] = []
    footers: list[Footer] = []
    with EngineProcess.start(config, spec) as process:
        process.wait_ready()
        header = process.compose_header(host="benchmark", device="benchmark")
        writer = SessionWriter(folder / "run.jsonl.zst", header)
        header_bytes = writer.bytes_written
        summary.write(header)
        begun_ns = time.process_time_ns()

        def follow() -> None:
            process.begin(header, writer)
            for item in process.items():
                if isinstance(item, wire.Message):
                    continue
                summary.write(item)
                if isinstance(item, StepRecord):
                    steps.append(item)
                elif isinstance(item, Footer):
                    footers.append(item)

        foreign = Neighbours([process.pid]).watch(follow)
        parent_ns = time.process_time_ns() - begun_ns
    if process.recording_failure is not None:
        raise process.recording_failure
    return Cost(
        n_steps=len(steps),
        wall_ns=steps[-1].end_ns - steps[0].start_ns,
        recorder_ns=writer.cpu_ns,
        parent_ns=parent_ns,
        file_bytes=writer.path.stat().st_size,
        header_bytes=header_bytes,
        foreign=foreign,
    )


def show_cost(batch: int, cost: Cost) -> list[str]:
    share = cost.recorder_ns / cost.wall_ns
    each = (cost.file_bytes - cost.header_bytes) / cost.n_steps
    is_small = f"≤ {BYTES_GOAL}: {'met' if each <= BYTES_GOAL else 'missed'}" if batch == 1 else "-"
    return [
        f"{batch}",
        f"{cost.n_steps:,}",
        f"{share:.3%}",
        f"≤ {CPU_GOAL:.0%}: {'met' if share <= CPU_GOAL else 'missed'}",
        f"{cost.recorder_ns / cost.n_steps / 1e3:.2f}",
        f"{cost.parent_ns / cost.wall_ns:.2%}",
        f"{each:.1f}",
        is_small,
        f"{cost.header_bytes:,}",
        "unknown" if cost.foreign is None else f"{cost.foreign:.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=bundled_target())
    parser.add_argument("--batch", type=int, action="append", help="sequences; 1 and 8 if not given")
    parser.add_argument("--rounds", type=int, default=8, help="quiet rounds")
    parser.add_argument("--tries", type=int, default=3, help="at most so many times the rounds, if they are not quiet")
    parser.add_argument("--seconds", type=float, default=2.5, help="length of a stretch")
    parser.add_argument("--run-seconds", type=float, default=20.0, help="length of a recorded run")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("an interval takes two rounds")
    batches = args.batch or [1, 8]
    print(machine())
    print(f"A round is quiet when others take less than {QUIET_SHARE:.0%} of one CPU during it.")

    head = ["batch", "steps", "recorder ÷ wall", "goal", "µs per step", "parent ÷ wall", "B per step", "goal"]
    rows = [[*head, "header B", "others"]]
    for batch in batches:
        with TemporaryDirectory() as folder:
            config = config_for(args.model, threads=args.threads, slots=batch)
            rows.append(show_cost(batch, recorded_run(config, batch, args.run_seconds, Path(folder))))
    print(f"\nRecorded runs of the code workload, {args.model.name}, {args.run_seconds:g} s each")
    print(table(rows), flush=True)

    rows = [["batch", "recording on ÷ off", "", "off again ÷ off", "quiet"]]
    for batch in batches:
        config = config_for(args.model, threads=args.threads, cache_tokens=0)
        rows.append(show_ratio(batch, switched_rounds(config, batch, args)))
    print("\nTokens per second, recording on ÷ off")
    print(table(rows))
    print(state())


if __name__ == "__main__":
    main()
