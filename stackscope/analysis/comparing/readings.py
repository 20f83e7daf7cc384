"""How the machine was during a session, from its readings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from stackscope.analysis.comparing.digest import MachineState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.records import GpuSample, HardwareSample

N = TypeVar("N", int, float)


class Readings:
    """Takes readings one by one and keeps what a comparison needs of them."""

    def __init__(self) -> None:
        self._n = 0
        self._n_told = 0
        """Readings in which the driver said what throttles."""
        self._throttled: Counter[str] = Counter()
        self._quota = _Mean()
        self._pressure = _Mean()
        self._swap = _Mean()
        self._memory: int | None = None
        self._gpu_memory: int | None = None
        self._gpu_energy: dict[str, tuple[float, float]] = {}
        """By GPU: joules at its first reading and at its last."""
        self._package = _Mean()
        self._first_ns = self._last_ns = 0

    def add(self, sample: HardwareSample) -> None:
        """Take the next reading."""
        self._first_ns = sample.at_ns if self._n == 0 else self._first_ns
        self._last_ns = sample.at_ns
        self._n += 1
        self._quota.add(sample.throttled_share)
        self._pressure.add(sample.cpu_pressure)
        self._swap.add(sample.swap_bytes_per_s)
        self._package.add(sample.package_power_w)
        self._memory = _larger(self._memory, sample.rss_bytes)
        used = [gpu for gpu in sample.gpus or () if gpu.is_used and not gpu.is_lost]
        told = [gpu.throttle for gpu in used if gpu.throttle is not None]
        if told:
            self._n_told += 1
            self._throttled.update({reason for reasons in told for reason in reasons})
        self._gpu_memory = _larger(self._gpu_memory, _sum(gpu.engine_memory_bytes for gpu in used))
        for gpu in used:
            self._add_energy(gpu)

    def _add_energy(self, gpu: GpuSample) -> None:
        if gpu.energy_j is not None:
            first, _ = self._gpu_energy.get(gpu.uuid, (gpu.energy_j, gpu.energy_j))
            # A driver that is loaded anew counts from 0 again: then nothing is known of what came before.
            self._gpu_energy[gpu.uuid] = (min(first, gpu.energy_j), gpu.energy_j)

    def state(self) -> MachineState:
        """What the readings so far amount to."""
        lasted_ns = self._last_ns - self._first_ns
        spent = _sum(last - first for first, last in self._gpu_energy.values()) if lasted_ns > 0 else None
        power = self._package.value
        return MachineState(
            readings=self._n,
            throttled={reason: n / self._n_told for reason, n in sorted(self._throttled.items())}
            if self._n_told > 0
            else None,
            quota_share=self._quota.value,
            cpu_pressure=self._pressure.value,
            swap_bytes_per_s=self._swap.value,
            memory_peak_bytes=self._memory,
            gpu_memory_peak_bytes=self._gpu_memory,
            gpu_energy_j=spent,
            package_energy_j=None if power is None or lasted_ns == 0 else power * lasted_ns / 1e9,
            energy_ns=lasted_ns,
        )


class _Mean:
    """The mean of those values that are known."""

    def __init__(self) -> None:
        self._sum, self._n = 0.0, 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self._sum += value
            self._n += 1

    @property
    def value(self) -> float | None:
        return self._sum / self._n if self._n > 0 else None


def _larger(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)


def _sum(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
