"""Made-up sessions for the tests of comparisons: the same work under machines of which everything is chosen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from stackscope.analysis.comparing.collecting import Collector
from stackscope.records import (
    CacheCounters,
    DraftForward,
    Emission,
    GpuSample,
    HardwareSample,
    Header,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
)
from tests.unit.record_builders import make_footer, make_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.analysis.comparing.digest import Digest
    from stackscope.records import AnyRecord, Footer

ORIGIN_NS = 1_000_000_000
CAPABILITIES = ("phases", "cpu", "slots", "prefix_cache", "acceptance", "ledger")
WORKLOAD = {
    "name": "chat", "requests": 60, "duration_s": None, "concurrency": 4, "rate": None, "seed": 0,
    "text": "chat · closed loop, 4 in flight · 60 requests · seed 0",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is asked of a made-up engine, and how long it takes over it."""

    work: int = 0
    """Seed of the prompts and of the lengths of outputs."""
    noise: int = 1
    """Seed of how long everything takes."""
    requests: int = 60
    slots: int = 4
    base_ns: float = 5e6
    """Of a forward, and what a cached token adds to it."""
    cached_ns: float = 300.0
    row_ns: float = 40_000.0
    spread: float = 0.06
    lengths: tuple[int, int] | None = None
    """Tokens of every prompt and of every output. `None`: each has its own."""
    hit: float = 0.0
    """Share of each prompt that is in the prefix cache."""
    drafted: int = 0
    header: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    step: dict[str, Any] = field(default_factory=dict)
    """Changes of every step."""
    gpu: GpuSample | None = None
    footer: Footer | None = field(default_factory=make_footer)

    def head(self) -> Header:
        made = make_header(capabilities=CAPABILITIES, workload={**WORKLOAD, **self.workload})
        assert made.config is not None
        config = msgspec.structs.replace(made.config, threads=2, **self.config)
        return msgspec.structs.replace(made, config=config, **self.header)

    def records(self) -> Iterator[AnyRecord]:
        """Everything that the session holds."""
        yield self.head()
        yield from _Engine(self).records()
        if self.footer is not None:
            yield self.footer

    def digest(self, name: str = "session.jsonl.zst", **options: Any) -> Digest:
        collector = Collector(name, **options)
        collector.take(self.records())
        return collector.digest()


@dataclass(eq=False)
class _Sequence:
    id: int
    arrived_ns: int
    prompt: int
    left: int
    cached: int
    emissions: list[Emission] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0


class _Engine:
    """A closed loop: every slot has a sequence until the requests run out."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._work, self._noise = random.Random(run.work), random.Random(run.noise)
        self._n = 0
        self._now = ORIGIN_NS
        lengths = [(self._work.randint(100, 400), self._work.randint(12, 40)) for _ in range(run.requests)]
        lengths = lengths if run.lengths is None else [run.lengths] * run.requests
        self._waiting = list(enumerate(lengths))[::-1]
        self._acceptance = [self._work.randint(0, run.drafted) for _ in range(997)]

    def records(self) -> Iterator[AnyRecord]:
        slots: list[_Sequence | None] = [None] * self._run.slots
        next_sample = ORIGIN_NS
        while True:
            slots = [self._admitted() if one is None else one for one in slots]
            busy = [(slot, one) for slot, one in enumerate(slots) if one is not None]
            if not busy:
                return
            yield self._step(busy)
            for slot, one in busy:
                if one.left == 0:
                    slots[slot] = None
                    yield self._finished(one)
            if self._now >= next_sample:
                gpus = None if self._run.gpu is None else (self._run.gpu,)
                yield HardwareSample(at_ns=self._now, rss_bytes=300 << 20, cpu_pressure=0.01, gpus=gpus)
                next_sample += 1_000_000_000

    def _admitted(self) -> _Sequence | None:
        if not self._waiting:
            return None
        number, (prompt, output) = self._waiting.pop()
        return _Sequence(number, self._now, prompt, output, round(prompt * self._run.hit))

    def _step(self, busy: list[tuple[int, _Sequence]]) -> StepRecord:
        run = self._run
        asked = [one.prompt for _, one in busy if not one.emissions]
        found = [round(one.prompt * run.hit) for _, one in busy if not one.emissions]
        cached = sum(one.cached for _, one in busy)
        work = [self._advanced(slot, one) for slot, one in busy]
        rows = sum(one.new for one in work)
        n_drafts = sum(one.drafted > 0 for one in work)
        forward = (run.base_ns + run.cached_ns * cached + run.row_ns * rows) * self._noise.lognormvariate(0, run.spread)
        phases = Phases(
            draft=round(400_000 * self._noise.lognormvariate(0, 0.1)) if n_drafts else 0,
            decode=round(forward), sample=round(30_000 * len(work) * self._noise.lognormvariate(0, 0.1)),
            other=round(90_000 * self._noise.lognormvariate(0, 0.2)),
        )  # fmt: skip
        step = StepRecord(
            n=self._n, start_ns=self._now, phases=phases, work=tuple(work), slots_busy=len(work), slots=run.slots,
            draft=(DraftForward(((100, n_drafts),), n_drafts),) * run.drafted if n_drafts else (),
            cache=CacheCounters(lookup_tokens=sum(asked), hit_tokens=sum(found), useful_hit_tokens=sum(found)),
            kv_cells=cached + rows, cpu_ns=round(1.9 * forward),
        )  # fmt: skip
        step = msgspec.structs.replace(step, **run.step)
        self._n += 1
        self._now += phases.total
        for (_, one), done in zip(busy, work, strict=True):
            one.emissions.append(Emission(step.n, self._now, done.emitted))
            one.cached += done.new - done.drafted + done.accepted
            one.left -= done.emitted
        return step

    def _advanced(self, slot: int, one: _Sequence) -> SlotWork:
        if not one.emissions:
            new = max(one.prompt - one.cached, 1)
            return SlotWork(
                request=one.id, slot=slot, phase="prefill", new=new, cached=one.cached, emitted=1, outputs=1
            )
        drafted = self._run.drafted
        accepted = min(self._acceptance[(one.id * 31 + one.left) % 997], drafted) if drafted else 0
        one.drafted += drafted
        one.accepted += accepted
        return SlotWork(
            request=one.id, slot=slot, phase="verify" if drafted else "decode", new=1 + drafted, cached=one.cached,
            drafted=drafted, accepted=accepted, emitted=min(accepted + 1, one.left), outputs=1 + drafted,
        )  # fmt: skip

    def _finished(self, one: _Sequence) -> RequestRecord:
        return RequestRecord(
            id=one.id, arrived_ns=one.arrived_ns, admitted_ns=one.arrived_ns, finished_ns=self._now,
            finish_reason="length", prompt_tokens=one.prompt, hit_tokens=round(one.prompt * self._run.hit),
            emissions=tuple(one.emissions), drafted=one.drafted, accepted=one.accepted,
        )  # fmt: skip
