"""What the driver tells of this machine's GPUs, printed as JSON by a process of its own, for `doctor`."""

from __future__ import annotations

import os
import sys
import time
from importlib import metadata
from typing import Final

import msgspec

from stackscope.hardware import peaks
from stackscope.hardware.gpu_facts import GpuFacts
from stackscope.hardware.gpu_use import EngineUse
from stackscope.hardware.nvml_gpus import Gpus

PAUSES_S: Final = (0.2, 0.9)
"""Between rounds: GPM needs two samples 100 ms apart, and counters two looks a second apart."""


def facts() -> GpuFacts:
    """Read the GPUs often enough to see which readings there are. Raises `UsageError` for a wrong override."""
    gpus = Gpus(EngineUse.of(os.environ), peak=peaks.override(os.environ))
    reading = gpus.read()
    for pause in PAUSES_S if reading.gpus else ():
        time.sleep(pause)
        reading = gpus.read()
    found = GpuFacts(driver=gpus.driver, binding=_binding(), reading=reading)
    gpus.close()
    return found


def _binding() -> str | None:
    try:
        return metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(facts()).decode())
