"""Who is in the slots, from what each step did for each sequence."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from stackscope.analysis.live.snapshot import RequestView
from stackscope.analysis.metrics.speculation import committed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import FinishReason, RequestRecord, SlotWork, StepRecord

SHOWN_AFTER_NS: Final = 2_000_000_000
"""How long a request that has finished stays in view, unless its slot is taken again."""
MOST: Final = 4_096
"""Requests that are remembered. Those put back to the queue are among them, because they come back."""


class _Flight:
    """A request that has been in a slot."""

    __slots__ = (
        "accepted", "drafted", "emitted_ns", "finished", "finished_ns", "hit_tokens", "is_partial", "output_tokens",
        "prompt_tokens", "since_ns", "slot", "work",
    )  # fmt: skip

    def __init__(self, work: SlotWork, since_ns: int, *, is_partial: bool) -> None:
        self.slot = work.slot
        self.work = work
        """What it did last."""
        self.since_ns = since_ns
        self.is_partial = is_partial
        self.hit_tokens = None if is_partial else work.cached
        self.prompt_tokens: int | None = None
        self.output_tokens = self.drafted = self.accepted = 0
        self.emitted_ns: int | None = None
        """End of the last step in which it emitted."""
        self.finished: FinishReason | None = None
        self.finished_ns = 0

    def view(self, id: int, now_ns: int) -> RequestView:
        work = self.work
        in_cache = work.cached + (work.new if work.phase == "prefill" else 1)
        if self.prompt_tokens is not None:
            prefilled = min(in_cache, self.prompt_tokens)
        else:
            prefilled = in_cache if work.phase == "prefill" else max(in_cache - self.output_tokens, 0)
        until_ns = now_ns if self.finished is None else self.finished_ns
        return RequestView(
            id=id,
            slot=self.slot,
            phase=work.phase,
            prompt_tokens=self.prompt_tokens,
            prefilled=prefilled,
            hit_tokens=self.hit_tokens,
            output_tokens=self.output_tokens,
            drafted=self.drafted,
            accepted=self.accepted,
            age_ns=max(until_ns - self.since_ns, 0),
            is_partial=self.is_partial,
            finished=self.finished,
        )


class InFlight:
    """Follows every request from the first step that it is seen in until its record comes. Bounded memory."""

    def __init__(self) -> None:
        self._flights: dict[int, _Flight] = {}
        self._by_slot: dict[int, int] = {}
        self._last_n: int | None = None

    @property
    def count(self) -> int:
        """Requests that have been in a slot and have not finished."""
        return sum([flight.finished is None for flight in self._flights.values()])

    def add(self, steps: Sequence[StepRecord], ends: Sequence[int]) -> array[float]:
        """Take consecutive steps and when they ended; nanoseconds between two emissions of the same request."""
        gaps = array("d")
        flights = self._flights
        last_n = self._last_n
        for step, end_ns in zip(steps, ends, strict=True):
            before, last_n = last_n, step.n
            if step.aborted:
                continue
            for work in step.work:
                flight = flights.get(work.request)
                if flight is None or flight.slot != work.slot:
                    flight = self._enter(work, step, before)
                flight.work = work
                if emitted := work.emitted:
                    flight.output_tokens += emitted
                    if (emitted_ns := flight.emitted_ns) is not None:
                        gaps.append(end_ns - emitted_ns)
                    flight.emitted_ns = end_ns
                if drafted := work.drafted:
                    flight.drafted += drafted
                    flight.accepted += committed((drafted, work.accepted, emitted))
                elif flight.prompt_tokens is None and work.outputs and not flight.is_partial:
                    flight.prompt_tokens = work.cached + work.new
        self._last_n = last_n
        return gaps

    def finish(self, request: RequestRecord) -> None:
        """Take the record of a request, which knows all of it."""
        flight = self._flights.get(request.id)
        if flight is None:
            return
        if flight.slot < 0:
            del self._flights[request.id]
            return
        flight.finished, flight.finished_ns = request.finish_reason, request.finished_ns
        flight.is_partial = False
        flight.since_ns = flight.since_ns if request.admitted_ns is None else request.admitted_ns
        flight.prompt_tokens, flight.hit_tokens = request.prompt_tokens, request.hit_tokens
        flight.output_tokens = request.output_tokens
        flight.drafted, flight.accepted = request.drafted, request.accepted

    def views(self, now_ns: int) -> tuple[RequestView, ...]:
        """Those in a slot, and those that have just finished in one, by slot."""
        shown = [
            (flight.slot, id, flight)
            for id, flight in self._flights.items()
            if flight.slot >= 0 and (flight.finished is None or now_ns - flight.finished_ns <= SHOWN_AFTER_NS)
        ]
        return tuple([flight.view(id, now_ns) for _, id, flight in sorted(shown, key=lambda each: each[:2])])

    def _enter(self, work: SlotWork, step: StepRecord, before: int | None) -> _Flight:
        """A request appears in a slot: for the first time, or again after it was put back.

        `before` is the number of the step before this one, as far as it has come. `None`: there is none.
        """
        id, slot = work.request, work.slot
        holder = self._by_slot.get(slot)
        if holder is not None and holder != id:
            other = self._flights[holder]
            if other.finished is None:
                other.slot = -1
            else:
                del self._flights[holder]
        flight = self._flights.get(id)
        if flight is None:
            has_begun = work.phase != "prefill" or step.n != (0 if before is None else before + 1)
            flight = _Flight(work, step.start_ns, is_partial=has_begun)
            self._flights[id] = flight
        elif self._by_slot.get(flight.slot) == id:
            del self._by_slot[flight.slot]
        flight.slot = slot
        self._by_slot[slot] = id
        if len(self._flights) > MOST:
            oldest = next(iter(self._flights))
            if self._by_slot.get(self._flights[oldest].slot) == oldest:
                del self._by_slot[self._flights[oldest].slot]
            del self._flights[oldest]
        return flight
