"""Why nothing may be recommended now, whatever the time model says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.analysis.diagnosis.naming import LEAST_SHARE, MOST_UNEXPLAINED

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence
    from stackscope.analysis.diagnosis.naming import Naming
    from stackscope.records import Cause

STARVATION: Final[Cause] = "CPU starvation"
STARVED: Final = "the engine's threads do not get their cores: free them first, what else would help cannot be told"
UNEXPLAINED: Final = "too much of the time is unexplained to tell what would help"
MOVED: Final = 0.2
"""A share of the time with prompts in it that differs by more is other traffic."""


def starves(naming: Naming) -> bool:
    """The engine's threads do not get their cores: that limits, or takes as much of the time as a name needs."""
    if naming.name == STARVATION:
        return True
    found = (*naming.together, *naming.rejected)
    return any(one.cause == STARVATION and one.is_confirmed and (one.share or 0.0) >= LEAST_SHARE for one in found)


def is_unexplained(naming: Naming, evidence: Evidence | None) -> bool:
    """Nothing is named for want of an explanation: what a change would do is then as open. Stalls are none of it."""
    if naming.name is not None or naming.unexplained is None or evidence is None or evidence.times.wall <= 0.0:
        return False
    return naming.unexplained - evidence.stalled_ns / evidence.times.wall > MOST_UNEXPLAINED


def has_moved(before: float | None, now: float | None) -> bool:
    """Whether what was predicted for one share of prompts is of other traffic than the present one."""
    return before is not None and now is not None and abs(now - before) > MOVED
