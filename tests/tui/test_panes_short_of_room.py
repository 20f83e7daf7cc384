"""What panes leave out first where room is short: never the number that says most."""

from __future__ import annotations

import msgspec

from stackscope.tui.panes import PANES
from tests.tui.figures import make_spread
from tests.tui.pane_words import words
from tests.tui.sessions import running


def test_what_waits_is_told_before_gaps_where_room_is_short() -> None:
    base = running()
    latency = msgspec.structs.replace(base.latency, ttft=make_spread(1_240.0, tail=3.0), step_gap=make_spread(0.84))
    levels = msgspec.structs.replace(base.levels, queue=413, slots_busy=4, slots=4)
    waiting = msgspec.structs.replace(base, latency=latency, levels=levels)
    for room in (36, 58):
        assert "queue 413" in words("throughput", waiting, room, 3), room
    idle = msgspec.structs.replace(
        waiting, levels=msgspec.structs.replace(levels, queue=0), now=msgspec.structs.replace(base.now, queue=0.0)
    )
    assert "queue" not in words("throughput", idle, 36, 3)


def test_what_was_evicted_is_told_before_what_was_written_where_room_is_short() -> None:
    minute = msgspec.structs.replace(running().minute, blocks_read=1_393, blocks_written=3_544, blocks_evicted=3_480)
    snapshot = msgspec.structs.replace(running(), minute=minute)
    assert "evicted 3,480 written 3,544" in words("prefix", snapshot, 38, 9)
    assert "read 1,393 written 3,544 evicted 3,480" in words("prefix", snapshot, 58, 9)


def test_what_numbers_of_the_hardware_pane_mean_is_told() -> None:
    told = PANES["hardware"].help.meaning
    assert "Cores lost is" in told
    assert "held by quota is" in told
