"""The most that a machine was ever seen to do, over calibrations of the same conditions.

A virtual machine may have states that last longer than a calibration, and one that was in the slower state throughout
cannot know of the other. A ceiling is a maximum by its meaning, so what an earlier calibration reached still holds.
Forward times are what forwards usually take; they are held against each other, and stay those of one occasion.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from stackscope.records.ceilings import Ceiling, Ceilings

RELATED: Final = 0.6
"""Part of an earlier ceiling that a new one has to reach for it to count on. The states that were seen are a quarter to
a third apart; what falls further behind is another machine by now, whatever its name."""

STEADY: Final = 0.10
"""Spread of an earlier ceiling that counts on: its own samples have to agree."""

KEPT_NS: Final = 90 * 86_400 * 10**9
"""How long a ceiling counts on that is not reached again."""


def with_best(new: Ceilings, before: Ceilings | None) -> Ceilings:
    """New ceilings, with bandwidth and compute of those before where they were higher and can still be believed.

    Both have to be of the same conditions, and measured on a quiet machine.
    """
    if before is None or before.conditions != new.conditions or not (before.is_quiet and new.is_quiet):
        return new
    return msgspec.structs.replace(
        new,
        compute=_better(new.compute, before.compute, before.measured, new.measured),
        bandwidth=_better(new.bandwidth, before.bandwidth, before.measured, new.measured),
    )


def _better(new: Ceiling | None, old: Ceiling | None, before: str, now: str) -> Ceiling | None:
    """The higher one, `before` and `now` being when the calibrations were made."""
    if new is None or old is None or old.value <= new.value:
        return new
    reached = old.measured or before
    age = datetime.fromisoformat(now) - datetime.fromisoformat(reached)
    is_recent = 0.0 <= age.total_seconds() * 1e9 <= KEPT_NS
    is_steady = old.spread is not None and old.spread <= STEADY
    if not is_recent or not is_steady or new.value < RELATED * old.value:
        return new
    return msgspec.structs.replace(old, measured=reached)
