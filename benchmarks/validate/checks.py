"""Checks of what everything else rests on: bytes, FLOPs, ceilings and counts, each against a second way to get them.

A check is given an `Accounting`, so that wrong ones (`mutants`) can be put in its place: one that no check catches
means that the checks are worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.validate.score_tau import error, happened, replayed
from stackscope.analysis.ledger import Ledger
from stackscope.analysis.roofline import Machine, Sized, forward
from stackscope.commands.quantities import bandwidth
from stackscope.hardware import peaks
from stackscope.model.ggml_types import row_bytes
from stackscope.records import ConfigEvent, DraftShadow, RequestRecord, StepRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.validate.reading import Recording, Stretch
    from stackscope.hardware.peaks import Rated
    from stackscope.records import AnyRecord, CacheCounters, DraftKind, ModelSummary, SlotWork
    from stackscope.toggles import KvType

MOST_STEPS: Final = 60
"""Of a block that are checked."""
TAU_TOLERANCE: Final = 0.015
"""Somewhat more than the goal: a near tie may be decided otherwise where several rows are verified together."""
LEAST_FOLLOWED: Final = 0.9
"""Smaller samples of the requests differ from all of them by more than the tolerance: ten of sixty by 7 %."""
HIT_TOLERANCE: Final = 0.02


@dataclass(frozen=True)
class Accounting:
    """Everything that is counted, as something that can be exchanged."""

    name: str = "ours"
    ledger: Callable[[ModelSummary, KvType, KvType], Ledger] = Ledger
    peak: Callable[[Rated], float | None] = lambda row: None if row.bf16_tflops is None else row.bf16_tflops * 1e12
    """FLOP/s of a GPU that explanations reckon with."""
    bandwidth: Callable[[str], float] = lambda text: bandwidth("--bandwidth", text)
    accepted: Callable[[SlotWork], int] = lambda work: work.accepted
    """Drafted tokens that were kept."""
    hits: Callable[[CacheCounters], int] = lambda cache: cache.useful_hit_tokens
    """Prompt tokens that the prefix cache spared."""
    tau: Callable[[Following, int], float | None] = lambda seen, length: replayed(seen.without, seen.source, length).tau
    """Tokens per round at a draft length that is not in force."""


class Following(NamedTuple):
    """The same requests without drafts, and with drafts of several lengths."""

    source: DraftKind
    without: Sequence[AnyRecord]
    """Shadows among them."""
    by_length: Mapping[int, Sequence[AnyRecord]]

    @property
    def share(self) -> float:
        """Of the tokens that came without drafts, those that shadows have scored."""
        scored = sum(r.tokens for r in self.without if isinstance(r, DraftShadow) and r.source == self.source)
        came = sum(r.emitted for r in self.without if isinstance(r, StepRecord))
        return scored / came if came else 0.0


class Seen(NamedTuple):
    """What the checks look at."""

    recordings: Sequence[Recording] = ()
    followed: Sequence[Following] = ()


def failures(accounting: Accounting, seen: Seen) -> list[str]:
    """Names of the checks that fail, each with the first thing that was wrong."""
    found = []
    for name, check in CHECKS.items():
        wrong = next(check(accounting, seen), None)
        if wrong is not None:
            found.append(f"{name}: {wrong}")
    return found


def _stretches(seen: Seen) -> Iterator[Stretch]:
    for recording in seen.recordings:
        for stretch in recording.stretches:
            if stretch.pricing.target is not None and stretch.config is not None:
                yield stretch


def _forwards(seen: Seen) -> Iterator[tuple[Stretch, StepRecord]]:
    for stretch in _stretches(seen):
        steps = [step for step in (*stretch.warm_up, *stretch.steps) if step.work and not step.aborted]
        # Those with several passes or sequences are rare, and catch most.
        steps.sort(key=lambda step: (len(step.passes), step.rows, len(step.work)), reverse=True)
        for step in (*steps[: MOST_STEPS // 2], *steps[-MOST_STEPS // 2 :]):
            yield stretch, step


def _ledger(accounting: Accounting, stretch: Stretch) -> Ledger:
    target, config = stretch.pricing.target, stretch.config
    assert target is not None
    assert config is not None
    return accounting.ledger(target.model, config.kv_type_k, config.kv_type_v)


def _weights(accounting: Accounting, seen: Seen) -> Iterator[str]:
    """Every pass reads each tensor once, and a row of the embedding per token: the tensor table, added up."""
    for stretch, step in _forwards(seen):
        ledger = _ledger(accounting, stretch)
        model = ledger.model
        if ledger.is_sparse or any(one.outputs == 0 for one in step.passes):
            continue
        table = sum(t.bytes for t in model.tensors if t.role == "embedding")
        each = sum(t.bytes for t in model.tensors if t.role != "embedding") + (table if model.tied_head else 0)
        expected = len(step.passes) * each + step.rows * (table // model.vocabulary)
        exact = ledger.account(step).exact
        if exact.weights + exact.embedding_rows != expected:
            yield f"{exact.weights + exact.embedding_rows:,} bytes in step {step.n}, {expected:,} by the tensor table"


def _kv(accounting: Accounting, seen: Seen) -> Iterator[str]:
    """A cached token of a layer is so many rows as the layer has KV heads, in the cache's type."""
    for stretch, step in _forwards(seen):
        config, ledger = stretch.config, _ledger(accounting, stretch)
        assert config is not None
        layers = [layer for layer in ledger.model.layers if layer.kv_heads > 0 and layer.mla_rank is None]
        expected = 0
        for work in step.work:
            for layer in layers:
                keys = row_bytes(config.kv_type_k, layer.kv_heads * layer.key_length)
                values = row_bytes(config.kv_type_v, layer.kv_heads * layer.value_length)
                window = layer.window or work.cached + work.new
                expected += min(work.cached + work.new, window + work.new - 1) * (keys + values)
        got = ledger.account(step).exact.kv_read
        if got != expected:
            yield f"{got:,} bytes of KV in step {step.n}, {expected:,} by the geometry"


def _flops(accounting: Accounting, seen: Seen) -> Iterator[str]:
    """A query meets the tokens up to its own, no more than its window: counted one by one."""
    for stretch, step in _forwards(seen):
        ledger = _ledger(accounting, stretch)
        expected = 0
        for layer in ledger.model.layers:
            each = 2 * layer.heads * (layer.key_length + layer.value_length) if layer.kv_heads > 0 else 0
            window = layer.window or 1 << 40
            for work in step.work:
                expected += each * sum(min(work.cached + j, window) for j in range(1, work.new + 1))
        got = ledger.account(step).flops.attention_scores
        if got != expected:
            yield f"{got:,} FLOPs of attention in step {step.n}, {expected:,} counted one by one"


def _peaks(accounting: Accounting, _: Seen) -> Iterator[str]:
    """Half the bits, twice the rate: a peak that is as high as that of 8 bits is one with sparsity."""
    for row in peaks.table():
        peak = accounting.peak(row)
        if peak is not None and row.fp8_tflops is not None and peak > 0.6 * row.fp8_tflops * 1e12:
            yield f"{peak / 1e12:,.0f} TFLOP/s of a {row.names[0]}, with {row.fp8_tflops:,.0f} at 8 bits"


def _example(accounting: Accounting, _: Seen) -> Iterator[str]:
    """The worked example of the field: 8 B parameters of 16 bits are read in 16 ms at 1 TB/s."""
    machine = Machine(bandwidth=accounting.bandwidth("1TB/s"), flops=100e12)
    taken = forward(Sized(parameters=8e9, bits=16), machine, 1, None).memory_ns
    if taken is None or abs(taken / 16e6 - 1) > 1e-6:
        yield f"{(taken or 0) / 1e6:.2f} ms for 8 B parameters of 16 bits at 1 TB/s, not 16"


def _acceptance(accounting: Accounting, seen: Seen) -> Iterator[str]:
    """Of a round that goes on, the tokens are those accepted and one of the target's own. Each request ends once."""
    for stretch in _stretches(seen):
        ended = len(stretch.requests)
        for step in (*stretch.warm_up, *stretch.steps):
            for work in step.work:
                if work.phase != "verify" or work.emitted == 0:
                    continue
                kept = accounting.accepted(work)
                ended -= kept >= work.emitted
                if kept > work.drafted or ended < -1:
                    yield f"{kept} of {work.drafted} drafted tokens accepted in step {step.n}, {work.emitted} emitted"


def _hits(accounting: Accounting, seen: Seen) -> Iterator[str]:
    """What requests found when they were first admitted is all that is spared: what they find again, they had made."""
    for recording in seen.recordings:
        # A rebuild empties the cache: from then on, others may find what a request computes for the second time.
        records = list(takewhile(lambda r: not (isinstance(r, ConfigEvent) and r.kind == "rebuild"), recording.records))
        spared = sum(accounting.hits(r.cache) for r in records if isinstance(r, StepRecord))
        found = sum(_found(records).values())
        if spared > found * (1 + HIT_TOLERANCE) + 64:
            yield f"{spared:,} prompt tokens spared, but requests found {found:,}"


def _found(records: Sequence[AnyRecord]) -> dict[int, int]:
    """Prompt tokens that each request found at first, also of those that ran when the recording ended.

    Those have no record: what they found is what their first forward had in the cache.
    """
    found: dict[int, int] = {}
    for record in records:
        if isinstance(record, StepRecord):
            for work in record.work:
                if work.phase == "prefill":
                    found.setdefault(work.request, work.cached)
        elif isinstance(record, RequestRecord):
            found[record.id] = record.hit_tokens
    return found


def _lengths(accounting: Accounting, seen: Seen) -> Iterator[str]:
    """What a draft length brings is what it brought when it was tried with the same requests."""
    for followed in seen.followed:
        if followed.share < LEAST_FOLLOWED:
            continue
        for length, records in sorted(followed.by_length.items()):
            expected, measured = accounting.tau(followed, length), happened(records).tau
            off = error(expected, measured)
            if off is not None and expected is not None and measured is not None and off > TAU_TOLERANCE:
                yield f"{expected:.3f} tokens per round with {length} drafted by {followed.source}, not {measured:.3f}"


CHECKS: Final[dict[str, Callable[[Accounting, Seen], Iterator[str]]]] = {
    "weights": _weights,
    "KV cache": _kv,
    "attention": _flops,
    "peaks": _peaks,
    "worked example": _example,
    "acceptance": _acceptance,
    "hits": _hits,
    "draft lengths": _lengths,
}
