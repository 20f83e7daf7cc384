"""A moment of a recording says the same however one came there, and however fast the machine is that plays it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.explainer import Explainer, unhurried
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.played import Played
from stackscope.records import StepRecord
from stackscope.session.reader import SessionReader
from stackscope.tui.player import Player
from tests.explained_story import SECOND, STORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stackscope.analysis.live.snapshot import Snapshot

FAST, SLOW, SLOWEST = 0, 60_000_000, 200_000_000
"""What a look at the clock takes: a player looks after every 256 records, and hands out what it has by then."""


class Screen:
    """What the feed does, on a clock of which every look takes some time."""

    def __init__(self, path: Path, *, cost_ns: int) -> None:
        self._now_ns, self._cost_ns = 0, cost_ns
        self.player = Player(path, clock=self._clock)
        self.view = LiveView(explainer=Played(part_ns=1))
        self.look()

    def _clock(self) -> int:
        self._now_ns += self._cost_ns
        return self._now_ns

    def look(self) -> Snapshot:
        while True:
            for record in self.player.take():
                self.view.write(record)
            snapshot = self.view.snapshot(self.player.now_ns())
            if self.player.patience_s is None:
                return snapshot

    def seek(self, at_s: float) -> None:
        self.player.pause()
        self.player.seek(round(at_s * SECOND))
        self.look()

    def play(self, until_s: float) -> None:
        self.player.play()
        while self.player.now_ns() < round(until_s * SECOND):
            self._now_ns += SECOND // 4
            self.look()
        self.player.pause()

    def step(self, n: int) -> None:
        self.player.step(n)
        self.look()

    def shown(self) -> Snapshot:
        """Once time stands still and all is told."""
        snapshot = self.look()
        while self.view.rest(self.player.now_ns(), is_over=self.player.status().is_over):
            snapshot = self.look()
        return snapshot


def seek(screen: Screen, at_s: float) -> None:
    screen.seek(at_s)


def play_from_near(screen: Screen, at_s: float) -> None:
    screen.seek(at_s - 9.0)
    screen.play(at_s - 2.0)
    screen.seek(at_s)


def come_back(screen: Screen, at_s: float) -> None:
    screen.seek(at_s + 12.0)
    screen.seek(at_s)


def come_in_leaps(screen: Screen, at_s: float) -> None:
    for part in (0.2, 0.4, 0.6, 0.8, 1.0):
        screen.seek(at_s * part)


def step_on_and_back(screen: Screen, at_s: float) -> None:
    screen.seek(at_s)
    screen.step(3)
    screen.step(-3)
    screen.seek(at_s)


WAYS: Final[tuple[tuple[Callable[[Screen, float], None], int], ...]] = (
    (seek, FAST), (seek, SLOW), (seek, SLOWEST), (play_from_near, FAST), (come_back, SLOW), (come_in_leaps, SLOWEST),
    (step_on_and_back, SLOW),
)  # fmt: skip


def told(snapshot: Snapshot) -> tuple[object, ...]:
    assert snapshot.explanation is not None
    return snapshot.verdict, snapshot.explanation, snapshot.events


@pytest.mark.parametrize("at_s", [32.0, 41.5, 64.0])
def test_a_moment_says_the_same_however_one_came_there(at_s: float) -> None:
    found = []
    for way, cost_ns in WAYS:
        screen = Screen(STORY, cost_ns=cost_ns)
        way(screen, at_s)
        found.append(told(screen.shown()))
    assert all(one == found[0] for one in found[1:])


def test_what_is_predicted_is_of_the_moment_at_which_time_stands_still() -> None:
    screen = Screen(STORY, cost_ns=0)
    screen.seek(22.0)
    for _ in range(3):
        known = screen.shown().explanation
        assert known is not None
        assert known.ranking is not None
        assert known.ranked_at_ns == screen.player.position_ns
        screen.step(1)


def test_on_the_way_to_another_moment_nothing_is_predicted() -> None:
    screen = Screen(STORY, cost_ns=0)
    screen.seek(18.0)
    known = screen.shown().explanation
    assert known is not None
    assert known.ranking is not None
    screen.player.seek(27 * SECOND)
    known = screen.look().explanation
    assert known is not None
    assert (known.ranking, known.drafts) == (None, ())
    assert known.why_no_ranking == "Predictions are being made."


def test_the_end_says_what_the_summary_says() -> None:
    explainer, last_ns = Explainer(cpu_ns=unhurried), 0
    for record in SessionReader(STORY):
        explainer.write(record)
        last_ns = record.end_ns if isinstance(record, StepRecord) else last_ns
    final = explainer.final(last_ns)
    screen = Screen(STORY, cost_ns=SLOW)
    screen.seek(screen.player.end_ns / SECOND)
    known = screen.shown().explanation
    assert known is not None
    assert (known.naming, known.stood) == (final.naming, final.stood)
    assert known.ranking is not None
    assert final.ranking is not None
    assert [one.gain for one in known.ranking.singles] == [one.gain for one in final.ranking.singles]
    assert known.ranking.break_evens == final.ranking.break_evens
