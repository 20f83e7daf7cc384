"""Waiting at one end of a pipe. `select` cannot, in a process with many files: it refuses descriptors above 1,023."""

from __future__ import annotations

import select


def is_readable(descriptor: int, timeout_s: float | None) -> bool:
    """Whether there is something to read in time, be it the end. `None`: wait however long it takes."""
    return _is_ready(descriptor, select.POLLIN, timeout_s)


def is_writable(descriptor: int, timeout_s: float | None) -> bool:
    """Whether there is room in time, or nobody to read it any more. `None`: wait however long it takes."""
    return _is_ready(descriptor, select.POLLOUT, timeout_s)


def _is_ready(descriptor: int, events: int, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(None if timeout_s is None else 1_000 * timeout_s))
