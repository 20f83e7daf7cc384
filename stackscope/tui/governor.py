"""How often the screen is redrawn: as often as the process can afford within its share of one core."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

BUDGET: Final = 0.022
"""Share of one core that the whole process may take; the promise is 3 %, and frames just after a key come unasked."""
LEAST_S: Final = 0.25
"""Nobody reads numbers that change faster than this; keys are answered at once all the same."""
MOST_S: Final = 1.0
"""Beyond this a display is no longer live, whatever it costs."""
WINDOW_NS: Final = 15_000_000_000
"""How far back the cost of frames is measured. Predictions are made anew every half minute, in one go: over less time
they would be too much in some windows, and leave too much room in the others."""
SHARE_NS: Final = 5_000_000_000
"""How far back the cost is told."""
SHOWN_NS: Final = 1_000_000_000
"""Least time over which a cost is told: what is shorter depends on when one looks."""


class Usage(NamedTuple):
    """Sums since the process began, in nanoseconds."""

    wall: int
    cpu: int
    """CPU time of all threads of the process."""
    drawing: int
    """The part of it that making and painting frames took."""
    n_frames: int


class Governor:
    """Watches what frames cost and says how long to wait between two."""

    def __init__(self, *, budget: float = BUDGET, least_s: float = LEAST_S) -> None:
        """`budget` is the share of one core to stay within, `least_s` the least time between frames."""
        self._budget = budget
        self._least_s = least_s
        self._seen: deque[Usage] = deque()

    def observe(self, usage: Usage) -> None:
        """Note what has been used by now."""
        self._seen.append(usage)
        while len(self._seen) > 2 and usage.wall - self._seen[1].wall >= WINDOW_NS:
            self._seen.popleft()

    @property
    def share(self) -> float | None:
        """CPU time ÷ time of the last seconds: 1 is one core. `None`: too little has passed to say."""
        if not self._seen:
            return None
        last = self._seen[-1]
        first = next((one for one in reversed(self._seen) if last.wall - one.wall >= SHARE_NS), self._seen[0])
        wall = last.wall - first.wall
        return None if wall < SHOWN_NS else (last.cpu - first.cpu) / wall

    @property
    def interval_s(self) -> float:
        """Time from one frame to the next.

        What is left of the budget beside everything else the process does, but at least a fifth of it, pays for frames
        that cost what they cost lately.
        """
        if len(self._seen) < 2:
            return self._least_s
        first, last = self._seen[0], self._seen[-1]
        n_frames, wall = last.n_frames - first.n_frames, last.wall - first.wall
        if n_frames <= 0 or wall <= 0:
            return self._least_s
        drawing = last.drawing - first.drawing
        others = (last.cpu - first.cpu - drawing) / wall
        affordable = max(self._budget - others, self._budget / 5)
        return min(max(drawing / n_frames / 1e9 / affordable, self._least_s), max(MOST_S, self._least_s))
