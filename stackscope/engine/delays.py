"""Causal probes: now and then one part of a step is made later by a known time, to see how much later its end comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.engine import stopwatch
from stackscope.records import Delay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.engine.stopwatch import Stopwatch
    from stackscope.records import DelayedPhase, SlotWork

PERIOD_NS: Final = 4_000_000_000
"""Between two delayed steps: fifteen a minute, which cost 0.01 % of the time where steps take 10 ms."""
SHARE: Final = 0.2
"""Of a usual step: less would drown in what steps differ by, more would be felt."""
LEAST_NS: Final = 100_000
MOST_NS: Final = 20_000_000
_WEIGHT: Final = 0.05
"""Of the newest step in what is usual."""

_STAMPS: Final[dict[DelayedPhase, int]] = {
    "sample": stopwatch.SAMPLE,
    "build": stopwatch.BUILD,
    "decode": stopwatch.DECODE,
    "draft": stopwatch.DRAFT,
}


class Delays:
    """Which step is delayed next, where, and by how much. The parts take turns."""

    def __init__(self) -> None:
        self.is_on = False
        self._due_ns: int | None = None
        """When the next step is to be delayed. `None`: no step was seen yet."""
        self._turn = 0
        self._usual_ns = 0.0
        self._armed: Delay | None = None

    def switch(self, watch: Stopwatch, *, is_on: bool) -> None:
        """Begin or stop, between two steps."""
        self.is_on = is_on
        if not is_on and self._armed is not None:
            watch.disarm()
            self._armed = None

    def arm(self, watch: Stopwatch, *, is_drafting: bool) -> None:
        """Have the step that has just begun be delayed, if it is time for that."""
        if self._armed is not None:  # There was nothing to do in the step that was to have it.
            watch.disarm()
            self._armed = None
        now_ns = watch.last_ns
        if self._due_ns is None:
            self._due_ns = now_ns + PERIOD_NS
        if now_ns < self._due_ns or self._usual_ns == 0.0:
            return
        phases: list[DelayedPhase] = ["sample", "build", "decode"]
        if is_drafting:
            phases.append("draft")
        phase = phases[self._turn % len(phases)]
        self._armed = Delay(phase, round(min(max(SHARE * self._usual_ns, LEAST_NS), MOST_NS)))
        watch.delay(_STAMPS[phase], self._armed.ns)

    def take(self, watch: Stopwatch, work: Sequence[SlotWork]) -> Delay | None:
        """What the step that ends now was delayed by."""
        if work and all(one.phase != "prefill" for one in work):
            spent = watch.last_ns - watch.start_ns
            self._usual_ns += (spent - self._usual_ns) * (_WEIGHT if self._usual_ns else 1.0)
        armed, self._armed = self._armed, None
        if armed is None or watch.disarm():
            return None
        self._turn += 1
        self._due_ns = watch.last_ns + PERIOD_NS
        return armed
