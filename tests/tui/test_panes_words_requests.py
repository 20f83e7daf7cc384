"""What the panes of requests and of their text say."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.analysis.live.snapshot import (
    Event,
    Window,
)
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES
from tests.tui.pane_words import shown, words
from tests.tui.sessions import (
    calibrated,
    make_config,
    make_requests,
    running,
)


def test_requests_that_do_not_fit_are_counted_and_the_selected_one_is_among_those_shown() -> None:
    for selected in (611, 612, 614, 613, 610):
        text = shown("requests", running(), 58, 4, selected=selected)
        assert f"▸     {selected}" in text
        assert "3 more" in text
    assert "more" not in shown("requests", running(), 58, 6)


def test_a_prompt_of_unknown_length_is_not_given_one() -> None:
    assert "448/-" in words("requests", running(), 98)
    halfway = msgspec.structs.replace(make_requests()[2], prompt_tokens=900)
    assert "448/900" in words("requests", msgspec.structs.replace(running(), requests=(halfway,)), 98)
    long = msgspec.structs.replace(halfway, prompt_tokens=32_768, prefilled=8_192)
    assert "prefill 25 %" in words("requests", msgspec.structs.replace(running(), requests=(long,)), 98)


def test_the_table_has_what_matters_in_half_a_screen() -> None:
    header = words("requests", running(), 58, 9, selected=611).split(" done ")[1]
    assert header.startswith("request phase prompt hits out accepted")


def test_the_end_of_a_text_is_shown() -> None:
    text = "one two three four five six seven\n\neight nine ten"
    lines = shown("text", running(), 20, 4, selected=611, text=text).split("\n")
    assert [line.rstrip() for line in lines] == ["", "one two three four", "five six seven", "", "eight nine ten▌"]
    assert "request 611, 97 tok" in shown("text", running(), 60, 4, selected=611, text=text)
    finished = shown("text", running(), 60, 4, selected=610, text=text)
    assert "▌" not in finished


def test_text_cannot_move_the_cursor_or_hide() -> None:
    text = "a\x1b[2Jb\rc\td\u202ee\u200bf 漢字"
    body = shown("text", running(), 60, 6, selected=611, text=text)
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert "漢字" in body


def test_long_words_and_wide_characters_are_broken_to_the_width() -> None:
    for text in ("x" * 500, "漢" * 300, "字 " * 300, "e\u0301" * 200):
        for width in (1, 2, 7, 20, 61):
            content = PANES["text"].content(Context(snapshot=running(), size=Size(width, 5), selected=611, text=text))
            assert len(content.lines) <= 5


def test_why_there_is_no_text_is_said() -> None:
    assert words("text", running()) == "No request is selected."
    assert "Its text is not known" in words("text", running(), selected=611)
    new = msgspec.structs.replace(running().requests[0], output_tokens=0)
    for state, said in (("running", "It has no text yet."), ("dead", "It has no text.")):
        snapshot = msgspec.structs.replace(running(), state=state, requests=(new,))
        assert said in words("text", snapshot, selected=new.id)


@pytest.mark.parametrize("state", ["dead", "finished"])
def test_no_request_is_in_flight_in_a_session_that_is_over(state: str) -> None:
    told = words("requests", msgspec.structs.replace(running(), state=state))
    assert "cut off" in told
    assert not any(word in told for word in ("in flight", "decode", "waiting"))


def test_names_from_outside_are_made_harmless() -> None:
    mark = Event(at_ns=0, kind="mark", label="evil\x1b]0;title\x07\nname")
    assert "evil]0;title name" in words("events", msgspec.structs.replace(running(), events=(mark,)))


def test_numbers_without_an_end_are_survived() -> None:
    huge = Window(
        wall_ns=1, steps=1, forwards=1, step_ns=float("inf"), tokens_per_s=float("nan"),
        tokens_per_forward=float("nan"),
        bytes_per_s=1e300, forward_bytes_per_s=float("inf"), flops_per_s=1e300, acceptance=float("nan"),
        by_position=(float("nan"), 2.0), wasted_rows=float("inf"), lookup_tokens=10**18, useful_hit_tokens=10**17,
        useful_hit_rate=float("nan"), cpu_share=float("inf"), useful_row_share=-1.0,
    )  # fmt: skip
    broken = msgspec.structs.replace(calibrated(), now=huge, minute=huge, config=make_config())
    for pane in PANES:
        for width in (20, 38, 58, 118):
            for height in (1, 3, 8):
                text = shown(pane, broken, width, height)
                assert "nan" not in text.lower().split()
                assert "inf" not in text.lower().split()
