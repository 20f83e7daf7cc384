"""Requests in flight, from what each step did for each sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.analysis.live.inflight import MOST, SHOWN_AFTER_NS, InFlight
from stackscope.analysis.live.sums import end_times
from tests.analysis_builders import MS, decode, prefill, request, step, verify

if TYPE_CHECKING:
    from stackscope.records import SlotWork, StepRecord


def flown(*steps: StepRecord) -> InFlight:
    flights = InFlight()
    if steps:
        flights.add(steps, end_times(steps))
    return flights


def turns(*works: tuple[SlotWork, ...], first: int = 0) -> list[StepRecord]:
    """Steps of 1 ms, one after the other, with this work."""
    return [step(*work, n=n, start_ns=n * MS) for n, work in enumerate(works, first)]


def in_slot(work: SlotWork, slot: int) -> SlotWork:
    return msgspec.structs.replace(work, slot=slot)


def test_a_prompt_is_as_long_as_it_turns_out_to_be() -> None:
    """How long it is, is not known before its prefill is done."""
    steps = turns(
        (prefill(0, new=64, cached=32),),
        (prefill(0, new=20, cached=96, outputs=1, emitted=1),),
        (decode(0, cached=116),),
    )
    first = flown(*steps[:1]).views(MS)[0]
    assert (first.phase, first.prompt_tokens, first.prefilled, first.hit_tokens) == ("prefill", None, 96, 32)
    done = flown(*steps[:2]).views(2 * MS)[0]
    assert (done.prompt_tokens, done.prefilled, done.output_tokens) == (116, 116, 1)
    going = flown(*steps).views(3 * MS)[0]
    assert (going.phase, going.prompt_tokens, going.prefilled, going.output_tokens) == ("decode", 116, 116, 2)
    assert (going.age_ns, going.is_partial) == (3 * MS, False)


def test_drafts_count_as_far_as_they_enter_the_output() -> None:
    steps = turns(
        (prefill(0, new=8, outputs=1, emitted=1),),
        (verify(0, cached=8, drafted=4, accepted=2),),
        (verify(0, cached=11, drafted=4, accepted=4, emitted=3),),
    )
    view = flown(*steps).views(3 * MS)[0]
    assert (view.drafted, view.accepted, view.output_tokens) == (8, 5, 7)


def test_gaps_are_between_the_ends_of_steps_that_emitted_for_the_same_request() -> None:
    """Tokens of one step have none between them, a step without a token is part of one, the first token ends none."""
    steps = [
        step(prefill(0, new=8, outputs=1, emitted=1), n=0, start_ns=0),
        step(verify(0, cached=8, drafted=3, accepted=2), decode(1, cached=3, emitted=0), n=1, start_ns=MS),
        step(decode(1, cached=3), n=2, start_ns=2 * MS),
        step(decode(0, cached=11), n=3, start_ns=9 * MS),  # A rebuild before it.
    ]
    flights = InFlight()
    gaps = flights.add(steps[:2], end_times(steps[:2]))
    assert list(gaps) == [MS]
    assert list(flights.add(steps[2:], end_times(steps[2:]))) == [8 * MS]


def test_they_are_shown_by_slot() -> None:
    flights = flown(*turns((in_slot(decode(7, cached=3), 2), in_slot(decode(5, cached=3), 1), decode(0, cached=3))))
    assert [(view.slot, view.id) for view in flights.views(0)] == [(0, 0), (1, 5), (2, 7)]
    assert flights.count == 3


def test_a_request_that_finished_stays_for_a_moment() -> None:
    flights = flown(*turns((prefill(0, new=8, outputs=1, emitted=1),)))
    flights.finish(request((MS, 4), id=0, admitted_ns=0, finished_ns=MS, prompt_tokens=9, hit_tokens=1, drafted=3))
    view = flights.views(2 * MS)[0]
    assert (view.finished, view.prompt_tokens, view.hit_tokens, view.output_tokens) == ("length", 9, 1, 4)
    assert (view.drafted, view.age_ns) == (3, MS)
    assert flights.count == 0
    assert flights.views(MS + SHOWN_AFTER_NS + 1) == ()


def test_the_next_one_takes_its_slot_at_once() -> None:
    flights = flown(*turns((decode(0, cached=3),)))
    flights.finish(request((MS, 1), id=0, finished_ns=MS))
    later = turns((in_slot(prefill(1, new=4), 0),), first=1)
    flights.add(later, end_times(later))
    assert [view.id for view in flights.views(2 * MS)] == [1]


def test_one_that_is_put_back_keeps_what_it_has_until_it_returns() -> None:
    """Its slot is taken by another; later it is prefilled again, elsewhere."""
    prompt = prefill(0, new=8, cached=4, outputs=1, emitted=1)
    flights = flown(*turns((prompt,), (decode(0, cached=12),), (in_slot(prefill(1, new=4), 0),)))
    assert [view.id for view in flights.views(3 * MS)] == [1]
    assert flights.count == 2
    later = turns((in_slot(prefill(0, new=6, cached=2), 3),), first=3)
    flights.add(later, end_times(later))
    back = flights.views(4 * MS)[1]
    assert (back.id, back.slot, back.phase, back.output_tokens) == (0, 3, "prefill", 2)
    assert (back.prompt_tokens, back.prefilled, back.hit_tokens, back.age_ns) == (12, 8, 4, 4 * MS)


def test_one_that_ends_in_the_queue_is_gone() -> None:
    flights = flown(*turns((decode(0, cached=3),), (in_slot(decode(1, cached=3), 0),)))
    flights.finish(request(id=0, finished_ns=MS, finish_reason="cancelled"))
    flights.finish(request(id=99, finished_ns=MS, finish_reason="cancelled"))
    assert flights.count == 1
    assert [view.id for view in flights.views(2 * MS)] == [1]


def test_what_was_in_flight_before_the_first_record_is_counted_from_there() -> None:
    steps = turns((decode(0, cached=70), in_slot(prefill(1, new=16, cached=64), 1)), first=500)
    later = turns((in_slot(prefill(2, new=16, cached=64), 2),), first=501)
    for view in flown(*steps).views(0):
        assert (view.is_partial, view.hit_tokens, view.prompt_tokens) == (True, None, None)
    fresh = flown(*steps, *later).views(0)[2]
    assert (fresh.is_partial, fresh.hit_tokens) == (False, 64)


def test_what_appears_after_lost_steps_may_have_begun_in_them() -> None:
    steps = [*turns((decode(0, cached=70),)), *turns((in_slot(prefill(1, new=16, cached=64), 1),), first=9)]
    assert flown(*steps).views(0)[1].is_partial


def test_a_forward_that_was_cut_short_did_nothing() -> None:
    flights = flown(step(decode(0, cached=3), aborted=True))
    assert flights.count == 0


def test_memory_is_bounded_when_records_of_the_end_are_lost() -> None:
    flights = InFlight()
    for n in range(2 * MOST):
        one = turns((in_slot(prefill(n, new=4), n % 8),), first=n)
        flights.add(one, end_times(one))
    assert flights.count == MOST
    assert [view.slot for view in flights.views(0)] == list(range(8))
