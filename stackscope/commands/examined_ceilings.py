"""What `doctor` says of measured ceilings: what they are, how old, and whether they are of this machine and build."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from stackscope.commands.examinations import Check
from stackscope.hardware import ceilings as cache
from stackscope.report.ceilings import one_line
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.commands.examinations import LibraryFacts

MEASURE = "Measure them, when the machine is quiet: stackscope calibrate"


def of_ceilings(path: Path, facts: LibraryFacts | None, *, named: str | None, now: datetime) -> Iterator[Check]:
    """The newest ceilings of a model in the default configuration; `named` is what the user called it."""
    remedy = MEASURE if named is None else f"{MEASURE} --model {named}"
    wanted = EngineConfig(model=str(path))
    found = list(cache.known())
    for each in found:
        if each.problem is not None:
            yield Check(topic="Ceilings", name="Ceilings", holds=False, value=each.problem, remedy=remedy)
    fitting = [
        each.ceilings
        for each in found
        if each.ceilings is not None
        and each.ceilings.conditions.hold_for(wanted)
        and each.ceilings.conditions.machine == cache.machine()
    ]
    if not fitting:
        yield Check(
            topic="Ceilings", name="Ceilings", holds=False, value=f"not measured for {path.name}", remedy=remedy
        )
        return
    newest = max(fitting, key=lambda ceilings: datetime.fromisoformat(ceilings.measured))
    is_other_build = facts is not None and newest.conditions.library != facts.description
    value = one_line(newest, now) + ("; by another build of the inference library" if is_other_build else "")
    is_usable = not is_other_build and newest.is_quiet and not cache.is_old(newest, now)
    yield Check(topic="Ceilings", name="Ceilings", holds=is_usable, value=value, remedy=None if is_usable else remedy)
