"""A recording in which time stands still: what is known of that moment is told all the same."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.explainer import Explainer
from stackscope.analysis.live.view import LiveView
from stackscope.pipeline import time_ns
from stackscope.session.reader import SessionReader
from stackscope.session.writer import SessionWriter
from stackscope.toggles import EngineConfig
from stackscope.tui.feed import Feed, Frame
from stackscope.tui.player import Player
from tests.unit.record_builders import SyntheticEngine, make_footer, make_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE_S: Final = 60.0
SECOND: Final = 1_000_000_000


class Played:
    """A feed of a recording, with what draws it: predictions come in parts of a millisecond."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.player = Player(path)
        self._announced = threading.Semaphore(0)
        self.feed = Feed(
            self.player,
            make_view=lambda: LiveView(explainer=Explainer(part_ns=1_000_000)),
            announce=self._announced.release,
        )
        self.player.wake = self.feed.wake
        self.player.pause()
        self.feed.start()

    def await_frame(self, is_wanted: Callable[[Frame], bool]) -> Frame:
        """The first frame that is as wanted."""
        until_s = time.monotonic() + DEADLINE_S
        while self._announced.acquire(timeout=max(until_s - time.monotonic(), 0.0)):
            frame = self.feed.take_frame()
            if frame is not None and is_wanted(frame):
                return frame
        pytest.fail("No such frame came.")


def recording(path: Path, *, has_footer: bool) -> Path:
    header = make_header(config=EngineConfig(model="/models/synthetic-F16.gguf", threads=2))
    last_ns = 0
    with SessionWriter(path, header) as writer:
        for record in SyntheticEngine(seed=1, slots=2, decode_ns=40_000_000).records(600):
            writer.write(record)
            last_ns = max(last_ns, time_ns(record) or 0)
        if has_footer:
            writer.write(make_footer(at_ns=last_ns))
    return path


@pytest.fixture(params=[True, False], ids=["whole", "cut off"])
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Played]:
    found = Played(recording(tmp_path / "a.jsonl.zst", has_footer=request.param))
    yield found
    found.feed.stop()
    found.feed.join(DEADLINE_S)


def is_ranked(frame: Frame) -> bool:
    known = frame.snapshot.explanation
    return known is not None and known.ranking is not None and frame.status.loading is None


def test_after_a_seek_while_paused_the_ranking_comes(played: Played) -> None:
    goal_ns = 10 * SECOND
    played.await_frame(lambda frame: frame.snapshot.header is not None)
    played.player.seek(goal_ns)
    known = played.await_frame(lambda frame: frame.snapshot.at_ns == goal_ns and is_ranked(frame)).snapshot.explanation
    assert known is not None
    assert known.naming.at_ns == goal_ns
    # A step on is another moment, of which what limits is told anew.
    played.player.step()
    frame = played.await_frame(lambda frame: frame.snapshot.at_ns > goal_ns and _is_of_now(frame))
    assert frame.snapshot.at_ns < goal_ns + SECOND


def test_at_the_end_all_is_told_that_is_known(played: Played) -> None:
    played.await_frame(lambda frame: frame.snapshot.header is not None)
    played.player.seek(played.player.end_ns)
    frame = played.await_frame(lambda frame: frame.status.is_over and is_ranked(frame) and _is_of_now(frame))
    end_ns = frame.snapshot.at_ns
    frame = played.await_frame(lambda frame: _ranked_ns(frame) == end_ns) if _ranked_ns(frame) != end_ns else frame
    explainer = Explainer()
    for record in SessionReader(played.path):
        explainer.write(record)
    final, known = explainer.final(end_ns), frame.snapshot.explanation
    assert known is not None
    assert known.ranking is not None
    assert final.ranking is not None
    assert [one.label for one in known.ranking.singles] == [one.label for one in final.ranking.singles]
    assert known.naming.name == final.naming.name
    time.sleep(0.5)
    played.feed.take_frame()
    time.sleep(0.5)
    assert played.feed.take_frame() is None


def _is_of_now(frame: Frame) -> bool:
    known = frame.snapshot.explanation
    return known is not None and known.naming.at_ns == frame.snapshot.at_ns


def _ranked_ns(frame: Frame) -> int | None:
    known = frame.snapshot.explanation
    return None if known is None else known.ranked_at_ns
