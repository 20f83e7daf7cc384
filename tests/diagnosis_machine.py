"""A tiny simulated machine that serves requests: what it takes is known, and it can be disturbed.

It makes the records that an engine would, so that a diagnosis sees no more of it than of a real one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stackscope.analysis.diagnosis.gather import Gatherer
from stackscope.analysis.diagnosis.naming import Namer
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.timing.terms import Terms
from stackscope.records import (
    CacheCounters,
    Emission,
    HardwareSample,
    Header,
    Phases,
    PrefixShadow,
    Probe,
    RequestRecord,
    SlotWork,
    StepRecord,
    Ubatch,
)
from stackscope.toggles import EngineConfig
from tests.analysis_builders import lab_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from stackscope.analysis.diagnosis.evidence import Evidence
    from stackscope.analysis.diagnosis.naming import Naming
    from stackscope.analysis.ledgers import Pricing
    from stackscope.records import AnyRecord, Ceilings, GpuSample, ModelSummary

MS = 1_000_000
S = 1_000_000_000
CALM_READ = 20e9
CALM_COMPUTE = 1.2e6


@dataclass(frozen=True)
class Costs:
    """What things take on the undisturbed machine, in nanoseconds: weights 20 ms a pass, a further row 0.5 ms."""

    weights: float = 20 * MS
    row: float = 0.5 * MS
    head: float = 1 * MS
    head_row: float = 0.05 * MS
    token: float = 200.0
    """Per row and cached token."""
    cell: float = 20.0
    """Per row and cell of others."""
    fixed: float = 0.3 * MS
    output: float = 0.03 * MS
    draft: float = 2 * MS
    """Per drafted token."""
    host: float = 0.4 * MS

    def terms(self, shape: Shape) -> Terms:
        spans, passes = shape.spans, shape.passes
        return Terms(
            weights=self.weights * len(passes),
            head=sum(self.head + self.head_row * one.outputs for one in passes if one.outputs),
            compute=sum(self.row * (one.rows - 1) for one in passes),
            attention=sum(self.token * new * cached for cached, new in spans),
            resident=sum(self.cell * new * max(0, shape.cells - cached - new) for cached, new in spans),
            fixed=self.fixed,
            draft=self.draft * shape.drafted,
            sample=self.output * shape.outputs,
            host=self.host,
        )


@dataclass(frozen=True)
class Model:
    """A time model that knows the machine, up to a constant error."""

    costs: Costs
    conditions: EngineConfig
    error: float = 1.0
    unknown: dict[str, str] = field(default_factory=dict)
    is_calibrated: bool = True
    is_starved: bool = False

    @property
    def is_undisturbed(self) -> bool:
        return self.is_calibrated and not self.is_starved

    def terms(self, shape: Shape) -> Terms:
        return Terms(*[self.error * term for term in self.costs.terms(shape)])

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> npt.NDArray[np.float64]:
        at = np.array([self.terms(shape).total for shape in shapes])
        return np.outer(np.exp(0.03 * np.random.default_rng(seed).standard_normal(n)), at)

    def under(self, config: EngineConfig, pricing: Pricing) -> Model:
        del pricing
        return replace(self, conditions=config)


@dataclass(frozen=True)
class Load:
    """What is asked of it. `concurrency` requests are there at a time, or `pause` is between two."""

    concurrency: int = 1
    slots: int = 8
    prompt: int = 64
    output: int = 60
    hit: float = 0.0
    """Share of a prompt that the prefix cache finds."""
    would_hit: float = 0.0
    """The same of a cache without limit."""
    evicted: int = 0
    """Blocks per request."""
    idle_cells: int = 0
    chunk: int = 256
    pause_ns: int = 0
    drafted: int = 0
    acceptance: float = 0.0
    all_outputs: bool = False
    split: bool = False
    """Each sequence is a pass of its own."""


@dataclass(frozen=True)
class Disturbance:
    """What happens to it. Shares are of what it has undisturbed."""

    read: float = 1.0
    clock: float = 1.0
    core: float = 1.0
    """Share of a core that one of its two threads gets; the other one spins meanwhile."""
    both: float = 1.0
    """The same of both."""
    foreign_cores: float = 0.0
    pressure: float = 0.0
    quota: float = 0.0
    faults: float = 0.0
    io: float = 0.0
    sample_ns: int = 0
    """Added per output row; the others per step."""
    admit_ns: int = 0
    commit_ns: int = 0
    unseen_ns: int = 0
    """Added to forwards, for no reason that shows anywhere."""
    stopped_ns: int = 0
    """For how long the process is stopped in each forward."""
    reads_probe: float = 1.0
    """What the probe alone reads."""
    computes_probe: float = 1.0
    """The same of its computation."""
    sleep: float = 1.0
    """σ of threads that wait for each other, which costs nothing."""


CALM = Disturbance()


@dataclass
class Running:
    id: int
    arrived_ns: int
    admitted_ns: int
    kv: int
    left: int
    """Prompt tokens that are not computed yet."""
    emissions: list[Emission] = field(default_factory=list)
    done: int = 0


class Machine:
    """Yields the records of a session; a disturbance and a load may be changed at any time."""

    def __init__(
        self,
        load: Load,
        costs: Costs | None = None,
        *,
        model: ModelSummary | None = None,
        noise: float = 0.02,
        seed: int = 1,
        gpus: tuple[GpuSample, ...] | None = None,
        library: str = "llama-cpp-python 0.3.36 | CPU : AVX2 = 1 |",
        ceilings: Ceilings | None = None,
        **settings: Any,
    ) -> None:
        self.load = load
        self.costs = Costs() if costs is None else costs
        self.disturbance = CALM
        self.now_ns = 3 * S
        given: dict[str, Any] = {
            "speculation": "draft" if load.drafted else "off", "draft_length": max(1, load.drafted), **settings
        }  # fmt: skip
        self.config = EngineConfig(
            model="lab.gguf", slots=load.slots, threads=2, unified_kv=not load.split, **given
        )  # fmt: skip
        self.header = Header(
            stackscope="0", started="", host="simulated", device="simulated", library=library, config=self.config,
            model=lab_target() if model is None else model, ceilings=ceilings,
        )  # fmt: skip
        self._gpus = gpus
        self._noise = noise
        self._random = random.Random(seed)
        self._running: list[Running] = []
        self._waiting: list[int] = []
        self._n = self._ids = 0
        self._wakes_ns = 0
        self._next_ns = self.now_ns
        self._engine_cpu = self._seen = 0
        self._shadow = [0, 0, 0]

    def run(self, seconds: float) -> Iterator[AnyRecord]:
        """The records of some more seconds, in the order of their time."""
        until = self.now_ns + round(seconds * S)
        while self.now_ns < until:
            if self.load.pause_ns and not self._running and self.now_ns < self._wakes_ns:
                self.now_ns = min(self._wakes_ns, until)
            else:
                yield from self._step()
            while self._next_ns <= self.now_ns:
                yield from self._readings()
                self._next_ns += S

    def _step(self) -> Iterator[AnyRecord]:
        counters = self._admit()
        d, load = self.disturbance, self.load
        start_ns = self.now_ns
        plan = self._plan()
        spans = tuple((cached, new) for _, cached, new, _, _ in plan)
        outputs = sum(outputs for *_, outputs, _ in plan)
        passes = (
            tuple(Ubatch(new, out) for _, _, new, out, _ in plan) if load.split
            else (Ubatch(sum(new for _, new in spans), outputs),)
        )  # fmt: skip
        cells = load.idle_cells + sum(cached + new for cached, new in spans)
        drafted = sum(n for *_, n in plan)
        terms = self.costs.terms(Shape(spans, outputs, passes, (), cells, drafted))
        memory = terms.weights + terms.head + terms.attention + terms.resident
        undisturbed = memory / d.read + (terms.forward - memory)
        forward = undisturbed * self._random.lognormvariate(0, self._noise) / d.clock / min(d.core, d.both)
        forward += d.unseen_ns
        cpu = forward * d.both * (1 + d.core) * d.sleep
        forward += d.stopped_ns
        slow = d.clock * d.both
        phases = Phases(
            admit=round(0.1 * terms.host / slow) + d.admit_ns, build=round(0.2 * terms.host / slow),
            commit=round(0.3 * terms.host / slow) + d.commit_ns, emit=round(0.3 * terms.host / slow),
            other=round(0.1 * terms.host / slow), draft=round(terms.draft / slow), decode=round(forward),
            sample=round(terms.sample / slow) + d.sample_ns * outputs,
        )  # fmt: skip
        self.now_ns = start_ns + phases.total
        self._engine_cpu += round(cpu)
        work = tuple(self._worked(*part) for part in plan)
        busy = len(plan)
        finished = [request for request in self._running if request.done >= load.output]
        self._running = [request for request in self._running if request.done < load.output]
        yield StepRecord(
            n=self._n, start_ns=start_ns, phases=phases, work=work, ubatches=passes if load.split else (),
            queue=len(self._waiting), slots_busy=busy, slots=load.slots, cache=counters, kv_cells=cells,
            cpu_ns=round(cpu),
        )  # fmt: skip
        self._n += 1
        for request in finished:
            yield RequestRecord(
                id=request.id, arrived_ns=request.arrived_ns, admitted_ns=request.admitted_ns, finished_ns=self.now_ns,
                finish_reason="length", prompt_tokens=load.prompt, emissions=tuple(request.emissions),
            )  # fmt: skip
        if finished and load.pause_ns:
            self._wakes_ns = self.now_ns + load.pause_ns

    def _admit(self) -> CacheCounters:
        load = self.load
        while len(self._waiting) + len(self._running) < load.concurrency:
            self._waiting.append(self.now_ns)
        n = prompt = hit = would = 0
        while self._waiting and len(self._running) < load.slots:
            arrived = self._waiting.pop(0)
            found = round(load.hit * load.prompt)
            self._running.append(Running(self._ids, arrived, self.now_ns, found, load.prompt - found))
            self._ids += 1
            n, prompt, hit = n + 1, prompt + load.prompt, hit + found
            would += round(load.would_hit * load.prompt)
        self._shadow = [a + b for a, b in zip(self._shadow, (n, prompt, would), strict=True)]
        return CacheCounters(
            lookups=n, lookup_tokens=prompt, hit_tokens=hit, useful_hit_tokens=hit, blocks_evicted=n * load.evicted
        )

    def _plan(self) -> list[tuple[Running, int, int, int, int]]:
        """(request, cached, new, outputs, drafted) of each that is in the forward."""
        load, plan = self.load, []
        budget = load.chunk
        for request in self._running:
            if request.left > 0:
                new = min(request.left, budget)
                budget -= new
                if new:
                    is_last = new == request.left
                    plan.append((request, request.kv, new, new if load.all_outputs else int(is_last), 0))
            else:
                plan.append((request, request.kv, 1 + load.drafted, 1 + load.drafted, load.drafted))
        return plan

    def _worked(self, request: Running, cached: int, new: int, outputs: int, drafted: int) -> SlotWork:
        is_prefill = request.left > 0
        accepted = 0
        if is_prefill:
            request.left -= new
            request.kv += new
            emitted = int(request.left == 0)
        else:
            while accepted < drafted and self._random.random() < self.load.acceptance:
                accepted += 1
            emitted = 1 + accepted
            request.kv += emitted
        request.done += emitted
        if emitted:
            request.emissions.append(Emission(self._n, self.now_ns, emitted))
        return SlotWork(
            request=request.id, slot=request.id % self.load.slots,
            phase="prefill" if is_prefill else "verify" if drafted else "decode",
            new=new, cached=cached, drafted=drafted, accepted=accepted, emitted=emitted, outputs=outputs,
        )  # fmt: skip

    def _readings(self) -> Iterator[AnyRecord]:
        d, at = self.disturbance, self._next_ns
        yield HardwareSample(
            at_ns=at, cpu_percent=min(100.0, 50.0 * (self._cores() + d.foreign_cores)), cores=2,
            engine_cpu_ns=self._engine_cpu, own_cpu_ns=round(0.01 * at), cpu_pressure=d.pressure, io_pressure=d.io,
            memory_pressure=0.0, throttled_share=d.quota, swap_bytes_per_s=0.0, major_faults_per_s=d.faults,
            gpus=self._gpus,
        )  # fmt: skip
        yield Probe(
            at_ns=at, read_bytes_per_s=CALM_READ * d.read * d.reads_probe * d.clock, cpu_share=1.0,
            compute_per_s=CALM_COMPUTE * d.clock * d.computes_probe,
        )  # fmt: skip
        n, prompt, would = self._shadow
        if n:
            yield PrefixShadow(
                at_ns=at, epoch=0, requests=n, lookup_tokens=prompt, hit_tokens=would, useful_hit_tokens=would
            )
            self._shadow = [0, 0, 0]

    def _cores(self) -> float:
        """Cores that the engine used in the last second, with Stackscope's own."""
        before, self._seen = self._seen, self._engine_cpu
        return (self._engine_cpu - before) / S + 0.01


class Watch:
    """A diagnosis that looks on."""

    def __init__(self, machine: Machine, model: Model | None = None, *, has_model: bool = True) -> None:
        self.machine = machine
        self.model = (Model(machine.costs, machine.config) if model is None else model) if has_model else None
        self.gatherer = Gatherer()
        self.gatherer.write(machine.header)
        self.namer = Namer()
        self.namings: list[Naming] = []
        self.evidence: Evidence
        self._next_ns = machine.now_ns

    def run(self, seconds: float, disturbance: Disturbance | None = None, load: Load | None = None) -> Naming:
        """Some more seconds, disturbed or not; what is named in the end."""
        machine = self.machine
        machine.disturbance = CALM if disturbance is None else disturbance
        machine.load = machine.load if load is None else load
        for record in machine.run(seconds):
            self.gatherer.write(record)
            if machine.now_ns >= self._next_ns:
                self._next_ns = machine.now_ns + S // 2
                self.evidence = self.gatherer.evidence(machine.now_ns, self.model)
                self.namings.append(self.namer.update(self.evidence))
        return self.namings[-1]
