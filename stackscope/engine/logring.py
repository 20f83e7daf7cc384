"""The last lines that the engine process and the native library wrote, cleaned so that a terminal survives them."""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import Final

from stackscope.records import Log

MOST_LINES: Final = 2_000
MOST_CHARACTERS: Final = 4_000
"""A longer line is cut; one that never ends is taken in pieces of this many bytes."""

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class LogRing:
    """Fed by one thread, read by others."""

    def __init__(self, *, most: int = MOST_LINES) -> None:
        self._lock = threading.Lock()
        self._lines: deque[Log] = deque(maxlen=most)
        self._tail = b""

    def feed(self, chunk: bytes, *, at_ns: int) -> list[Log]:
        """Take bytes, cut anywhere; the lines that they complete."""
        *whole, self._tail = (self._tail + chunk).split(b"\n")
        while len(self._tail) > MOST_CHARACTERS:
            whole.append(self._tail[:MOST_CHARACTERS])
            self._tail = self._tail[MOST_CHARACTERS:]
        return self._keep(whole, at_ns)

    def finish(self, *, at_ns: int) -> list[Log]:
        """The line that the end of the stream completes, if there is one."""
        tail, self._tail = self._tail, b""
        return self._keep([tail], at_ns)

    def _keep(self, raw: list[bytes], at_ns: int) -> list[Log]:
        texts = (clean(line) for line in raw)
        lines = [Log(at_ns=at_ns, text=text) for text in texts if text]
        with self._lock:
            self._lines.extend(lines)
        return lines

    @property
    def lines(self) -> tuple[Log, ...]:
        """What is held, oldest first."""
        with self._lock:
            return tuple(self._lines)


def clean(line: bytes) -> str:
    """A line as text: without escape sequences and control characters, and only what a carriage return left visible."""
    text = line.decode("utf-8", "replace").rstrip("\r\n").rsplit("\r", 1)[-1]
    return _CONTROLS.sub("", _ESCAPES.sub("", text))[:MOST_CHARACTERS].rstrip()
