"""What `doctor` says of measured ceilings: what they are, how old, and whether they are of this machine and build."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from stackscope.commands.examinations import Check
from stackscope.commands.kept_ceilings import of_damaged, of_other_versions
from stackscope.errors import UsageError
from stackscope.hardware import ceilings as cache
from stackscope.report.ceilings import one_line
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.commands.examinations import LibraryFacts

MEASURE: Final = "Measure them, when the machine is quiet: stackscope calibrate"
SET_ASIDE: Final = "Damaged files are set aside, and not deleted, when you measure again: stackscope calibrate"


def of_ceilings(path: Path, facts: LibraryFacts | None, *, named: str | None, now: datetime) -> Iterator[Check]:
    """The newest ceilings of a model in the default configuration; `named` is what the user called it."""
    remedy = MEASURE if named is None else f"{MEASURE} --model {named}"
    wanted = EngineConfig(model=str(path))
    try:
        found = list(cache.known())
    except UsageError as error:  # The folder that is set does not exist for anybody.
        yield Check(topic="Ceilings", name="Ceilings", holds=False, value=error.message, remedy=error.remedy)
        return
    damage = of_damaged(found)
    if damage is not None:
        anew = SET_ASIDE if named is None else f"{SET_ASIDE} --model {named}"
        yield Check(topic="Ceilings", name="Damaged files", holds=False, value=damage, remedy=anew)
    fitting = [
        each.ceilings
        for each in found
        if each.ceilings is not None
        and each.ceilings.conditions.hold_for(wanted)
        and each.ceilings.conditions.machine == cache.machine()
    ]
    if not fitting:
        value = ". ".join([f"not measured for {path.name}", *of_other_versions(found)])
        yield Check(topic="Ceilings", name="Ceilings", holds=False, value=value, remedy=remedy)
        return
    newest = max(fitting, key=lambda ceilings: datetime.fromisoformat(ceilings.measured))
    is_other_build = facts is not None and newest.conditions.library != facts.description
    value = f"{path.name} reaches {one_line(newest, now)}" + (
        "; by another build of the inference library" if is_other_build else ""
    )
    is_usable = not is_other_build and newest.is_quiet and not cache.is_old(newest, now)
    yield Check(topic="Ceilings", name="Ceilings", holds=is_usable, value=value, remedy=None if is_usable else remedy)
