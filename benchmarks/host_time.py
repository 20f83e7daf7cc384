"""Host time of a step: all of it that is not the target's forward, in the engine as `stackscope run` has it.

Decoding: blocks of 1, 2, 4, 8 and 16 sequences take turns in a random order; greedy, no speculation, the prefix cache
on and filling up. Host time is the step's duration less its decode phase. The median over the steps of a round is one
value, and the interval is Student's t over rounds. The same blocks run in the engine's loop without its process, which
tells what pipes and traffic add.

Prefill: long prompts in chunks of 64, 256 and 512 tokens. The slope of host time over tokens is Theil and Sen's, the
median of the slopes between all pairs of steps, so that the few steps that admit a request or hand its prompt to the
cache count as what they are; their cost is in the mean beside it.

The goals are meant for the bundled target, whose vocabulary has 4,096 tokens. An argmax over 262,144 takes longer than
all the rest: the phases show it as `sample`.

    python -m benchmarks.host_time
    python -m benchmarks.host_time --rounds 2 --steps 50
"""

from __future__ import annotations

import argparse
import random
import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scipy import stats

from benchmarks.arms import EngineArm, config_for, recorded_in, step_arm
from benchmarks.common import Interval, machine, mean_interval, state, table, verdict
from benchmarks.lockstep import Ask, decode_steps
from stackscope.hardware.quiet import QUIET_SHARE, Neighbours
from stackscope.model.catalog import bundled_target
from stackscope.records import Phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arms import Arm
    from stackscope.records import StepRecord
    from stackscope.toggles import EngineConfig

BASE_NS, SEQUENCE_NS, TOKEN_NS = 90_000, 12_000, 500
"""The goal: 90 µs and 12 µs for each sequence, and half a microsecond for each token of a prefill."""

HOST_PHASES = tuple(name for name in Phases.__struct_fields__ if name != "decode")
CHUNKS = (64, 256, 512)
PREFILL_TOKENS = 1536
"""A prompt: the smallest chunks divide it in 24, the largest in 3."""


def host_ns(step: StepRecord) -> int:
    """Wall time of a step without the target's forward, in nanoseconds."""
    return step.duration_ns - step.phases.decode


def goal_ns(sequences: int) -> int:
    """Host time that a decode step of so many sequences may take."""
    return BASE_NS + SEQUENCE_NS * sequences


@dataclass(frozen=True)
class DecodeRound:
    """The decode steps of one round, by side and number of sequences."""

    steps: dict[tuple[str, int], list[StepRecord]]
    foreign: float | None

    @property
    def is_quiet(self) -> bool:
        return self.foreign is not None and self.foreign < QUIET_SHARE


def median_host(rounds: Sequence[DecodeRound], side: str, batch: int) -> Interval:
    """Median host time, in nanoseconds, of the steps of each round; its mean over rounds."""
    return mean_interval([statistics.median(map(host_ns, each.steps[side, batch])) for each in rounds])


def per_token(steps: Sequence[StepRecord]) -> tuple[float, float, float]:
    """Host time for each further token of a prefill step, in nanoseconds, with the interval of 95 %."""
    found = stats.theilslopes([host_ns(step) for step in steps], [step.rows for step in steps], 0.95)
    return float(found.slope), float(found.low_slope), float(found.high_slope)


def decode_rounds(config: EngineConfig, args: argparse.Namespace, batches: Sequence[int]) -> list[DecodeRound]:
    order = random.Random(args.seed)
    rounds: list[DecodeRound] = []
    with TemporaryDirectory() as folder, ExitStack() as stack:
        engine = EngineArm("engine", config, is_repeating=False, open_recorder=recorded_in(Path(folder)))
        arms: list[Arm] = [stack.enter_context(engine), stack.enter_context(step_arm(config, is_repeating=False))]
        blocks = [(arm, Ask(batch, args.steps)) for arm in arms for batch in batches]
        watcher = Neighbours([arm.pid for arm in arms])
        for arm, ask in blocks:
            arm.run(ask)
        n_quiet = 0
        while n_quiet < args.rounds and len(rounds) < args.rounds * args.tries:
            steps: dict[tuple[str, int], list[StepRecord]] = {}

            def work(steps: dict[tuple[str, int], list[StepRecord]] = steps) -> None:
                for arm, ask in order.sample(blocks, len(blocks)):
                    steps[arm.name, ask.batch] = decode_steps(arm.run(ask).steps, ask)

            rounds.append(DecodeRound(steps, watcher.watch(work)))
            n_quiet += rounds[-1].is_quiet
    return rounds


def show_decoding(rounds: list[DecodeRound], batches: Sequence[int]) -> str:
    quiet = [each for each in rounds if each.is_quiet]
    is_quiet = len(quiet) >= 2
    judged = quiet if is_quiet else rounds
    rows = [["sequences", "host µs", "goal", "", "without its process", *HOST_PHASES]]
    for batch in batches:
        found = median_host(judged, "engine", batch)
        alone = median_host(judged, "engine loop", batch)
        steps = [step for each in judged for step in each.steps["engine", batch]]
        phases = [statistics.median(getattr(step.phases, name) for step in steps) for name in HOST_PHASES]
        rows.append(
            [
                f"{batch}",
                in_us(found),
                f"≤ {goal_ns(batch) / 1e3:.0f}",
                verdict(found, at_most=goal_ns(batch)) if is_quiet else "NOT QUIET",
                in_us(alone),
                *[f"{phase / 1e3:.1f}" for phase in phases],
            ]
        )
    medians = [median_host(judged, "engine", batch).center for batch in batches]
    line = "" if len(batches) < 2 else line_through(batches, medians)
    return f"{table(rows)}\n{line}{len(quiet)} of {len(rounds)} rounds were quiet."


def line_through(batches: Sequence[int], medians: Sequence[float]) -> str:
    fit = stats.linregress(batches, medians)
    return f"Least squares: {fit.intercept / 1e3:.1f} µs + {fit.slope / 1e3:.1f} µs for each sequence. "


def in_us(found: Interval) -> str:
    if found.low is None or found.high is None:
        return f"{found.center / 1e3:.1f} [-]"
    return f"{found.center / 1e3:.1f} [{found.low / 1e3:.1f}, {found.high / 1e3:.1f}]"


def prefill_steps(config: EngineConfig, args: argparse.Namespace) -> tuple[list[StepRecord], list[float | None]]:
    """The prefill steps of prompts in chunks of each size, and what others took of a CPU in each round."""
    order = random.Random(args.seed)
    found: list[StepRecord] = []
    with TemporaryDirectory() as folder:
        engine = EngineArm(
            "engine",
            config,
            is_repeating=False,
            open_recorder=recorded_in(Path(folder)),
            prompt_tokens=PREFILL_TOKENS,
        )
        with engine:
            engine.run(Ask(1, 1))
            watcher = Neighbours([engine.pid])

            def work() -> None:
                for chunk in order.sample(CHUNKS, len(CHUNKS)):
                    engine.set(token_budget=chunk)
                    engine.run(Ask(1, 1))  # What a change of settings costs is not the prompt's.
                    steps = engine.run(Ask(1, 1)).steps
                    found.extend(s for s in steps if all(w.phase == "prefill" for w in s.work))

            foreign = [watcher.watch(work) for _ in range(args.prompts)]
    return found, foreign


def show_prefill(steps: Sequence[StepRecord], foreign: Sequence[float | None]) -> str:
    rows = [["chunk", "steps", "host µs, median", "µs per token, all included", "forward ms, median"]]
    for chunk in CHUNKS:
        of_size = [step for step in steps if step.rows == chunk]
        median = statistics.median(map(host_ns, of_size))
        mean = sum(map(host_ns, of_size)) / sum(step.rows for step in of_size)
        forward = statistics.median(step.phases.decode for step in of_size)
        rows.append([f"{chunk}", f"{len(of_size)}", f"{median / 1e3:.1f}", f"{mean / 1e3:.3f}", f"{forward / 1e6:.2f}"])
    slope, low, high = per_token(steps)
    known = [share for share in foreign if share is not None]
    taken = (
        f"others took {statistics.median(known):.1%} of one CPU (median)" if known else "what others took is unknown"
    )
    is_quiet = bool(known) and statistics.median(known) < QUIET_SHARE
    judged = verdict(Interval(slope, low, high, len(steps)), at_most=TOKEN_NS) if is_quiet else "NOT QUIET"
    return (
        f"{table(rows)}\nTheil and Sen: {slope / 1e3:.3f} µs [{low / 1e3:.3f}, {high / 1e3:.3f}] for each token, "
        f"goal ≤ {TOKEN_NS / 1e3} µs: {judged}; {taken}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=bundled_target())
    parser.add_argument("--batch", type=int, action="append", help="sequences; 1, 2, 4, 8 and 16 if not given")
    parser.add_argument("--rounds", type=int, default=6, help="quiet rounds")
    parser.add_argument("--tries", type=int, default=3, help="at most so many times the rounds, if they are not quiet")
    parser.add_argument("--steps", type=int, default=200, help="decode steps of a block")
    parser.add_argument("--prompts", type=int, default=12, help="prompts in chunks of each size")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    batches = sorted(args.batch or [1, 2, 4, 8, 16])
    config = config_for(args.model, threads=args.threads)
    print(machine())
    print(f"A round is quiet when others take less than {QUIET_SHARE:.0%} of one CPU during it.")
    print(f"\nDecode steps of {args.model.name}, {config.threads} threads: medians", flush=True)
    print(show_decoding(decode_rounds(config, args, batches), batches), flush=True)
    print(f"\nPrefill steps, prompts of {PREFILL_TOKENS:,} tokens", flush=True)
    print(show_prefill(*prefill_steps(config, args)))
    print(state())


if __name__ == "__main__":
    main()
