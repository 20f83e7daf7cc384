"""The present of a session: records in, one by one, and at any time the snapshot that the screen shows."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live import explained, windows
from stackscope.analysis.live.bins import BIN_NS, MINUTE_BINS, Bins
from stackscope.analysis.live.blocks import Blocks
from stackscope.analysis.live.effects import MOST_EFFECTS, Effects
from stackscope.analysis.live.events import Events
from stackscope.analysis.live.inflight import InFlight
from stackscope.analysis.live.latencies import GAPS_NS, Latencies
from stackscope.analysis.live.snapshot import History, Levels, Snapshot, State, Verdict, Window
from stackscope.analysis.live.standing import Standing
from stackscope.analysis.live.sums import end_times
from stackscope.analysis.live.verdict import Verdicts
from stackscope.analysis.metrics.base import ServiceLimits, unknown_needs
from stackscope.analysis.scorecard import Scorecard
from stackscope.records import (
    ConfigEvent,
    Footer,
    HardwareSample,
    Header,
    Log,
    Mark,
    Prediction,
    RequestRecord,
    StepRecord,
    TrafficEvent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.explainer import Explainer, Explanation
    from stackscope.analysis.live.snapshot import Event
    from stackscope.analysis.live.sums import Sums
    from stackscope.records import AnyRecord
    from stackscope.toggles import Setting

NOW_BINS: Final = 4
"""Bins of the window `now`, the one in progress aside."""
NAMED_BINS: Final = 10
"""Bins that the verdict is of, at least: a name of two seconds would change with every prompt."""
LEAST_FORWARDS: Final = 4
"""The window `now` is longer where so many forwards take longer."""
MOST_STEPS: Final = 2_000
"""Newest steps that are kept."""
MOST_PENDING: Final = 256
"""Steps that wait to be summed up together, which is cheaper than one by one."""
MOST_LINES: Final = 20
"""Newest log lines that are kept."""
GRACE_NS: Final = 500_000_000
"""With nothing in flight, the engine counts as waiting after so long, or twice its longest step if that is longer."""
STALE_NS: Final = 3_000_000_000
"""How long the last seconds are shown as `now` when nothing more comes, or twice the longest step if that is longer."""
LOOK_NS: Final = 20_000_000_000
"""How often the explainer is asked while nobody takes snapshots, so that it sees the course of things."""
SAMPLE_NS: Final = 1_000_000_000
"""What the first hardware sample stands for."""


class LiveView:
    """A sink that keeps the last minutes: bounded memory, a few microseconds per step. For one thread at a time."""

    def __init__(self, limits: ServiceLimits | None = None, explainer: Explainer | None = None) -> None:
        """`explainer` is fed all records too. `None`: the verdict is that of phase shares, and nothing is predicted."""
        self.explainer = explainer
        self.steps: deque[StepRecord] = deque(maxlen=MOST_STEPS)
        """The newest steps, as of the last snapshot. Another thread may copy it with `tuple`."""
        self._limits = ServiceLimits() if limits is None else limits
        self._begin(None)

    def _begin(self, header: Header | None) -> None:
        self._standing = Standing(header)
        self._pending: list[StepRecord] = []
        self._finished: list[RequestRecord] = []
        """Requests that ended in the steps that are pending, or since."""
        self._n_steps = self._n_requests = self._n_tokens = 0
        self._last: StepRecord | None = None
        self._last_forwards_ns: deque[int] = deque(maxlen=LEAST_FORWARDS)
        """Durations of the steps with the last forwards."""
        self._missed_at: int | None = None
        self._footer: Footer | None = None
        self._hardware: HardwareSample | None = None
        self._log: deque[str] = deque(maxlen=MOST_LINES)
        self._bins = Bins(unknown_needs(header), on_steps=self._count, on_close=self._judge)
        self._flights = InFlight()
        self._latencies = Latencies(self._limits)
        self._verdicts = Verdicts()
        self._verdict: tuple[tuple[State, bool], Verdict] | None = None
        """As it was last put in words, and in which state. `None`: a bin was completed since, or more is known."""
        self._explanation: Explanation | None = None
        self._looked_ns = 0
        self._effects = Effects()
        self._scorecard = Scorecard(self._effects.effect_of, most=MOST_EFFECTS)
        self._blocks = Blocks(self._effects.add_block)
        self._blocks.concurrency = self._standing.closed_loop
        self._events = Events(self._effects.effect_of)
        self._names_requests = header is None or header.source != "attach" or "requests" in header.capabilities
        """The source tells of finished requests."""
        self.steps.clear()

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session, in the order of their time. A header begins a session anew."""
        if isinstance(record, StepRecord):
            self._pending.append(record)
            if self.explainer is not None:  # At once: what it is told in which order does not depend on who looks.
                self.explainer.write(record)
            if len(self._pending) >= MOST_PENDING:
                self.catch_up()
            return
        if isinstance(record, RequestRecord):
            self._finished.append(record)
            if self.explainer is not None:
                self.explainer.write(record)
            return
        self.catch_up()
        if self.explainer is not None:
            self.explainer.write(record)
        match record:
            case HardwareSample():
                since_ns = record.at_ns - SAMPLE_NS if self._hardware is None else self._hardware.at_ns
                self._bins.sample(record.at_ns, since_ns, record.cpu_percent)
                self._hardware = record
            case ConfigEvent():
                self._change(record)
            case TrafficEvent():
                self._change_load(record)
            case Mark():
                self._events.add_mark(record)
            case Prediction():
                self._scorecard.predicted(record)
            case Log():
                self._log.append(record.text)
            case Footer():
                self._end(record)
            case Header():
                self._begin(record)

    def close(self) -> None:
        """Nothing is held that needs releasing; snapshots stay available."""

    def snapshot(self, now_ns: int) -> Snapshot:
        """What the screen shows at this time of the session. After its end nothing changes any more."""
        self.catch_up()
        if self._footer is not None:
            now_ns = min(now_ns, self._footer.at_ns)
        standing, is_waiting = self._standing, self._is_waiting(now_ns)
        idle_until_ns = now_ns if is_waiting else None
        points = self._bins.points(now_ns, is_idle=is_waiting)
        now = self._now(now_ns, idle_until_ns)
        events = self._events.newest()
        limits = standing.limits
        explanation = self._explained(now_ns, is_shown=True)
        state = self._state(is_waiting=is_waiting, is_settling=any(_is_settling(event) for event in events))
        return Snapshot(
            at_ns=now_ns,
            state=state,
            header=standing.header,
            config=standing.config,
            model_name=standing.model_name,
            epoch=standing.epoch,
            concurrency=standing.concurrency,
            rate=standing.rate,
            n_steps=self._n_steps,
            n_requests=self._n_requests,
            n_tokens=self._n_tokens,
            now=now,
            minute=self._window(MINUTE_BINS, idle_until_ns),
            levels=self._levels(),
            latency=self._latencies.latency(
                now_ns, gaps_ns=max(GAPS_NS, self._now_bins * BIN_NS), is_complete=self._names_requests
            ),
            history=History(
                bin_ns=BIN_NS,
                points=tuple(points),
                changes=self._events.labels(points[0].at_ns - BIN_NS) if points else (),
            ),
            requests=self._flights.views(now_ns),
            events=events,
            hardware=self._hardware,
            verdict=self._worded(state, now, now_ns, idle_until_ns),
            explanation=explanation,
            score=self._scorecard.score() if events else None,
            compute_ceiling=None if limits.compute is None else limits.compute.value,
            bandwidth_ceiling=None if limits.bandwidth is None else limits.bandwidth.value,
            not_modelled=standing.not_modelled,
            ended=None if self._footer is None else self._footer.reason,
            log=tuple(self._log),
        )

    def rest(self, now_ns: int, *, is_over: bool = False) -> bool:
        """Time stands still; see `Explainer.rest`. Whether another snapshot of this moment would tell more."""
        at_ns = now_ns if self._footer is None else min(now_ns, self._footer.at_ns)
        return self.explainer is not None and self.explainer.rest(at_ns, is_over=is_over)

    def _end(self, footer: Footer) -> None:
        self._footer = footer
        self._blocks.close()
        self._effects.end(footer.at_ns)
        self._scorecard.settle()

    # Records

    def predict(self, changes: Mapping[str, Setting], at_ns: int) -> Prediction | None:
        """What settings with these new values would do. `None`: nobody explains, or no step has run."""
        self.catch_up()
        return None if self.explainer is None else self.explainer.predict(changes, at_ns)

    def catch_up(self) -> None:
        """Sum up what is pending; a name that has changed becomes an event."""
        if self._pending:
            steps, self._pending = self._pending, []
            self._add_steps(steps)
        if self._finished:
            requests, self._finished = self._finished, []
            for request in requests:
                self._add_request(request)
        for change in () if self.explainer is None else self.explainer.take_changes():
            self._events.add_verdict(change)

    def _add_steps(self, steps: list[StepRecord]) -> None:
        self.steps.extend(steps)
        ends = end_times(steps)
        if steps[0].epoch == steps[-1].epoch:
            self._bins.add(steps, ends, self._standing.pricing(steps[0].epoch))
        else:
            i = 0
            for epoch, some in groupby(steps, attrgetter("epoch")):
                n = len(list(some))
                self._bins.add(steps[i : i + n], ends[i : i + n], self._standing.pricing(epoch))
                i += n
        self._latencies.add_gaps(ends[-1], self._flights.add(steps, ends))
        last = self._last = steps[-1]
        self._standing.epoch = last.epoch
        durations = [end - step.start_ns for step, end in zip(steps, ends, strict=True) if step.work][-LEAST_FORWARDS:]
        self._last_forwards_ns.extend(durations)
        looked = next((step.cache for step in reversed(steps) if step.cache.lookups > 0), None)
        if looked is not None:
            self._missed_at = looked.missed_at

    def _count(self, sums: Sums, last: StepRecord, idle_before_ns: int) -> None:
        """Sums over some steps are in."""
        self._n_steps += int(sums.steps)
        self._n_tokens += int(sums.emitted)
        self._blocks.add(sums, last, idle_before_ns)

    def _judge(self) -> None:
        """A bin is complete."""
        self._verdict = None
        self._blocks.close()
        if self._bins.covered_ns is not None and self._bins.covered_ns >= self._looked_ns + LOOK_NS:
            self._explained(self._bins.covered_ns, is_shown=False)
        sums, _ = self._bins.window(max(NAMED_BINS, self._now_bins))
        covered_ns = self._bins.covered_ns
        if covered_ns is not None and "phases" not in self._bins.unknown:
            self._verdicts.update(covered_ns, windows.shares(sums))

    def _add_request(self, request: RequestRecord) -> None:
        self._n_requests += 1
        self._flights.finish(request)
        if self._latencies.add(request):
            self._bins.complete(request.finished_ns)

    def _change(self, event: ConfigEvent) -> None:
        if event.kind == "refused":
            self._scorecard.refused(event.changes)
            self._events.add_change(event)
            return
        self._standing.change(event)
        self._blocks.cut()
        if event.changes:  # Without any, it says what was in force when a recording began.
            self._effects.add_change(event)  # First: it ends the measurement before, which is final then.
            predicted = self._scorecard.changed(event.at_ns, event.changes)
            self._events.add_change(event, predicted)

    def _change_load(self, event: TrafficEvent) -> None:
        changes = self._standing.change_load(event)
        if not changes:
            return
        self._blocks.cut()
        self._blocks.concurrency = self._standing.closed_loop
        if self._last is not None:  # Before any step, it is what the session starts with.
            self._effects.add_change(event)
            predicted = self._scorecard.changed(event.at_ns, changes)
            self._events.add_traffic(event, changes, predicted)

    # The snapshot

    @property
    def _now_bins(self) -> int:
        """Bins of the window `now`: two seconds, or more where the last forwards took longer."""
        return min(max(NOW_BINS, -(-sum(self._last_forwards_ns) // BIN_NS)), MINUTE_BINS)

    def _is_waiting(self, now_ns: int) -> bool:
        """Nothing is in flight, as far as is known, and nothing has come for a while."""
        covered_ns, last = self._bins.covered_ns, self._last
        if covered_ns is None or last is None or last.queue > 0 or "slots" in self._bins.unknown:
            return False
        if now_ns - covered_ns < GRACE_NS or self._flights.count > 0:
            return False
        return now_ns - covered_ns >= 2 * self._bins.longest_ns

    def _state(self, *, is_waiting: bool, is_settling: bool) -> State:
        if self._footer is not None:
            return "dead" if self._footer.reason == "engine-died" else "finished"
        if self._last is None:
            return "starting"
        if is_waiting:
            return "waiting"
        return "settling" if self._last.settling or is_settling else "running"

    def _window(self, n_bins: int, idle_until_ns: int | None) -> Window:
        sums, verifications = self._bins.window(n_bins, idle_until_ns=idle_until_ns)
        return windows.window(sums, verifications, self._bins.unknown, names_requests=self._names_requests)

    def _now(self, now_ns: int, idle_until_ns: int | None) -> Window:
        """The last seconds that are known, unless they are long past."""
        covered_ns = self._bins.covered_ns
        if covered_ns is None:
            return Window()
        n_bins = self._now_bins
        if idle_until_ns is None and now_ns - covered_ns > max(STALE_NS, 2 * self._bins.longest_ns):
            return Window()
        return self._window(n_bins, idle_until_ns)

    def _levels(self) -> Levels:
        last, unknown = self._last, self._bins.unknown
        if last is None:
            return Levels()
        knows_slots, has_cache, cache = "slots" not in unknown, "prefix_cache" not in unknown, last.cache
        block_bytes = self._standing.block_bytes
        return Levels(
            queue=last.queue if knows_slots else None,
            slots_busy=last.slots_busy if knows_slots else None,
            slots=last.slots if knows_slots else None,
            kv_cells=last.kv_cells if knows_slots else None,
            resident_blocks=cache.resident_blocks if has_cache else None,
            resident_paths=cache.resident_paths if has_cache else None,
            shared_blocks=cache.shared_blocks if has_cache else None,
            held_bytes=cache.resident_blocks * block_bytes if has_cache and block_bytes is not None else None,
            missed_at=self._missed_at if has_cache else None,
        )

    def _explained(self, now_ns: int, *, is_shown: bool) -> Explanation | None:
        """What the explainer says now."""
        self._looked_ns = now_ns
        if self.explainer is None:
            return None
        look = self.explainer.explanation if is_shown else self.explainer.follow
        before, self._explanation = self._explanation, look(now_ns)
        if before is not None and _tells_more(before, self._explanation):
            self._verdict = None  # Where time stands still, no bin would ever do it.
        return self._explanation

    def _worded(self, state: State, now: Window, now_ns: int, idle_until_ns: int | None) -> Verdict:
        """The verdict in words. They change once a bin, which is often enough to read."""
        if now.wall_ns == 0 and self._last is not None and state in ("running", "settling"):
            return self._silence(now_ns)
        key = (state, now.wall_ns > 0)
        if self._verdict is None or self._verdict[0] != key:
            named = self._window(max(NAMED_BINS, self._now_bins), idle_until_ns)
            self._verdict = key, self._fresh_verdict(state, named)
        return self._verdict[1]

    def _silence(self, now_ns: int) -> Verdict:
        """No step has ended for longer than steps take: it is rebuilding, in a very long step, or it hangs."""
        covered_ns = self._bins.covered_ns
        since_ns = 0 if covered_ns is None else now_ns - covered_ns
        in_flight = units.counted(self._flights.count, "request")
        seconds = units.counted(since_ns // 1_000_000_000, "second")
        return Verdict(sentence=f"no step has ended for {seconds}, with {in_flight} in flight")

    def _fresh_verdict(self, state: State, named: Window) -> Verdict:
        if self._last is None:
            return Verdict(sentence="no step has run yet")
        if state == "waiting":
            return Verdict(sentence="no request is in flight")
        if "phases" in self._bins.unknown:
            return Verdict(sentence="this source does not say where the time of a step goes")
        if self._explanation is not None and self._explanation.terms:
            return explained.verdict(self._explanation)
        return self._verdicts.verdict(named, is_over=state in ("finished", "dead"))


def _tells_more(before: Explanation, after: Explanation) -> bool:
    """Something was named or predicted anew."""
    return before.naming is not after.naming or before.ranking is not after.ranking


def _is_settling(event: Event) -> bool:
    return event.effect is not None and event.effect.state == "settling"
