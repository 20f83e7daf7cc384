"""How long `stackscope compare` takes over two long sessions at batch 1, and how much memory.

The sessions are synthetic (every duration varies in all its digits) and written by the session writer. Each round is a
process of its own, from its start to its end, as a shell would see it; CPU time is that of all its processes, and so is
the peak of memory: the sum of what each held at most, which is more than they ever held together.

    python -m benchmarks.compare_speed                     two sessions of 1,000,000 steps, three rounds
    python -m benchmarks.compare_speed --steps 100000      shorter ones
    python -m benchmarks.compare_speed --folder /tmp/x     keep the sessions there, and use those that are there
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

from benchmarks.common import machine, state
from stackscope.records import StepRecord
from stackscope.session.writer import SessionWriter
from tests.unit.record_builders import SyntheticEngine, make_footer, make_header

MOST_SECONDS = 6.0
MOST_BYTES = 600_000_000
LOOK_EVERY_S = 0.02


class Round(NamedTuple):
    """What one comparison cost."""

    wall_s: float
    cpu_s: float
    """Of all processes."""
    peak_bytes: int
    """Sum over processes of the most that each held."""
    together_bytes: int
    """Most that they held at one time."""

    def __str__(self) -> str:
        return (
            f"{self.wall_s:5.2f} s wall  {self.cpu_s:5.2f} s CPU  {self.peak_bytes / 1e6:5.0f} MB, the peaks added"
            f"  {self.together_bytes / 1e6:5.0f} MB at one time"
        )


def written(path: Path, n_steps: int, *, seed: int, decode_ns: int) -> None:
    """A session of so many steps at batch 1, unless it is there already."""
    if path.exists():
        return
    now_ns = 0
    with SessionWriter(path, make_header(), clock=lambda: now_ns) as writer:
        for record in SyntheticEngine(seed=seed, decode_ns=decode_ns).records(n_steps):
            now_ns = record.end_ns if isinstance(record, StepRecord) else now_ns
            writer.write(record)
        writer.close(make_footer())


class Watch(threading.Thread):
    """Follows what a process and its children hold, in a thread."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.peaks: dict[int, int] = {}
        self.together = 0

    def run(self) -> None:
        while True:
            try:
                family = [self._process, *self._process.children(recursive=True)]
                held = {one.pid: one.memory_info().rss for one in family if one.status() != psutil.STATUS_ZOMBIE}
            except psutil.NoSuchProcess:
                if not self._process.is_running():
                    return
                continue
            if not held:
                return
            self.together = max(self.together, sum(held.values()))
            for pid, size in held.items():
                self.peaks[pid] = max(self.peaks.get(pid, 0), size)
            time.sleep(LOOK_EVERY_S)


def compared(paths: list[Path]) -> Round:
    """One comparison in a process of its own."""
    before = os.times()
    started = time.perf_counter()
    command = [sys.executable, "-m", "stackscope", "compare", *map(str, paths), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watch = Watch(process.pid)
    watch.start()
    code = process.wait()
    wall_s = time.perf_counter() - started
    watch.join()
    after = os.times()
    if code != 0:
        raise SystemExit(f"stackscope compare ended with {code}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Round(wall_s, cpu_s, sum(watch.peaks.values()), watch.together)


def measure(folder: Path, n_steps: int, n_rounds: int) -> None:
    paths = [folder / f"compare-{name}-{n_steps}.jsonl.zst" for name in ("a", "b")]
    for number, path in enumerate(paths):
        written(path, n_steps, seed=number + 1, decode_ns=750_000 - 50_000 * number)
    print(f"two sessions of {n_steps:,} steps, {sum(path.stat().st_size for path in paths) / 1e6:.0f} MB on disk")
    rounds = []
    for _ in range(n_rounds):
        print(f"  {state()}")
        rounds.append(compared(paths))
        print(f"  {rounds[-1]}")
    best = min(rounds, key=lambda one: one.wall_s)
    most = max(one.peak_bytes for one in rounds)
    time_met = "met" if best.wall_s < MOST_SECONDS else "missed"
    memory_met = "met" if most < MOST_BYTES else "missed"
    print(f"best {best.wall_s:.2f} s of {MOST_SECONDS:.0f} s: {time_met}")
    print(f"most {most / 1e6:.0f} MB of {MOST_BYTES / 1e6:.0f} MB: {memory_met}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of each session")
    parser.add_argument("--rounds", type=int, default=3, help="comparisons, of which the fastest counts")
    parser.add_argument("--folder", type=Path, help="where the sessions are kept")
    options = parser.parse_args()
    print(machine())
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        measure(options.folder, options.steps, options.rounds)
        return
    with TemporaryDirectory() as folder:
        measure(Path(folder), options.steps, options.rounds)


if __name__ == "__main__":
    main()
