"""Speed of the engine ÷ speed of a bare loop over the same library, in tokens per second while all sequences decode.

Three processes are alive at once and take turns: the bare loop (decode and argmax, nothing else), the engine as
`stackscope run` has it (its own process, its records leaving it, summed up and recorded by this one), and the engine's
loop alone. All have the same model, context, threads, prompts, positions and OpenMP environment, and the tokens that
come out are compared. A round gives every side two blocks, in a random order and then in its reverse; all three
processes are started anew for every generation. The ratio is the geometric mean over generations, its interval
Student's t on the logarithms.

The prefix cache is on, with no room to keep anything, so that all sides attend to the same cells.

    python -m benchmarks.engine_speed
    python -m benchmarks.engine_speed --model target.gguf --batch 1 --generations 8
"""

from __future__ import annotations

import argparse
import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.arms import PROMPT_TOKENS, EngineArm, bare_arm, config_for, recorded_in, step_arm
from benchmarks.common import (
    Round,
    default_models,
    machine,
    palindrome,
    quiet_rounds,
    speed_ratio,
    state,
    table,
    verdict,
)
from benchmarks.lockstep import Ask
from stackscope.hardware.quiet import QUIET_SHARE, Neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arms import Arm
    from stackscope.toggles import EngineConfig

GOALS = {"lab-target": 0.90, "gemma": 0.97}
"""By the beginning of the file's name."""

BARE, PROCESS, LOOP = "bare loop", "engine", "engine loop"
WARM_UP_STEPS = 24
FEWEST_STEPS = 32
"""With fewer, the end of the requests in the last step would weigh more than it does in any run."""
MOST_STEPS = 220
"""As many as fit 256 cells behind the prompt."""


@dataclass
class Batch:
    """What was measured at one batch size."""

    size: int
    ask: Ask | None = None
    """`None`: it is not known yet how many steps make a block."""
    rounds: list[Round] = field(default_factory=list)
    n_blocks: int = 0
    n_alike: int = 0
    """Blocks of the engine whose tokens were those of the bare loop."""

    def tokens_per_second(self, side: str, rounds: Sequence[Round]) -> float:
        assert self.ask is not None
        spent_ns = sum(each.spent_ns[side] for each in rounds)
        return 2 * len(rounds) * self.ask.batch * self.ask.steps / spent_ns * 1e9


def block_of(batch: int, bare_ns: int, seconds: float) -> Ask:
    """A block that takes the bare loop about so long; `bare_ns` is what `WARM_UP_STEPS` took."""
    steps = round(seconds * 1e9 / (bare_ns / WARM_UP_STEPS))
    return Ask(batch, min(max(steps, FEWEST_STEPS), MOST_STEPS))


def one_round(arms: dict[str, Arm], ask: Ask, order: random.Random, generation: int, watcher: Neighbours) -> Round:
    spent_ns = dict.fromkeys(arms, 0)

    def work() -> None:
        for name in palindrome(list(arms), order):
            spent_ns[name] += arms[name].run(ask).ns

    return Round(generation, spent_ns, watcher.watch(work))


def measure(
    arms: dict[str, Arm], batch: Batch, generation: int, args: argparse.Namespace, order: random.Random
) -> None:
    """The rounds of one generation at one batch size."""
    for arm in arms.values():
        arm.run(Ask(batch.size, WARM_UP_STEPS))
    warm = arms[BARE].run(Ask(batch.size, WARM_UP_STEPS))
    if batch.ask is None:
        batch.ask = block_of(batch.size, warm.ns, args.seconds)
    engine = arms[PROCESS]
    assert isinstance(engine, EngineArm)
    expected = [arms[name].run(batch.ask).digest for name in (BARE, LOOP)]
    engine.run(batch.ask)
    n_known = len(engine.digests)
    watcher = Neighbours([arm.pid for arm in arms.values()])
    n_quiet = 0
    for _ in range(args.rounds * args.tries):
        done = one_round(arms, batch.ask, order, generation, watcher)
        batch.rounds.append(done)
        n_quiet += done.is_quiet
        if n_quiet == args.rounds:
            break
    engine.run(Ask(1, FEWEST_STEPS))  # Brings what the last block said.
    said = [*engine.digests[n_known:], expected[1]]
    batch.n_blocks += len(said)
    batch.n_alike += said.count(expected[0])


def study(config: EngineConfig, args: argparse.Namespace) -> list[Batch]:
    order = random.Random(args.seed)
    batches = [Batch(size) for size in args.batch]
    for generation in range(args.generations):
        with TemporaryDirectory() as folder, ExitStack() as stack:
            open_recorder = recorded_in(Path(folder))
            arms: dict[str, Arm] = {
                BARE: stack.enter_context(bare_arm(config)),
                PROCESS: stack.enter_context(
                    EngineArm(PROCESS, config, is_repeating=True, open_recorder=open_recorder)
                ),
                LOOP: stack.enter_context(step_arm(config, is_repeating=True)),
            }
            for batch in batches:
                measure(arms, batch, generation, args, order)
        print(f"  generation {generation + 1} of {args.generations}: {state()}", flush=True)
    return batches


def show(batches: list[Batch], goal: float | None) -> str:
    head = ["batch", "steps", "bare tok/s", "engine ÷ bare", "goal", "", "loop alone ÷ bare", "quiet", "same tokens"]
    rows = [head]
    for batch in batches:
        rounds, is_quiet = quiet_rounds(batch.rounds)
        assert batch.ask is not None
        ratio = speed_ratio(rounds, PROCESS, BARE)
        judged = "" if goal is None else verdict(ratio, at_least=goal) if is_quiet else "NOT QUIET"
        rows.append(
            [
                f"{batch.size}",
                f"{batch.ask.steps}",
                f"{batch.tokens_per_second(BARE, rounds):,.0f}",
                str(ratio),
                "-" if goal is None else f"≥ {goal:.2f}",
                judged,
                str(speed_ratio(rounds, LOOP, BARE)),
                f"{sum(each.is_quiet for each in batch.rounds)} of {len(batch.rounds)}",
                f"{batch.n_alike} of {batch.n_blocks}",
            ]
        )
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; lab target and Gemma if not given")
    parser.add_argument("--batch", type=int, action="append", help="sequences decoded together; 1, 8 and 16")
    parser.add_argument("--generations", type=int, default=5, help="times that all processes are started")
    parser.add_argument("--rounds", type=int, default=3, help="quiet rounds for each generation and batch")
    parser.add_argument("--tries", type=int, default=3, help="at most so many times the rounds, if they are not quiet")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a block of the bare loop")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.batch = args.batch or [1, 8, 16]
    print(machine())
    print(f"A round is quiet when others take less than {QUIET_SHARE:.0%} of one CPU during it.")
    for model in args.model or default_models():
        goal = next((goal for name, goal in GOALS.items() if model.name.startswith(name)), None)
        config = config_for(model, threads=args.threads, cache_tokens=0)
        print(f"\n{model.name}, {config.threads} threads, from {PROMPT_TOKENS} tokens on", flush=True)
        print(show(study(config, args), goal), flush=True)


if __name__ == "__main__":
    main()
