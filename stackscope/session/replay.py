"""A recorded session as a source: what it yields is what the live run yielded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.pipeline import Lateness, in_order
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.records import AnyRecord

_HOLD_NS: Final = 2_000_000_000
"""Disorder put right. A file holds records as they arrived: the engine's come in batches of 50 ms, a hardware sample
up to its period of a second late."""


class Replay:
    """Yields the records of a session file in the order of their time. Raises `SessionFileError` as `SessionReader`."""

    def __init__(self, path: Path | str) -> None:
        self.reader: Final = SessionReader(path)
        """Its header, and after the records why it ended early and what was left out."""
        self.lateness = Lateness()
        """Of the last run through the records; late are those more than two seconds out of place."""

    def records(self) -> Iterator[AnyRecord]:
        """Yield the header, then everything else by time, the footer last."""
        self.lateness = Lateness()
        return in_order(self.reader, hold_ns=_HOLD_NS, lateness=self.lateness)
