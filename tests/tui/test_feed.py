"""The feed: the newest frame and never a queue of them, no work for nobody, and an end in order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.live.snapshot import Snapshot
from stackscope.engine import wire
from stackscope.tui.feed import Feed
from stackscope.tui.governor import Governor, Usage
from stackscope.tui.source import Status
from tests.tui.feeds import CountingView, FakeSource
from tests.unit.record_builders import make_header, make_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_S: Final = 20.0
"""Nothing takes nearly as long, unless it hangs."""


class Fed:
    """A feed with everything around it."""

    def __init__(self, *, is_stalled: Callable[[], bool] = lambda: False) -> None:
        self.source = FakeSource(make_header())
        self.view = CountingView()
        self.announced = threading.Semaphore(0)
        self.feed = Feed(
            self.source,
            make_view=lambda: self.view,
            announce=self.announced.release,
            is_stalled=is_stalled,
            governor=Governor(least_s=0.01),
        )

    def start(self) -> None:
        self.feed.start()
        assert self.source.opened.wait(DEADLINE_S)

    def await_frame(self) -> None:
        """Wait until the feed says that a frame is ready."""
        assert self.announced.acquire(timeout=DEADLINE_S)

    def await_looks(self, n: int) -> None:
        """Wait until the feed has looked at the source so many times."""
        for _ in range(n):
            self.feed.wake()
            assert self.source.taken.acquire(timeout=DEADLINE_S)

    def stop(self) -> None:
        self.feed.stop()
        self.feed.join(DEADLINE_S)
        assert not self.feed.is_alive()


@pytest.fixture
def fed() -> Iterator[Fed]:
    found = Fed()
    yield found
    if found.feed.ident is not None:
        found.stop()


def test_a_frame_shows_what_has_come(fed: Fed) -> None:
    fed.source.items += [make_step(0), make_step(1)]
    fed.start()
    fed.await_frame()
    frame = fed.feed.take_frame()
    assert frame is not None
    assert (frame.snapshot.n_steps, frame.snapshot.at_ns) == (2, 7)
    assert [step.n for step in fed.feed.steps] == [0, 1]


def test_a_frame_that_nobody_takes_is_replaced_and_announced_once(fed: Fed) -> None:
    fed.start()
    fed.await_frame()
    while fed.view.n_snapshots < 5:
        fed.await_looks(1)
    fed.source.items += [make_step(n) for n in range(3)]
    n_before = fed.view.n_snapshots
    while fed.view.n_snapshots < n_before + 2:
        fed.await_looks(1)
    assert not fed.announced.acquire(blocking=False)
    frame = fed.feed.take_frame()
    assert frame is not None
    assert frame.snapshot.n_steps == 3
    fed.await_frame()


def test_while_paused_records_are_taken_and_no_frame_is_made(fed: Fed) -> None:
    fed.start()
    fed.await_frame()
    fed.feed.is_paused = True
    fed.await_looks(3)
    fed.feed.take_frame()
    while fed.announced.acquire(blocking=False):
        fed.feed.take_frame()
    fed.source.items.append(make_step(0))
    n_before = fed.view.n_snapshots
    fed.source.taken = threading.Semaphore(0)
    assert fed.source.taken.acquire(timeout=DEADLINE_S)
    assert fed.source.taken.acquire(timeout=DEADLINE_S)
    assert fed.view.written[-1] == make_step(0)
    assert fed.view.n_snapshots == n_before
    fed.source.has_news = True
    fed.await_frame()
    assert fed.feed.take_frame() is not None
    fed.source.has_news = False
    fed.await_looks(2)
    fed.feed.is_paused = False
    fed.feed.wake()
    fed.await_frame()


def test_a_terminal_that_stands_still_stops_the_frames_and_not_the_records() -> None:
    """Case 62."""
    stalled = threading.Event()
    fed = Fed(is_stalled=stalled.is_set)
    stalled.set()
    fed.start()
    fed.source.items += [make_step(n) for n in range(5)]
    fed.await_looks(4)
    assert len(fed.view.steps) == 5
    assert fed.view.n_snapshots == 0
    stalled.clear()
    fed.feed.wake()
    fed.await_frame()
    fed.stop()


def test_what_does_not_move_is_drawn_when_asked_only(fed: Fed) -> None:
    """Case 65."""
    fed.source.is_moving = False
    fed.start()
    fed.await_frame()
    assert fed.feed.take_frame() is not None
    assert not fed.announced.acquire(timeout=0.5)
    fed.feed.wake()
    fed.await_frame()


def test_what_comes_in_parts_is_drawn_to_its_end_though_nothing_moves(fed: Fed) -> None:
    fed.source.is_moving = False
    fed.view.n_parts = 4
    fed.start()
    for _ in range(4):
        fed.await_frame()
        assert fed.feed.take_frame() is not None
    assert not fed.announced.acquire(timeout=0.5)
    assert fed.view.n_snapshots == 4


def test_the_end_of_what_moved_is_drawn(fed: Fed) -> None:
    fed.start()
    fed.await_frame()
    fed.source.ending = Status(is_over=True)
    while True:
        frame = fed.feed.take_frame()
        if frame is not None and frame.status.is_over:
            break
        fed.await_frame()


def test_text_is_kept_by_request_and_messages_are_no_records(fed: Fed) -> None:
    fed.source.items += [
        wire.Text(gained=((1, "a"), (2, "x"))), wire.Dropped(display=3), wire.Text(gained=((1, "b"),)),
    ]  # fmt: skip
    fed.start()
    fed.await_frame()
    assert (fed.feed.texts.tail(1), fed.feed.texts.tail(2)) == ("ab", "x")
    assert fed.view.written == [make_header()]


def test_another_session_forgets_the_texts_of_the_one_before(fed: Fed) -> None:
    fed.source.items += [wire.Text(gained=((1, "a"),)), make_step(0), make_header(), make_step(0)]
    fed.start()
    fed.await_frame()
    assert fed.feed.texts.tail(1) is None
    fed.stop()
    assert fed.feed.tally.n_steps == 1


def test_in_the_end_the_source_is_closed_and_what_it_still_had_is_counted(fed: Fed) -> None:
    fed.source.items += [make_step(0), make_step(1)]
    fed.source.last = (make_step(2),)
    fed.start()
    fed.await_frame()
    fed.stop()
    tally = fed.feed.tally
    assert fed.source.is_closed
    assert (tally.n_steps, tally.n_tokens) == (3, 3)
    assert (tally.began_ns, tally.ended_ns) == (make_step(0).start_ns, make_step(2).end_ns)


def test_a_fault_is_told_and_the_source_is_closed_all_the_same(fed: Fed) -> None:
    fed.source.error = ZeroDivisionError("a bug")
    fed.start()
    fed.await_frame()
    fed.feed.join(DEADLINE_S)
    assert isinstance(fed.feed.fault, ZeroDivisionError)
    assert fed.source.is_closed


def test_stopping_does_not_wait_for_the_next_frame(fed: Fed) -> None:
    fed.source.is_moving = False
    fed.start()
    fed.await_frame()
    fed.stop()
    assert fed.source.is_closed


def test_what_a_frame_cost_is_not_told_once_time_stands_still(fed: Fed) -> None:
    """No frame would come to tell anything else."""
    fed.feed._governor.observe(Usage(wall=0, cpu=0, drawing=0, n_frames=0))
    fed.feed._governor.observe(Usage(wall=2_000_000_000, cpu=400_000_000, drawing=0, n_frames=9))
    assert fed.feed._governor.share == 0.2
    fed.source.is_moving = False
    fed.start()
    fed.await_frame()
    frame = fed.feed.take_frame()
    assert frame is not None
    assert frame.own_share is None
    fed.source.is_moving = True
    fed.await_looks(1)
    fed.await_frame()
    frame = fed.feed.take_frame()
    assert frame is not None
    assert frame.own_share is not None


def test_between_two_sessions_nothing_is_shown_of_the_one_that_ended(fed: Fed) -> None:
    fed.source.items.append(make_step(0))
    fed.source.state = Status(is_between=True)
    fed.start()
    fed.await_frame()
    frame = fed.feed.take_frame()
    assert frame is not None
    assert frame.snapshot == Snapshot()
