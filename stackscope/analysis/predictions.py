"""Which prediction was made for which change: the one rule of the live view and of the score.

A prediction is of what was in force when it was made, and of the change that was asked for then. So it waits for that
change alone. Whatever other change comes first spends it, and so does the engine's refusal of its own: the same change
later on, by somebody else or under other circumstances, was not predicted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.records import Prediction
    from stackscope.toggles import Setting

JOIN_NS: Final = 30_000_000_000
"""How long after a prediction its change may come: a rebuild with other weights takes its time."""
MOST_WAITING: Final = 32
"""Predictions kept whose change has not come."""


class Predictions:
    """Predictions whose change is still to come. Bounded memory."""

    def __init__(self) -> None:
        self._waiting: deque[Prediction] = deque(maxlen=MOST_WAITING)
        """Newest first."""

    def add(self, prediction: Prediction) -> None:
        """Take a prediction, before its change."""
        self._waiting.appendleft(prediction)

    def take(self, at_ns: int, changes: Mapping[str, tuple[Setting, Setting]]) -> Prediction | None:
        """The newest prediction of a change that was made, given as values before and after; all others are spent.

        `None`: nobody predicted just this, within the last `JOIN_NS`.
        """
        made = _new_values(changes)
        found = next((one for one in self._waiting if _new_values(one.changes) == made and _in_time(one, at_ns)), None)
        self._waiting.clear()
        return found

    def refuse(self, changes: Mapping[str, tuple[Setting, Setting]]) -> None:
        """A change was refused. What else was predicted still holds: nothing has changed."""
        refused = _new_values(changes)
        waiting = [one for one in self._waiting if _new_values(one.changes) != refused]
        self._waiting = deque(waiting, maxlen=MOST_WAITING)


def _new_values(changes: Mapping[str, tuple[Setting, Setting]]) -> dict[str, Setting]:
    """What really changes, and to what."""
    return {name: after for name, (before, after) in changes.items() if before != after}


def _in_time(prediction: Prediction, at_ns: int) -> bool:
    return 0 <= at_ns - prediction.at_ns <= JOIN_NS
