"""What looking at the machine costs: CPU time of the sampler, and speed with it ÷ without.

*Cost*: GPUs are read ten times a second (the application does it five times), of which what changes slowly once a
second; host and engine process once a second, and for comparison ten times as well, by a process that does nothing
else, less what that process takes without looking. The GPU is an H100 as the tests play it, so that the driver's
binding runs as it would; what its driver takes is not in the figure.

*Speed*: one engine process, and stretches of work with GPUs read ten times a second and the host once, and without, in
a random order and then in its reverse. A second side without (`off again`) shows what the method makes of no
difference. The interval is Student's t on the logarithms, over rounds.

    python -m benchmarks.probe_cost
    python -m benchmarks.probe_cost --rounds 2 --seconds 0.3 --watch-seconds 2
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.arms import EngineArm, config_for
from benchmarks.common import Round, machine, palindrome, quiet_rounds, speed_ratio, state, table
from benchmarks.lockstep import Ask
from benchmarks.recorder_cost import MOST_STEPS
from stackscope.hardware.gpu_probe import BackgroundGpus
from stackscope.hardware.nvml_gpus import Gpus
from stackscope.hardware.quiet import QUIET_SHARE, Neighbours
from stackscope.hardware.sampler import Sampler
from stackscope.launch import gpu_use_of
from stackscope.model.catalog import bundled_target
from tests.nvml.machine import Driver, compile_library, written
from tests.nvml.play import CARDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.engine.process import EngineProcess
    from stackscope.records import HardwareSample

ON, OFF, AGAIN = "on", "off", "off again"
GPU_PERIOD_NS = 100_000_000
HOST_PERIOD_NS = 1_000_000_000
GOAL = 0.005
"""Of one core."""
INSIDE = "--inside"
"""Given to the process that finds the played driver."""


@contextmanager
def sampling(process: EngineProcess, taken: list[HardwareSample], host_period_ns: int) -> Iterator[None]:
    """GPUs are read ten times a second, host and engine process as often as asked, into the session as well."""

    def take(sample: HardwareSample) -> None:
        taken.append(sample)
        process.inject(sample)

    gpus = BackgroundGpus(Gpus(gpu_use_of(process)), period_ns=GPU_PERIOD_NS)
    gpus.start()
    sampler = Sampler(take, clock=process.now_ns, pid=process.pid, gpus=gpus, period_ns=host_period_ns)
    sampler.start()
    try:
        yield
    finally:
        sampler.close()


def watch(process: EngineProcess, seconds: float, host_period_ns: int) -> list[str]:
    """A row on what it costs to look for so long: CPU time of this process, less what it takes without looking."""
    taken: list[HardwareSample] = []
    idle, was_quiet = _spent(process, seconds)
    with sampling(process, taken, host_period_ns):
        time.sleep(0.5)  # What opening the driver takes is paid once.
        n_before = len(taken)
        busy, is_quiet = _spent(process, seconds)
        seen = taken[n_before:]
    gpus = seen[-1].gpus or () if seen else ()
    share = busy - idle
    is_quiet = is_quiet and was_quiet
    told = sum(1 for gpu in gpus if gpu.dram_share is not None)
    return [
        f"{1e9 / GPU_PERIOD_NS:.0f}, {len(gpus)} of them, {told} with GPM",
        f"{len(seen) / seconds:.1f}",
        f"{share:.2%}",
        (f"≤ {GOAL:.1%}: " + ("met" if share <= GOAL else "missed")) if is_quiet else "NOT QUIET",
    ]


def _spent(process: EngineProcess, seconds: float) -> tuple[float, bool]:
    """(CPU time of this process ÷ wall time, whether nobody else used the CPUs) over some seconds of waiting."""
    cpu_ns, begun_ns = time.process_time_ns(), time.monotonic_ns()
    foreign = Neighbours([process.pid]).watch(lambda: time.sleep(seconds))
    share = (time.process_time_ns() - cpu_ns) / (time.monotonic_ns() - begun_ns)
    return share, foreign is not None and foreign < QUIET_SHARE


def switched(arm: EngineArm, batch: int, args: argparse.Namespace) -> list[Round]:
    """Rounds of work with the sampler and without."""
    order, ask = random.Random(args.seed), Ask(batch, MOST_STEPS)
    watcher = Neighbours([arm.pid])
    rounds: list[Round] = []
    n_quiet = 0

    def stretch() -> int:
        """Blocks for about so long: nanoseconds of a block's decode steps, the mean."""
        spent_ns, n_blocks = 0, 0
        while spent_ns < args.seconds * 1e9:
            spent_ns += arm.run(ask).ns
            n_blocks += 1
        return spent_ns // n_blocks

    stretch()
    while n_quiet < args.rounds and len(rounds) < args.rounds * args.tries:
        spent_ns: dict[str, int] = dict.fromkeys((ON, OFF, AGAIN), 0)

        def work(spent_ns: dict[str, int] = spent_ns) -> None:
            for side in palindrome((ON, OFF, AGAIN), order):
                if side == ON:
                    with sampling(arm.process, [], HOST_PERIOD_NS):
                        spent_ns[side] += stretch()
                else:
                    spent_ns[side] += stretch()

        rounds.append(Round(0, spent_ns, watcher.watch(work)))
        n_quiet += rounds[-1].is_quiet
    return rounds


def show(batch: int, rounds: Sequence[Round]) -> list[str]:
    judged, is_quiet = quiet_rounds(rounds)
    ratio, control = speed_ratio(judged, ON, OFF), speed_ratio(judged, AGAIN, OFF)
    assert ratio.low is not None
    assert ratio.high is not None
    contains = "includes 1" if ratio.low <= 1 <= ratio.high else "excludes 1"
    n_quiet = sum(each.is_quiet for each in rounds)
    said = contains if is_quiet else f"{contains}, NOT QUIET"
    return [f"{batch}", str(ratio), said, str(control), f"{n_quiet} of {len(rounds)}"]


def measure(args: argparse.Namespace) -> None:
    """Everything, in a process that finds the played driver."""
    print(machine())
    print(f"A round is quiet when others take less than {QUIET_SHARE:.0%} of one CPU during it.")
    ratios = [["batch", "probes on ÷ off", "", "off again ÷ off", "quiet"]]
    costs = [["readings of GPUs/s", "of the host/s", "CPU ÷ wall", "goal"]]
    for batch in args.batch or [1, 8]:
        config = config_for(args.model, threads=args.threads, cache_tokens=0)
        with EngineArm("engine", config, is_repeating=True, open_recorder=lambda _: None) as arm:
            if len(costs) == 1:
                arm.run(Ask(1, 1))
                costs += [watch(arm.process, args.watch_seconds, period) for period in (HOST_PERIOD_NS, GPU_PERIOD_NS)]
            ratios.append(show(batch, switched(arm, batch, args)))
    print("\nLooking at host, engine and GPUs")
    print(table(costs))
    print("\nTokens per second, probes ÷ none")
    print(table(ratios))
    print(state())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=bundled_target())
    parser.add_argument("--batch", type=int, action="append", help="sequences; 1 and 8 if not given")
    parser.add_argument("--rounds", type=int, default=6, help="quiet rounds")
    parser.add_argument("--tries", type=int, default=3, help="at most so many times the rounds, if they are not quiet")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a stretch")
    parser.add_argument("--watch-seconds", type=float, default=20.0, help="how long the cost is measured")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("an interval takes two rounds")
    if args.inside:
        measure(args)
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        scenario = written(CARDS["h100"], folder / "scenario.txt")
        environment = Driver(compile_library(folder)).environment(
            FAKE_NVML_SCENARIO=str(scenario), FAKE_NVML_LOAD=str(folder / "load.txt")
        )
        command = [sys.executable, "-m", "benchmarks.probe_cost", INSIDE, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
