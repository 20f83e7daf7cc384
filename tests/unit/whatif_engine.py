"""A small engine on a machine with planted parameters: it serves a closed loop, and leaves a session's records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.ubatches import split_equal
from stackscope.analysis.whatif.watch import Watch
from stackscope.analysis.whatif.working_point import WorkingPoint
from stackscope.engine.scheduler import SlotView, plan_step
from stackscope.records import (
    CacheCounters,
    DraftForward,
    Emission,
    Estimate,
    Header,
    LengthCounts,
    ModelSummary,
    Phases,
    PrefixShadow,
    RequestRecord,
    SlotWork,
    StepRecord,
    Ubatch,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.records import DraftKind
    from stackscope.toggles import EngineConfig

from tests.unit.whatif_machine import DRAFT, FOUR_BITS, MODEL, Machine, Times, in_four_bits, pricing


@dataclass(frozen=True)
class Traffic:
    """A closed loop of alike requests, and what drafts and prefix caches make of them."""

    concurrency: int = 4
    prompt: int = 60
    output: int = 160
    found: float = 0.7
    """Part of each prompt that a prefix cache has."""
    accepted: Mapping[str, float] = field(default_factory=lambda: {"ngram": 0.7, "draft": 0.8})
    """Probability that a drafted token is accepted when those before it were."""
    covered: Mapping[str, float] = field(default_factory=lambda: {"ngram": 0.5, "draft": 1.0})
    """Probability that there is a draft at all."""
    idle_cells: int = 0
    """Cells of cached prefixes nobody uses, while the prefix cache is on."""

    def prefix_shadow(self, requests: int = 200) -> PrefixShadow:
        """What a simulated prefix cache would have found of so many requests."""
        looked_up = requests * self.prompt
        found = round(looked_up * self.found)
        return PrefixShadow(
            at_ns=0, epoch=0, requests=requests, lookup_tokens=looked_up, hit_tokens=found, useful_hit_tokens=found
        )

    def curve(self, source: DraftKind, lengths: Sequence[int] = range(1, 9)) -> LotCurve:
        return LotCurve(self.accepted[source], self.covered[source], frozenset(lengths))

    def curves(self) -> dict[DraftKind, LotCurve]:
        return {"ngram": self.curve("ngram"), "draft": self.curve("draft")}


@dataclass(frozen=True)
class LotCurve:
    """The acceptance curve of drafts that are accepted by lot, as measured in so many rounds."""

    rate: float
    covered: float
    lengths: frozenset[int]
    rounds: int = 100_000
    error: float = 0.005

    def tokens_per_round(self, length: int) -> Estimate | None:
        if length not in self.lengths:
            return None
        value = 1.0 + self.covered * sum(self.rate**j for j in range(1, length + 1))
        return Estimate(value, value * (1.0 - self.error), value * (1.0 + self.error))

    def counts(self, length: int) -> LengthCounts | None:
        tokens = self.tokens_per_round(length)
        if tokens is None:
            return None
        covered = round(self.rounds * self.covered)
        return LengthCounts(
            length=length,
            rounds=self.rounds,
            covered=covered,
            drafted=covered * length,
            accepted=round(self.rounds * (tokens.value - 1.0)),
            full=covered,
            whole=round(covered * self.rate**length),
        )

    def is_replayed(self, length: int) -> bool:
        return length in self.lengths


@dataclass
class _Running:
    """A request in a slot."""

    id: int
    prompt: int
    output: int
    found: int
    kv: int
    order: int
    arrived_ns: int
    admitted_ns: int
    emitted: int = 0
    drafts: int = 0
    was_whole: bool = False
    emissions: list[Emission] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        return self.prompt - self.kv if self.emitted == 0 else 0


class Engine:
    """Serves a closed loop step by step, with the real scheduler, on a machine's exact times."""

    def __init__(self, config: EngineConfig, traffic: Traffic, times: Times, seed: int = 0) -> None:
        self.config, self.traffic, self.times = config, traffic, times
        self.random = Random(seed)
        self.now_ns = 0
        self.n_steps = self.n_requests = 0
        self.tokens = 0
        self.slots: dict[int, _Running] = {}
        self.queue: list[int] = []
        """Arrival times."""
        self.cursor = -1
        self.finished: list[RequestRecord] = []

    def run(self, n_steps: int) -> list[StepRecord]:
        return [self.step() for _ in range(n_steps)]

    def step(self) -> StepRecord:
        self._admit()
        found = self._hits
        for one in self.slots.values():
            one.drafts = self._drafts(one) if one.remaining == 0 else 0
        views = [SlotView(s, r.order, r.remaining, r.remaining == 0, r.drafts) for s, r in self.slots.items()]
        plan = plan_step(views, token_budget=self.config.token_budget, cursor=self.cursor)
        self.cursor = plan.cursor
        spans = [(slot, 1 + drafts, True) for slot, drafts in plan.decode] + [(s, n, False) for s, n in plan.prefill]
        shape = self._shape(spans)
        duration = round(self.times.terms(shape).total)
        work = tuple(self._advance(slot, new, is_decoding, duration) for slot, new, is_decoding in spans)
        record = StepRecord(
            n=self.n_steps,
            start_ns=self.now_ns,
            phases=Phases(decode=duration),
            work=work,
            ubatches=shape.passes if len(shape.passes) > 1 else (),
            draft=shape.draft,
            queue=len(self.queue),
            slots_busy=len(self.slots),
            slots=self.config.slots,
            kv_cells=shape.cells,
            cache=CacheCounters(lookup_tokens=found[0], hit_tokens=found[1], useful_hit_tokens=found[1]),
        )
        self.n_steps += 1
        self.now_ns += duration
        self.tokens += record.emitted
        for slot, one in list(self.slots.items()):
            if one.emitted >= one.output:
                self._finish(one)
                del self.slots[slot]
        return record

    def _admit(self) -> None:
        offered = self.traffic.concurrency - len(self.slots) - len(self.queue)
        self.queue += [self.now_ns] * offered
        lookups = hits = 0
        for slot in range(self.config.slots):
            if slot in self.slots or not self.queue:
                continue
            traffic, n = self.traffic, self.n_requests
            # Lengths differ, so that requests do not end together.
            prompt = max(2, round(traffic.prompt * (0.5 + self.random.random())))
            output = max(2, round(traffic.output * (0.5 + self.random.random())))
            kv = min(round(traffic.found * prompt), prompt - 1) if self.config.prefix_cache else 0
            if self.config.prefix_cache:
                lookups, hits = lookups + prompt, hits + kv
            self.slots[slot] = _Running(n, prompt, output, kv, kv, n, self.queue.pop(0), self.now_ns)
            self.n_requests += 1
        self._hits = lookups, hits

    def _drafts(self, one: _Running) -> int:
        source = self.config.speculation
        if source == "off" or self.random.random() >= self.traffic.covered[source]:
            return 0
        return max(0, min(self.config.draft_length, one.output - one.emitted - 1))

    def _shape(self, spans: Sequence[tuple[int, int, bool]]) -> Shape:
        pairs = tuple((self.slots[slot].kv, new) for slot, new, _ in spans)
        outputs = 0
        rows = []
        for slot, new, is_decoding in spans:
            own = new if is_decoding else int(self.slots[slot].remaining == new)
            outputs += own
            rows.append((slot, new, own))
        total = sum(new for _, new, _ in spans)
        passes = (Ubatch(total, outputs),) if self.config.unified_kv else split_equal(rows, 1 << 20)
        cells = sum(cached + new for cached, new in pairs)
        cells += self.traffic.idle_cells if self.config.prefix_cache else 0
        draft = self._draft_forwards(spans) if self.config.speculation == "draft" else ()
        return Shape(pairs, outputs, passes, draft, cells, sum(new - 1 for _, new, is_decoding in spans if is_decoding))

    def _draft_forwards(self, spans: Sequence[tuple[int, int, bool]]) -> tuple[DraftForward, ...]:
        drafting = [(self.slots[slot], new - 1) for slot, new, is_decoding in spans if is_decoding and new > 1]
        first = [(r.kv - int(r.was_whole), 1 + int(r.was_whole)) for r, _ in drafting]
        first += [(self.slots[slot].kv, new) for slot, new, is_decoding in spans if not is_decoding]
        if not first:
            return ()
        made = [DraftForward(tuple(first), len(drafting))]
        for position in range(1, max((n for _, n in drafting), default=0)):
            later = tuple((r.kv + position, 1) for r, n in drafting if n > position)
            made.append(DraftForward(later, len(later)))
        return tuple(made)

    def _advance(self, slot: int, new: int, is_decoding: bool, duration: int) -> SlotWork:
        one = self.slots[slot]
        cached = one.kv
        if not is_decoding:
            is_last = one.remaining == new
            one.kv += new
            one.emitted += int(is_last)
            if is_last:
                one.emissions.append(Emission(self.n_steps, self.now_ns + duration, 1))
            return SlotWork(
                request=one.id, slot=slot, phase="prefill", new=new, cached=cached,
                outputs=int(is_last), emitted=int(is_last),
            )  # fmt: skip
        drafted, accepted = new - 1, 0
        rate = self.traffic.accepted.get(self.config.speculation, 0.0)
        while accepted < drafted and self.random.random() < rate:
            accepted += 1
        one.was_whole = 0 < drafted == accepted
        emitted = min(accepted + 1, one.output - one.emitted)
        one.kv += emitted
        one.emitted += emitted
        one.emissions.append(Emission(self.n_steps, self.now_ns + duration, emitted))
        return SlotWork(
            request=one.id, slot=slot, phase="verify" if drafted else "decode", new=new, cached=cached,
            drafted=drafted, accepted=accepted, emitted=emitted, outputs=new,
        )  # fmt: skip

    def _finish(self, one: _Running) -> None:
        self.finished.append(
            RequestRecord(
                id=one.id,
                arrived_ns=one.arrived_ns,
                admitted_ns=one.admitted_ns,
                finished_ns=self.now_ns,
                finish_reason="length",
                prompt_tokens=one.prompt,
                hit_tokens=one.found,
                emissions=tuple(one.emissions),
            )
        )


def header(config: EngineConfig, traffic: Traffic, model: ModelSummary = MODEL) -> Header:
    return Header(
        stackscope="0", started="2026-01-01T00:00:00+00:00", host="lab", device="cpu", model=model, draft_model=DRAFT,
        config=config, workload={"concurrency": traffic.concurrency},
    )  # fmt: skip


def truth(machine: Machine, config: EngineConfig, traffic: Traffic, n_steps: int = 4000, seed: int = 7) -> float:
    """Tokens per second of the engine under a configuration, in the steady state."""
    engine = Engine(config, traffic, machine.times(config, pricing(config)), seed)
    engine.run(n_steps // 10)
    began_ns, tokens = engine.now_ns, engine.tokens
    engine.run(n_steps)
    return (engine.tokens - tokens) / (engine.now_ns - began_ns) * 1e9


def recorded(
    machine: Machine, config: EngineConfig, traffic: Traffic, n_steps: int = 600, seed: int = 1
) -> WorkingPoint:
    """The working point after so many steps of the engine."""
    watch = Watch()
    watch.write(header(config, traffic))
    engine = Engine(config, traffic, machine.times(config, pricing(config)), seed)
    for step in engine.run(n_steps):
        watch.write(step)
    for request in engine.finished:
        watch.write(request)
    if not config.prefix_cache:
        watch.write(traffic.prefix_shadow())
    point = watch.point(
        machine.times(config, pricing(config)), curves=traffic.curves(), variants={FOUR_BITS: in_four_bits(MODEL)}
    )
    assert isinstance(point, WorkingPoint)
    return point


def with_load(traffic: Traffic, concurrency: int) -> Traffic:
    return replace(traffic, concurrency=concurrency)
