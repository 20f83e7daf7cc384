"""Plausible records, all of them made up: single ones, and whole sessions of a simulated engine, labelled synthetic."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from stackscope.records import (
    CacheCounters,
    DraftForward,
    Emission,
    Footer,
    HardwareSample,
    Header,
    LayerSummary,
    ModelSummary,
    Phases,
    RequestRecord,
    SlotWork,
    StepRecord,
    TensorClass,
)
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.records import AnyRecord

BLOCK_TOKENS = 16
ORIGIN_NS = 3_000_000_000
"""When the first step of a synthetic session begins: the engine takes a while to load."""


def make_step(n: int = 0, **changes: Any) -> StepRecord:
    """A decode step at batch 1 of 1 ms: 850 µs of forward and 150 µs of everything else, one token out."""
    phases = Phases(admit=2_000, build=14_000, decode=850_000, sample=21_000, commit=3_000, emit=10_000, other=100_000)
    work = SlotWork(request=0, slot=0, phase="decode", new=1, cached=400 + n, emitted=1, outputs=1)
    step = StepRecord(
        n=n, start_ns=ORIGIN_NS + n * 1_000_000, phases=phases, work=(work,), slots_busy=1, slots=8, kv_cells=401 + n,
        cpu_ns=1_700_000,
    )  # fmt: skip
    return msgspec.structs.replace(step, **changes)


def make_request(id: int = 0, **changes: Any) -> RequestRecord:
    """A request of 400 prompt tokens that waited 5 ms, was prefilled in 45 ms and emitted 4 tokens 1 ms apart."""
    arrived_ns = ORIGIN_NS + id * 60_000_000
    emissions = tuple(Emission(step=k, at_ns=arrived_ns + 50_000_000 + k * 1_000_000, tokens=1) for k in range(4))
    request = RequestRecord(
        id=id, arrived_ns=arrived_ns, admitted_ns=arrived_ns + 5_000_000, finished_ns=emissions[-1].at_ns,
        finish_reason="length", prompt_tokens=400, hit_tokens=256, emissions=emissions,
    )  # fmt: skip
    return msgspec.structs.replace(request, **changes)


def make_model(**changes: Any) -> ModelSummary:
    """A small dense model of four layers: 8 heads of 64, 2 of them for KV, f16 throughout, tied head."""
    layer = LayerSummary(heads=8, kv_heads=2, key_length=64, value_length=64)
    embedding, feed_forward, vocabulary = 512, 1536, 8192
    attention, ffn = embedding * 64 * (8 + 2 + 2 + 8), 3 * embedding * feed_forward
    tensors = [
        TensorClass(role="embedding", type="F16", elements=vocabulary * embedding, bytes=2 * vocabulary * embedding)
    ]
    for index in range(4):
        tensors.append(TensorClass(role="attention", type="F16", layer=index, elements=attention, bytes=2 * attention))
        tensors.append(TensorClass(role="ffn", type="F16", layer=index, elements=ffn, bytes=2 * ffn))
    n_bytes = sum(tensor.bytes for tensor in tensors)
    model = ModelSummary(
        name="synthetic", path="/models/synthetic-F16.gguf", architecture="llama", file_bytes=n_bytes + 4_096,
        tensor_bytes=n_bytes, parameters=n_bytes // 2, vocabulary=vocabulary, context=4_096, embedding=embedding,
        layers=(layer,) * 4, tensors=tuple(tensors), tied_head=True,
    )  # fmt: skip
    return msgspec.structs.replace(model, **changes)


def make_header(**changes: Any) -> Header:
    """The header of a synthetic session."""
    header = Header(
        stackscope="0.1.0", started="2026-11-29T20:15:03+01:00", host="synthetic", device="synthetic",
        library="synthetic", model=make_model(), config=EngineConfig(model="/models/synthetic-F16.gguf"),
        workload={"name": "synthetic", "seed": 1}, capabilities=("phases", "cpu", "prefix_cache"),
    )  # fmt: skip
    return msgspec.structs.replace(header, **changes)


def make_footer(**changes: Any) -> Footer:
    """The footer of a session that ended in order after a second."""
    footer = Footer(at_ns=ORIGIN_NS + 1_000_000_000, reason="done", steps=0, requests=0)
    return msgspec.structs.replace(footer, **changes)


@dataclass(eq=False)
class _Sequence:
    """A request in a slot of the simulated engine."""

    id: int
    slot: int
    arrived_ns: int
    prompt_tokens: int
    hit_tokens: int
    to_emit: int
    to_prefill: int
    cached: int
    emissions: list[Emission] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0

    def finished(self, at_ns: int) -> RequestRecord:
        return RequestRecord(
            id=self.id, arrived_ns=self.arrived_ns, admitted_ns=self.arrived_ns, finished_ns=at_ns,
            finish_reason="length", prompt_tokens=self.prompt_tokens, hit_tokens=self.hit_tokens,
            emissions=tuple(self.emissions), drafted=self.drafted, accepted=self.accepted,
        )  # fmt: skip


class SyntheticEngine:
    """A closed loop of `slots` requests with made-up times: what the real engine's records look like, without it.

    Counts are consistent (tokens emitted by steps and by requests are the same ones, phases sum to steps that follow
    each other without a gap); every duration varies at random in all its digits, as measured ones do.
    """

    def __init__(self, *, seed: int = 1, slots: int = 1, draft_length: int = 0, decode_ns: int = 800_000) -> None:
        self._random = random.Random(seed)
        self._draft_length = draft_length
        self._decode_ns = decode_ns
        self._n_requests = 0
        self._now_ns = ORIGIN_NS
        self._sequences = [self._admitted(slot) for slot in range(slots)]

    def records(self, n_steps: int) -> Iterator[AnyRecord]:
        """Yield `n_steps` steps, the requests that finish in them, and a hardware sample every second."""
        next_sample_ns = ORIGIN_NS + 1_000_000_000
        for n in range(n_steps):
            before = tuple(self._sequences)
            phases = self._phases()
            self._now_ns += phases.total
            yield self._step(n, phases)
            yield from (s.finished(self._now_ns) for s in before if s not in self._sequences)
            if self._now_ns >= next_sample_ns:
                yield self._sample()
                next_sample_ns += 1_000_000_000

    def _admitted(self, slot: int) -> _Sequence:
        prompt, hit = self._random.randint(300, 700), 256
        self._n_requests += 1
        return _Sequence(
            id=self._n_requests - 1, slot=slot, arrived_ns=self._now_ns, prompt_tokens=prompt, hit_tokens=hit,
            to_emit=self._random.randint(16, 160), to_prefill=prompt - hit, cached=hit,
        )  # fmt: skip

    def _around(self, typical_ns: int, spread: float) -> int:
        return round(typical_ns * self._random.lognormvariate(0.0, spread))

    def _phases(self) -> Phases:
        n = len(self._sequences)
        return Phases(
            admit=self._around(1_900, 0.2),
            draft=self._around(60_000, 0.1) if self._draft_length > 0 else 0,
            build=self._around(10_000 + 4_000 * n, 0.12),
            decode=self._around(self._decode_ns, 0.05),
            sample=self._around(18_000 + 3_000 * n, 0.1),
            commit=self._around(2_600 * n, 0.2),
            emit=self._around(9_000 * n, 0.25),
            shadow=self._around(4_000, 0.3),
            other=self._around(9_000, 0.2),
        )

    def _step(self, n: int, phases: Phases) -> StepRecord:
        work = tuple(self._advance(sequence, n) for sequence in tuple(self._sequences))
        drafting = tuple((w.cached, 1) for w in work if w.drafted > 0)
        cells = sum(sequence.cached for sequence in self._sequences) + 1_024
        return StepRecord(
            n=n,
            start_ns=self._now_ns - phases.total,
            phases=phases,
            work=work,
            draft=(DraftForward(drafting, len(drafting)),) * self._draft_length if drafting else (),
            slots_busy=len(work),
            slots=max(8, len(work)),
            cache=CacheCounters(resident_blocks=1_024 // BLOCK_TOKENS, resident_paths=4),
            kv_cells=cells,
            cpu_ns=self._around(2 * phases.decode, 0.03),
        )

    def _advance(self, sequence: _Sequence, step: int) -> SlotWork:
        cached = sequence.cached
        if sequence.to_prefill > 0:
            rows = min(256, sequence.to_prefill)
            sequence.to_prefill -= rows
            sequence.cached += rows
            is_last = sequence.to_prefill == 0
            emitted = self._emit(sequence, step, 1 if is_last else 0)
            return SlotWork(
                request=sequence.id, slot=sequence.slot, phase="prefill", new=rows, cached=cached, emitted=emitted,
                outputs=1 if is_last else 0,
            )  # fmt: skip
        drafted = self._draft_length
        accepted = self._random.randint(0, drafted)
        sequence.drafted += drafted
        sequence.accepted += accepted
        sequence.cached += accepted + 1
        emitted = self._emit(sequence, step, accepted + 1)
        return SlotWork(
            request=sequence.id, slot=sequence.slot, phase="verify" if drafted > 0 else "decode", new=1 + drafted,
            cached=cached, drafted=drafted, accepted=accepted, emitted=emitted, outputs=1 + drafted,
        )  # fmt: skip

    def _emit(self, sequence: _Sequence, step: int, tokens: int) -> int:
        tokens = min(tokens, sequence.to_emit)
        if tokens > 0:
            sequence.to_emit -= tokens
            sequence.emissions.append(Emission(step, self._now_ns, tokens))
            if sequence.to_emit == 0:
                self._sequences[sequence.slot] = self._admitted(sequence.slot)
        return tokens

    def _sample(self) -> HardwareSample:
        return HardwareSample(
            at_ns=self._now_ns, late_ns=self._around(80_000, 0.5), cpu_percent=round(self._random.uniform(150, 200), 1),
            rss_bytes=self._random.randint(300, 310) << 20, engine_cpu_ns=self._now_ns - ORIGIN_NS,
        )  # fmt: skip


def synthetic_session(
    n_steps: int, *, seed: int = 1, slots: int = 1, draft_length: int = 0, decode_ns: int = 800_000
) -> list[AnyRecord]:
    """A whole synthetic session of `n_steps` steps, from header to footer."""
    engine = SyntheticEngine(seed=seed, slots=slots, draft_length=draft_length, decode_ns=decode_ns)
    body = list(engine.records(n_steps))
    n_requests = sum(isinstance(record, RequestRecord) for record in body)
    end_ns = max((r.end_ns for r in body if isinstance(r, StepRecord)), default=ORIGIN_NS)
    return [make_header(), *body, make_footer(at_ns=end_ns, steps=n_steps, requests=n_requests)]
