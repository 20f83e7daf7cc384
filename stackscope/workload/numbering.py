"""Which job ids the turns of a conversation have: fixed beforehand, so that an id always means the same job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stackscope.workload.script import Script

MOST_TOGETHER: Final = 256
"""Conversations numbered together at most; how long one is takes 20 µs to draw."""


class Numbering:
    """Conversations in groups: their first turns are numbered one after the other, then their second turns, and so on.

    With a limit of n, exactly the ids below n are given out. A group is as large as the load's concurrency, so that a
    short run has as many conversations as are to be in flight, and yet gets to their later turns. It ends where a file
    does: one pass over a file is all of its turns, each once.
    """

    def __init__(self, script: Script, *, group: int, limit: int | None) -> None:
        """`group`: conversations numbered together. `limit`: ids to give out, `None` without end."""
        self._script = script
        self._group = min(group, MOST_TOGETHER)
        self._limit = limit
        self._next_number = 0
        self._next_job = 0
        """First id of the group after the current one."""
        self._ids: list[list[int]] = []
        """What is left of the current group, the next conversation last."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit leaves no conversation to begin."""
        if not self._ids:
            return self._limit is not None and self._next_job >= self._limit
        return not self._ids[-1]

    def take(self) -> tuple[int, list[int]]:
        """The number of the next conversation and the ids of its turns. Not when exhausted."""
        if not self._ids:
            self._ids = self._numbered()
        number = self._next_number
        self._next_number += 1
        return number, self._ids.pop()

    def _numbered(self) -> list[list[int]]:
        size, lap = self._group, self._script.lap
        if lap is not None:
            size = min(size, lap - self._next_number % lap)
        counts = [self._script.n_turns(self._next_number + place) for place in range(size)]
        ids: list[list[int]] = [[] for _ in counts]
        for turn in range(max(counts)):
            for place, count in enumerate(counts):
                if turn < count:
                    if self._limit is None or self._next_job < self._limit:
                        ids[place].append(self._next_job)
                    self._next_job += 1
        return ids[::-1]
