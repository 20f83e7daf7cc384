"""A source that gives what the test puts into it, and a view that counts: what a feed needs, without engine or file."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from stackscope.analysis.live.snapshot import Snapshot
from stackscope.records import Header, Prediction, StepRecord
from stackscope.tui.source import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stackscope.engine.process import Item
    from stackscope.records import AnyRecord
    from stackscope.toggles import Setting


class FakeSource:
    """Live until told otherwise. Put items in at any time."""

    def __init__(self, *items: Item) -> None:
        self.items: deque[Item] = deque(items)
        self.state = Status()
        self.is_moving = True
        self.patience_s: float | None = None
        self.has_news = False
        self.opened = threading.Event()
        self.taken = threading.Semaphore(0)
        """Released with every look at the source."""
        self.is_closed = False
        self.last: tuple[Item, ...] = ()
        """Items that come only once it is closed."""
        self.error: BaseException | None = None
        """Raised by the next look."""
        self.ending: Status | None = None
        """When set, the next look finds that nothing moves any more, and this status."""

    def open(self) -> None:
        self.opened.set()

    def take(self) -> Iterator[Item]:
        if self.error is not None:
            raise self.error
        if self.ending is not None:
            self.is_moving, self.state = False, self.ending
        while self.items:
            yield self.items.popleft()
        self.taken.release()

    def status(self) -> Status:
        return self.state

    def now_ns(self) -> int:
        return 7

    def close(self) -> None:
        self.is_closed = True
        self.items.extend(self.last)


class CountingView:
    """Snapshots say how many steps there were since the last header."""

    def __init__(self) -> None:
        self.steps: deque[StepRecord] = deque(maxlen=2_000)
        self.written: list[AnyRecord] = []
        self.n_snapshots = 0
        self.n_parts = 0
        """Snapshots of a moment at which time stands still that tell more each."""

    def write(self, record: AnyRecord) -> None:
        self.written.append(record)
        if isinstance(record, Header):
            self.steps.clear()
        elif isinstance(record, StepRecord):
            self.steps.append(record)

    def predict(self, changes: Mapping[str, Setting], at_ns: int) -> Prediction | None:
        made: dict[str, tuple[Setting, Setting]] = {name: (None, value) for name, value in changes.items()}
        return Prediction(at_ns=at_ns, changes=made)

    def rest(self, now_ns: int, *, is_over: bool = False) -> bool:  # noqa: ARG002 - as in `View`
        self.n_parts = max(self.n_parts - 1, 0)
        return self.n_parts > 0

    def snapshot(self, now_ns: int) -> Snapshot:
        self.n_snapshots += 1
        return Snapshot(at_ns=now_ns, n_steps=len(self.steps), n_tokens=sum(step.emitted for step in self.steps))
