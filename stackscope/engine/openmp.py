"""The environment in which the engine's OpenMP threads wait for each other, chosen before the library loads.

ggml ends each of the hundreds of graph nodes of a forward with a barrier. A thread that arrives early spins for a while
and then sleeps in the kernel. Two things can go wrong, and they pull in opposite directions.

*Too little spinning costs when the machine is quiet*: each sleep is a wake-up, 35 µs on a virtual machine whose idle
CPUs halt. The longest wait is that for the next forward, while Python samples and plans: 100 to 300 µs.

*Too much costs beside a busy neighbour*: once the kernel has put two threads of the team on one CPU and the neighbour
on the other, each barrier lasts as long as the spinning does, and nothing moves them, as two tasks here and one there
is as good as balanced. With libgomp's own 300,000 spins (5 ms) that makes 600 to 940 ms of a forward of 0.6.

So each thread is *bound to its own core*, which rules that out, and may then spin for longer than the waits of a quiet
machine: `SPINS`. Threads are bound only when the team fills every core that the process may use. A smaller team is left
to the kernel, which has somewhere to move a thread to.

Measured by `benchmarks/openmp_spin.py` on two Sapphire Rapids vCPUs, two threads, libgomp 12, 200 µs between forwards;
ms per forward, median [range], quiet over 5 rounds, busy (one neighbour of equal priority) over 15 phases:

    lab target, batch 1     quiet                 ÷ unset   busy                    ÷ quiet
    unset (300,000 spins)   0.605 [0.596–0.617]   1         2.27 [1.35–4.25]         3.8    (945 seen on other runs)
    1,000                   0.759 [0.739–0.783]   1.23      3.08 [1.82–3.93]         4.1
    10,000                  0.670 [0.645–0.708]   1.11      7.58 [3.23–18.1]        11.3
    30,000                  0.615 [0.576–0.621]   1.01      3.97 [1.40–49.9]         6.5
    bound, 10,000           0.671 [0.653–0.687]   1.11      1.46 [1.38–1.64]         2.2
    bound, 30,000           0.598 [0.592–0.607]   0.98      1.42 [1.36–1.71]         2.4
    OMP_WAIT_POLICY=passive 5.9 (with no time between forwards), 8.6 times unset     1.33

Bound with 30,000 spins, further: two neighbours 1.42 [1.32–2.56], where unset takes 4.8 [1.5–198]; Gemma 3 270M quiet
21.1, ÷ unset 1.00, and busy 35.4 (1.7×), where unset takes 57.9; the lab target at batch 8 quiet ÷ unset 1.01, busy
2.8×; at batch 16, 0.98 and 3.2×. Two such engines on the same two cores take 4 to 7 ms each.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.cgroups import cpu_quota
from stackscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SPIN_VARIABLE: Final = "STACKSCOPE_SPIN"
"""A spin count of the user's own, or `library` to leave OpenMP as the environment has it."""

SPINS: Final = 30_000
"""Spins before a thread sleeps, where one is an x86 PAUSE: 15 ns on Zen 3 and Sapphire Rapids, 47 ns on Skylake-SP, so
0.45 to 1.4 ms: longer than the waits of a quiet machine, shorter than a time slice of the kernel (3 ms)."""

SPINS_WITHOUT_PAUSE: Final = 300_000
"""The same time where libgomp's spin is a plain load (about 1 ns), as on Arm. Not measured."""

_WAITING: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")
_BINDING: Final = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def child_environment(environ: Mapping[str, str], threads: int | None = None) -> dict[str, str]:
    """A copy of `environ` with OpenMP's waiting and binding chosen for a team of `threads`; None: one per usable core.

    What the user has set is left as it is. Raises `UsageError` when STACKSCOPE_SPIN is neither a count nor `library`.
    """
    chosen = dict(environ)
    wish = chosen.get(SPIN_VARIABLE, "").strip()
    if wish == "library":
        return chosen
    if wish:
        chosen["GOMP_SPINCOUNT"] = str(_count(wish))
    elif not any(name in chosen for name in _WAITING):
        chosen["GOMP_SPINCOUNT"] = str(default_spins())
    cores = usable_cores()
    fills = cores > 1 and (threads is None or threads >= cores)
    if fills and sys.platform == "linux" and not any(name in chosen for name in _BINDING):
        chosen["OMP_PROC_BIND"] = "true"
        chosen["OMP_PLACES"] = "cores"
    return chosen


def described(environment: Mapping[str, str]) -> str:
    """What an environment says of waiting and binding, in words; the library's defaults where it says nothing."""
    settings = [f"{name}={environment[name]}" for name in (*_WAITING, *_BINDING) if name in environment]
    return ", ".join(settings) or "its defaults"


def default_spins() -> int:
    """Spin count for this processor."""
    return SPINS if platform.machine().lower() in {"x86_64", "amd64", "i386", "i686"} else SPINS_WITHOUT_PAUSE


def _count(wish: str) -> int:
    try:
        count = int(wish)
    except ValueError:
        count = -1
    if count < 0:
        raise UsageError(
            f"{SPIN_VARIABLE} is {wish!r}.",
            remedy="Give a number of spins such as 30000, or 'library' for its default.",
        )
    return count


@cache
def usable_cores() -> int:
    """Physical cores that this process may keep busy: of its affinity mask, and within its control group's quota.

    The first answer stays: a process whose OpenMP threads are bound finds its main thread on one core later.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    return within_quota(len({_siblings(cpu) & allowed for cpu in allowed}), cpu_quota())


def within_quota(cores: int, quota: float | None) -> int:
    """How many of the cores a quota of so many cores' worth of time can keep busy, at least one. `None`: all."""
    return cores if quota is None else max(1, min(cores, ceil(quota)))


def _siblings(cpu: int) -> frozenset[int]:
    """The logical CPUs on the same core as `cpu`; itself alone where the system does not say."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return parse_cpu_list(path.read_text())
    except (OSError, ValueError):
        return frozenset({cpu})


def parse_cpu_list(text: str) -> frozenset[int]:
    """CPU numbers of a kernel list such as `0-3,8`. Raises `ValueError` for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(found)
