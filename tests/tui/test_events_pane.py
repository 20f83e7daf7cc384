"""The events in words: how a measurement stands to its prediction, and why something was refused."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from stackscope.analysis.live.snapshot import Effect, Event
from stackscope.tui.lines import plain
from stackscope.tui.look import chosen
from stackscope.tui.pane import Context, Size
from stackscope.tui.panes import PANES
from stackscope.tui.panes.events import latest
from tests.tui.figures import SECOND, ratio
from tests.tui.pane_words import shown, words
from tests.tui.sessions import running


def test_a_measurement_that_the_score_counts_as_held_is_as_predicted() -> None:
    """Its interval may reach into the prediction where its middle does not: the two must not contradict each other."""
    wide = Event(
        at_ns=60 * SECOND, kind="traffic", changes={"concurrency": (1, 8)}, predicted=ratio(2.29, 2.13, 2.44),
        effect=Effect(
            state="measured", tokens=ratio(2.81, 1.51, 5.23), before=30.0, after=85.0, before_s=20.0, after_s=20.0
        ),
    )  # fmt: skip
    assert "+181 % [51, 423] as predicted" in words("events", msgspec.structs.replace(running(), events=(wide,)), 118)
    against = msgspec.structs.replace(wide, predicted=ratio(0.9, 0.2, 4.05))
    assert "within both intervals" in words("events", msgspec.structs.replace(running(), events=(against,)), 118)


def test_why_something_was_refused_is_told_whole_in_a_narrow_terminal() -> None:
    text = words("events", running(), 78, 12)
    assert "refused V cache f16 → q8_0: A quantised V cache needs flash attention, which is off." in text


def test_why_a_change_has_no_number_takes_the_room_that_short_changes_leave() -> None:
    why = "the speed before it varied too much"
    short = Event(
        at_ns=60 * SECOND, kind="live", changes={"prefix_cache": (True, False)}, predicted=ratio(0.14, 0.12, 0.16),
        effect=Effect(state="not comparable", why=why),
    )  # fmt: skip
    assert f"not comparable: {why}" in words("events", msgspec.structs.replace(running(), events=(short,)), 118, 4)


def test_a_prediction_without_a_number_says_why() -> None:
    why = "Only 28 rounds of drafts by the draft model have been scored yet."
    silent = Event(
        at_ns=60 * SECOND, kind="live", changes={"speculation": ("ngram", "draft")}, unpredicted=why,
        effect=Effect(state="settling"),
    )  # fmt: skip
    snapshot = msgspec.structs.replace(running(), events=(silent,))
    assert f"not predicted settling {why}" in words("events", snapshot, 198, 4)
    assert "not predicted settling" in words("events", snapshot, 118, 4)
    assert "not predicted" in words("events", snapshot, 78, 4)


def story(**effect: object) -> Event:
    """A rebuild that takes many words, with what came of it."""
    return Event(
        at_ns=60 * SECOND, kind="rebuild", duration_ns=93_400_000, requeued=12, predicted=ratio(0.99, 0.98, 1.01),
        changes={"speculation": ("ngram", "draft"), "kv_type_k": ("f16", "q8_0"), "kv_type_v": ("f16", "q8_0")},
        effect=Effect(**effect),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_number_that_was_measured_is_whole_whatever_is_cut_of_the_change() -> None:
    events = {
        "not distinguishable -8 % [-38, 36]": story(state="not distinguishable", tokens=ratio(0.92, 0.62, 1.36)),
        "+181 % [51, 423]": story(state="measured", tokens=ratio(2.81, 1.51, 5.23)),
    }
    for told, event in events.items():
        for room in (98, 110, 118, 138, 198):
            assert told in words("events", msgspec.structs.replace(running(), events=(event,)), room, 4), room


def test_what_came_of_the_last_change_is_on_the_line_of_a_small_terminal() -> None:
    shown = {
        "measured +181 %": story(state="measured", tokens=ratio(2.81, 1.51, 5.23)),
        "not distinguishable": story(state="not distinguishable", tokens=ratio(0.92, 0.62, 1.36)),
        "not comparable": story(state="not comparable", why="the prompts that came were twice as long as before it"),
        "settling": story(state="settling", why="12 requests are prefilled again"),
    }
    for told, event in shown.items():
        line = plain(latest(msgspec.structs.replace(running(), events=(event,)), 78, chosen()))
        assert told in line
        assert line.startswith((" 1:00  speculation → draft model", " 1:00  speculation n-gram → draft model"))
        assert len(line) == 78


REASON = "only 1.01 s of the configuration before it could be measured, and that takes at least 2 s"


def test_what_a_rebuild_took_has_the_cells_that_a_reason_does_not_need_first() -> None:
    cache = story(state="not comparable", why=REASON)
    cache = msgspec.structs.replace(cache, changes={"kv_type_k": ("f16", "q8_0"), "kv_type_v": ("f16", "q8_0")})
    text = words("events", msgspec.structs.replace(running(), events=(cache,)), 118, 2)
    assert "KV cache f16 → q8_0 rebuilt in 93.4 ms" in text


def test_a_reason_leaves_the_new_value_and_the_prediction_and_goes_on_below() -> None:
    changes = {"flash_attention": (True, False), "kv_type_k": ("q8_0", "f16"), "kv_type_v": ("q8_0", "f16")}
    event = msgspec.structs.replace(story(state="not comparable", why=REASON), changes=changes)
    snapshot = msgspec.structs.replace(running(), events=(event,))
    for room in (60, 78, 98, 118, 198):
        lines = shown("events", snapshot, room, 9)
        text = " ".join(" ".join(line[:48] for line in lines.splitlines()).split())
        text = text if room > 100 else " ".join(lines.split())
        assert "on → off, KV cache" in text, room
        assert "-1.0 % [-2.0, 1.0]" in lines, room
        assert "…" not in lines, room
    full = (event, *marks(8))
    assert "…" in shown("events", msgspec.structs.replace(running(), events=full), 118, 9), "no event gives way"
    assert "number 1" in shown("events", msgspec.structs.replace(running(), events=full), 118, 10)


def test_what_is_in_force_since_is_told_before_what_was_in_force() -> None:
    event = story(state="measured", tokens=ratio(2.81, 1.51, 5.23))
    assert "speculation → draft model, KV cache → q8_0" in words(
        "events", msgspec.structs.replace(running(), events=(event,)), 102, 2
    )


def test_a_new_verdict_does_not_hide_what_a_change_did() -> None:
    event = story(state="measured", tokens=ratio(2.81, 1.51, 5.23))
    verdict = Event(at_ns=62 * SECOND, kind="verdict", label="compute")
    line = plain(latest(msgspec.structs.replace(running(), events=(verdict, event)), 78, chosen()))
    assert "measured +181 %" in line
    only = plain(latest(msgspec.structs.replace(running(), events=(verdict,)), 78, chosen()))
    assert "limits now: compute" in only


def marks(n: int) -> tuple[Event, ...]:
    """So many events, newest first."""
    return tuple(Event(at_ns=k * SECOND, kind="mark", label=f"number {k}") for k in range(n, 0, -1))


@pytest.mark.parametrize("size", [Size(36, 2), Size(76, 4), Size(118, 9), Size(198, 1), Size(118, 60)])
def test_every_event_can_be_scrolled_to(size: Size) -> None:
    """Also those of two lines; and no further than to the oldest."""
    pane = PANES["events"]
    for events in ((*marks(30), story(state="measured", tokens=ratio(2.81, 1.51, 5.23))), marks(3), ()):
        snapshot = msgspec.structs.replace(running(), events=events)
        context = Context(snapshot=snapshot, size=size)
        most = pane.reach(context)
        seen = ""
        for scrolled in range(most + 1):
            content = pane.content(replace(context, scrolled=scrolled))
            assert len(content.lines) <= size.height
            seen += "\n".join(plain(line) for line in content.lines) + "\n"
        assert pane.content(replace(context, scrolled=most + 9)) == pane.content(replace(context, scrolled=most))
        for event in events:
            assert event.kind == "rebuild" or f" {event.label}\n" in seen.replace(" \n", "\n"), event
        if events:
            assert "spec" in seen or events[-1].kind == "mark"
        assert most < max(len(events), 1)


def test_the_border_says_how_many_events_are_out_of_sight() -> None:
    snapshot = msgspec.structs.replace(running(), events=marks(30), score=None)
    context = Context(snapshot=snapshot, size=Size(118, 9))
    notes = [plain(PANES["events"].content(replace(context, scrolled=n)).note) for n in (0, 5, 21)]
    assert notes == ["21 older events", "5 newer, 16 older events", "21 newer events"]
    assert PANES["events"].content(replace(context, size=Size(118, 30))).note == ()


def test_events_stand_in_the_order_of_their_times() -> None:
    """A change is told when it is done, after what came while it was made."""
    events = tuple(
        Event(at_ns=seconds * SECOND, kind="mark", label=f"mark-{seconds}") for seconds in (99, 97, 100, 96, 98)
    )
    snapshot = msgspec.structs.replace(running(), events=events)
    for room in (78, 138):
        text = words("events", snapshot, room, 12)
        assert [text.index(f"mark-{seconds}") for seconds in (100, 99, 98, 97, 96)] == sorted(
            text.index(f"mark-{seconds}") for seconds in (96, 97, 98, 99, 100)
        )
    assert "mark-100" in plain(latest(snapshot, 78, chosen()))


def test_a_change_without_a_prediction_has_a_dash_for_it() -> None:
    changed = Event(
        at_ns=60 * SECOND, kind="rebuild", changes={"unified_kv": (False, True)}, effect=Effect(state="settling")
    )
    text = words("events", msgspec.structs.replace(running(), events=(changed,)), 138, 4)
    assert "unified KV off → on rebuilt - settling" in text


def test_one_sign_is_one_sign() -> None:
    score = running().score
    assert score is not None
    one = msgspec.structs.replace(score, n=1, covered=1, n_signs=1, signs_right=1)
    text = words("events", msgspec.structs.replace(running(), score=one), 138, 8)
    assert "1 of 1 sign right" in text
    assert "1 of 1 interval held" in text


def test_a_prediction_of_nothing_is_none_where_its_interval_has_no_room() -> None:
    event = Event(
        at_ns=60 * SECOND, kind="live", changes={"kv_type_k": ("f16", "q8_0")}, predicted=ratio(0.9999, 0.9927, 1.007),
        effect=Effect(state="settling"),
    )  # fmt: skip
    text = words("events", msgspec.structs.replace(running(), events=(event,)), 118)
    assert " 0 % " in text
    assert "-0.01 %" not in text
