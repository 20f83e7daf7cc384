"""The single lines of the screen: what they leave out where there is no room, and what never."""

from __future__ import annotations

import pytest

from stackscope.tui import bars
from stackscope.tui.bindings import Keymap
from stackscope.tui.lines import plain, width
from stackscope.tui.look import chosen
from stackscope.tui.source import Loading, Playing, Status
from tests.tui import sessions

UNICODE = chosen()
ASCII = chosen(is_ascii=True, n_colours=0)
KEYS = [("m", "mark"), ("r", "record"), ("space", "pause"), ("1", "live"), ("?", "help"), ("q", "quit")]


def playing(**changes: object) -> Playing:
    given = {
        "position_ns": 30_000_000_000, "end_ns": 120_000_000_000, "speed": 2.0, "is_playing": True, "is_at_end": False
    }  # fmt: skip
    return Playing(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [20, 40, 80, 120, 200])
def test_every_line_is_as_wide_as_the_screen(room: int) -> None:
    snapshot = sessions.with_gpu()
    for look in (UNICODE, ASCII):
        lines = [
            bars.header(snapshot, Status(), room, look, is_paused=True),
            bars.pages((("anatomy", "compute"), ("events",)), 0, room, look, keys="pgup pgdn"),
            bars.transport(playing(truncated="It was cut off."), room, look, keys=bars.transport_keys(Keymap())),
            bars.footer(KEYS, room, look, own_share=0.0123),
        ]
        assert [width(line) for line in lines] == [room] * 4
        if look.is_ascii:
            assert all(plain(line).isascii() for line in lines)


def test_help_and_quit_are_the_last_to_go() -> None:
    line = plain(bars.footer(KEYS, 38, UNICODE, own_share=0.011))
    assert line.split() == ["m", "mark", "?", "help", "q", "quit", "own", "1.10", "%"]


def test_a_cost_that_is_not_known_is_not_shown() -> None:
    assert plain(bars.footer(KEYS, 120, UNICODE, own_share=None)).endswith("own - ")


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, " playing 0:30 of 2:00"),
        ({"is_playing": False}, " paused  0:30 of 2:00"),
        ({"is_at_end": True, "is_playing": False, "position_ns": 120_000_000_000}, " end     2:00 of 2:00"),
    ],
)
def test_a_recording_says_where_it_stands(changes: dict[str, object], shown: str) -> None:
    assert plain(bars.transport(playing(**changes), 120, UNICODE, keys=())).startswith(shown)


@pytest.mark.parametrize(("speed", "shown"), [(0.25, "×0.25"), (1.0, "×1 "), (64.0, "×64 ")])
def test_speeds_are_short(speed: float, shown: str) -> None:
    assert shown in plain(bars.transport(playing(speed=speed), 120, UNICODE, keys=()))


def test_the_position_is_a_bar() -> None:
    line = plain(bars.transport(playing(), 120, UNICODE, keys=()))
    assert (line.count("█"), line.count("─")) == (6, 18)


def test_an_empty_recording_is_at_its_end() -> None:
    line = plain(bars.transport(playing(position_ns=0, end_ns=0, is_at_end=True), 80, UNICODE, keys=()))
    assert "─" not in line


@pytest.mark.parametrize(
    ("status", "is_paused", "shown"),
    [
        (Status(), False, "not recording"),
        (Status(), True, "‖ paused  not recording"),
        (Status(is_over=True), False, "finished"),
        (Status(loading=Loading(what="loading a.gguf", fraction=0.999)), False, "loading a.gguf 99 %"),
        (Status(loading=Loading(what="starting the engine", fraction=None)), False, "starting the engine"),
        (Status(playing=playing()), False, "replay"),
        (Status(playing=playing(is_at_end=True), is_over=True), False, "replay end"),
    ],
)
def test_the_header_ends_in_the_state(status: Status, is_paused: bool, shown: str) -> None:
    assert plain(bars.header(sessions.running(), status, 120, UNICODE, is_paused=is_paused)).endswith(f"{shown} ")


def test_an_open_loop_shows_its_rate() -> None:
    import msgspec

    snapshot = msgspec.structs.replace(sessions.running(), rate=2.5, concurrency=None)
    assert "code 2.50 req/s" in plain(bars.header(snapshot, Status(), 160, UNICODE, is_paused=False))


def test_a_narrow_header_keeps_model_and_load() -> None:
    for room, parts in ((160, 4), (80, 3), (70, 2)):
        line = plain(bars.header(sessions.running(), Status(), room, UNICODE, is_paused=False))
        assert line.count(" · ") == parts - 1
        assert "synthetic-135m Q8_0" in line
        assert "code ×8  " in line


def test_only_the_page_that_is_shown_is_spelled_out_where_there_is_no_room() -> None:
    pages = (("anatomy", "acceptance", "throughput"), ("prefix", "compute", "bandwidth", "hardware"), ("events",))
    assert plain(bars.pages(pages, 1, 80, UNICODE, keys="pgup pgdn")).split(maxsplit=1)[0] == "steps"
    assert "cache compute bytes machine" in plain(bars.pages(pages, 1, 80, UNICODE, keys="pgup pgdn"))
    assert "drafts" not in plain(bars.pages(pages, 1, 70, UNICODE, keys="pgup pgdn"))


def test_a_recording_that_is_played_is_named() -> None:
    """Before the device and the library have room, and cut where model and load leave it too little."""
    name = "2026-11-30-201503-code-synthetic-135m"
    for is_at_end, shown in ((False, "replay"), (True, "replay end")):
        status = Status(playing=playing(name=name, is_at_end=is_at_end))
        for room in (200, 120, 100):
            line = plain(bars.header(sessions.running(), status, room, UNICODE, is_paused=False))
            assert line.endswith(f"  {shown} {name} ")
            assert "code ×8" in line
    narrow = plain(bars.header(sessions.running(), Status(playing=playing(name=name)), 80, UNICODE, is_paused=False))
    assert "synthetic-135m Q8_0 · code ×8  replay 2026-11-30-201503-code" in narrow
    assert narrow.rstrip().endswith("…")
    least = plain(bars.header(sessions.running(), Status(playing=playing(name=name)), 60, UNICODE, is_paused=False))
    assert least.split()[-2:] == ["×8", "replay"]
