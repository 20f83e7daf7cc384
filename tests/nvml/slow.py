"""Look at GPUs whose driver takes half a second for every answer, and print how long the longest look took."""

from __future__ import annotations

import sys
import threading
import time

from stackscope.hardware.gpu_probe import BackgroundGpus
from stackscope.hardware.nvml_gpus import Gpus


def main() -> None:
    """Write (longest look in ms, looks, whether the first round was over meanwhile)."""
    gpus = BackgroundGpus(Gpus())
    gpus.start()
    longest_ns, looks = 0, 0
    tick = threading.Event()
    until_ns = time.monotonic_ns() + 1_200_000_000
    while time.monotonic_ns() < until_ns:
        began_ns = time.monotonic_ns()
        reading = gpus.read()
        longest_ns = max(longest_ns, time.monotonic_ns() - began_ns)
        looks += 1
        tick.wait(0.005)
    gpus.close()
    sys.stdout.write(f"{longest_ns / 1e6} {looks} {reading.gpus is not None}")


if __name__ == "__main__":
    main()
