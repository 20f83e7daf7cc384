"""What requests have generated, as far as it fits: the tails of the newest of them."""

from __future__ import annotations

import threading
from typing import Final

MOST_REQUESTS: Final = 64
"""Requests whose text is kept; those that gained text longest ago go first."""
MOST_CHARACTERS: Final = 8_000
"""Characters kept of each, from its end: several screens full."""


class Texts:
    """Written by one thread, read by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[int, str] = {}
        """In the order in which they last gained something."""

    def add(self, request: int, gained: str) -> None:
        """Take text that a request has gained."""
        with self._lock:
            tail = self._tails.pop(request, "") + gained
            # Cut with some slack, so that not every piece copies the whole.
            self._tails[request] = tail if len(tail) <= 2 * MOST_CHARACTERS else tail[-MOST_CHARACTERS:]
            if len(self._tails) > MOST_REQUESTS:
                del self._tails[next(iter(self._tails))]

    def tail(self, request: int) -> str | None:
        """The end of what a request has generated since text is wanted. `None`: nothing that is known."""
        with self._lock:
            text = self._tails.get(request)
        return None if text is None else text[-MOST_CHARACTERS:]

    def clear(self) -> None:
        """Forget everything: another session begins."""
        with self._lock:
            self._tails.clear()
