"""Why configurations of a sweep cannot run, each reason once, with the configurations that it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units

if TYPE_CHECKING:
    from collections.abc import Sequence

UNTOLD: Final = "It was refused before anything ran; this sweep did not store why."
"""Of one that an earlier version recorded."""

MOST_NAMED: Final = 4
"""Configurations that are named one by one."""


class Refused(NamedTuple):
    """Configurations that cannot run for one reason."""

    why: str
    labels: tuple[str, ...]
    named: str
    """Which they are, in short."""

    @property
    def text(self) -> str:
        return f"{self.named}: {self.why}"


def by_reason(refusals: Sequence[tuple[str, str]], space: Sequence[str]) -> list[Refused]:
    """Of (configuration, why it cannot run), among all configurations of a sweep."""
    groups: dict[str, list[str]] = {}
    for label, why in refusals:
        groups.setdefault(why, []).append(label)
    return [Refused(why, tuple(labels), _named(labels, space)) for why, labels in groups.items()]


def _named(labels: Sequence[str], space: Sequence[str]) -> str:
    """What those have in common, where no other configuration has it; else the first few."""
    if len(labels) == 1:
        return labels[0]
    common = [word for word in labels[0].split() if all(word in label.split() for label in labels)]
    others = [label.split() for label in space if label not in labels]
    if common and not any(set(common) <= set(words) for words in others):
        return f"all {units.count(len(labels))} with {' '.join(common)}"
    rest = len(labels) - MOST_NAMED
    named = [*labels[:MOST_NAMED], *([f"{units.count(rest)} more"] if rest > 0 else [])]
    return f"{units.count(len(labels))} configurations ({'; '.join(named)})"
