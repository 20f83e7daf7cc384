"""A session as a trace: steps with their phases, slots, requests and changes as tracks, levels as counters.

Only what a step took in each phase is recorded, not when each phase began. They are laid end to end in the order in
which the engine's loop goes through them, and fill the step exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.analysis.live.events import label_of
from stackscope.analysis.live.snapshot import Event
from stackscope.analysis.metrics.base import ratio, unknown_needs
from stackscope.analysis.totals import PHASES
from stackscope.records import ConfigEvent, HardwareSample, Mark, RequestRecord, StepRecord, TrafficEvent
from stackscope.report.export.columns import as_json
from stackscope.report.export.tables import Priced
from stackscope.report.export.trace_events import (
    asynchronous,
    counter,
    instant,
    process_name,
    slice_of,
    track_name,
)
from stackscope.report.export.trace_slots import SlotTracks

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.analysis.account import Account
    from stackscope.records import AnyRecord, Header
    from stackscope.report.export.trace_events import Args, TraceEvent

ENGINE, SLOTS, REQUESTS, MACHINE = 1, 2, 3, 4
"""Groups of tracks (processes, in the format)."""
STEPS_TRACK, CHANGES_TRACK, FIRST_SLOT_TRACK = 11, 12, 100
"""Tracks (threads, in the format). Perfetto names a track by its number alone, which must be the only one of the trace;
what belongs to a group as a whole has the group's own number."""


class Level(NamedTuple):
    """A counter."""

    name: str
    series: str
    """What is counted, or its unit: Perfetto puts it behind the name."""


BANDWIDTH: Final = Level("bandwidth in forwards, modelled", "GB/s")
ACCEPTANCE: Final = Level("acceptance of the step", "%")
DRAFTS: Final = "drafted tokens"
KV_CELLS: Final = Level("KV cells", "occupied")
QUEUE: Final = Level("queue", "requests")
SLOTS_BUSY: Final = Level("slots", "busy")
CPU: Final = Level("CPU", "%")
RESIDENT: Final = Level("engine memory", "MB")


def gpu_traffic(number: object) -> Level:
    """DRAM traffic of a GPU, measured."""
    return Level(f"GPU {number} DRAM, measured", "GB/s")


class Tracer:
    """A sink that puts the trace events of each record. Memory is bounded by the slots of the engine."""

    def __init__(self, header: Header, put: Callable[[TraceEvent], None]) -> None:
        self._put = put
        self._unknown = unknown_needs(header)
        self._priced = Priced(header)
        self._slots = SlotTracks(SLOTS, FIRST_SLOT_TRACK, put)
        self._levels: dict[Level, float] = {}
        """Counters that stand: they are put when they change."""
        self._drafted = 0
        """As last put."""
        self._end_ns: int | None = None
        """Of the last step."""
        for order, (pid, name) in enumerate(
            ((ENGINE, "engine"), (SLOTS, "slots"), (REQUESTS, "requests"), (MACHINE, "machine"))
        ):
            self._put_all(process_name(pid, name, order=order))
        self._put_all(track_name(ENGINE, STEPS_TRACK, "steps"))
        self._put_all(track_name(ENGINE, CHANGES_TRACK, "changes and marks"))

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session."""
        match record:
            case StepRecord():
                self._step(record)
            case RequestRecord():
                self._slots.finish(record.id)
                self._request(record)
            case ConfigEvent():
                self._priced.change(record)
                self._change(record)
            case TrafficEvent():
                offered = {"concurrency": record.concurrency, "rate": record.rate}
                told = ", ".join(
                    f"{name} {units.number(value)}" for name, value in offered.items() if value is not None
                )
                self._put(instant(ENGINE, CHANGES_TRACK, f"load: {told}", record.at_ns, offered))
            case Mark():
                self._put(instant(ENGINE, CHANGES_TRACK, f"mark: {record.label}", record.at_ns))
            case HardwareSample():
                self._sample(record)

    def end(self) -> None:
        """The session is over: put what is still open."""
        self._slots.end()

    def _put_all(self, events: list[TraceEvent]) -> None:
        for event in events:
            self._put(event)

    def _step(self, step: StepRecord) -> None:
        start_ns, end_ns = step.start_ns, step.end_ns
        target, draft = self._priced.target(step), self._priced.draft(step)
        name = "step (cut short)" if step.aborted else "step"
        self._put(slice_of(ENGINE, STEPS_TRACK, name, start_ns, end_ns, self._about(step, target, draft)))
        if "phases" not in self._unknown:
            begin_ns = start_ns
            for phase in PHASES:
                spent_ns = getattr(step.phases, phase)
                if spent_ns > 0:
                    self._put(slice_of(ENGINE, STEPS_TRACK, phase, begin_ns, begin_ns + spent_ns))
                begin_ns += spent_ns
        if self._end_ns is not None and start_ns > self._end_ns and BANDWIDTH in self._levels:
            self._level(ENGINE, BANDWIDTH, self._end_ns, 0.0)
        self._end_ns = end_ns
        self._counters(step, target)
        self._slots.add(step)

    def _about(self, step: StepRecord, target: Account | None, draft: Account | None) -> dict[str, object]:
        drafted = None if "acceptance" in self._unknown else sum([work.drafted for work in step.work])
        return {
            "n": step.n,
            "epoch": step.epoch,
            "sequences": len(step.work),
            "rows": step.rows,
            "emitted": step.emitted,
            "drafted": drafted,
            "accepted": None if drafted is None else sum([work.accepted for work in step.work]),
            "target_bytes": None if target is None else target.total_bytes,
            "target_flops": None if target is None else target.flops.total,
            "draft_bytes": None if draft is None else draft.total_bytes,
            "settling": True if step.settling else None,
        }

    def _counters(self, step: StepRecord, target: Account | None) -> None:
        at_ns = step.start_ns
        if target is not None and "phases" not in self._unknown:
            # Bytes per nanosecond are gigabytes per second.
            self._level(ENGINE, BANDWIDTH, at_ns, ratio(target.total_bytes, step.phases.decode) or 0.0)
        if "acceptance" not in self._unknown and not step.aborted:
            drafted = sum([work.drafted for work in step.work])
            committed = sum([min(work.accepted, work.emitted) for work in step.work])
            if drafted > 0 or self._drafted > 0:
                self._drafted = drafted
                self._put(counter(ENGINE, DRAFTS, at_ns, {"accepted": committed, "rejected": drafted - committed}))
            if drafted > 0:
                self._level(ENGINE, ACCEPTANCE, at_ns, 100 * committed / drafted)
        self._level(ENGINE, KV_CELLS, step.end_ns, step.kv_cells)
        if "slots" not in self._unknown:
            self._level(ENGINE, QUEUE, at_ns, step.queue)
            self._level(ENGINE, SLOTS_BUSY, at_ns, step.slots_busy)

    def _level(self, pid: int, level: Level, at_ns: int, value: float) -> None:
        if self._levels.get(level) != value:
            self._levels[level] = value
            self._put(counter(pid, level.name, at_ns, {level.series: value}))

    def _request(self, request: RequestRecord) -> None:
        """Its life as nested parts: queue, prefill, decode."""

        def part(ph: str, name: str, at_ns: int, args: Args | None = None) -> None:
            self._put(asynchronous(ph, REQUESTS, name, at_ns, category="request", id=request.id, args=args))

        about = {
            "id": request.id, "finish_reason": request.finish_reason, "prompt_tokens": request.prompt_tokens,
            "hit_tokens": None if "prefix_cache" in self._unknown else request.hit_tokens,
            "output_tokens": request.output_tokens, "preemptions": request.preemptions, "requeues": request.requeues,
            "error": request.error,
        }  # fmt: skip
        part("b", "request", request.arrived_ns, about)
        bounds = [request.arrived_ns, request.admitted_ns, request.first_token_ns, request.finished_ns]
        for name, begin_ns, later in zip(("queue", "prefill", "decode"), bounds, (1, 2, 3), strict=False):
            if begin_ns is None:
                continue
            end_ns = next(at_ns for at_ns in bounds[later:] if at_ns is not None)
            part("b", name, begin_ns)
            part("e", name, max(end_ns, begin_ns))
        part("e", "request", request.finished_ns)

    def _change(self, event: ConfigEvent) -> None:
        if event.kind != "refused" and not event.changes:
            return  # It says what was in force when the recording began.
        shown = Event(at_ns=event.at_ns, kind=event.kind, changes=event.changes, label=event.reason or "")
        name = f"{event.kind}: {event.reason or ''}" if event.kind == "refused" else label_of(shown)
        about = {
            "by": event.by, "kind": event.kind, "epoch": event.epoch, "changes": as_json(event.changes),
            "reason": event.reason, "requeued": event.requeued,
        }  # fmt: skip
        self._put(instant(ENGINE, CHANGES_TRACK, name, event.at_ns, about))
        if event.duration_ns is not None:
            self._put(slice_of(ENGINE, CHANGES_TRACK, "rebuild", event.at_ns, event.at_ns + event.duration_ns))

    def _sample(self, sample: HardwareSample) -> None:
        if sample.cpu_percent is not None:
            self._level(MACHINE, CPU, sample.at_ns, sample.cpu_percent)
        if sample.rss_bytes is not None:
            self._level(MACHINE, RESIDENT, sample.at_ns, sample.rss_bytes / 1e6)
        for place, gpu in enumerate(sample.gpus or ()):
            if gpu.dram_bytes_per_s is not None:
                level = gpu_traffic(place if gpu.index is None else gpu.index)
                self._level(MACHINE, level, sample.at_ns, gpu.dram_bytes_per_s / 1e9)
