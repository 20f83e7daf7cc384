"""Stage `readings`: reads every GPU at rest and under load, and judges each reading.

The load is PyTorch's (`benchmarks.gpu.burn`), else that of the engine where it is built, else there is none, which is
said: then only ranges are judged.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.gpu.folders import Folders, add_folders, rows, say, sentence_of
from benchmarks.gpu.plausibility import AVERAGING_S, Phase, judge
from benchmarks.gpu.stages import DOUBTS
from stackscope import units
from stackscope.hardware import peaks
from stackscope.hardware.gpu_probe import GpuReading
from stackscope.hardware.gpu_use import EngineUse
from stackscope.hardware.nvml_gpus import Gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PERIOD_S: Final = 0.2
IDLE_S: Final = 4.0
MOST_LOAD_S: Final = 55.0
ENGINE_S: Final = 12
NONE: Final = "none"


class Taken(msgspec.Struct, frozen=True):
    """One round of readings."""

    at_ns: int
    """On the system's monotonic clock."""
    reading: GpuReading


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    add_folders(options)
    options.add_argument("--idle", type=float, default=IDLE_S, help="seconds of rest before the load")
    options.add_argument("--load", help="a command to use as the load")
    given = options.parse_args(arguments)
    folders = Folders.of(given)
    name, command = ("given", given.load.split()) if given.load else load_command(folders)
    gpus = Gpus(EngineUse.of(os.environ), peak=peaks.override(os.environ))
    taken, told, status = watch(gpus, command, folders, idle_s=given.idle)
    driver = gpus.driver
    gpus.close()
    if status != 0:
        say(f"The load ({name}) failed with status {status}, so all is judged as at rest.")
        name, told = NONE, ""
    return report(folders, taken, told, load=name, driver=driver)


def load_command(folders: Folders) -> tuple[str, list[str]]:
    """(what the load is, its command); an empty command where there is nothing to load a GPU with."""
    if find_spec("torch") is not None:
        return "torch", [sys.executable, "-m", "benchmarks.gpu.burn"]
    if any(folders.libraries.glob("libggml-cuda*")):
        command = [sys.executable, "-m", "stackscope", "run", "--concurrency", "8", "--duration", str(ENGINE_S)]
        return "engine", [*command, "--no-record", "--json"]
    return NONE, []


def watch(
    gpus: Gpus,
    command: Sequence[str],
    folders: Folders,
    *,
    idle_s: float,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[list[Taken], str, int]:
    """(readings before and during a load, what the load printed, its exit status)."""
    taken: list[Taken] = []

    def look() -> None:
        began = time.monotonic()
        taken.append(Taken(time.monotonic_ns(), gpus.read()))
        pause(max(0.0, PERIOD_S - (time.monotonic() - began)))

    until = time.monotonic() + idle_s
    while time.monotonic() < until or len(taken) < 2:
        look()
    if not command or not taken[-1].reading.gpus:
        return taken, "", 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=folders.environment(), text=True) as load:
        gpus.use = EngineUse.of(os.environ, pid=load.pid)
        deadline = time.monotonic() + MOST_LOAD_S
        while load.poll() is None and time.monotonic() < deadline:
            look()
        if load.poll() is None:
            load.kill()
        told = load.communicate()[0]
    return taken, told, load.returncode


def phases_of(taken: Sequence[Taken], told: str, index: int, *, load: str) -> list[Phase]:
    """What was read of one GPU, by what was done meanwhile."""
    marks = [json.loads(line) for line in told.splitlines() if line.startswith('{"phase"')]
    first = taken[0].at_ns
    begun = min((mark["began_ns"] for mark in marks), default=None)
    spans: list[dict[str, Any]] = []
    if marks:
        spans += [{"phase": "idle", "began_ns": first - AVERAGING_S * 1e9, "ended_ns": begun}]
        spans += marks
    elif load == NONE:
        spans += [{"phase": "idle", "began_ns": first - AVERAGING_S * 1e9, "ended_ns": taken[-1].at_ns + 1}]
    else:
        spans += [{"phase": load, "began_ns": first, "ended_ns": taken[-1].at_ns + 1}]
    found = []
    for span in spans:
        began_ns, ended_ns = span["began_ns"] + AVERAGING_S * 1e9, span["ended_ns"]
        inside = [one for one in taken if began_ns <= one.at_ns < ended_ns and one.reading.gpus]
        samples = tuple(one.reading.gpus[index] for one in inside if one.reading.gpus)
        seconds = (inside[-1].at_ns - inside[0].at_ns) / 1e9 if len(inside) > 1 else 0.0
        if samples:
            rate = span.get("bytes_per_s")
            found.append(Phase(name=span["phase"], samples=samples, seconds=seconds, bytes_per_s=rate))
    return found


def report(folders: Folders, taken: Sequence[Taken], told: str, *, load: str, driver: str | None) -> int:
    """Print a table for each GPU, and write all of it down. Returns the exit status."""
    last = taken[-1].reading
    document: dict[str, Any] = {"driver": driver, "load": load, "load_told": told.splitlines(), "gpus": []}
    document["problem"] = last.reason
    say(f"driver {driver}, load: {load}{'; nothing is under load' if load == NONE else ''}")
    is_good = True
    if not last.gpus:
        say(f"No GPU: {last.reason}")
    for index, gpu in enumerate(last.gpus or ()):
        phases = phases_of(taken, told, index, load=load)
        found = judge(phases) if phases else []
        say(f"\nGPU {gpu.index}, {gpu.name}, {gpu.pci_id}")
        say(rows([(one.what, one.verdict, one.value, one.why) for one in found] or [("nothing", "unknown", "", "")]))
        is_good &= all(one.verdict != "implausible" for one in found)
        findings = msgspec.to_builtins(found)
        newest = msgspec.to_builtins(gpu)
        document["gpus"].append({"name": gpu.name, "findings": findings, "newest": newest})
    document["cost"] = cost(taken)
    say(f"\nReading cost {units.percent(document['cost']['share_of_a_core'])} of a core (goal: at most 0.5 %)")
    folders.save("readings", document)
    if not last.gpus:
        return 1
    return 0 if is_good else DOUBTS


def cost(taken: Sequence[Taken]) -> dict[str, float]:
    """CPU time of reading, the first two rounds aside, in which the driver is opened."""
    later = taken[2:]
    wall_ns = max(1, taken[-1].at_ns - taken[0].at_ns)
    took = sorted(one.reading.took_ns for one in later) or [0]
    return {
        "share_of_a_core": sum(one.reading.cost_ns for one in later) / wall_ns,
        "median_round_ns": float(took[len(took) // 2]),
        "longest_round_ns": float(took[-1]),
        "rounds": float(len(taken)),
    }


if __name__ == "__main__":
    sys.exit(sentence_of(main))
