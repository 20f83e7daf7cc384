"""The thread between a source and the screen: it keeps the present up to date and hands over the newest frame."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from stackscope.analysis.live.snapshot import Snapshot
from stackscope.engine import wire
from stackscope.records import Header, StepRecord
from stackscope.tui.governor import Governor, Usage
from stackscope.tui.heap import Heap
from stackscope.tui.texts import Texts

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping

    from stackscope.records import AnyRecord, Prediction
    from stackscope.toggles import Setting
    from stackscope.tui.source import Source, Status

LEAST_S: Final = 0.1
"""Least time between two frames, whatever asks for them."""
HASTY_S: Final = 0.15
"""Time between frames just after a key."""
ANSWER_NS: Final = 1_500_000_000
"""How long after a key frames come faster: what it changes shows at once."""
PAUSED_S: Final = 1.5
"""How often records are taken while nothing is shown: rarely is cheapest, also for the engine's pump, which sees that
nobody looks (`AWAY_NS`). What waits there may be minutes."""
SETTLING_NS: Final = 2_000_000_000
"""Once it moves, modules are still imported for a while, which will not happen again."""
RESTING_S: Final = 5.0
"""The same where no more records come."""


class View(Protocol):
    """What makes snapshots of records; `analysis.live.view.LiveView` is one. A header begins a session anew."""

    @property
    def steps(self) -> deque[StepRecord]:
        """The newest steps."""

    def write(self, record: AnyRecord) -> None: ...

    def snapshot(self, now_ns: int) -> Snapshot: ...

    def rest(self, now_ns: int, *, is_over: bool = False) -> bool:
        """Time stands still at a moment of which there was a snapshot. Whether another one would tell more."""

    def predict(self, changes: Mapping[str, Setting], at_ns: int) -> Prediction | None: ...


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Everything that one picture of the screen is made from."""

    snapshot: Snapshot
    status: Status
    own_share: float | None = None
    """CPU time of this process ÷ time, lately. `None`: not known yet, or time stands still, so that it would too."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a session came to."""

    n_steps: int = 0
    n_tokens: int = 0
    n_requests: int = 0
    began_ns: int | None = None
    """When the first step began. `None`: there was none."""
    ended_ns: int | None = None
    score: str | None = None
    """How the predictions of its changes did. `None`: none was made."""


class Feed(threading.Thread):
    """Takes what a source has a few times a second, and makes a frame of it when the screen can use one.

    One frame waits at most: one that the screen has not taken when the next is ready is replaced. Nothing here waits
    for the screen, so that a terminal that stands still holds up neither records nor recording.
    """

    def __init__(
        self,
        source: Source,
        *,
        make_view: Callable[[], View],
        announce: Callable[[], None],
        is_stalled: Callable[[], bool] = lambda: False,
        governor: Governor | None = None,
    ) -> None:
        """To be made by the thread that paints.

        `announce` is called when a frame is ready and none waited before, or when the thread ends by a fault.
        `make_view` is called by the thread. `is_stalled` says that the terminal takes nothing.
        """
        super().__init__(name="feed", daemon=True)
        self._source = source
        self._make_view = make_view
        self._announce = announce
        self._is_stalled = is_stalled
        self._governor = governor or Governor()
        self._view: View | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._painter = threading.get_ident()
        self._hasty_until_ns = 0
        self._drawing_ns = 0
        self._settled_ns = 0
        """From when on the cost of frames says something about those to come."""
        self._n_frames = 0
        self._has_work = False
        """Time stands still, and another frame of this moment will tell more: what is known of it comes in parts."""
        self._first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._snapshot: Snapshot | None = None
        self.texts: Final = Texts()
        self.is_paused = False
        """Frames are wanted for news only. Set by the screen, which wakes the feed when it unsets it."""
        self.fault: BaseException | None = None
        """What ended the thread that should not have. `None`: nothing."""

    def predict(self, changes: Mapping[str, Setting]) -> Prediction | None:
        """What settings with these new values would do: for the source, whose calls come from this thread."""
        view = self._view
        return None if view is None else view.predict(changes, self._source.now_ns())

    # For the screen's thread

    def wake(self) -> None:
        """Look at the source now rather than in a while, and make frames quickly for a moment."""
        self._hasty_until_ns = time.monotonic_ns() + ANSWER_NS
        self._wake.set()

    def take_frame(self) -> Frame | None:
        """The frame that waits. `None`: it has been taken."""
        with self._lock:
            frame, self._frame = self._frame, None
            return frame

    def stop(self) -> None:
        """Have the thread close the source and end. Join it to know when it has."""
        self._stopping.set()
        self._wake.set()

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The newest steps, oldest first, for whoever looks at them one by one."""
        view = self._view
        return () if view is None else tuple(view.steps)

    @property
    def tally(self) -> Tally:
        """What the session has come to, once the thread has ended."""
        first, last, snapshot = self._first, self._last, self._snapshot
        if snapshot is None:
            return Tally()
        return Tally(
            n_steps=snapshot.n_steps,
            n_tokens=snapshot.n_tokens,
            n_requests=snapshot.n_requests,
            began_ns=None if first is None else first.start_ns,
            ended_ns=None if last is None else last.end_ns,
            score=None if snapshot.score is None else snapshot.score.told,
        )

    # The thread

    def run(self) -> None:
        """Feed the screen until it stops, then close the source."""
        try:
            try:
                self._source.open()
                self._follow()
            finally:
                self._source.close()
            self._take()
            self._snapshot = None if self._view is None else self._view.snapshot(self._source.now_ns())
        except BaseException as error:  # noqa: BLE001 - the screen's thread raises it, once the terminal is restored.
            self.fault = error
            self._announce()

    def _follow(self) -> None:
        shown_ns = 0
        is_asked = True
        heap = Heap()
        while not self._stopping.is_set():
            # Asked before: what ends it is worth a last frame.
            is_moving = self._source.is_moving or self._source.patience_s is not None
            self._take()
            is_wanted = self._source.has_news if self.is_paused else is_asked or is_moving or self._has_work
            if is_wanted and not self._is_stalled():
                self._post()
                shown_ns = time.monotonic_ns()
            heap.tend()
            self._wake.wait(self._patience_s())
            is_asked = self._wake.is_set()
            self._wake.clear()
            too_early_s = LEAST_S - (time.monotonic_ns() - shown_ns) / 1e9
            if too_early_s > 0:
                self._stopping.wait(too_early_s)

    def _patience_s(self) -> float:
        """How long to wait for the next look, unless the screen wakes the thread."""
        patience_s = self._source.patience_s
        if patience_s is not None:
            return patience_s
        if self._has_work and not self.is_paused:
            return LEAST_S
        if not self._source.is_moving:
            return RESTING_S
        if time.monotonic_ns() < self._hasty_until_ns:
            return HASTY_S  # Also while paused: what was asked may be refused, which is news.
        if self.is_paused:
            return PAUSED_S
        return self._governor.interval_s

    def _take(self) -> None:
        """Take what the source has."""
        view = self._view
        for item in self._source.take():
            if isinstance(item, wire.Text):
                for request, gained in item.gained:
                    self.texts.add(request, gained)
                continue
            if isinstance(item, wire.Message):
                continue
            if view is None:
                view = self._view = self._make_view()
            if type(item) is StepRecord:
                self._last = item
                if self._first is None:
                    self._first = item
            elif type(item) is Header:
                self._first = self._last = None
                self.texts.clear()
            view.write(item)

    def _post(self) -> None:
        began_ns = time.thread_time_ns()
        if self._view is None:
            self._view = self._make_view()
        at_ns = self._source.now_ns()
        status = self._source.status()
        snapshot = Snapshot() if status.is_between else self._view.snapshot(at_ns)
        is_standing = not self._source.is_moving and self._source.patience_s is None
        self._has_work = is_standing and self._view.rest(at_ns, is_over=status.is_over)
        frame = Frame(snapshot=snapshot, status=status, own_share=None if is_standing else self._governor.share)
        with self._lock:
            was_taken = self._frame is None
            self._frame = frame
        self._n_frames += 1
        if was_taken:
            self._announce()
        self._drawing_ns += time.thread_time_ns() - began_ns
        now_ns = time.monotonic_ns()
        if not self._source.is_moving or self._source.patience_s is not None:
            self._settled_ns = now_ns + SETTLING_NS
        if now_ns >= self._settled_ns:
            self._observe(now_ns)

    def _observe(self, now_ns: int) -> None:
        """Have the governor see what this process has used by now."""
        self._governor.observe(
            Usage(
                wall=now_ns,
                cpu=time.process_time_ns(),
                drawing=self._drawing_ns + self._painting_ns(),
                n_frames=self._n_frames,
            )
        )

    def _painting_ns(self) -> int:
        """CPU time of the thread that paints: between frames it does next to nothing."""
        if not hasattr(time, "pthread_getcpuclockid"):
            return 0
        return time.clock_gettime_ns(time.pthread_getcpuclockid(self._painter))
