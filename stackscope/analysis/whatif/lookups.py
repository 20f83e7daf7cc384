"""Prompt tokens looked up in the prefix cache lately, and what of them was found."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from stackscope.analysis.live.bins import BIN_NS, MINUTE_BINS

if TYPE_CHECKING:
    from stackscope.records import StepRecord


class Lookups:
    """Of the last minute, in the bins in which the live view counts it, so that both say the same. Bounded memory.

    Requests are admitted rarely: within the last some hundred steps there may be one, or none.
    """

    def __init__(self) -> None:
        self._bins: deque[list[int]] = deque()
        """[index of the bin, tokens looked up, tokens found usefully], oldest first; only those with look-ups."""

    def add(self, step: StepRecord) -> None:
        """Take the next step, in the order of their time."""
        cache = step.cache
        if cache.lookup_tokens <= 0:
            return
        index = _bin_of(step)
        if not self._bins or self._bins[-1][0] != index:
            self._bins.append([index, 0, 0])
            self._forget(index)
        self._bins[-1][1] += cache.lookup_tokens
        self._bins[-1][2] += cache.useful_hit_tokens

    def clear(self) -> None:
        """Forget what was looked up so far."""
        self._bins.clear()

    def useful_rate(self, last: StepRecord | None) -> float | None:
        """Of the prompt tokens looked up in the minute before the end of the last step, those found usefully.

        `None`: none was looked up.
        """
        if last is not None:
            self._forget(_bin_of(last))
        looked_up = sum([one[1] for one in self._bins])
        return sum([one[2] for one in self._bins]) / looked_up if looked_up > 0 else None

    def _forget(self, index: int) -> None:
        """What lies more than a minute before a bin."""
        while self._bins and self._bins[0][0] < index - MINUTE_BINS:
            self._bins.popleft()


def _bin_of(step: StepRecord) -> int:
    """The bin in which a step ended."""
    return (step.end_ns - 1) // BIN_NS
