"""What feeds the screen, a running engine or a recording, as the feed sees it, and what it says beside its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.engine.process import Item
    from stackscope.errors import StackscopeError


@dataclass(frozen=True, kw_only=True)
class Loading:
    """Something that takes time before there is anything to show."""

    what: str
    fraction: float | None
    """0 to 1. `None`: not known."""


@dataclass(frozen=True, kw_only=True)
class Playing:
    """Where a recording stands that is played."""

    position_ns: int
    end_ns: int
    speed: float
    is_playing: bool
    is_at_end: bool
    name: str = ""
    """Of its file, without what every recording's ends with."""
    truncated: str | None = None
    """What of the recording is missing, and why, in sentences. `None`: nothing, as far as is known."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """What is not in the records: how the source itself is doing."""

    loading: Loading | None = None
    """`None`: nothing is being loaded."""
    recording: Path | None = None
    """`None`: nothing is recorded."""
    recorded_ns: int = 0
    """How long the recording is."""
    recorded: Path | None = None
    """The file that was being written when the engine ended. `None`: none was."""
    has_recording_failed: bool = False
    """It was given up, for a reason that a notice told; what was written until then is whole."""
    failure: StackscopeError | None = None
    """What ended the engine. `None`: it runs, or ended in order."""
    is_over: bool = False
    """No record will come any more, unless the engine is started again."""
    is_between: bool = False
    """One session has ended and the next has not begun: what is known of the former is not the present."""
    playing: Playing | None = None
    """`None`: an engine runs."""
    notices: tuple[str, ...] = ()
    """Sentences for the user, each once."""


class Source(Protocol):
    """Records for the feed. All methods but `interrupt` are called by the feed's own thread."""

    def open(self) -> None:
        """Start. What goes wrong shows in the status."""

    def take(self) -> Iterator[Item]:
        """What has come since the last time, without waiting. A header begins a session, also when there was one."""

    def status(self) -> Status: ...

    def now_ns(self) -> int:
        """This instant on the session's clock."""

    @property
    def is_moving(self) -> bool:
        """Time goes on: without new records, too, another moment is worth showing."""

    @property
    def patience_s(self) -> float | None:
        """How soon to look again, in seconds, because something is on its way. `None`: whenever the next frame is."""

    @property
    def has_news(self) -> bool:
        """The status says something that the user should hear of even while the display stands still."""

    def close(self) -> None:
        """End everything, in two seconds at most. What is left can still be taken."""
