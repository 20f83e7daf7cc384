"""Checks Stackscope on a machine with an NVIDIA GPU, CUDA's compiler, CMake and Python, and no network: in stages.

1. On a machine with a network (some 60 MB; less with `--have` for packages that the other machine has)::

       python -m benchmarks.gpu.pack --python 3.12 --have numpy,scipy

2. Carry this repository and `.build/gpu` to the machine with the GPU. There, from the repository's folder::

       python3 -m benchmarks.gpu_check --out results --limit 570

   It does `unpack`, `readings`, `build` and what else fits into 570 s, and ends with status 3 when something is left.
   The same call again goes on: a stage that is done is not repeated unless `--again` names it, and an interrupted build
   goes on where it was. What was done is remembered in the folder `--work`, which must survive between the calls; a
   machine that is cleared when nobody uses it for a while has to get the second call at once. `--out` may be another
   folder each time: no stage reads another's results.

3. Bring the results back. `session.jsonl.zst` is a recording of less than 5 MB for `profiles/`.

The stages, each with a limit of its own, and what they take on sixteen cores (estimates: nothing of this has run on a
GPU yet):

- `unpack`: the carried packages, and llama.cpp's source.
- `readings` (60 s): every reading of NVML and GPM, at rest and under load, with a verdict on its plausibility. The load
  is PyTorch's, if it is there, else that of the engine once it is built (`--again readings`), else none.
- `build` (6 min, resumable): llama.cpp with CUDA, for this chip alone.
- `doctor` (10 s): what `stackscope doctor` says.
- `inflate` (1 min): the lab target in 4.2 GB.
- `ladder` (3 min): batch 1 to 64, speculation off and by draft model, KV in F16 and Q8_0, toggled in one engine: bytes
  per second as modelled and as GPM measures them, idle compute, and the batch from which speculation loses.

In all 12 minutes, in commands of 10 at most.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Final

from benchmarks.gpu.folders import Folders, add_folders, say
from benchmarks.gpu.stages import LEFT, Run, Stage, State, in_process, perform

STAGES: Final = (
    Stage("unpack", "benchmarks.gpu.unpack", 60, "the carried packages and llama.cpp's source"),
    Stage("readings", "benchmarks.gpu.readings", 85, "every reading, at rest and under load", ("unpack",)),
    Stage("build", "benchmarks.gpu.building", 560, "llama.cpp with CUDA for this chip", ("unpack",), is_resumable=True),
    Stage("doctor", "benchmarks.gpu.examined", 60, "what stackscope doctor says", ("build",)),
    Stage("inflate", "benchmarks.gpu.inflated", 120, "the lab target, wider", ("unpack",)),
    Stage("ladder", "benchmarks.gpu.ladder", 240, "measured against modelled bandwidth", ("build", "inflate")),
)
NAMES: Final = tuple(stage.name for stage in STAGES)


def main(arguments: list[str] | None = None, run: Run | None = None) -> int:
    """Do what is asked for; 0, 1 for a failure, or `LEFT`. `run` does a stage, in a process of its own if `None`."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # a stage must not outlive this
    folders = Folders.of(options)
    state = State(folders.work / "state.json")
    state.forget(options.again)
    wanted = [*(options.stages or NAMES), *options.again]
    status = perform(STAGES, state, run or in_process(folders), limit_s=options.limit, wanted=wanted)
    for name in NAMES:
        say(f"{name:<9} {state.outcome(name):<9} {state.seconds(name):>5.0f} s")
    say(f"The results are in {folders.out}.")
    if status == LEFT:
        say("Call it again for the rest.")
    return status


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(NAMES)}; all if none is named")
    found.add_argument("--limit", type=float, default=570.0, help="seconds that this call may take")
    found.add_argument("--again", action="append", default=[], choices=NAMES, help="do a stage again that is done")
    add_folders(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
