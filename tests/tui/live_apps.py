"""The real application on a source that stands still: what it shows is what the test says."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from stackscope.tui.app import StackscopeApp
from stackscope.tui.source import Status
from tests.tui import sessions
from tests.tui.apps import text_of
from tests.tui.controls import FakeControl
from tests.tui.feeds import FakeSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from textual.pilot import Pilot

    from stackscope.analysis.live.snapshot import Snapshot
    from stackscope.records import AnyRecord, Prediction, StepRecord
    from stackscope.toggles import Setting
    from stackscope.tui.control import Playback

DEADLINE_S: Final = 20.0


class StillView:
    """Always the same snapshot, which the test may exchange."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.steps: deque[StepRecord] = deque()
        self.still = snapshot

    def write(self, record: AnyRecord) -> None:
        """Nothing changes."""

    def predict(self, _changes: Mapping[str, Setting], _at_ns: int) -> Prediction | None:
        return None

    def rest(self, _now_ns: int, *, is_over: bool = False) -> bool:  # noqa: ARG002 - as in `View`
        return False

    def snapshot(self, _now_ns: int) -> Snapshot:
        return self.still


class Screen:
    """An application under test, with what is around it."""

    def __init__(
        self, snapshot: Snapshot | None = None, status: Status | None = None, *, playback: Any = None, **options: Any
    ) -> None:
        self.view = StillView(snapshot or sessions.running())
        self.source = FakeSource()
        self.source.is_moving = False
        self.source.state = status or Status()
        self.control = FakeControl(is_live=playback is None)
        chosen: Playback | None = playback
        self.app = StackscopeApp(
            self.source,
            self.control if chosen is None else chosen,
            playback=chosen,
            make_view=lambda: self.view,
            **options,
        )
        # Reading other weights' files would say in its own time that there are none.
        self.app._has_looked, self.app.toggling.variants = True, ()
        self.pilot: Pilot[None]

    def run(self, act: Callable[[Screen], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> Screen:
        """Run it without a terminal, do something with it once it shows the first frame, and leave it."""

        async def run() -> None:
            async with self.app.run_test(size=size, notifications=True, tooltips=True) as self.pilot:
                await self.show()
                await act(self)
            self.app.end_feed()

        asyncio.run(run())
        return self

    async def show(self, snapshot: Snapshot | None = None, status: Status | None = None) -> None:
        """Have something else shown, and wait until it is."""
        if snapshot is not None:
            self.view.still = snapshot
        # Another object each time, so that it is told from the one before.
        self.source.state = status or Status(**vars(self.source.state))
        self.app.feed.wake()
        await self.until(lambda: self.app.frame.status is self.source.state)
        await self.pilot.pause()

    async def until(self, holds: Callable[[], object]) -> None:
        """Let the application work until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, "it has not come about"
            await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    @property
    def text(self) -> str:
        """What is on the screen."""
        return text_of(self.app)

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")
