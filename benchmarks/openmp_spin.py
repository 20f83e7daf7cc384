"""How long OpenMP threads should spin: forward times of a bare decode loop, quiet and beside busy processes.

Each setting runs in a fresh process, because libgomp reads its environment once. Within that process quiet and busy
phases alternate, and the settings are visited in a new random order every round, so that slow drifts of the machine
fall on all of them alike. A quiet phase during which anything else used the CPUs is measured again. Ratios are taken
against the same round's reference, libgomp's own defaults.

    python benchmarks/openmp_spin.py --model target.gguf --settings unset 1000 bound+10000 --rounds 5

A setting is a spin count, `unset` (the library's own) or `passive`; `bound+` in front pins each thread to its core.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

REFERENCE = "unset"
PHASES = ("quiet", "busy") * 3
FOREIGN_SHARE = 0.03
"""Share of a phase, in CPU time of other processes, above which it was not quiet."""
TRIES = 40

NEIGHBOUR = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"

MODELS = Path(__file__).resolve().parent.parent / "stackscope" / "model" / "bundled"


def probe(model: Path, batch: int, threads: int, gap_us: int) -> None:
    """Decode `batch` sequences in lockstep; a line with seconds on stdin asks for that long, answered in JSON (ns)."""
    import ctypes

    import llama_cpp
    import numpy as np

    lib: Any = llama_cpp
    silent = lib.llama_log_callback(lambda *_: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    weights = lib.llama_model_load_from_file(str(model).encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    depth = 256
    params.n_ctx, params.n_batch, params.n_ubatch = depth * batch, 512, 512
    params.n_seq_max, params.kv_unified = batch, True
    params.n_threads = params.n_threads_batch = threads
    context = lib.llama_init_from_model(weights, params)
    vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(weights))
    rows = lib.llama_batch_init(batch, 0, 1)
    rows.n_tokens = batch
    for i in range(batch):
        rows.token[i], rows.n_seq_id[i], rows.logits[i] = 100 + i, 1, 1
        rows.seq_id[i][0] = i

    position = 0

    def forward() -> int:
        nonlocal position
        if position == depth:
            lib.llama_memory_clear(lib.llama_get_memory(context), False)
            position = 0
        for i in range(batch):
            rows.pos[i] = position
        begin = time.perf_counter_ns() + 1_000 * gap_us
        while time.perf_counter_ns() < begin:
            pass
        if lib.llama_decode(context, rows) != 0:
            raise SystemExit("decode failed")
        lib.llama_synchronize(context)
        np.ctypeslib.as_array(lib.llama_get_logits(context), (batch, vocabulary)).argmax(1)
        position += 1
        return time.perf_counter_ns() - begin

    for _ in range(20):
        forward()
    print("ready", flush=True)
    for line in sys.stdin:
        end = time.perf_counter() + float(line)
        taken = [forward()]
        while time.perf_counter() < end:
            taken.append(forward())
        print(json.dumps(taken), flush=True)


def environment_of(setting: str) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
    bound, _, count = setting.rpartition("+")
    if bound:
        environment |= {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
    if count == "passive":
        environment["OMP_WAIT_POLICY"] = "passive"
    elif count != REFERENCE:
        environment["GOMP_SPINCOUNT"] = count
    return environment


def foreign_ticks(child: int) -> int:
    """CPU time, in clock ticks, that the whole machine has spent outside one process."""
    spent = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    own = Path(f"/proc/{child}/stat").read_text().rsplit(") ", 1)[1].split()
    user, nice, system, _, _, irq, soft = spent[:7]
    return user + nice + system + irq + soft - int(own[11]) - int(own[12])


class Probe:
    """A running probe process and the neighbours that it may be disturbed by."""

    def __init__(self, child: subprocess.Popen[str], neighbours: list[int], seconds: float) -> None:
        self.child = child
        self.neighbours = neighbours
        self.seconds = seconds
        self.disturbed = 0
        """Quiet phases accepted although none of the tries was quiet."""

    def run(self) -> list[int]:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{self.seconds}\n")
        self.child.stdin.flush()
        taken: list[int] = json.loads(self.child.stdout.readline())
        return taken

    def busy(self) -> list[int]:
        for neighbour in self.neighbours:
            os.kill(neighbour, signal.SIGCONT)
        taken = self.run()
        for neighbour in self.neighbours:
            os.kill(neighbour, signal.SIGSTOP)
        return taken

    def quiet(self) -> list[int]:
        allowed = FOREIGN_SHARE * self.seconds * os.sysconf("SC_CLK_TCK")
        for _ in range(TRIES):
            before = foreign_ticks(self.child.pid)
            taken = self.run()
            if foreign_ticks(self.child.pid) - before <= allowed:
                return taken
        self.disturbed += 1
        return taken


def measure(
    model: Path, batch: int, args: argparse.Namespace, setting: str, neighbours: list[int]
) -> tuple[dict[str, list[list[int]]], int]:
    """Forward times in ns by phase under one setting, and how many quiet phases were not quiet."""
    command = [sys.executable, __file__, "--probe", f"--model={model}", f"--batch={batch}"]
    command += [f"--threads={args.threads}", f"--gap-us={args.gap_us}"]
    taken: dict[str, list[list[int]]] = {"quiet": [], "busy": []}
    with subprocess.Popen(
        command,
        env=environment_of(setting),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise SystemExit(f"the probe did not start with {setting}")
        running = Probe(child, neighbours, args.seconds)
        for phase in PHASES:
            taken[phase].append(running.quiet() if phase == "quiet" else running.busy())
        child.stdin.close()
    return taken, running.disturbed


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):8.3f} [{min(values):.3f}–{max(values):.3f}]"


def study(model: Path, batch: int, args: argparse.Namespace, neighbours: list[int]) -> None:
    order = random.Random(args.seed)
    quiet: dict[str, list[float]] = {s: [] for s in args.settings}
    busy: dict[str, list[float]] = {s: [] for s in args.settings}
    disturbed = dict.fromkeys(args.settings, 0)
    for _ in range(args.rounds):
        for setting in order.sample(args.settings, len(args.settings)):
            taken, n = measure(model, batch, args, setting, neighbours)
            quiet[setting].append(statistics.median([t for phase in taken["quiet"] for t in phase]) / 1e6)
            busy[setting] += [statistics.fmean(phase) / 1e6 for phase in taken["busy"]]
            disturbed[setting] += n
    print(f"\n{model.name}, batch {batch}, {args.threads} threads: ms per forward, median [range]")
    print(
        f"{'setting':>14}  {'quiet (medians)':>24}  {'÷ unset':>22}  {'busy (phase means)':>28}  {'busy ÷ quiet':>22}"
    )
    for setting in args.settings:
        reference = quiet.get(REFERENCE, quiet[setting])
        against = [a / b for a, b in zip(quiet[setting], reference, strict=True)]
        slower = [b / statistics.median(quiet[setting]) for b in busy[setting]]
        note = f"  ({disturbed[setting]} quiet phases disturbed)" if disturbed[setting] else ""
        print(
            f"{setting:>14}  {spread(quiet[setting]):>24}  {spread(against):>22}  {spread(busy[setting]):>28}"
            f"  {spread(slower):>22}{note}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; the bundled target if not given")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gap-us", type=int, default=200, help="Python's time between two forwards, not measured")
    parser.add_argument("--settings", nargs="+", default=[REFERENCE, "1000", "30000", "bound+10000", "bound+30000"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of one phase")
    parser.add_argument("--neighbours", type=int, default=1, help="busy processes of equal priority")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    models = args.model or sorted(MODELS.glob("*target*.gguf"))
    if args.probe:
        probe(models[0], args.batch[0], args.threads, args.gap_us)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that no neighbour is left behind.
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} CPUs, {args.neighbours} neighbours")
    busy = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) for _ in range(args.neighbours)]
    try:
        for neighbour in busy:
            neighbour.send_signal(signal.SIGSTOP)
        for model in models:
            for batch in args.batch or [1]:
                study(model, batch, args, [neighbour.pid for neighbour in busy])
    finally:
        for neighbour in busy:
            neighbour.kill()
            neighbour.wait()


if __name__ == "__main__":
    main()
