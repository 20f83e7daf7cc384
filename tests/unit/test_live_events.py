"""Events as lines and as labels of charts, and the blocks that a comparison of before and after is made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.live.blocks import Blocks
from stackscope.analysis.live.events import MOST_EVENTS, Events, label_of
from stackscope.analysis.live.snapshot import Effect, Event, Ratio
from stackscope.analysis.live.view import LiveView
from stackscope.records import CacheCounters, ConfigEvent, Estimate, Mark, Phases, Prediction, TrafficEvent
from tests.analysis_builders import MS, decode, prefill, step
from tests.unit.record_builders import make_header

if TYPE_CHECKING:
    from stackscope.analysis.live.effects import Block
    from stackscope.records import AnyRecord, StepRecord
    from stackscope.toggles import Setting

SECOND = 1_000 * MS


def change(at_ns: int, **fields: object) -> ConfigEvent:
    values: dict[str, object] = {"epoch": 1, "kind": "live", "changes": {"draft_length": (3, 5)}} | fields
    return ConfigEvent(at_ns=at_ns, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"draft_length": (3, 5)}, "draft 5"),
        ({"speculation": ("off", "ngram")}, "spec n-gram"),
        ({"prefix_cache": (True, False)}, "cache off"),
        ({"model": ("/a/lab-F16.gguf", "/b/lab-Q8_0.gguf")}, "weights Q8_0"),
        ({"draft_model": ("/a/d.gguf", None)}, "draft model none"),
        ({"rate": (None, 2.5)}, "load 2.50"),
        ({"unified_kv": (True, False)}, "unified off"),
        ({"concurrency": (1, 8)}, "load 8"),
        ({"kv_type_k": ("f16", "q8_0")}, "K q8_0"),
        ({"kv_type_k": ("f16", "q8_0"), "kv_type_v": ("f16", "q8_0")}, "KV q8_0"),
        ({"slots": (1, 2), "threads": (1, 2), "seed": (0, 1)}, "slots 2, threads 2 and more"),
        ({}, "rebuild"),
    ],
)
def test_a_label_says_what_it_became(changes: dict[str, tuple[Setting, Setting]], label: str) -> None:
    assert label_of(Event(at_ns=0, kind="rebuild", changes=changes)) == label


def test_newest_first_and_bounded() -> None:
    events = Events(lambda _at: None)
    for n in range(3 * MOST_EVENTS):
        events.add_mark(Mark(at_ns=n, label=f"mark {n}"))
    shown = events.newest()
    assert len(shown) == MOST_EVENTS
    assert [event.label for event in shown[:2]] == ["mark 149", "mark 148"]
    assert events.labels(148) == ((148, "mark 148"), (149, "mark 149"))


def test_a_prediction_stands_beside_the_change_it_was_made_for() -> None:
    view = LiveView()
    view.write(make_header())
    estimate = Estimate(1.3, 1.1, 1.5)
    draft: dict[str, tuple[Setting, Setting]] = {"draft_length": (3, 5)}
    view.write(Prediction(at_ns=1, changes={"draft_length": (3, 4)}, tokens=Estimate(0.5, 0.4, 0.6)))
    view.write(Prediction(at_ns=2, changes=draft, tokens=estimate))
    view.write(change(3))
    view.write(change(4))  # The same once more, of which nothing was predicted.
    view.write(Prediction(at_ns=5, changes=draft, reason="It is not known."))
    view.write(change(6))
    view.write(Prediction(at_ns=7, changes=draft, tokens=estimate))
    view.write(change(8, kind="refused", reason="No."))
    told = [event.predicted for event in reversed(view.snapshot(9).events)]
    assert told == [Ratio(value=1.3, low=1.1, high=1.5), None, None, None]
    assert [event.unpredicted for event in reversed(view.snapshot(9).events)] == [None, None, "It is not known.", None]


def test_a_prediction_of_the_load_stands_beside_it() -> None:
    view = LiveView()
    view.write(make_header(workload={"concurrency": 2}))
    view.write(step(decode(0, cached=4)))
    view.write(Prediction(at_ns=1, changes={"concurrency": (2, 4)}, tokens=Estimate(1.3, 1.1, 1.5)))
    view.write(TrafficEvent(at_ns=20 * MS, concurrency=4))
    assert view.snapshot(30 * MS).events[0].predicted == Ratio(value=1.3, low=1.1, high=1.5)


def test_effects_appear_as_they_are_measured() -> None:
    found: dict[int, Effect] = {}
    events = Events(found.get)
    events.add_change(change(1))
    events.add_mark(Mark(at_ns=1, label="not measured"))
    events.add_traffic(TrafficEvent(at_ns=2, concurrency=4), {"concurrency": (8, 4)})
    assert [event.effect for event in events.newest()] == [None, None, None]
    found[1] = Effect(state="settling")
    assert [event.effect for event in events.newest()] == [None, None, Effect(state="settling")]
    found[1], found[2] = Effect(state="measured"), Effect(state="settling")
    states = [event.effect and event.effect.state for event in events.newest()]
    assert states == ["settling", None, "measured"]


class Watched:
    """A view whose blocks are looked at."""

    def __init__(self, *records: AnyRecord) -> None:
        self.blocks: list[Block] = []
        self.view = LiveView()
        self.view.write(make_header(workload={"concurrency": 8}))
        self.view._blocks._take = self.blocks.append
        for record in records:
            self.view.write(record)
        self.view.snapshot(0)


def decoding(n: int, start_ns: int, **changes: object) -> StepRecord:
    phases = Phases(decode=100 * MS)
    return step(decode(0, cached=9), n=n, start_ns=start_ns, phases=phases, slots_busy=1, slots=4, **changes)


def test_there_is_a_block_for_each_half_second_with_a_step() -> None:
    blocks = Watched(*[decoding(n, n * 100 * MS) for n in range(20)]).blocks
    assert [block.at_ns for block in blocks] == [600 * MS, 1_100 * MS, 1_600 * MS]
    assert sum(block.tokens for block in blocks) == 16
    assert [block.wall_ns for block in blocks] == [600 * MS, 500 * MS, 500 * MS]
    assert (blocks[0].busy_slot_ns, blocks[0].slot_ns) == (600 * MS, 2_400 * MS)
    assert (blocks[0].epoch, blocks[0].concurrency, blocks[0].is_settling) == (0, 8, False)


def test_idle_time_is_in_blocks() -> None:
    blocks = Watched(decoding(0, 0), decoding(1, 3 * SECOND)).blocks
    assert [(block.at_ns, block.wall_ns) for block in blocks] == [(3_100 * MS, 3_100 * MS)]


def test_no_block_holds_two_configurations_nor_the_time_of_the_change() -> None:
    before, after = [decoding(0, 0), decoding(1, 100 * MS)], [decoding(2, 2 * SECOND, epoch=1)]
    rebuild = change(200 * MS, kind="rebuild", duration_ns=1_700 * MS)
    blocks = Watched(*before, rebuild, *after, change(2_100 * MS, epoch=2)).blocks
    assert [(block.at_ns, block.wall_ns, block.epoch) for block in blocks] == [
        (200 * MS, 200 * MS, 0),
        (2_100 * MS, 100 * MS, 1),
    ]


def test_an_epoch_whose_change_was_lost_cuts_too() -> None:
    blocks = Watched(decoding(0, 0), decoding(1, 200 * MS, epoch=1), decoding(2, 600 * MS, epoch=1)).blocks
    assert [(block.at_ns, block.wall_ns, block.epoch) for block in blocks] == [
        (100 * MS, 100 * MS, 0),
        (700 * MS, 500 * MS, 1),
    ]


def test_a_change_of_the_load_cuts_too() -> None:
    load = TrafficEvent(at_ns=100 * MS, concurrency=2)
    blocks = Watched(decoding(0, 0), load, decoding(1, 100 * MS), Mark(at_ns=200 * MS, label="no cut")).blocks
    assert [(block.at_ns, block.concurrency) for block in blocks] == [(100 * MS, 8)]


def test_prompts_count_computed_or_found() -> None:
    found = CacheCounters(lookups=1, lookup_tokens=60, hit_tokens=48)
    first = step(prefill(0, new=12), n=0, phases=Phases(decode=SECOND), cache=found, settling=True)
    blocks = Watched(first).blocks
    assert [(block.prompt_tokens, block.prefilled, block.is_settling) for block in blocks] == [(60, 12, True)]


def test_nothing_gathered_makes_no_block() -> None:
    taken: list[Block] = []
    blocks = Blocks(taken.append)
    blocks.close()
    blocks.cut()
    assert taken == []
