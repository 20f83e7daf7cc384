"""Whether a calibration comes to the same result again, and notices that it is disturbed.

Each model is calibrated several times on a quiet machine; every ceiling's largest deviation from its median over the
calibrations has to stay within 10 %. A calibration during which others took a tenth of a CPU or more is repeated. Then
one more has a busy process beside it, and has to be flagged.

    python -m benchmarks.ceilings
    python -m benchmarks.ceilings --model target.gguf --times 5
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.common import default_models, machine, state, table
from stackscope import units
from stackscope.experiments import protocol
from stackscope.experiments.calibrate import calibrate
from stackscope.hardware.quiet import CALM_SHARE
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.records.ceilings import Ceilings, Measured

GOAL = 0.10
NEIGHBOUR = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


def figures(found: Ceilings) -> dict[str, float]:
    """Every ceiling by what it is: rates per second, durations in nanoseconds."""
    named: dict[str, Measured | None] = {f"reading, {read.place}": read.bytes_per_s for read in found.reads}
    for kind in found.types:
        named[f"{kind.type} × 1 row"] = kind.vector_bytes_per_s
        named[f"{kind.type} × {kind.matrix_rows} rows"] = kind.matrix_flops_per_s
    for time in found.forwards:
        named[f"forward, {time.rows} rows, {units.counted(time.outputs, 'output')}"] = time.ns
    for time in found.draft_forwards:
        named[f"draft forward, {units.counted(time.rows, 'row')}"] = time.ns
    named["cached token"] = found.context_ns_per_token
    named["contexts anew"] = found.rebuild_ns
    named["target loaded"] = found.load_ns
    if found.handoff is not None:
        named["state saved"], named["state loaded"] = found.handoff.save_bytes_per_s, found.handoff.load_bytes_per_s
    known = {name: measured.value for name, measured in named.items() if measured is not None}
    for name, ceiling in (("bandwidth ceiling", found.bandwidth), ("compute ceiling", found.compute)):
        if ceiling is not None:
            known[name] = ceiling.value
    return known


class Repeated(NamedTuple):
    """One ceiling over several calibrations."""

    name: str
    median: float
    deviation: float
    """Largest distance from the median, as a share of it."""
    n: int


def repeated(runs: Sequence[Mapping[str, float]]) -> list[Repeated]:
    """Every ceiling that was measured more than once."""
    names = dict.fromkeys(name for run in runs for name in run)
    found = []
    for name in names:
        values = [run[name] for run in runs if name in run]
        if len(values) > 1:
            median = statistics.median(values)
            found.append(Repeated(name, median, max(abs(value / median - 1) for value in values), len(values)))
    return found


def measure(config: EngineConfig) -> Ceilings:
    return calibrate(config, protocol.QUICK, progress=lambda _: None)


def quiet_runs(config: EngineConfig, times: int, tries: int) -> list[Ceilings]:
    """So many calibrations of a quiet machine; fewer when it was not quiet often enough."""
    found: list[Ceilings] = []
    for _ in range(times * tries):
        run = measure(config)
        share = "unknown" if run.foreign_share is None else f"{run.foreign_share:.1%}"
        kept = "" if run.is_quiet else ", left out"
        print(f"  {units.duration(run.duration_ns)}, others {share}{kept}; {state()}", flush=True)
        found += [run] if run.is_quiet else []
        if len(found) == times:
            break
    return found


def disturbed(config: EngineConfig) -> Ceilings:
    """A calibration beside a process that wants a core of its own."""
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR])
    try:
        return measure(config)
    finally:
        neighbour.kill()
        neighbour.wait()


def show(found: Sequence[Repeated]) -> str:
    rows = [["ceiling", "median", "deviation", "n", ""]]
    for each in sorted(found, key=lambda one: -one.deviation):
        verdict = "met" if each.deviation <= GOAL else "missed"
        rows.append([each.name, units.scaled(each.median), f"{each.deviation:.1%}", f"{each.n}", verdict])
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; lab target and Gemma if not given")
    parser.add_argument("--times", type=int, default=3, help="calibrations of a quiet machine")
    parser.add_argument("--tries", type=int, default=4, help="at most so many times as many, if they are not quiet")
    args = parser.parse_args()
    print(machine())
    print(f"A calibration is quiet when others take less than {CALM_SHARE:.0%} of one CPU during it.")
    for model in args.model or default_models():
        draft = str(bundled_draft()) if model == bundled_target() else None
        config = EngineConfig(model=str(model), draft_model=draft)
        print(f"\n{model.name}", flush=True)
        runs = quiet_runs(config, args.times, args.tries)
        if len(runs) < 2:
            print("NOT QUIET: nothing to compare")
        else:
            print(show(repeated([figures(run) for run in runs])))
        beside = disturbed(config)
        flagged = "flagged" if beside.is_busy else "NOT FLAGGED"
        print(f"beside a busy process: others {beside.foreign_share or 0:.0%}, {flagged}", flush=True)


if __name__ == "__main__":
    main()
