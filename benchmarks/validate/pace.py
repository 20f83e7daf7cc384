"""How fast the machine itself was while sessions were staged, by their probes.

What a hypervisor gives to others is in no counter of this machine: the cores just do less. A fixed computation inside
the cache, which the engine times between steps, does less as well, whatever the session is about.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.validate.figures import UNKNOWN, Figure
from benchmarks.validate.rows import Row
from stackscope.analysis.diagnosis.machine import UNDISTURBED_SHARE
from stackscope.records import Probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.validate.scenarios import Scenario
    from stackscope.records import AnyRecord

SLOW: Final = 0.9
"""Of the fastest session's pace."""


def is_left_alone(scenario: Scenario) -> bool:
    """Nothing is staged in it that takes cores from the engine."""
    return all(block.fault is None for block in scenario.blocks)


def pace(records: Iterable[AnyRecord]) -> float | None:
    """Repetitions per second of the fixed computation, the median of a session. `None`: it was not probed."""
    probes = [one for one in records if isinstance(one, Probe)]
    with_core = [one for one in probes if one.cpu_share is None or one.cpu_share >= UNDISTURBED_SHARE]
    rates = [one.compute_per_s for one in with_core if one.compute_per_s is not None]
    return median(rates) if rates else None


def row(paces: Mapping[str, float]) -> Row:
    """The pace of sessions ÷ that of the fastest: the middle one, the slowest and the fastest."""
    name = "pace of a fixed computation, sessions left alone: median (slowest to fastest)"
    if not paces:
        return Row(name, UNKNOWN)
    best = max(paces.values())
    shares = [one / best for one in paces.values()]
    return Row(name, Figure(median(shares), min(shares), 1.0, len(shares)))


def note(paces: Mapping[str, float]) -> str | None:
    """How many of them the machine held up. `None`: none."""
    best = max(paces.values(), default=0.0)
    slow = [name for name, one in paces.items() if one < SLOW * best]
    if not slow:
        return None
    return (
        f"the machine ran at less than {SLOW:.0%} of its pace in {len(slow)} of {len(paces)} sessions in which nothing "
        "was staged to slow it, as when a hypervisor gives its cores to others: their times and names are scored all "
        "the same"
    )
