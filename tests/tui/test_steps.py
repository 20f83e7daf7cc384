"""Single steps: lines to a common scale, dividers where something changed, a list that follows until it is scrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackscope.analysis.live.snapshot import PARTS, Event
from stackscope.records import CacheCounters, DraftForward, Phases, SlotWork, StepRecord, Ubatch
from stackscope.tui.lines import plain, width
from stackscope.tui.look import ASCII, UNICODE
from stackscope.tui.screens.steps import StepsScreen
from stackscope.tui.step_details import details
from stackscope.tui.steps import Divider, batch, heading, parts, row_line, waterfall
from stackscope.tui.widgets.scrolled import Scrolled
from stackscope.tui.widgets.step_list import StepList
from tests.tui import sessions
from tests.tui.apps import TinyApp, driven, text_of
from tests.unit.record_builders import SyntheticEngine, make_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from stackscope.tui.steps import Waterfall


def steps(n: int, *, slots: int = 4, first: int = 0) -> tuple[StepRecord, ...]:
    """The newest `n` of a synthetic engine."""
    made = [r for r in SyntheticEngine(slots=slots, draft_length=3).records(first + n) if isinstance(r, StepRecord)]
    return tuple(made[first:])


def shown(found: Waterfall, room: int = 100) -> list[str]:
    return [plain(row_line(row, room, found.scale_ns, UNICODE)) for row in found.rows]


# Lines


def test_the_parts_of_a_step_sum_to_it_and_the_forward_is_divided_by_rows() -> None:
    work = (
        SlotWork(request=1, slot=0, phase="prefill", new=6, cached=0),
        SlotWork(request=2, slot=1, phase="decode", new=1, cached=9, emitted=1, outputs=1),
        SlotWork(request=3, slot=2, phase="verify", new=3, cached=9, drafted=2, accepted=1, emitted=2, outputs=3),
    )
    step = make_step(work=work, phases=Phases(admit=1, draft=20, build=2, decode=1000, sample=30, commit=4, other=7))
    found = dict(zip(PARTS, parts(step), strict=True))
    assert found == {
        "prefill": 600.0, "decode": 200.0, "verify": 200.0, "draft": 20, "sample": 30, "schedule": 7, "emit": 0,
        "shadow": 0, "idle": 0.0, "unexplained": 7,
    }  # fmt: skip
    assert sum(found.values()) == step.duration_ns
    aborted = msgspec.structs.replace(step, aborted=True)
    assert dict(zip(PARTS, parts(aborted), strict=True))["unexplained"] == 1007


@given(st.integers(20, 220), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_every_line_is_as_wide_as_the_room(room: int, is_ascii: bool, is_selected: bool) -> None:
    look = ASCII if is_ascii else UNICODE
    found = waterfall(steps(12), (), look, is_slow_only=False)
    rows = [
        *found.rows,
        Divider("0:03  speculation off → draft model", is_change=True),
        make_step(work=(), slots_busy=0),
    ]
    for row in rows:
        assert width(row_line(row, room, found.scale_ns, look, is_selected=is_selected)) == room
    assert width(heading(room, found.scale_ns, look)) == room


def test_a_line_says_who_was_in_the_batch_and_what_came_of_it() -> None:
    work = (
        SlotWork(request=7, slot=1, phase="verify", new=4, cached=90, drafted=3, accepted=2, emitted=3, outputs=4),
        SlotWork(request=6, slot=0, phase="decode", new=1, cached=90, emitted=1, outputs=1),
        SlotWork(request=8, slot=2, phase="prefill", new=256, cached=0),
    )
    cache = CacheCounters(lookups=1, lookup_tokens=400, hit_tokens=144, useful_hit_tokens=144)
    line = plain(row_line(make_step(1234, work=work, cache=cache, epoch=2), 120, 1e6, UNICODE))
    assert line.split()[:3] == ["1,234", "0:04", "1.00"]
    assert line.split()[-9:] == ["261", "0d", "1v4", "2p256", "3", "2", "4", "144", "2"]


def test_a_batch_that_has_no_room_is_told_by_kind() -> None:
    work = tuple(SlotWork(request=i, slot=i, phase="decode", new=1, cached=9) for i in range(8))
    work += (SlotWork(request=9, slot=8, phase="prefill", new=64, cached=0),)
    assert plain(batch(work, 40, UNICODE)).strip() == "0d 1d 2d 3d 4d 5d 6d 7d 8p64"
    assert plain(batch(work, 20, UNICODE)).strip() == "8×d 1×p64"


@pytest.mark.parametrize(
    ("changes", "flag"),
    [({"aborted": True}, "!"), ({"settling": True}, "~"), ({"invalid_output": True}, "x"), ({}, " ")],
)
def test_what_is_odd_about_a_step_has_a_sign(changes: dict[str, Any], flag: str) -> None:
    assert plain(row_line(make_step(**changes), 80, 1e6, UNICODE))[9] == flag


def test_a_step_beyond_the_scale_ends_in_a_pointer() -> None:
    fast, slow = make_step(), make_step(phases=Phases(decode=9_000_000))
    found = waterfall([fast] * 30 + [slow], (), UNICODE, is_slow_only=False)
    assert found.scale_ns == 1_500_000
    assert "▸" in shown(found)[-1][10:]
    assert "▸" not in shown(found)[0][10:]


# What lies between steps


def changed(at_ns: int, **changes: Any) -> Event:
    return Event(at_ns=at_ns, kind="rebuild", changes=changes, duration_ns=90_000_000)


def test_a_change_stands_between_the_steps_that_it_parts() -> None:
    made = steps(6)
    made = (*made[:3], *(msgspec.structs.replace(step, epoch=1) for step in made[3:]))
    # A change is made after the new step has begun: a step begins where the one before ended.
    event = changed(made[3].start_ns + 10, kv_type_k=("f16", "q8_0"), kv_type_v=("f16", "q8_0"))
    found = waterfall(made, [event], UNICODE, is_slow_only=False)
    assert [isinstance(row, Divider) for row in found.rows] == [False] * 3 + [True] + [False] * 3
    assert shown(found)[3].startswith("─── 0:03  KV cache f16 → q8_0  rebuilt in 90 ms ──")


def test_a_change_nobody_told_of_is_seen_by_its_number() -> None:
    made = steps(4)
    made = (*made[:2], *(msgspec.structs.replace(step, epoch=7) for step in made[2:]))
    found = waterfall(made, (), UNICODE, is_slow_only=False)
    assert found.rows[2] == Divider("configuration 7", is_change=True)


def test_marks_stand_between_steps_and_refusals_do_not() -> None:
    made = steps(4)
    events = [
        Event(at_ns=made[2].start_ns, kind="refused", changes={"slots": (8, 4000)}, label="no"),
        Event(at_ns=made[1].start_ns, kind="mark", label="base\x1bline"),
        Event(at_ns=1, kind="mark", label="long ago"),
    ]
    found = waterfall(made, events, UNICODE, is_slow_only=False)
    assert [row for row in found.rows if isinstance(row, Divider)] == [Divider("0:03  mark: baseline", is_change=False)]


@pytest.mark.parametrize("kind", ["traffic", "mark"])
def test_what_happens_as_a_step_begins_stands_before_it(kind: Any) -> None:
    made = steps(4)
    event = Event(at_ns=made[2].start_ns + 1_000, kind=kind, label="a", changes={"concurrency": (1, 8)})
    found = waterfall(made, [event], UNICODE, is_slow_only=False)
    assert [isinstance(row, Divider) for row in found.rows] == [False, False, True, False, False]


def test_slow_steps_can_be_had_alone() -> None:
    made = [make_step(n) for n in range(20)]
    made[7] = make_step(7, phases=Phases(decode=2_000_000))
    made[9] = make_step(9, phases=Phases(decode=1_999_999))
    found = waterfall(made, (), UNICODE, is_slow_only=True)
    assert [row.n for row in found.rows if isinstance(row, StepRecord)] == [7]
    assert (found.n_steps, found.median_ns) == (20, 1_000_000)
    assert waterfall([], (), UNICODE, is_slow_only=True).median_ns is None


# One step in full


@pytest.mark.parametrize("room", [30, 58, 76, 118, 198])
@pytest.mark.parametrize("threads", [None, 2])
def test_details_keep_to_the_room(room: int, threads: int | None) -> None:
    for step in (*steps(3), make_step(work=()), make_step(aborted=True, settling=True, invalid_output=True)):
        assert max(map(width, details(step, threads, room, UNICODE))) <= room


def test_details_tell_everything_there_is() -> None:
    step = make_step(
        draft=(DraftForward(((400, 1),), 1), DraftForward(((401, 1),), 1)), ubatches=(Ubatch(512, 0), Ubatch(3, 1)),
        cache=CacheCounters(lookups=1, lookup_tokens=400, hit_tokens=256, useful_hit_tokens=128, blocks_written=3,
                            blocks_evicted=1, missed_at=118, copied_bytes=2_000_000),
        preempted=2,
    )  # fmt: skip
    text = "\n".join(plain(line) for line in details(step, 2, 118, UNICODE))
    for told in (
        "Step 0", " 1 ms ", "2 requests put back", "forward   850 µs  85.0 %", "CPU of threads 100 %",
        "passes 512 + 3", "2 draft forwards of 1, 1 rows", "256 of 400 tokens hit", "128 of them useful",
        "missed at token 118", "3 blocks written", "1 block evicted", "2.00 MB of KV copied", "slots 1/8",
    ):  # fmt: skip
        assert told in text, told
    assert "CPU of threads -" in "\n".join(plain(line) for line in details(step, None, 118, UNICODE))


# The screen


def on_steps(act: Callable[[Pilot[None], TinyApp], Any], n: int = 400, size: tuple[int, int] = (120, 40)) -> TinyApp:
    app = TinyApp(StepsScreen)
    app.feed.steps = steps(n)

    async def run(pilot: Pilot[None]) -> None:
        await pilot.pause()
        await act(pilot, app)

    return driven(app, run, size)


async def newer(pilot: Pilot[None], app: TinyApp, n: int) -> None:
    """Have as many more steps come, and as many old ones go."""
    app.feed.steps = steps(len(app.feed.steps), first=app.feed.steps[0].n + n)
    app.take(app.frame)
    await pilot.pause()


def the_list(app: TinyApp) -> StepList:
    return app.screen.query_one(StepList)


def test_it_follows_the_newest_step() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        assert "▸     399" in text_of(app)
        assert "following" in text_of(app)
        await newer(pilot, app, 50)
        assert "▸     449" in text_of(app)

    on_steps(act)


def test_it_stands_still_once_scrolled_and_follows_again_on_end() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        await pilot.press("up", "up")
        before = text_of(app).split("\n")[4:20]
        assert "▸     397" in text_of(app)
        await newer(pilot, app, 50)
        assert text_of(app).split("\n")[4:20] == before
        assert "‖ 50 newer, end follows" in text_of(app)
        await pilot.press("end")
        await pilot.pause()
        assert "▸     449" in text_of(app)
        await newer(pilot, app, 10)
        assert "▸     459" in text_of(app)

    on_steps(act)


def test_pages_and_ends() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        await pilot.press("home")
        assert the_list(app).selected is not None
        assert "▸       0" in text_of(app)
        await pilot.press("pagedown")
        selected = the_list(app).selected
        assert selected is not None
        assert selected.n == the_list(app).size.height - 1
        await pilot.press("pageup", "pageup")
        assert "▸       0" in text_of(app)

    on_steps(act)


def test_only_what_is_in_sight_is_made() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        made: list[int] = []
        view = the_list(app)
        line_at = view.line_at

        def counting(row: int) -> Any:
            made.append(row)
            return line_at(row)

        view.line_at = counting  # type: ignore[method-assign]
        await newer(pilot, app, 50)
        assert 0 < len(set(made)) <= view.size.height

    on_steps(act, n=2000)


def test_slow_steps_alone_by_a_key_and_all_again() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        slow = msgspec.structs.replace(steps(1, first=400)[0], phases=Phases(decode=9_000_000))
        app.feed.steps = (*app.feed.steps, slow)
        app.take(app.frame)
        await pilot.press("l")
        await pilot.pause()
        assert "1 took 2 times that or more" in text_of(app)
        assert "▸     400" in text_of(app)
        await pilot.press("l")
        await pilot.pause()
        assert "took" not in text_of(app)

    on_steps(act)


def test_changes_are_gone_to_by_keys() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        made = app.feed.steps
        app.feed.steps = (*made[:100], *(msgspec.structs.replace(step, epoch=1) for step in made[100:]))
        app.take(app.frame)
        await pilot.press("N")
        await pilot.pause()
        assert "▸     100" in text_of(app)
        await pilot.press("N", "n")
        assert app.told == ["There is no change before this step.", "There is no change after this step."]

    on_steps(act)


def test_details_stand_beside_below_or_behind_a_key() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        width_, _ = app.size
        view = app.screen.query_one("#details", Scrolled)
        if width_ == 80:
            assert not view.display
            await pilot.press("enter")
            await pilot.pause()
        assert view.display
        assert "Step 399" in text_of(app)

    for size in ((80, 24), (120, 40), (200, 60)):
        on_steps(act, size=size)


@pytest.mark.parametrize(
    ("name", "said"), [("starting", "No step yet."), ("attached", "No step yet."), ("running", "does not tell single")]
)
def test_without_steps_it_says_so(name: str, said: str) -> None:
    async def act(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert said in text_of(pilot.app)
        await pilot.press("up", "down", "home", "end", "pageup", "pagedown", "n", "l", "enter")

    driven(TinyApp(StepsScreen, sessions.SESSIONS[name]()), act, (80, 24))


def test_another_session_begins_from_its_first_step() -> None:
    async def act(pilot: Pilot[None], app: TinyApp) -> None:
        await pilot.press("up")
        app.feed.steps = steps(5)
        app.take(app.frame)
        await pilot.pause()
        assert "▸       4" in text_of(app)

    on_steps(act)
