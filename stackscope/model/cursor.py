"""Reading little-endian GGUF values from a file through a small window, without ever trusting a length in it."""

from __future__ import annotations

import struct
from typing import BinaryIO, Final, TypeAlias

from stackscope import units

WINDOW_BYTES: Final = 1 << 20
"""A 262k vocabulary takes 6.5 MB of header, walked in 0.07 s; the window bounds memory, whatever the file claims."""

MAX_STRING_BYTES: Final = 1 << 26
MAX_ARRAY_STRINGS: Final = 1 << 24
"""64 times the largest vocabulary in use; a damaged count beyond it would take minutes to walk."""

Scalar: TypeAlias = bool | int | float | str

STRING: Final = 8
ARRAY: Final = 9

SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
"""Layout of every value type of a GGUF file but strings and arrays, by its number."""

U32: Final = SCALARS[4]
I32: Final = SCALARS[5]
U64: Final = SCALARS[10]
I64: Final = SCALARS[11]


class CutShortError(Exception):
    """The file ends before a value that it announces."""


class DamagedError(Exception):
    """A value that no writer of GGUF files produces. The message completes "it is damaged: "."""


class Cursor:
    """A position in a file. Reading or skipping past `end` raises `CutShortError`."""

    def __init__(self, stream: BinaryIO, end: int, *, position: int = 0) -> None:
        self._stream = stream
        self.end = end
        self.position = position
        self._window = b""
        self._window_start = 0

    def raw(self, n_bytes: int) -> bytes:
        start = self._need(n_bytes)
        self.position += n_bytes
        return self._window[start : start + n_bytes]

    def unpack(self, layout: struct.Struct) -> int | float:
        start = self._need(layout.size)
        self.position += layout.size
        value: int | float = layout.unpack_from(self._window, start)[0]
        return value

    def integer(self, layout: struct.Struct) -> int:
        return int(self.unpack(layout))

    def string(self, *, limit: int = MAX_STRING_BYTES) -> bytes:
        length = self.integer(U64)
        if length > self.end - self.position:
            raise CutShortError
        if length > limit:
            raise DamagedError(f"it claims a text of {units.count(length)} bytes")
        return self.raw(length)

    def skip(self, n_bytes: int) -> None:
        if n_bytes > self.end - self.position:
            raise CutShortError
        self.position += n_bytes

    def skip_strings(self, count: int) -> None:
        """Pass over `count` strings by their lengths alone: 0.2 µs each."""
        if count > MAX_ARRAY_STRINGS:
            raise DamagedError(f"it claims a list of {units.count(count)} texts")
        if count * U64.size > self.end - self.position:
            raise CutShortError
        unpack_from = U64.unpack_from
        while count > 0:
            here = self._need(U64.size)
            window, last = self._window, len(self._window) - U64.size
            while count > 0 and here <= last:
                here += U64.size + unpack_from(window, here)[0]
                count -= 1
            self.position = self._window_start + here
            if self.position > self.end:
                raise CutShortError

    def _need(self, n_bytes: int) -> int:
        """Make the window hold `n_bytes` from the position on; answers where they start in it."""
        if n_bytes > self.end - self.position:
            raise CutShortError
        start = self.position - self._window_start
        if start < 0 or start + n_bytes > len(self._window):
            self._stream.seek(self.position)
            self._window = self._stream.read(max(n_bytes, WINDOW_BYTES))
            self._window_start, start = self.position, 0
            if len(self._window) < n_bytes:  # the file shrank since its size was taken
                raise CutShortError
        return start
