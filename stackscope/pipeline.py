"""Sources make records, sinks take them; a pipeline joins the two and counts what it dropped and how late it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.records import AnyRecord


class Source(Protocol):
    """Anything that produces records: the embedded engine, a replayed file, an attached server, a sampler."""

    def records(self) -> Iterator[AnyRecord]:
        """Yield records in the order of their time, the header first. Ends when the source does."""


class Sink(Protocol):
    """Anything that consumes records: the session writer, the live window, the headless printer."""

    def write(self, record: AnyRecord) -> None: ...

    def close(self) -> None: ...
