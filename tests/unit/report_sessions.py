"""Hand-made sessions for the tests of the summary: every figure in them is chosen, none measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stackscope.analysis.summary import RunSummary
from stackscope.records import CacheCounters, ConfigEvent, Emission, Phases, RequestRecord, SlotWork, StepRecord
from stackscope.report.text import RunReport
from stackscope.toggles import EngineConfig
from tests.unit.record_builders import make_footer, make_header, make_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.analysis.metrics.base import ServiceLimits
    from stackscope.records import AnyRecord, FinishReason, Header

MS = 1_000_000
WORKLOAD = "code · closed loop, 8 in flight · output ≤ 64 · 24 requests · seed 0"
PHASES = Phases(
    admit=9_000, draft=410_000, build=31_000, decode=8_200_000, sample=96_000, commit=44_000, emit=60_000, other=150_000
)
"""A step of exactly 9 ms, 390 µs of it outside the models."""


def header(**changes: Any) -> Header:
    config = EngineConfig(model="/models/synthetic-F16.gguf", threads=8, **changes)
    return make_header(
        config=config,
        device="Synthetic Processor 9000 with 8 cores",
        library="llama-cpp-python 0.3.36 | CPU : SSE3 = 1",
        capabilities=("phases", "cpu", "slots", "prefix_cache", "acceptance", "ledger"),
    )


def steps(n: int, *, first: int = 0, slots: int = 4, drafted: int = 3, **changes: Any) -> list[StepRecord]:
    """Steps of 9 ms without a gap, four sequences each: of three drafted tokens, even steps accept two, odd ones none.

    The first step has prompts looked up, half of whose tokens hit.
    """
    made = []
    for i in range(n):
        accepted = min(drafted, 2) if i % 2 == 0 else 0
        work = tuple(
            SlotWork(
                request=slot, slot=slot, phase="verify" if drafted > 0 else "decode", new=1 + drafted,
                cached=300 + 2 * i, drafted=drafted, accepted=accepted, emitted=accepted + 1, outputs=1 + drafted,
            )
            for slot in range(slots)
        )  # fmt: skip
        cache = CacheCounters(resident_blocks=120, resident_paths=4)
        if i == 0:
            cache = CacheCounters(
                lookups=4, lookup_tokens=2_000, hit_tokens=1_000, useful_hit_tokens=1_000, blocks_read=62,
                blocks_written=58, resident_blocks=120, resident_paths=4,
            )  # fmt: skip
        step = StepRecord(
            n=first + i, start_ns=(first + i) * 9 * MS, phases=PHASES, work=work, slots_busy=slots, slots=8,
            cache=cache, kv_cells=2_345, cpu_ns=8 * 8_000_000,
        )  # fmt: skip
        made.append(msgspec.structs.replace(step, **changes))
    return made


def request(number: int, reason: FinishReason = "length", *, n_tokens: int = 64, **changes: Any) -> RequestRecord:
    """Waits `number` µs, has its first token 90 ms later, and one every 9 ms from then on."""
    emissions = tuple(Emission(step=k, at_ns=(90 + 9 * k) * MS + number * 1_000, tokens=1) for k in range(n_tokens))
    made = RequestRecord(
        id=number, arrived_ns=0, admitted_ns=number * 1_000, finished_ns=emissions[-1].at_ns if emissions else 5 * MS,
        finish_reason=reason, prompt_tokens=500, hit_tokens=250, emissions=emissions,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def report(
    records: Iterable[AnyRecord],
    *,
    recording: bool = True,
    notes: tuple[str, ...] = (),
    limits: ServiceLimits | None = None,
) -> RunReport:
    run = RunSummary(limits=limits)
    head = None
    for record in records:
        run.write(record)
        head = head or (record if hasattr(record, "schema") else None)
    path = Path("/home/someone/runs/2026-11-29T20-15-03-code-synthetic.jsonl.zst") if recording else None
    return RunReport(result=run.result(), header=head, workload=WORKLOAD, recording=path, notes=notes)  # type: ignore[arg-type]


def whole(limits: ServiceLimits | None = None) -> RunReport:
    """A run that came to its end."""
    model = make_model(name="synthetic draft")
    head = msgspec.structs.replace(header(speculation="draft", draft_model=model.path), draft_model=model)
    requests = [request(i, "eos" if i % 3 == 0 else "length") for i in range(24)]
    return report([head, *steps(400), *requests, make_footer(at_ns=3_600 * MS)], limits=limits)


def interrupted() -> RunReport:
    """A run that was cut short: one request done, two cancelled, a step aborted."""
    requests = [request(0), request(1, "cancelled", n_tokens=3), request(2, "cancelled", n_tokens=0)]
    aborted = steps(1, first=50, drafted=0, work=(), aborted=True)
    return report(
        [header(), *steps(50, drafted=0), *aborted, *requests, make_footer(reason="interrupted")], recording=False
    )


def failed() -> RunReport:
    """Every request was refused: there were turns of the loop, and no forward."""
    requests = [request(i, "error", n_tokens=0, error="The prompt has no tokens.") for i in range(3)]
    notes = ("3 requests failed: The prompt has no tokens.",)
    return report([header(), *steps(3, work=()), *requests, make_footer()], notes=notes)


def empty() -> RunReport:
    """Interrupted between the beginning and the first step."""
    return report([header(), make_footer(reason="interrupted")])


def rebuilt() -> RunReport:
    """Speculation switched on live, then the cache quantised by a rebuild of 40 ms, then a change refused."""
    start = header().config
    assert start is not None
    drafting = msgspec.structs.replace(start, speculation="ngram", draft_length=3)
    quantised = msgspec.structs.replace(drafting, kv_type_k="q8_0", kv_type_v="q8_0", context_tokens=16_384)

    def change(epoch: int, kind: Any, config: EngineConfig | None, **more: Any) -> ConfigEvent:
        return ConfigEvent(at_ns=epoch * 900 * MS, epoch=epoch, kind=kind, config=config, **more)

    last = [msgspec.structs.replace(step, start_ns=step.start_ns + 40 * MS) for step in steps(100, first=200, epoch=2)]
    return report(
        [
            header(),
            *steps(100, drafted=0),
            request(0),
            change(1, "live", drafting),
            *steps(100, first=100, epoch=1),
            request(1, emissions=tuple(Emission(step=90 + k, at_ns=(810 + 9 * k) * MS, tokens=2) for k in range(40))),
            request(
                2,
                arrived_ns=901 * MS,
                admitted_ns=902 * MS,
                emissions=tuple(Emission(step=102 + k, at_ns=(927 + 9 * k) * MS, tokens=2) for k in range(32)),
                finished_ns=1_206 * MS,
            ),
            change(2, "rebuild", quantised, duration_ns=40 * MS, requeued=4),
            *last,
            change(2, "refused", None, reason="no"),
            make_footer(),
        ],
        notes=("MTP is refused: this engine has none.",),
    )  # fmt: skip


SESSIONS = {"whole": whole, "interrupted": interrupted, "failed": failed, "empty": empty, "rebuilt": rebuilt}
