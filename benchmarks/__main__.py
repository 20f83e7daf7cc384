"""All benchmarks that have a goal, one after the other, each in a process of its own: `python -m benchmarks`."""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "engine_speed",
    "host_time",
    "recorder_cost",
    "probe_cost",
    "live_view",
    "screen_start",
    "screen_open",
    "ceilings",
)


def main() -> int:
    for name in NAMES:
        print(f"\n=== {name}", flush=True)
        status = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=False).returncode
        if status != 0:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
