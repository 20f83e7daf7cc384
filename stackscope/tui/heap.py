"""Gives back memory that was freed.

glibc keeps it, for allocations to come. Those of a screen that is open for hours are of all sizes and from several
threads, so that what it keeps falls to pieces and grows: 13 MB after four minutes, of which a third could go.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_NS: Final = 30_000_000_000


class Heap:
    """Trims the heap now and then."""

    def __init__(
        self, *, trim: Callable[[], object] | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`trim` gives back what can be; the C library's where it is `None`, and nothing where that has none."""
        self._trim = trim or trimmer()
        self._clock = clock
        self._due_ns = clock() + EVERY_NS

    def tend(self) -> None:
        """Trim it, if that was long enough ago: a few milliseconds."""
        now_ns = self._clock()
        if self._trim is not None and now_ns >= self._due_ns:
            self._due_ns = now_ns + EVERY_NS
            self._trim()


def trimmer() -> Callable[[], object] | None:
    """glibc's `malloc_trim`, of all its arenas. `None`: this C library has none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)
