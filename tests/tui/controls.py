"""A control that notes what it is asked, in place of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stackscope.toggles import Setting


class FakeControl:
    """Obeys everything and does nothing; `refusal` is what it says instead, when set."""

    def __init__(self, *, is_live: bool = True, recording: Path | None = None) -> None:
        self.asked: list[dict[str, Setting]] = []
        self.refusal: str | None = None
        self._is_live = is_live
        self._recording = recording

    @property
    def is_live(self) -> bool:
        return self._is_live

    @property
    def recording(self) -> Path | None:
        return self._recording

    @property
    def is_recording_asked(self) -> bool:
        return self._recording is not None

    def _obey(self, **what: Setting) -> str | None:
        if self.refusal is None:
            self.asked.append(what)
        return self.refusal

    def reconfigure(self, changes: Mapping[str, Setting]) -> str | None:
        return self._obey(**changes)

    def set_concurrency(self, concurrency: int) -> str | None:
        return self._obey(concurrency=concurrency)

    def set_rate(self, rate: float) -> str | None:
        return self._obey(rate=rate)

    def mark(self, label: str) -> str | None:
        return self._obey(mark=label)

    def cancel(self, request: int) -> str | None:
        return self._obey(cancel=request)

    def record(self, *, is_wanted: bool) -> str | None:
        return self._obey(record=is_wanted)

    def show_text(self, *, is_wanted: bool) -> str | None:
        return self._obey(show_text=is_wanted)

    def restart(self) -> str | None:
        return self._obey(restart=True)
