"""What is said of kept ceilings that do not count: damaged files, and those of other versions of Stackscope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.hardware import ceilings as cache
from stackscope.model.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_NAMES: Final = 12
"""Files that are named; of more, the number is told."""


def of_damaged(found: Iterable[cache.Found]) -> str | None:
    """One sentence without its full stop about all files that cannot be used. `None`: there are none."""
    troubles = [each.trouble for each in found if each.trouble is not None]
    if not troubles:
        return None
    first, *others = troubles
    if not others:
        return first.sentence.rstrip(".")
    why = {each.why for each in troubles}
    told = [each.path.name if len(why) == 1 else f"{each.path.name} ({each.why})" for each in troubles]
    reason = f" ({first.why})" if len(why) == 1 else ""
    number, folder = units.counted(len(troubles), "file"), shown(first.path.parent)
    return f"{number} of measured ceilings in {folder} cannot be used{reason}: {_listed(told)}"


def of_other_versions(found: Iterable[cache.Found]) -> list[str]:
    """A sentence without its full stop for each version of Stackscope whose ceilings do not count here."""
    models: dict[str, list[str]] = {}
    for each in found:
        if each.other is not None:
            models.setdefault(each.other.version, []).append(each.other.model or "a model that is not named")
    return [
        f"{version[0].upper()}{version[1:]} measured {_listed(sorted(set(names)))}, which does not count here"
        for version, names in models.items()
    ]


def aside() -> list[str]:
    """Set damaged files aside, so that they are told once; what is to be told."""
    told = of_damaged(cache.known())
    if told is None:
        return []
    moved = cache.set_aside()
    if not moved:
        return [f"{told}."]
    return [f"{told}. Set aside, not deleted: {_listed([new.name for new in moved.values()])}."]


def _listed(names: Sequence[str]) -> str:
    named = [shown(name) for name in names[:MOST_NAMES]]
    n_more = len(names) - len(named)
    return ", ".join(named if n_more == 0 else [*named, f"and {units.count(n_more)} more"])
