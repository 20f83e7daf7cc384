"""All GPUs of the machine, read in one thread: opened at the first look, dropped when lost, sought again slowly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.hardware import gpu_use
from stackscope.hardware.gpu_probe import GpuReading
from stackscope.hardware.gpu_use import EngineUse, Identity
from stackscope.hardware.nvml import LostError, Nvml, RefusalError, UnavailableError
from stackscope.hardware.nvml_device import Device, Surroundings
from stackscope.records import GpuSample

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.hardware.peaks import Peak

FIRST_RETRY_NS: Final = 30_000_000_000
LONGEST_RETRY_NS: Final = 600_000_000_000
"""A GPU that is missing is sought after the first, then after twice as long each time, up to this."""


class _Place(msgspec.Struct):
    """Where a GPU is, or should be."""

    index: int
    device: Device | None = None
    identity: Identity | None = None
    """As last known. `None`: it could never be opened."""
    reason: str = ""
    """Why there is no device."""
    is_lost: bool = False
    """It was there once."""


class Gpus:
    """Reads every GPU through NVML. A `GpuProbe` whose `read` waits for the driver: see `BackgroundGpus`.

    It belongs to the thread that reads it. What a thread may set from outside is `use`.
    """

    def __init__(
        self,
        use: EngineUse | None = None,
        *,
        peak: Peak | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        root: Path = Path("/"),
    ) -> None:
        """`peak` is the bandwidth that the user states; `root` is where `/proc` is. The driver is not touched yet."""
        self.use = EngineUse() if use is None else use
        self._around = Surroundings(peak=peak, root=root)
        self._clock = clock
        self._nvml: Nvml | None = None
        self._failure: UnavailableError | None = None
        self._places: list[_Place] = []
        self._retry_ns = FIRST_RETRY_NS
        self._retry_at_ns: int | None = None

    def read(self) -> GpuReading:
        """One round. It opens the driver if need be and waits for all its answers."""
        began_ns, cpu_ns = self._clock(), time.thread_time_ns()
        if self._failure is None and self._nvml is None:
            self._open()
        if self._failure is None and self._retry_at_ns is not None and began_ns >= self._retry_at_ns:
            self._seek()
        gpus = None if self._failure is not None else self._read_all()
        if self._failure is not None and self._failure.is_absent:
            gpus = ()
        ended_ns = self._clock()
        return GpuReading(
            gpus=gpus,
            problem=None if self._failure is None else self._failure.message,
            remedy=None if self._failure is None else self._failure.remedy,
            taken_ns=began_ns,
            took_ns=ended_ns - began_ns,
            cost_ns=time.thread_time_ns() - cpu_ns,
        )

    def close(self) -> None:
        """Let go of the driver. A later `read` opens it again."""
        if self._nvml is not None:
            self._free()
            self._nvml.shut_down()
        self._nvml, self._places, self._retry_at_ns = None, [], None

    @property
    def driver(self) -> str | None:
        """Version of the driver. `None`: not open, or not told."""
        try:
            return None if self._nvml is None else str(self._nvml.ask("nvmlSystemGetDriverVersion"))
        except RefusalError:
            return None

    def _open(self) -> None:
        try:
            self._nvml = Nvml()
            count = int(self._nvml.ask("nvmlDeviceGetCount"))
        except UnavailableError as error:
            self._failure = error
            return
        except RefusalError as refusal:
            self._failure = UnavailableError(f"The driver does not count its GPUs: {refusal.reason}.", "Reboot.")
            return
        self._places = [_Place(index) for index in range(count)]
        for place in self._places:
            self._enter(place)
        self._plan_retry()

    def _enter(self, place: _Place) -> None:
        """Open the GPU of a place: the one that was there, by its UUID, or whichever has the index."""
        assert self._nvml is not None
        known = place.identity
        try:
            if known is not None and known.uuid:
                handle = self._nvml.ask("nvmlDeviceGetHandleByUUID", known.uuid)
            else:
                handle = self._nvml.ask("nvmlDeviceGetHandleByIndex", place.index)
            device = Device(self._nvml, handle, place.index, self._around)
        except RefusalError as refusal:
            place.reason = refusal.reason
            place.is_lost = known is not None or isinstance(refusal, LostError)
            return
        others = {other.identity.uuid for other in self._places if other.device is not None and other.identity}
        if device.identity.uuid in others - {""}:
            place.reason = "the driver counts another GPU in its place"
            return
        place.device, place.identity, place.reason, place.is_lost = device, device.identity, "", False

    def _read_all(self) -> tuple[GpuSample, ...]:
        use = self.use
        visible = gpu_use.visible(use, self._identities())
        samples: list[GpuSample] = []
        for place in self._places:
            if place.device is not None:
                try:
                    samples += place.device.read(self._clock(), use, visible)
                    continue
                except LostError as lost:
                    place.device, place.is_lost, place.reason = None, True, lost.reason
                    self._retry_ns = FIRST_RETRY_NS
                    self._plan_retry()
            samples.append(_missing(place))
        return tuple(samples)

    def _identities(self) -> list[Identity]:
        """Of every GPU that was ever opened, and of the instances of those that are open."""
        found: list[Identity] = []
        for place in self._places:
            if place.identity is not None:
                found.append(place.identity)
            if place.device is not None:
                found += [instance.identity for instance in place.device.instances]
        return found

    def _plan_retry(self) -> None:
        is_missing = any(place.device is None for place in self._places)
        self._retry_at_ns = self._clock() + self._retry_ns if is_missing else None

    def _seek(self) -> None:
        """Look for what is missing. One that was lost is only found by a library that was initialised afresh."""
        if not any(place.is_lost for place in self._places) or self._restart():
            for place in self._places:
                if place.device is None:
                    self._enter(place)
        self._retry_ns = min(2 * self._retry_ns, LONGEST_RETRY_NS)
        self._plan_retry()

    def _restart(self) -> bool:
        """Shut the library down and initialise it again, which voids every handle. Returns whether that worked."""
        assert self._nvml is not None
        self._free()
        self._nvml.shut_down()
        for place in self._places:
            place.device = None
        try:
            self._nvml.initialise()
        except UnavailableError as error:
            for place in self._places:
                place.reason = error.message
            return False
        return True

    def _free(self) -> None:
        for place in self._places:
            if place.device is not None:
                place.device.close()


def _missing(place: _Place) -> GpuSample:
    """What can be said of a GPU that does not answer."""
    known = place.identity
    return GpuSample(
        uuid="" if known is None else known.uuid,
        name=f"GPU {place.index}" if known is None else known.name,
        index=place.index,
        pci_id=None if known is None else known.pci_id,
        is_lost=place.is_lost,
        unknown={"*": place.reason, "is_used": place.reason},
    )
