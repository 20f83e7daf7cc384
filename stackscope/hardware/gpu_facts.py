"""The answer of the process that asks the driver about GPUs."""

from __future__ import annotations

import msgspec

from stackscope.hardware.gpu_probe import GpuReading


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is found out about GPUs once."""

    driver: str | None = None
    """Version of the driver. `None`: there is none, or it does not tell."""
    binding: str | None = None
    """Version of nvidia-ml-py. `None`: not installed."""
    reading: GpuReading = GpuReading()
