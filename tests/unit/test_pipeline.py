"""Joining sources and sinks: order, lateness, what is dropped, and who pays when one sink fails."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackscope.errors import SessionFileError
from stackscope.pipeline import DisplayQueue, FanOut, Lateness, Merge, SinkFailure, in_order, pump, time_ns
from stackscope.records import ConfigEvent, Footer, HardwareSample, Log, Mark
from tests.unit.record_builders import make_footer, make_header, make_request, make_step, synthetic_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.records import AnyRecord

_few = settings(max_examples=60, deadline=None)


class Given:
    """A source with these records, which counts how many were asked for."""

    def __init__(self, records: Sequence[AnyRecord]) -> None:
        self._records = records
        self.n_asked = 0

    def records(self) -> Iterator[AnyRecord]:
        for record in self._records:
            self.n_asked += 1
            yield record


class Kept:
    """A sink that keeps what it gets, and fails from record `fails_at` on (-1: never) or when it is closed."""

    def __init__(self, *, fails_at: int = -1, fails_to_close: bool = False) -> None:
        self.received: list[AnyRecord] = []
        self.n_writes = 0
        self.n_closed = 0
        self._fails_at = fails_at
        self._fails_to_close = fails_to_close

    def write(self, record: AnyRecord) -> None:
        self.n_writes += 1
        if self.n_writes - 1 == self._fails_at:
            raise SessionFileError("The disk is full.")
        self.received.append(record)

    def close(self) -> None:
        self.n_closed += 1
        if self._fails_to_close:
            raise ValueError("cannot close")


def marks(*times_ms: int) -> list[AnyRecord]:
    return [Mark(at_ns=ms * 1_000_000, label=str(ms)) for ms in times_ms]


def labels(records: Sequence[AnyRecord]) -> list[str]:
    return [record.label for record in records if isinstance(record, Mark)]


def test_a_record_has_the_time_at_which_it_became_known() -> None:
    assert time_ns(make_header()) is None
    assert time_ns(make_step(3)) == make_step(3).end_ns
    assert time_ns(make_request()) == make_request().finished_ns
    assert time_ns(Log(at_ns=5, text="")) == 5


def test_merging_is_by_time_with_one_header_and_one_footer() -> None:
    session = [make_header(), *marks(1, 4, 9), make_footer(at_ns=9_000_000)]
    sampler = [make_header(host="sampler"), *marks(2, 4, 12), make_footer(at_ns=0)]
    merge = Merge(Given(session), Given(sampler), Given([]))
    merged = list(merge.records())
    assert merged == [make_header(), *marks(1, 2, 4, 4, 9, 12), make_footer(at_ns=9_000_000)]
    assert merge.n_left_out == 2
    assert merge.lateness.n_late == 0


def test_merging_streams() -> None:
    first, second = Given(marks(*range(0, 2_000, 2))), Given(marks(*range(1, 2_000, 2)))
    records = Merge(first, second).records()
    for n in range(10):
        assert labels([next(records)]) == [str(n)]
    assert first.n_asked + second.n_asked <= 12


def test_a_late_record_holds_up_nothing_and_is_counted() -> None:
    merge = Merge(Given(marks(10, 3, 11)), Given(marks(1, 12)))
    assert labels(list(merge.records())) == ["1", "10", "3", "11", "12"]
    assert merge.lateness.n_late == 1
    assert merge.lateness.worst_ns == 7_000_000


def test_merging_nothing_gives_nothing() -> None:
    assert list(Merge(Given([])).records()) == []


@_few
@given(st.lists(st.lists(st.integers(-50, 50), max_size=12), min_size=1, max_size=4))
def test_merging_keeps_every_record_and_the_order_of_each_source(times: list[list[int]]) -> None:
    sources = [
        [Mark(at_ns=at, label=f"{index} {n}") for n, at in enumerate(source)] for index, source in enumerate(times)
    ]
    merge = Merge(*(Given(source) for source in sources))
    merged = [record for record in merge.records() if isinstance(record, Mark)]
    for index, source in enumerate(sources):
        assert [mark for mark in merged if mark.label.startswith(f"{index} ")] == source
    assert len(merged) == sum(map(len, sources))
    if all(source == sorted(source) for source in times):
        assert [mark.at_ns for mark in merged] == sorted(at for source in times for at in source)
        assert merge.lateness.n_late == 0


@_few
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=40))
def test_disorder_below_the_hold_is_put_right(steps: list[tuple[int, int]]) -> None:
    # Arrivals advance by `gap`, and each record is up to 9 older than the latest: below a hold of 10.
    now, stream = 0, []
    for gap, age in steps:
        now += gap
        stream.append(Mark(at_ns=now - age, label=""))
    lateness = Lateness()
    ordered = list(in_order(stream, hold_ns=10, lateness=lateness))
    assert ordered == sorted(stream, key=lambda mark: mark.at_ns)
    assert lateness.n_late == 0


@_few
@given(st.lists(st.integers(-(2**62), 2**62), max_size=40), st.integers(0, 2**40))
def test_any_disorder_loses_nothing_and_its_lateness_is_counted(times: list[int], hold_ns: int) -> None:
    stream = [Mark(at_ns=at, label="") for at in times]
    lateness = Lateness()
    ordered = list(in_order([make_header(), make_footer(at_ns=0), *stream], hold_ns=hold_ns, lateness=lateness))
    assert ordered[0] == make_header()
    assert ordered[-1] == make_footer(at_ns=0)
    delivered = [record.at_ns for record in ordered if isinstance(record, Mark)]
    assert sorted(delivered) == sorted(times)
    assert lateness.n_late >= sum(after < before for before, after in pairwise(delivered))
    assert (lateness.n_late == 0) == (delivered == sorted(delivered))


def test_records_are_held_no_longer_than_needed() -> None:
    records = in_order(marks(0, 5, 9, 10, 11), hold_ns=10_000_000)
    # 0 is certain once 10 has come; 5 once anything from 15 on has, which here is the end.
    assert labels([next(records)]) == ["0"]
    assert labels(list(records)) == ["5", "9", "10", "11"]


def test_pumping_closes_the_sink_even_when_the_source_fails() -> None:
    class Broken:
        def records(self) -> Iterator[AnyRecord]:
            yield make_header()
            raise SessionFileError("gone")

    sink = Kept()
    with pytest.raises(SessionFileError, match="gone"):
        pump(Broken(), sink)
    assert sink.received == [make_header()]
    assert sink.n_closed == 1
    session = synthetic_session(10)
    pump(Given(session), sink := Kept())
    assert sink.received == session
    assert sink.n_closed == 1


def test_a_failing_sink_costs_the_others_nothing_and_is_reported_once() -> None:
    reported: list[SinkFailure] = []
    failing, healthy = Kept(fails_at=3, fails_to_close=True), Kept()
    fan = FanOut([failing, healthy], on_failure=reported.append)
    sent = marks(*range(10))
    for record in sent:
        fan.write(record)
    fan.close()
    fan.close()
    assert healthy.received == sent
    assert (healthy.n_closed, failing.n_closed) == (1, 1)
    assert failing.n_writes == 4
    (failure,) = reported
    assert failure.sink is failing
    assert failure.n_delivered == 3
    assert str(failure.error) == "The disk is full."
    assert fan.failures == reported
    assert fan.n_delivered == 10


def test_a_failure_to_close_is_reported() -> None:
    reported: list[SinkFailure] = []
    first, second = Kept(fails_to_close=True), Kept()
    FanOut([first, second], on_failure=reported.append).close()
    assert second.n_closed == 1
    assert [str(failure.error) for failure in reported] == ["cannot close"]


def test_live_sources_share_a_fan_out_and_their_lateness_is_counted() -> None:
    sink = Kept()
    fan = FanOut([sink], on_failure=lambda failure: pytest.fail(str(failure)))

    def work(index: int) -> None:
        for n in range(1_000):
            fan.write(HardwareSample(at_ns=n, late_ns=index))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(4):
        times = [r.at_ns for r in sink.received if isinstance(r, HardwareSample) and r.late_ns == index]
        assert times == list(range(1_000))
    assert fan.n_delivered == 4_000
    expected = Lateness()
    for record in sink.received:
        expected.observe(record)
    assert (fan.lateness.n_late, fan.lateness.worst_ns) == (expected.n_late, expected.worst_ns)


def test_a_display_that_does_not_look_loses_the_oldest() -> None:
    queue = DisplayQueue(3)
    for record in marks(*range(10)):
        queue.write(record)
    assert queue.n_dropped == 7
    assert labels(queue.take()) == ["7", "8", "9"]
    assert queue.take() == []
    queue.write(marks(10)[0])
    assert labels(queue.take()) == ["10"]
    assert queue.n_dropped == 7


def test_a_display_keeps_what_it_cannot_do_without() -> None:
    queue = DisplayQueue(2)
    event = ConfigEvent(at_ns=2, epoch=1, kind="live")
    stream = [make_header(), *marks(1), event, *marks(3, 4, 5), make_footer()]
    for record in stream:
        queue.write(record)
    assert queue.take() == [make_header(), event, *marks(5), make_footer()]
    assert queue.n_dropped == 3


@_few
@given(st.integers(1, 5), st.lists(st.one_of(st.just("take"), st.integers(0, 9)), max_size=40))
def test_a_display_gets_everything_that_was_not_dropped_in_order(capacity: int, actions: list[str | int]) -> None:
    queue, taken, n_written = DisplayQueue(capacity), [], 0
    for action in actions:
        if action == "take":
            taken += queue.take()
        else:
            queue.write(make_footer(at_ns=n_written) if action == 0 else Mark(at_ns=n_written, label=""))
            n_written += 1
    taken += queue.take()
    times = [record.at_ns for record in taken if isinstance(record, Mark | Footer)]
    assert times == sorted(set(times))
    assert len(taken) + queue.n_dropped == n_written
    assert sum(isinstance(record, Footer) for record in taken) == actions.count(0)


def test_a_waiting_display_wakes_for_a_record_and_for_the_end() -> None:
    queue, taken = DisplayQueue(10), []

    def look() -> None:
        while not queue.is_finished:
            taken.extend(queue.take(timeout_s=60.0))

    display = threading.Thread(target=look)
    display.start()
    queue.write(make_header())
    queue.close()
    display.join(timeout=30.0)
    assert not display.is_alive()
    assert taken == [make_header()]


def test_a_queue_without_room_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        DisplayQueue(0)
