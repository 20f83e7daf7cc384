"""What the screens may ask of whatever produces the records: a running engine, or a recording that is played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stackscope.toggles import Setting


SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""How fast a recording can be played; 1 is the time in which it happened."""


class Control(Protocol):
    """Requests to the source. They return at once: what became of them shows in the records that follow.

    Each returns `None`, or in one sentence why it cannot be done here (a recording cannot be toggled).
    """

    @property
    def is_live(self) -> bool:
        """An engine runs, rather than a recording."""

    @property
    def recording(self) -> Path | None:
        """The file being written. `None`: nothing is recorded."""

    @property
    def is_recording_asked(self) -> bool:
        """A file is written, or will be once all that was asked for is done."""

    def reconfigure(self, changes: Mapping[str, Setting]) -> str | None:
        """Change settings, by their names in `EngineConfig`."""

    def set_concurrency(self, concurrency: int) -> str | None: ...

    def set_rate(self, rate: float) -> str | None: ...

    def mark(self, label: str) -> str | None: ...

    def cancel(self, request: int) -> str | None: ...

    def record(self, *, is_wanted: bool) -> str | None:
        """Start a recording, or end it."""

    def show_text(self, *, is_wanted: bool) -> str | None:
        """Whether the text that requests gain is wanted."""

    def restart(self) -> str | None:
        """Start the engine again with the configuration last in force, after it died or instead of one that runs."""


class Playback(Control, Protocol):
    """A recording that is played."""

    @property
    def is_playing(self) -> bool: ...

    @property
    def speed(self) -> float:
        """1 is the time in which it happened."""

    @property
    def position_ns(self) -> int: ...

    @property
    def end_ns(self) -> int:
        """Time of the last record."""

    @property
    def cores(self) -> int | None:
        """That the machine had which recorded it. `None`: it does not say."""

    def play(self) -> None: ...

    def pause(self) -> None: ...

    def step(self, n: int = 1) -> None:
        """Go on (or back) by single engine steps, and pause."""

    def set_speed(self, speed: float) -> None: ...

    def seek(self, at_ns: int) -> None:
        """Go to a time of the session; beyond its ends, to the end."""
