"""Playing a recording: by the time that passes, by single steps, back and forth, and to an end that came early."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import SessionFileError
from stackscope.pipeline import time_ns
from stackscope.records import Footer, Header, Mark, StepRecord
from stackscope.session import reader
from stackscope.session.format import LineDecoder, encode, encode_all
from stackscope.session.writer import SessionWriter
from stackscope.tui.player import PATIENCE_NS, Player
from tests.unit.record_builders import ORIGIN_NS, make_footer, make_header, make_step

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.records import AnyRecord

MS = 1_000_000
N_STEPS = 1_000
"""Of a millisecond each."""


class Clock:
    """A clock that the test moves; every look at it may take time of its own."""

    def __init__(self) -> None:
        self.now_ns = 50 * MS
        self.cost_ns = 0

    def __call__(self) -> int:
        self.now_ns += self.cost_ns
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A second of steps, with a mark in the middle and a footer."""
    return written(tmp_path / "a.jsonl.zst", has_footer=True)


def written(path: Path, *, has_footer: bool) -> Path:
    with SessionWriter(path, make_header()) as writer:
        for n in range(N_STEPS):
            writer.write(make_step(n))
            if n == 499:
                writer.write(Mark(at_ns=make_step(n).end_ns, label="half-way"))
        if has_footer:
            writer.write(make_footer(at_ns=make_step(N_STEPS - 1).end_ns))
    return path


def opened(path: Path, clock: Clock) -> Player:
    """A player at the beginning, which it has reached."""
    player = Player(path, clock=clock)
    player.open()
    assert steps_in(list(player.take())) == []
    return player


def after(player: Player, clock: Clock, ms: float) -> list[AnyRecord]:
    """What is played in so many milliseconds of the clock."""
    clock.now_ns += round(ms * MS)
    return list(player.take())


def steps_in(records: list[AnyRecord]) -> list[int]:
    return [record.n for record in records if isinstance(record, StepRecord)]


def test_it_plays_in_the_time_in_which_it_happened(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    assert player.position_ns == ORIGIN_NS
    assert steps_in(after(player, clock, 10)) == list(range(10))
    assert steps_in(after(player, clock, 5.5)) == list(range(10, 15))
    assert player.position_ns == ORIGIN_NS + round(15.5 * MS)


@pytest.mark.parametrize(("speed", "n"), [(0.25, 25), (1.0, 100), (4.0, 400)])
def test_speed_is_a_factor_of_time(path: Path, clock: Clock, speed: float, n: int) -> None:
    player = opened(path, clock)
    player.set_speed(speed)
    assert len(steps_in(after(player, clock, 100))) == n


@pytest.mark.parametrize(("wanted", "given"), [(0.01, 0.25), (1_000.0, 64.0)])
def test_speed_has_bounds(path: Path, clock: Clock, wanted: float, given: float) -> None:
    player = opened(path, clock)
    player.set_speed(wanted)
    assert player.speed == given


def test_while_it_is_paused_time_does_not_pass(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    after(player, clock, 10)
    player.pause()
    assert after(player, clock, 1_000) == []
    assert not player.is_moving
    player.play()
    assert after(player, clock, 0) == []
    assert steps_in(after(player, clock, 3)) == [10, 11, 12]


def test_single_steps_on_and_back(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    after(player, clock, 10)
    player.step()
    assert steps_in(after(player, clock, 500)) == [10]
    assert not player.is_playing
    player.step(3)
    assert steps_in(after(player, clock, 500)) == [11, 12, 13]
    player.step(-1)
    again = after(player, clock, 500)
    assert isinstance(again[0], Header)
    assert steps_in(again) == list(range(13))
    assert player.position_ns == make_step(12).end_ns
    player.step(-100)
    assert steps_in(after(player, clock, 0)) == []


def test_presses_in_quick_succession_add_up(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    for _ in range(5):
        player.step()
    assert steps_in(after(player, clock, 0)) == [0, 1, 2, 3, 4]


def test_seeking_on_plays_what_is_between_and_back_begins_anew(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    player.seek(ORIGIN_NS + 300 * MS)
    assert steps_in(after(player, clock, 0)) == list(range(300))
    player.seek(ORIGIN_NS + 20 * MS)
    again = after(player, clock, 0)
    assert isinstance(again[0], Header)
    assert steps_in(again) == list(range(20))
    assert player.position_ns == ORIGIN_NS + 20 * MS
    assert player.is_playing


@pytest.mark.parametrize(("at_ms", "n"), [(-10_000_000, 0), (10_000_000, N_STEPS)])
def test_beyond_the_ends_it_goes_to_the_end(path: Path, clock: Clock, at_ms: int, n: int) -> None:
    player = opened(path, clock)
    player.seek(ORIGIN_NS + at_ms * MS)
    assert len(steps_in(after(player, clock, 0))) == n


def test_at_the_end_it_stands_and_can_be_played_again(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    last = after(player, clock, 5_000)
    assert isinstance(last[-1], Footer)
    status = player.status()
    assert status.is_over
    assert status.playing is not None
    assert (status.playing.is_at_end, status.playing.is_playing, status.playing.truncated) == (True, False, None)
    assert status.playing.name == "a"
    assert player.position_ns == player.end_ns
    assert after(player, clock, 1_000) == []
    player.play()
    again = after(player, clock, 1_000)
    assert isinstance(again[0], Header)
    assert player.position_ns == ORIGIN_NS
    assert steps_in(after(player, clock, 2)) == [0, 1]


def test_all_records_are_played_once_and_in_order(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    played = [record for _ in range(40) for record in after(player, clock, 37)]
    assert steps_in(played) == list(range(N_STEPS))
    assert [record.label for record in played if isinstance(record, Mark)] == ["half-way"]
    times = [time_ns(record) or 0 for record in played]
    assert times == sorted(times)


def test_what_takes_long_is_done_in_parts_that_show(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    clock.cost_ns = 2 * PATIENCE_NS
    player.seek(player.end_ns)
    first = after(player, clock, 0)
    assert 0 < len(steps_in(first)) < N_STEPS
    assert player.patience_s == 0.0
    loading = player.status().loading
    assert loading is not None
    assert loading.fraction is not None
    assert 0 < loading.fraction < 1
    rest: list[AnyRecord] = []
    while player.patience_s is not None:
        rest += player.take()
    assert steps_in([*first, *rest]) == list(range(N_STEPS))
    assert player.status().loading is None


def test_opening_decodes_a_beginning_and_an_end_however_long_the_recording_is(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies between is decoded when it is played."""
    n_bytes = 0

    class Counting(LineDecoder):
        def feed(self, chunk: bytes) -> list[AnyRecord]:
            nonlocal n_bytes
            n_bytes += len(chunk)
            return super().feed(chunk)

    monkeypatch.setattr(reader, "LineDecoder", Counting)
    path = tmp_path / "long.jsonl"
    path.write_bytes(encode_all([make_header(), *(make_step(n) for n in range(20_000))]))
    assert path.stat().st_size > 4_000_000
    player = opened(path, clock)
    assert player.end_ns == make_step(19_999).end_ns
    assert 0 < n_bytes < 1_000_000


def test_before_anybody_has_looked_it_says_what_it_reads(path: Path, clock: Clock) -> None:
    loading = Player(path, clock=clock).status().loading
    assert loading is not None
    assert loading.what == "reading a.jsonl.zst"


def test_a_recording_that_was_cut_off_plays_to_its_last_whole_line_and_says_so(tmp_path: Path, clock: Clock) -> None:
    path = written(tmp_path / "cut.jsonl.zst", has_footer=False)
    path.write_bytes(path.read_bytes()[:-40])
    player = opened(path, clock)
    played = steps_in(after(player, clock, 60_000))
    assert played == list(range(len(played)))
    assert 0 < len(played) <= N_STEPS
    playing = player.status().playing
    assert playing is not None
    assert playing.is_at_end
    assert playing.truncated is not None


def test_a_recording_without_a_step_is_at_its_end(tmp_path: Path, clock: Clock) -> None:
    with SessionWriter(tmp_path / "none.jsonl.zst", make_header()):
        pass
    player = Player(tmp_path / "none.jsonl.zst", clock=clock)
    assert [type(record) for record in player.take()] == [Header]
    after(player, clock, 1)
    playing = player.status().playing
    assert playing is not None
    assert (playing.is_at_end, playing.end_ns) == (True, 0)
    player.play()
    player.step(-1)
    player.seek(10)
    assert steps_in(after(player, clock, 10)) == []


def test_what_is_no_recording_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(SessionFileError, match="is not a Stackscope session"):
        Player(tmp_path / "x")


def test_nothing_in_it_can_be_changed(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    refusals = [
        player.reconfigure({"slots": 2}), player.set_concurrency(1), player.set_rate(1.0), player.mark("x"),
        player.cancel(1), player.record(is_wanted=True), player.show_text(is_wanted=True), player.restart(),
    ]  # fmt: skip
    assert all(refusal is not None and refusal.endswith(".") for refusal in refusals)
    assert not player.is_live
    assert player.recording is None


def test_every_wish_wakes_the_feed(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    woken: list[str] = []
    player.wake = lambda: woken.append("!")
    player.play()
    player.pause()
    player.step()
    player.seek(0)
    player.set_speed(2.0)
    assert len(woken) == 5


def add_steps(path: Path, first: int, last: int) -> None:
    """Let a recording of plain lines go on."""
    with path.open("ab") as file:
        file.write(encode_all(make_step(n) for n in range(first, last + 1)))


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A recording that somebody still writes."""
    path = tmp_path / "growing.jsonl"
    path.write_bytes(encode(make_header()))
    add_steps(path, 0, 99)
    return path


def test_what_came_while_it_was_played_is_played_too(growing: Path, clock: Clock) -> None:
    player = opened(growing, clock)
    after(player, clock, 1000)
    assert player.status().is_over
    add_steps(growing, 100, 199)
    player.play()
    again = after(player, clock, 0)
    assert isinstance(again[0], Header)
    assert (player.position_ns, player.end_ns) == (make_step(99).end_ns, make_step(199).end_ns)
    assert steps_in(after(player, clock, 1000)) == list(range(100, 200))
    assert player.status().is_over
    player.play()  # Nothing more has come: from the beginning.
    assert after(player, clock, 0) != []
    assert steps_in(after(player, clock, 50))[0] == 0


def test_what_was_written_after_the_first_look_is_not_beyond_the_end(growing: Path, clock: Clock) -> None:
    player = opened(growing, clock)
    add_steps(growing, 100, 2000)
    after(player, clock, 4000)
    playing = player.status().playing
    assert playing is not None
    assert playing.position_ns == playing.end_ns
    assert playing.end_ns > make_step(99).end_ns


def test_a_file_that_was_deleted_can_be_played_on_but_not_back(path: Path, clock: Clock) -> None:
    player = opened(path, clock)
    after(player, clock, 100)
    path.unlink()
    player.seek(ORIGIN_NS)
    after(player, clock, 0)
    assert [notice for notice in player.status().notices if "does not exist" in notice]
    assert player.status().notices == ()
    assert steps_in(after(player, clock, 10_000))[-1] == N_STEPS - 1


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(SessionFileError, match="it is a pipe or a device, not a file"):
        Player(path)
