"""Tracks of a trace that show which request each slot held, and whether it prefilled or decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stackscope.report.export.trace_events import slice_of, track_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.records import SlotWork, StepRecord
    from stackscope.report.export.trace_events import TraceEvent


@dataclass
class _Stretch:
    """A time in which one request did one kind of work."""

    name: str
    start_ns: int
    end_ns: int
    rows: int = 0
    emitted: int = 0
    steps: int = 0

    def add(self, work: SlotWork, end_ns: int) -> None:
        self.end_ns = end_ns
        self.rows += work.new
        self.emitted += work.emitted
        self.steps += 1

    def slice(self, pid: int, tid: int) -> TraceEvent:
        about = {"rows": self.rows, "emitted": self.emitted, "steps": self.steps}
        return slice_of(pid, tid, self.name, self.start_ns, self.end_ns, about)


@dataclass
class _Held:
    """A request in a slot."""

    request: int
    stretches: list[_Stretch] = field(default_factory=list)


class SlotTracks:
    """Follows steps and puts a slice for each stay of a request in a slot, its kinds of work inside.

    A stay goes from its first step to the end of its last one, steps that left it out included.
    """

    def __init__(self, pid: int, first_tid: int, put: Callable[[TraceEvent], None]) -> None:
        """Slot 0 is the track `first_tid` of the group `pid`, and the others follow."""
        self._pid = pid
        self._first_tid = first_tid
        self._put = put
        self._held: dict[int, _Held] = {}
        self._named: set[int] = set()

    def add(self, step: StepRecord) -> None:
        """Take a step. One that was cut short is done again, and counts then."""
        if step.aborted:
            return
        end_ns = step.end_ns
        for work in step.work:
            held = self._held.get(work.slot)
            if held is None or held.request != work.request:
                self._close(work.slot)
                held = self._held[work.slot] = _Held(work.request)
            name = "prefill" if work.phase == "prefill" else "decode"
            if not held.stretches or held.stretches[-1].name != name:
                held.stretches.append(_Stretch(name, step.start_ns, end_ns))
            held.stretches[-1].add(work, end_ns)

    def finish(self, request: int) -> None:
        """A request has ended."""
        for slot in [slot for slot, held in self._held.items() if held.request == request]:
            self._close(slot)

    def end(self) -> None:
        """The session has ended."""
        for slot in list(self._held):
            self._close(slot)

    def _close(self, slot: int) -> None:
        held = self._held.pop(slot, None)
        if held is None:
            return
        tid = self._first_tid + slot
        if slot not in self._named:
            self._named.add(slot)
            for event in track_name(self._pid, tid, f"slot {slot}"):
                self._put(event)
        first, last = held.stretches[0], held.stretches[-1]
        name = f"request {held.request}"
        # What holds others comes before them: a reader that sorts by time alone then nests them rightly.
        self._put(slice_of(self._pid, tid, name, first.start_ns, last.end_ns, {"request": held.request}))
        for stretch in held.stretches:
            self._put(stretch.slice(self._pid, tid))
