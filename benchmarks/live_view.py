"""What keeping up the live screen's figures costs: microseconds a step, and milliseconds a snapshot with a full minute.

The steps are synthetic. The summary of a run, which is fed the same steps in the same round, stands beside it as a
measure of the machine; the goal in microseconds is for a quiet one. CPU times are of the thread that does the work.

    python -m benchmarks.live_view
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.common import machine, mean_interval, palindrome, ratio_interval, state, table, verdict
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.summary import RunSummary
from stackscope.records import StepRecord
from stackscope.toggles import EngineConfig
from tests.unit.record_builders import SyntheticEngine, make_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import AnyRecord, Header

STEP_GOAL_US = 6.0
SNAPSHOT_GOAL_MS = 1.5
SNAPSHOT_EVERY_NS = 250_000_000
MINUTE_NS = 65_000_000_000
"""Session time before anything is measured: a full minute in bins, and a little."""
MEASURED_NS = 5_000_000_000

LOADS = {
    "batch 1, 600 steps/s": {"decode_ns": 1_600_000},
    "batch 1, drafts of 3": {"decode_ns": 2_000_000, "draft_length": 3},
    "batch 8, 300 steps/s": {"decode_ns": 3_100_000, "slots": 8},
    "batch 32, 50 steps/s": {"decode_ns": 19_000_000, "slots": 32},
}


@dataclass(frozen=True)
class Cost:
    """One round."""

    live_us: float
    """For each step, everything but the snapshots."""
    summary_us: float
    snapshot_ms: float


def split(load: dict[str, int], seed: int) -> tuple[list[AnyRecord], list[AnyRecord]]:
    """A minute of records to begin with, and some seconds of records to measure."""
    before: list[AnyRecord] = []
    after: list[AnyRecord] = []
    start_ns: int | None = None
    for record in SyntheticEngine(seed=seed, **load).records(1_000_000):
        if isinstance(record, StepRecord):
            start_ns = record.start_ns if start_ns is None else start_ns
            if record.start_ns > start_ns + MINUTE_NS + MEASURED_NS:
                break
        is_measured = bool(after) or (isinstance(record, StepRecord) and _is_late(record, start_ns))
        (after if is_measured else before).append(record)
    return before, after


def _is_late(step: StepRecord, start_ns: int | None) -> bool:
    return start_ns is not None and step.start_ns > start_ns + MINUTE_NS


def measured_live(view: LiveView, records: Sequence[AnyRecord]) -> tuple[int, int, int]:
    """(nanoseconds of taking records, nanoseconds of snapshots, number of snapshots)."""
    taking = looking = n = 0
    due_ns: int | None = None
    batch: list[AnyRecord] = []
    for record in records:
        batch.append(record)
        if not isinstance(record, StepRecord):
            continue
        due_ns = record.end_ns if due_ns is None else due_ns
        if record.end_ns < due_ns:
            continue
        due_ns += SNAPSHOT_EVERY_NS
        began_ns = time.thread_time_ns()
        for each in batch:
            view.write(each)
        view.catch_up()
        taken_ns = time.thread_time_ns()
        view.snapshot(record.end_ns)
        looking += time.thread_time_ns() - taken_ns
        taking += taken_ns - began_ns
        n += 1
        batch = []
    return taking, looking, n


def measured_summary(summary: RunSummary, records: Sequence[AnyRecord]) -> int:
    """Nanoseconds of taking records."""
    began_ns = time.thread_time_ns()
    for record in records:
        summary.write(record)
    return time.thread_time_ns() - began_ns


def a_round(header: Header, load: dict[str, int], order: random.Random, seed: int) -> Cost:
    before, after = split(load, seed)
    n_steps = sum(isinstance(record, StepRecord) for record in after)
    live_ns, summary_ns, looking_ns, n_looks = 0, 0, 0, 0
    gc.collect()
    for side in palindrome(("live", "summary"), order):
        sink = LiveView() if side == "live" else RunSummary()
        sink.write(header)
        for record in before:
            sink.write(record)
        if isinstance(sink, LiveView):
            sink.snapshot(before[-1].end_ns if isinstance(before[-1], StepRecord) else 0)
            taking, looking, n = measured_live(sink, after)
            live_ns, looking_ns, n_looks = live_ns + taking, looking_ns + looking, n_looks + n
        else:
            summary_ns += measured_summary(sink, after)
    return Cost(live_ns / n_steps / 2e3, summary_ns / n_steps / 2e3, looking_ns / n_looks / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("an interval takes two rounds")
    print(machine())
    order = random.Random(args.seed)
    header = make_header(
        config=EngineConfig(model="/models/synthetic-F16.gguf", threads=2),
        capabilities=("phases", "cpu", "slots", "prefix_cache", "acceptance"),
    )
    rows = [
        ["load", "µs a step", f"goal ≤ {STEP_GOAL_US:g}", "÷ run summary", "ms a snapshot", f"≤ {SNAPSHOT_GOAL_MS}"]
    ]
    for name, load in LOADS.items():
        costs = [a_round(header, load, order, args.seed + k) for k in range(args.rounds)]
        step = mean_interval([cost.live_us for cost in costs])
        ratio = ratio_interval([cost.live_us / cost.summary_us for cost in costs])
        snapshot = mean_interval([cost.snapshot_ms for cost in costs])
        is_batch_1 = "slots" not in load
        met = verdict(step, at_most=STEP_GOAL_US) if is_batch_1 else "-"
        rows.append([name, str(step), met, str(ratio), str(snapshot), verdict(snapshot, at_most=SNAPSHOT_GOAL_MS)])
    print(table(rows))
    print(state())


if __name__ == "__main__":
    main()
