"""Gathers evidence from records as they come: a sink with a window of some seconds, a few microseconds per step."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.diagnosis import predicted, stalls
from stackscope.analysis.diagnosis.evidence import CacheUse, Evidence, Load, Stall
from stackscope.analysis.diagnosis.machine import MachineWatch
from stackscope.analysis.diagnosis.predicted import Sample
from stackscope.analysis.diagnosis.reference import Reference, paces
from stackscope.analysis.diagnosis.responses import Responses
from stackscope.analysis.diagnosis.tally import Tally, add_steps, total
from stackscope.analysis.live.standing import Standing
from stackscope.analysis.live.sums import end_times
from stackscope.analysis.lives import Life
from stackscope.records import (
    ConfigEvent,
    HardwareSample,
    Header,
    PrefixShadow,
    Probe,
    RequestRecord,
    StepRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.diagnosis.predicted import Predictor
    from stackscope.records import AnyRecord

BUCKET_NS: Final = 500_000_000
WINDOW_NS: Final = 5_000_000_000
"""What evidence is of: longer than a prompt takes, shorter than a reader's patience."""
LONGEST_NS: Final = 60_000_000_000
LEAST_FORWARDS: Final = 12
"""The window is longer, up to a minute, where so many forwards take longer."""
FIRST_FORWARDS: Final = 100
"""The first of a session, if they take no longer than the window: by what 40 had taught, one machine took three times
what it should."""
MOST_PENDING: Final = 256
GRACE_NS: Final = 500_000_000
"""With nothing in flight, the engine counts as waiting after so long."""
MOST_SAMPLED: Final = 2
"""Steps of each kind that a bucket keeps whole, for the time model."""
SHADOW_NS: Final = 60_000_000_000
"""Admissions are rare: the cache is looked at over the last minute."""


class Bucket(msgspec.Struct):
    """Half a second of steps."""

    ends_ns: int
    epoch: int
    tally: Tally
    plain: list[Sample]
    """Some of its steps: those in which nothing was prefilled, and the others."""
    mixed: list[Sample]
    long: list[StepRecord]
    """Steps that may have stalled: they are in neither sums nor samples yet (`_settled`)."""
    stalls: tuple[Stall, ...] = ()

    @property
    def middle_ns(self) -> int:
        return self.ends_ns - BUCKET_NS // 2


class Gatherer:
    """Takes the records of a session in the order of their time. For one thread at a time."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, header: Header | None) -> None:
        self._standing = Standing(header)
        self._pending: list[StepRecord] = []
        self._buckets: deque[Bucket] = deque()
        self._last: tuple[StepRecord, int] | None = None
        """The last step that was added, and its end."""
        self._n_forwards = 0
        """Since the session began."""
        self._began_ns: int | None = None
        """Its first step."""
        self._responses = Responses()
        self._machine = MachineWatch()
        self._requests: deque[Life] = deque(maxlen=256)
        self._shadows: deque[PrefixShadow] = deque(maxlen=256)
        self._draft_model = None if header is None else header.draft_model
        self._model = None if header is None else header.model
        self._reference = Reference()
        self._names_slots = header is None or header.source != "attach" or "slots" in header.capabilities

    def write(self, record: AnyRecord) -> None:
        """Take the next record. A header begins a session anew."""
        if isinstance(record, StepRecord):
            self._pending.append(record)
            if len(self._pending) >= MOST_PENDING:
                self.catch_up()
            return
        match record:
            case RequestRecord():
                self._requests.append(Life.of(record))
            case HardwareSample():
                self._machine.sample(record)
            case Probe():
                self._machine.probe(record)
            case PrefixShadow() if record.capacity_tokens is None:
                self._shadows.append(record)
            case ConfigEvent() if record.kind != "refused":
                self.catch_up()
                self._change(record)
            case Header():
                self._begin(record)
            case _:
                pass

    def close(self) -> None:
        """Nothing is held that needs releasing; evidence stays available."""

    def _change(self, event: ConfigEvent) -> None:
        self._standing.change(event)
        if event.model is not None:
            self._model = event.model
        if "draft_model" in event.changes:
            self._draft_model = event.draft_model

    def catch_up(self) -> None:
        """Add up what is pending."""
        if not self._pending:
            return
        steps, self._pending = self._pending, []
        self._responses.add(steps)
        ends = end_times(steps)
        at = 0
        for epoch, some in groupby(steps, attrgetter("epoch")):
            n = len(list(some))
            self._add(steps[at : at + n], ends[at : at + n], epoch)
            at += n

    def _add(self, steps: list[StepRecord], ends: list[int], epoch: int) -> None:
        """Add steps of one epoch to the buckets in which they ended."""
        threads = self._standing.pricing(epoch).threads
        first = 0
        while first < len(steps):
            bucket = self._bucket(ends[first], epoch)
            is_suspect = stalls.is_suspect(steps[first], ends[first])
            last = first + 1
            while (
                not is_suspect
                and last < len(steps)
                and ends[last] < bucket.ends_ns
                and not stalls.is_suspect(steps[last], ends[last])
            ):
                last += 1
            chosen = steps[first:last]
            if self._last is not None:
                before, ended_ns = self._last
                if chosen[0].n == before.n + 1 and chosen[0].start_ns > ended_ns:
                    bucket.tally.idle += chosen[0].start_ns - ended_ns
            if is_suspect:
                bucket.long += chosen
            else:
                add_steps(bucket.tally, chosen, ends[first:last], threads)
                predicted.keep(bucket.plain, bucket.mixed, chosen, MOST_SAMPLED)
            if self._began_ns is None:
                self._began_ns = chosen[0].start_ns
            self._n_forwards += len([step for step in chosen if step.work])
            self._last = chosen[-1], ends[last - 1]
            first = last
        self._forget(ends[-1])

    def _bucket(self, end_ns: int, epoch: int) -> Bucket:
        if self._buckets:
            newest = self._buckets[-1]
            if newest.epoch == epoch and end_ns < newest.ends_ns:
                return newest
        bucket = Bucket((end_ns // BUCKET_NS + 1) * BUCKET_NS, epoch, Tally(), [], [], [])
        self._buckets.append(bucket)
        return bucket

    def _forget(self, now_ns: int) -> None:
        while self._buckets and self._buckets[0].ends_ns < now_ns - LONGEST_NS:
            self._buckets.popleft()

    def evidence(self, now_ns: int, model: Predictor | None) -> Evidence:
        """What is known of the last seconds, up to now, under the configuration in force.

        `model` is the newest time model. One that was learned while the machine was disturbed does not take the place
        of one from calmer times.
        """
        self.catch_up()
        waited_ns = self._waited_ns(now_ns)
        buckets = self._settled(model)
        chosen = self._window(buckets, now_ns, may_extend=waited_ns == 0)
        tally = total([bucket.tally for bucket in chosen])
        tally.idle += waited_ns
        since_ns = chosen[0].ends_ns - BUCKET_NS if chosen else now_ns
        cpu_share = tally.cpu / tally.thread_time if tally.thread_time else None
        probed_from_ns = since_ns - BUCKET_NS
        machine = self._machine.machine(probed_from_ns, cpu_share)
        standing, epoch = self._standing, chosen[-1].epoch if chosen else self._standing.epoch
        pricing = standing.pricing(epoch)
        is_calm = self._reference.update(
            model, standing.config, pricing, is_calm=machine.is_calm, is_early=self._is_early(now_ns)
        )  # fmt: skip
        alike = [bucket for bucket in buckets if bucket.epoch == epoch]
        machine = self._machine.with_felt(machine, probed_from_ns, lambda: paces(self._reference, alike))
        header = standing.header
        facts = predicted.facts(self._reference, chosen, tally, pricing, standing)
        return Evidence(
            at_ns=now_ns,
            steps=tally.steps,
            forwards=tally.forwards,
            times=tally.times,
            stalls=tuple([stall for bucket in chosen for stall in bucket.stalls]),
            is_reference_calm=is_calm,
            machine=machine,
            load=self._load(tally, now_ns),
            cache=self._cache(buckets, now_ns, tally),
            config=standing.config,
            model=self._model,
            draft_model=self._draft_model,
            library=None if header is None else header.library,
            responses=self._responses.found(),
            settling=tally.settling / tally.steps if tally.steps else 0.0,
            **facts,
        )

    def _is_early(self, now_ns: int) -> bool:
        """What the first steps taught is all that there is. They compute prompts while everything else still loads."""
        is_young = self._began_ns is None or now_ns - self._began_ns < WINDOW_NS
        return is_young and self._n_forwards < FIRST_FORWARDS

    def _waited_ns(self, now_ns: int) -> int:
        """How long the engine has had nothing to do by now, as far as the window reaches. 0: it may be in a step."""
        if self._last is None:
            return 0
        last, ended_ns = self._last
        ended = {request.id for request in self._requests}
        if now_ns - ended_ns < GRACE_NS or last.queue > 0 or any(slot.request not in ended for slot in last.work):
            return 0
        return min(now_ns - ended_ns, WINDOW_NS)

    def _settled(self, newest: Predictor | None) -> list[Bucket]:
        """All buckets, with what is now to be said of the steps that may have stalled."""
        if not any(bucket.long for bucket in self._buckets):
            return list(self._buckets)
        epoch = self._buckets[-1].epoch
        suspects = [predicted.sampled(one) for bucket in self._buckets for one in bucket.long]
        others = [one for b in self._buckets if b.epoch == epoch for one in (*b.plain, *b.mixed)]
        found = stalls.find(suspects, others, self._reference.total(newest))
        threads = {epoch: self._standing.pricing(epoch).threads for epoch in {b.epoch for b in self._buckets}}
        return [_settle(one, found, threads[one.epoch]) if one.long else one for one in self._buckets]

    def _window(self, buckets: list[Bucket], now_ns: int, *, may_extend: bool) -> list[Bucket]:
        """The newest buckets of one epoch: some seconds, or more where forwards are slow."""
        chosen: list[Bucket] = []
        forwards = 0
        for bucket in reversed(buckets):
            is_old = bucket.ends_ns <= now_ns - WINDOW_NS
            if bucket.ends_ns <= now_ns - LONGEST_NS or (is_old and (forwards >= LEAST_FORWARDS or not may_extend)):
                break
            if chosen and bucket.epoch != chosen[-1].epoch:
                break
            chosen.append(bucket)
            forwards += bucket.tally.forwards
        chosen.reverse()
        return chosen

    def _load(self, tally: Tally, now_ns: int) -> Load:
        if not self._names_slots or tally.running == 0:
            return Load()
        lately = [request for request in self._requests if request.finished_ns > now_ns - WINDOW_NS]
        waits = [request.admitted_ns - request.arrived_ns for request in lately if request.admitted_ns is not None]
        lives = [request.finished_ns - request.arrived_ns for request in lately if request.admitted_ns is not None]
        in_system = tally.queue_time + tally.busy_slot_time
        return Load(
            queue=tally.queue_time / tally.running,
            slots_busy=tally.busy_slot_time / tally.running,
            slots=tally.slot_time / tally.running,
            waiting=tally.waiting / tally.running,
            wait_share=tally.queue_time / in_system if in_system else None,
            full=tally.full / tally.waiting if tally.waiting else None,
            wait_of_finished=sum(waits) / sum(lives) if sum(lives) > 0 else None,
            finished=len(lives),
        )

    def _cache(self, buckets: list[Bucket], now_ns: int, tally: Tally) -> CacheUse:
        """Of the last minute, as far as its steps are kept; what happened in the window, of that."""
        epoch = buckets[-1].epoch if buckets else 0
        lately = total([b.tally for b in buckets if b.epoch == epoch and b.ends_ns > now_ns - SHADOW_NS])
        shadows = [s for s in self._shadows if s.epoch == epoch and s.at_ns > now_ns - SHADOW_NS]
        looked_up = sum([shadow.lookup_tokens for shadow in shadows])
        unlimited = None
        if looked_up > 0:
            found = sum([shadow.useful_hit_tokens for shadow in shadows])
            unlimited = found / looked_up * lately.lookup_tokens
        return CacheUse(
            lookup_tokens=lately.lookup_tokens,
            hit_tokens=lately.hit_tokens,
            useful_hit_tokens=lately.useful_hit_tokens,
            spared=_spared(lately),
            evicted_blocks=lately.evicted_blocks,
            preempted=tally.preempted,
            unlimited_tokens=unlimited,
        )


def _settle(bucket: Bucket, found: Mapping[int, Stall], threads: int | None) -> Bucket:
    """A bucket with its long steps: counted like others, but for those that stalled."""
    tally, plain, mixed = total([bucket.tally]), list(bucket.plain), list(bucket.mixed)
    stalled = tuple([found[step.n] for step in bucket.long if step.n in found])
    for stall in stalled:
        tally.busy += stall.duration_ns
        tally.stalled += stall.duration_ns
    steps = [step for step in bucket.long if step.n not in found]
    add_steps(tally, steps, end_times(steps), threads)
    predicted.keep(plain, mixed, steps, MOST_SAMPLED)
    return Bucket(bucket.ends_ns, bucket.epoch, tally, plain, mixed, [], stalled)


def _spared(tally: Tally) -> float | None:
    """What useful hits would have taken to compute ÷ wall time, at what a prompt token took meanwhile. `None`: none was
    computed, or not to be told from what decoded beside it."""
    if tally.useful_hit_tokens == 0:
        return 0.0
    wall = tally.times.wall
    if tally.prefill_rows == 0 or wall <= 0.0 or (tally.mixed_steps and not tally.pure_steps):
        return None
    plain = tally.pure / tally.pure_steps if tally.mixed_steps else 0.0
    computing = tally.prefill_only + max(0.0, tally.mixed - tally.mixed_steps * plain)
    return tally.useful_hit_tokens * computing / tally.prefill_rows / wall
