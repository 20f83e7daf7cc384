"""Readings of the machine and probes, summed up over the last seconds."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope.analysis.diagnosis.evidence import SLOWER, Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stackscope.analysis.diagnosis.reference import Pace
    from stackscope.records import GpuSample, HardwareSample, Probe

MOST_RECORDS: Final = 120
"""Of each kind, the newest: two minutes of them."""
SUSTAINED: Final = 5
"""Probes in a row whose median counts as a level: one alone may have met a moment of higher clocks."""
UNDISTURBED_SHARE: Final = 0.9
"""A probe that got less of a core than this says nothing of memory or clocks."""
NEWEST: Final = 3
"""Probes whose median says that it is over, while older ones are still slow."""
PROBED_NS: Final = 750_000_000
"""A probe tells of so much time before and after it: there is one a second."""
FEW_PACES: Final = 3
"""Half seconds of either kind from which on they are held against each other."""


class Level:
    """What is reached when nothing disturbs: the highest median of some values in a row."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=SUSTAINED)
        self.calm: float | None = None
        """`None`: too few values yet."""

    def add(self, value: float | None) -> None:
        if value is None:
            return
        self._last.append(value)
        if len(self._last) == SUSTAINED:
            level = median(self._last)
            self.calm = level if self.calm is None else max(self.calm, level)

    def against(self, now: float | None) -> float | None:
        """A rate ÷ the undisturbed level. `None`: either is unknown."""
        return None if now is None or self.calm is None or self.calm <= 0.0 else now / self.calm


class MachineWatch:
    """Follows hardware samples and probes: bounded memory. For one thread at a time."""

    def __init__(self) -> None:
        self._samples: deque[HardwareSample] = deque(maxlen=MOST_RECORDS)
        self._probes: deque[Probe] = deque(maxlen=MOST_RECORDS)
        self._read, self._compute, self._cpu_share = Level(), Level(), Level()

    def sample(self, record: HardwareSample) -> None:
        self._samples.append(record)

    def probe(self, record: Probe) -> None:
        self._probes.append(record)
        if _had_a_core(record):
            self._read.add(record.read_bytes_per_s)
            self._compute.add(record.compute_per_s)

    def machine(self, since_ns: int, cpu_share: float | None) -> Machine:
        """What is known of the time since an instant, up to now. `cpu_share` is that of the forwards in it."""
        samples = [sample for sample in self._samples if sample.at_ns > since_ns]
        probes = [probe for probe in self._probes if probe.at_ns > since_ns]
        with_core = [probe for probe in probes if _had_a_core(probe)]
        self._cpu_share.add(cpu_share)
        reads = [probe.read_bytes_per_s for probe in with_core]
        return Machine(
            cpu_share=cpu_share,
            cpu_share_calm=self._cpu_share.calm,
            foreign_cores=_foreign(samples),
            cpu_pressure=mean([sample.cpu_pressure for sample in samples]),
            io_pressure=mean([sample.io_pressure for sample in samples]),
            memory_pressure=mean([sample.memory_pressure for sample in samples]),
            throttled=mean([sample.throttled_share for sample in samples]),
            faults_per_s=mean([sample.major_faults_per_s for sample in samples]),
            swap_bytes_per_s=mean([sample.swap_bytes_per_s for sample in samples]),
            switches_per_s=mean([sample.involuntary_switches_per_s for sample in samples]),
            read=self._read.against(mean_rate(reads)),
            read_bytes_per_s=mean_rate(reads),
            compute=self._compute.against(lasting([probe.compute_per_s for probe in with_core])),
            probe_cpu_share=middle([probe.cpu_share for probe in probes]),
            **(_gpus(samples[-1].gpus) if samples else {}),
        )

    def with_felt(self, machine: Machine, since_ns: int, paces: Callable[[], Sequence[Pace]]) -> Machine:
        """The same with what forwards say of each probe that is slow. `paces`, of the last minute, cost something: they
        are asked for only then."""
        is_slow = [level is not None and level < SLOWER for level in (machine.read, machine.compute)]
        if not any(is_slow):
            return machine
        known, probes = paces(), [probe for probe in self._probes if _had_a_core(probe)]
        reads = [(probe.at_ns, self._read.against(probe.read_bytes_per_s)) for probe in probes]
        computes = [(probe.at_ns, self._compute.against(probe.compute_per_s)) for probe in probes]
        return msgspec.structs.replace(
            machine,
            read_felt=_felt(reads, known, since_ns) if is_slow[0] else None,
            compute_felt=_felt(computes, known, since_ns) if is_slow[1] else None,
        )


def _felt(levels: Sequence[tuple[int, float | None]], paces: Sequence[Pace], since_ns: int) -> float | None:
    """Forwards' pace since an instant while a probe was slow ÷ at any time while it was not. `None`: too little of
    either."""
    slow: list[float] = []
    others: list[float] = []
    for pace in paces:
        away_ns, level = min([(abs(at_ns - pace.at_ns), level) for at_ns, level in levels], default=(PROBED_NS, None))
        if level is None or away_ns >= PROBED_NS:
            continue
        if level >= SLOWER:
            others.append(pace.ratio)
        elif pace.at_ns > since_ns:
            slow.append(pace.ratio)
    return None if min(len(slow), len(others)) < FEW_PACES else median(slow) / median(others)


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known. `None`: none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def mean_rate(values: Iterable[float | None]) -> float | None:
    """Of equal amounts of work at these rates (the harmonic mean): what disturbs half of the time counts half.

    `None`: none is known.
    """
    known = [value for value in values if value is not None]
    return len(known) / sum([1.0 / value for value in known]) if known and min(known) > 0.0 else None


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known. `None`: none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def lasting(values: Sequence[float | None]) -> float | None:
    """The median of those that are known: a slow probe or two say nothing of what lasts. As soon as most of the newest
    are faster again, that of those. `None`: none is known."""
    known = [value for value in values if value is not None]
    return max(median(known), median(known[-NEWEST:])) if known else None


def _had_a_core(probe: Probe) -> bool:
    return probe.cpu_share is None or probe.cpu_share >= UNDISTURBED_SHARE


def _foreign(samples: Sequence[HardwareSample]) -> float | None:
    """Cores that others used between the first and the last sample, less what Stackscope and its engine did."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    span_ns = last.at_ns - first.at_ns
    shares = [(sample.cpu_percent, sample.cores) for sample in samples[1:]]
    used = [percent / 100.0 * cores for percent, cores in shares if percent is not None and cores is not None]
    if len(used) < len(shares) or span_ns <= 0 or first.engine_cpu_ns is None or last.engine_cpu_ns is None:
        return None
    ours = last.engine_cpu_ns - first.engine_cpu_ns
    if first.own_cpu_ns is not None and last.own_cpu_ns is not None:
        ours += last.own_cpu_ns - first.own_cpu_ns
    return max(0.0, sum(used) / len(used) - ours / span_ns)


def _gpus(gpus: tuple[GpuSample, ...] | None) -> dict[str, Any]:
    if gpus is None:
        return {}
    there = [gpu for gpu in gpus if not gpu.is_lost]
    used = [gpu for gpu in there if gpu.is_used]
    is_told = all("is_used" not in gpu.unknown for gpu in there)
    held: dict[str, float] = {}
    for gpu in used:
        for reason, share in (gpu.throttled or {}).items():
            held[reason] = max(held.get(reason, 0.0), share)
    return {
        "gpus": len(there),
        "gpus_used": len(used) if is_told else None,
        "gpu_busy": max([gpu.utilisation for gpu in there if gpu.utilisation is not None], default=None),
        "clocks_held": tuple(sorted(held.items(), key=lambda item: -item[1])),
    }
