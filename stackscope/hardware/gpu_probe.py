"""The seam between whoever samples the machine and whoever reads its GPUs, and a thread that lets nobody wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from stackscope.records import GpuSample

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_NS: Final = 200_000_000
"""Between two rounds: fast enough to see a phase change, slow enough not to cost the GPU itself."""

REST: Final = 4
"""A round is followed by at least so many times its own duration of rest: a slow driver is asked less often."""

REST_WITHOUT: Final = 10
"""Periods between two rounds where there is nothing to read."""

SILENCE_NS: Final = 10_000_000_000
"""Readings older than this, and than `SILENT_ROUNDS` rounds, are no longer shown."""
SILENT_ROUNDS: Final = 10

NOT_YET: Final = "The GPUs have not answered yet."


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the GPUs now."""

    gpus: tuple[GpuSample, ...] | None = None
    """`None`: nobody could look. Empty: there are none."""
    problem: str | None = None
    """Why there is nothing, in a sentence."""
    remedy: str | None = None
    """What to do about that, as an imperative sentence."""
    taken_ns: int | None = None
    """When, on the reader's clock. Twice the same: nothing new has been read since."""
    took_ns: int = 0
    """Wall time of the round."""
    cost_ns: int = 0
    """CPU time of the round."""
    late_ns: int = 0
    """How much later than intended the round began."""

    @property
    def reason(self) -> str | None:
        """Problem and remedy in one text."""
        return self.problem if self.remedy is None else f"{self.problem} {self.remedy}"


class GpuProbe(Protocol):
    """Something that can say how the GPUs are."""

    def read(self) -> GpuReading:
        """What is known now. Who must not wait asks a probe that does not, such as `BackgroundGpus`."""

    def close(self) -> None:
        """Stop reading."""


class BackgroundGpus:
    """Reads another probe in a thread of its own, so that a driver that takes half a second delays nobody.

    The thread opens the probe, reads it and closes it; `read` and `close` never wait for it.
    """

    def __init__(
        self, probe: GpuProbe, *, period_ns: int = PERIOD_NS, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._probe = probe
        self._period_ns = period_ns
        self._clock = clock
        self._newest = GpuReading(problem=NOT_YET)
        self._failure: Exception | None = None
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)

    def start(self) -> None:
        """Begin to read. To be called once."""
        self._thread.start()

    def read(self) -> GpuReading:
        """The newest reading, at once, with its age. Raises what the probe raised, which is a bug."""
        if self._failure is not None:
            raise self._failure
        newest = self._newest
        if not newest.gpus or newest.taken_ns is None:
            return newest
        age = max(0, self._clock() - newest.taken_ns)
        if age > max(SILENCE_NS, SILENT_ROUNDS * newest.took_ns):
            return msgspec.structs.replace(newest, gpus=tuple(_silent(gpu, age) for gpu in newest.gpus))
        aged = tuple(msgspec.structs.replace(gpu, age_ns=age + (gpu.age_ns or 0)) for gpu in newest.gpus)
        return msgspec.structs.replace(newest, gpus=aged)

    def close(self) -> None:
        """Stop reading, and let a round that is under way end by itself."""
        self._is_stopped.set()

    def _run(self) -> None:
        due = self._clock()
        try:
            while not self._rest(max(0, due - self._clock()) / 1e9):
                started = self._clock()
                reading = self._probe.read()
                self._newest = msgspec.structs.replace(reading, late_ns=max(0, started - due))
                ended = self._clock()
                period_ns = self._period_ns if reading.gpus else REST_WITHOUT * self._period_ns
                due = max(due + period_ns, ended + REST * (ended - started))
        except Exception as error:  # noqa: BLE001 - raised again by `read`, in the thread that can report it
            self._failure = error
        finally:
            self._probe.close()

    def _rest(self, seconds: float) -> bool:
        """Wait. Returns whether that is the end."""
        return self._is_stopped.wait(seconds)


def _silent(gpu: GpuSample, age_ns: int) -> GpuSample:
    """A GPU whose readings are too old to be shown."""
    return GpuSample(
        uuid=gpu.uuid,
        name=gpu.name,
        index=gpu.index,
        pci_id=gpu.pci_id,
        instance_of=gpu.instance_of,
        is_used=gpu.is_used,
        is_lost=gpu.is_lost,
        age_ns=age_ns,
        unknown={"*": f"the driver has not answered for {age_ns // 1_000_000_000} s"},
    )
