"""A load of known size for a GPU, by PyTorch: copies in its memory, then matrix products; prints what it reached.

Each line is JSON with the phase, its beginning and end on the system's monotonic clock, and a rate.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PHASE_S: Final = 6.0
COPY_BYTES: Final = 2 << 30
WIDTH: Final = 8192


def main() -> int:
    torch = import_module("torch")
    if not torch.cuda.is_available():
        sys.stderr.write("PyTorch sees no GPU.\n")
        return 1
    source = torch.zeros(COPY_BYTES // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    tell(torch, "copy", "bytes_per_s", 2.0 * COPY_BYTES, lambda: target.copy_(source))
    left = torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16, device="cuda")
    product = torch.empty_like(left)
    tell(torch, "matmul", "flops_per_s", 2.0 * WIDTH**3, lambda: torch.mm(left, left, out=product))
    return 0


def tell(torch: Any, phase: str, unit: str, amount: float, work: Callable[[], object]) -> None:
    """Repeat some work for a while, and print how much of it was done per second."""
    work()
    torch.cuda.synchronize()
    began_ns, n = time.monotonic_ns(), 0
    while time.monotonic_ns() - began_ns < PHASE_S * 1e9:
        for _ in range(10):
            work()
        torch.cuda.synchronize()
        n += 10
    ended_ns = time.monotonic_ns()
    rate = amount * n * 1e9 / (ended_ns - began_ns)
    sys.stdout.write(json.dumps({"phase": phase, "began_ns": began_ns, "ended_ns": ended_ns, unit: rate}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
