"""How a forward is cut short from another thread, without Python running inside it."""

from __future__ import annotations

import ctypes
import sys


class AbortFlag:
    """A byte that native code reads at every graph node: raised, the forward in progress ends at once.

    The callback handed to the library is the C library's own `strlen`: on the two bytes `[flag, 0]` it answers 0 or 1,
    so no Python runs per graph node and the flag may be raised from any thread.
    """

    def __init__(self) -> None:
        self._bytes = (ctypes.c_ubyte * 2)(0, 0)
        libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
        address = ctypes.cast(libc.strlen, ctypes.c_void_p).value
        assert address is not None
        self.function = address
        """Address of the native `bool (*)(void *)` to install."""
        self.data = ctypes.addressof(self._bytes)
        """Address to hand to it."""

    @property
    def is_raised(self) -> bool:
        return self._bytes[0] != 0

    def raise_(self) -> None:
        self._bytes[0] = 1

    def lower(self) -> None:
        self._bytes[0] = 0
