"""What was named since a session began, and for how long."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.diagnosis.naming import Naming

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.naming import NameChange
    from stackscope.records import Cause

MOST_CHANGES: Final = 64
"""Of names, kept for whoever looks next."""


class Stood(msgspec.Struct, frozen=True, kw_only=True):
    """A name that stood for some time."""

    naming: Naming
    """As it was last."""
    ns: int
    share: float
    """Of the time from the first naming to the last, in which nothing may have been named."""


class Names:
    """Every name with the time that it stood."""

    def __init__(self) -> None:
        self._changes: deque[NameChange] = deque(maxlen=MOST_CHANGES)
        self._stood: dict[Cause, tuple[Naming, int]] = {}
        self._first_ns: int | None = None
        self.named_ns: int | None = None
        """When something was last named, or nothing was. `None`: not yet."""

    def remember(self, naming: Naming, at_ns: int) -> None:
        """Add the time since the last naming to the name that stands at its end."""
        since_ns = 0 if self.named_ns is None else max(at_ns - self.named_ns, 0)
        if self._first_ns is None:
            self._first_ns = at_ns
        self.named_ns = at_ns
        if naming.change is not None:
            self._changes.append(naming.change)
        if naming.name is not None:
            _, ns = self._stood.get(naming.name, (naming, 0))
            self._stood[naming.name] = naming, ns + since_ns

    def take_changes(self) -> tuple[NameChange, ...]:
        """Those since the last call, the oldest first."""
        changes = tuple(self._changes)
        self._changes.clear()
        return changes

    def standing(self, at_ns: int) -> tuple[Stood, ...]:
        """The longest first."""
        whole = max(at_ns - (self._first_ns or 0), 1)
        found = [Stood(naming=naming, ns=ns, share=min(ns / whole, 1.0)) for naming, ns in self._stood.values()]
        return tuple(sorted(found, key=lambda one: -one.ns))
