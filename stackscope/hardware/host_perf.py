"""Counters of the kernel's perf events, opened for a core: what is needed of perf_event_open(2), and no more."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Final, Protocol

NUMBERS: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
"""Of the system call, by architecture."""
CLOSE_ON_EXEC: Final = 8
TIMES: Final = 1 | 2
"""Read how long the counter was wanted and how long it ran: where counters are shared, it counts part of the time."""
ATTRIBUTE_BYTES: Final = 128
_SIZES: Final = struct.Struct("=IIQQQQQ")
"""type, size, config, sample_period, sample_type, read_format, flags."""
_COUNT: Final = struct.Struct("=QQQ")


class RefusedError(Exception):
    """The kernel does not open a counter."""


class Counter(Protocol):
    """Something that counts."""

    def read(self) -> float: ...
    def close(self) -> None: ...


class PerfCounter:
    """An open counter."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> float:
        """Counts so far, as if it had run all the time."""
        count, wanted, ran = _COUNT.unpack(os.read(self._descriptor, _COUNT.size))
        return float(count * wanted / ran) if ran else 0.0

    def close(self) -> None:
        """Stop counting."""
        os.close(self._descriptor)


def open_counter(type: int, config: int, core: int) -> Counter:
    """Count an event of a device on a core, whoever runs there. Raises `RefusedError`."""
    number = NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        raise RefusedError("this system has no perf events")
    attribute = _SIZES.pack(type, ATTRIBUTE_BYTES, config, 0, 0, TIMES, 0).ljust(ATTRIBUTE_BYTES, b"\0")
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    everyone, no_group = ctypes.c_int(-1), ctypes.c_int(-1)
    buffer = ctypes.create_string_buffer(attribute, ATTRIBUTE_BYTES)
    descriptor = call(
        ctypes.c_long(number), buffer, everyone, ctypes.c_int(core), no_group, ctypes.c_ulong(CLOSE_ON_EXEC)
    )
    if descriptor < 0:
        raise RefusedError(errno.errorcode.get(ctypes.get_errno(), "?"))
    return PerfCounter(descriptor)
