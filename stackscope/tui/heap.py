"""Lets go of what is no longer of use, so that a screen can be open for hours.

Textual (8.2) remembers two colours for each of the last 1,024 widgets by a cache whose key is the widget's drawn lines:
those of every dialog and every message that was shown stay, some 50 kB each. And glibc keeps memory that was freed for
allocations to come; as they are of all sizes and from several threads, what it keeps falls to pieces and grows.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Final

from textual._styles_cache import StylesCache

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_NS: Final = 30_000_000_000


class Heap:
    """Forgets and trims now and then."""

    def __init__(
        self, *, trim: Callable[[], object] | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`trim` gives back what can be; the C library's where it is `None`, and nothing where that has none."""
        self._trim = trim or trimmer()
        self._clock = clock
        self._due_ns = clock() + EVERY_NS

    def tend(self) -> None:
        """Do it, if that was long enough ago: a few milliseconds."""
        now_ns = self._clock()
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + EVERY_NS
        forget_widgets()
        if self._trim is not None:
            self._trim()


def forget_widgets() -> None:
    """Have Textual forget the colours of widgets, and with them those that are gone: the others tell theirs again."""
    colours = getattr(StylesCache, "get_inner_outer", None)
    clear = getattr(colours, "cache_clear", None)
    if clear is not None:  # Another Textual may have no such cache.
        clear()


def trimmer() -> Callable[[], object] | None:
    """glibc's `malloc_trim`, of all its arenas. `None`: this C library has none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)
