"""What the time model says of a window: terms, counterfactuals, and intervals, from some of its steps.

Steps that prefill and steps that do not are sampled apart, and each kind stands for all of its kind: as many steps, of
as many rows. Between the two, where they differ, time decides. It decides no more than that, or a hiccup in a step that
is not in the sample would be spread over terms that had no part in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from stackscope.analysis.diagnosis import shortening
from stackscope.analysis.diagnosis.evidence import Batching, Roofs, Speculation, scaled, summed
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.timing.terms import Terms
from stackscope.records import Estimate, Ubatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from stackscope.analysis.diagnosis.gather import Bucket
    from stackscope.analysis.diagnosis.reference import Reference
    from stackscope.analysis.diagnosis.tally import Tally
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.live.standing import Standing
    from stackscope.records import StepRecord
    from stackscope.toggles import EngineConfig


class Predictor(Protocol):
    """What is asked of a time model; `timing.model.TimeModel` is one."""

    @property
    def conditions(self) -> EngineConfig: ...
    @property
    def unknown(self) -> dict[str, str]: ...
    @property
    def is_starved(self) -> bool: ...
    @property
    def is_undisturbed(self) -> bool: ...
    def terms(self, shape: Shape) -> Terms: ...
    def draws(self, shapes: Sequence[Shape], n: int = ..., seed: int = ...) -> npt.NDArray[np.float64]: ...
    def under(self, config: EngineConfig, pricing: Pricing) -> Predictor | str: ...


DRAWS: Final = 100
MOST_PLAIN: Final = 16
MOST_MIXED: Final = 12
"""Steps of either kind that the model is asked about: a step costs it about 80 µs, its counterfactual as much."""


class Sample(NamedTuple):
    """A step that is kept whole."""

    n: int
    shape: Shape
    forward_ns: int
    duration_ns: int
    prompt_rows: int
    """Rows of its sequences that were prefilled; the spans of the others follow."""
    others: tuple[tuple[int, int], ...]
    """(cached, new) of the sequences that were decoding."""


class Kept(NamedTuple):
    """A sampled step, and how many like it stand behind it."""

    sample: Sample
    weight: float


class Work(NamedTuple):
    """What some steps of one kind amount to."""

    steps: float
    rows: float
    ns: float


class Costed(NamedTuple):
    """A sampled step and what the model says of it."""

    sample: Sample
    terms: Terms
    weight: float


def keep(plain: list[Sample], mixed: list[Sample], steps: Sequence[StepRecord], most: int) -> None:
    """Keep some steps with forwards, evenly from what there is, and no more than `most` of either kind."""
    kinds: tuple[list[StepRecord], list[StepRecord]] = [], []
    for step in steps:
        if step.work and not step.aborted and step.delay is None:
            kinds[any(slot.phase == "prefill" for slot in step.work)].append(step)
    for kept, found in zip((plain, mixed), kinds, strict=True):
        stride = max(1, -(-len(found) // most))
        for step in found[stride // 2 :: stride]:
            if len(kept) == most:
                kept[:] = kept[1::2]
            kept.append(sampled(step))


def sampled(step: StepRecord) -> Sample:
    others = tuple([(slot.cached, slot.new) for slot in step.work if slot.phase != "prefill"])
    prompt_rows = sum([slot.new for slot in step.work if slot.phase == "prefill"])
    return Sample(step.n, Shape.of(step), step.phases.decode, step.duration_ns, prompt_rows, others)


def facts(
    reference: Reference,
    buckets: Sequence[Bucket],
    tally: Tally,
    pricing: Pricing,
    standing: Standing,
) -> dict[str, Any]:
    """The fields of `Evidence` that come from model and ledger."""
    plain = _some([kept for b in buckets for kept in _weighted(b.plain, _plain(b.tally))], MOST_PLAIN, _plain(tally))
    mixed = _some([kept for b in buckets for kept in _weighted(b.mixed, _mixed(b.tally))], MOST_MIXED, _mixed(tally))
    found: dict[str, Any] = {
        "roofs": _roofs((*plain, *mixed), pricing, standing),
        "batching": _batching(tally, None),
        "speculation": _speculation(tally, None),
    }
    model = reference.model
    if model is None or not (plain or mixed):
        return found
    costed = [Costed(sample, reference.terms(sample), weight) for sample, weight in plain]
    prefills = [Costed(sample, reference.terms(sample), weight) for sample, weight in mixed]
    every = (*costed, *prefills)
    attention, rows, level = _intervals(model, [sample for sample, _ in plain or mixed])
    found.update(
        terms=summed([scaled(one.terms, one.weight) for one in every]),
        unknown=dict(model.unknown),
        attention_share=attention,
        rows_share=rows,
        model_error=level.high / level.value - 1.0,
        idle_resident_ns=sum([one.weight * _idle_part(one.sample) * one.terms.resident for one in every]),
        prompt_terms=_prompt_terms(model, prefills),
        batching=_batching(tally, _fragmented(model, every)),
        speculation=_speculation(tally, _rounds(model, costed) if tally.drafted else None, model, costed),
    )
    return found


def _plain(tally: Tally) -> Work:
    return Work(tally.pure_steps, tally.pure_rows, tally.pure)


def _mixed(tally: Tally) -> Work:
    """Steps with prompt rows, be it beside decoding requests or alone."""
    return Work(tally.forwards - tally.pure_steps, tally.rows - tally.pure_rows, tally.mixed + tally.prefill_only)


def _weighted(samples: Sequence[Sample], whole: Work) -> list[Kept]:
    """How many steps of its half second each stands for."""
    kept = [Kept(sample, 1.0) for sample in samples]
    return _standing_for(whole, kept)


def _some(samples: list[Kept], most: int, whole: Work) -> list[Kept]:
    """No more than so many, evenly from all, which then stand for the whole window."""
    n = len(samples)
    if n > most:
        samples = [samples[(2 * i + 1) * n // (2 * most)] for i in range(most)]
    return _standing_for(whole, samples)


def _standing_for(whole: Work, kept: list[Kept]) -> list[Kept]:
    """The same, standing for the whole of their kind.

    A step takes some time for itself and some for each of its rows, so that the ratio of their times lies between that
    of their numbers and that of their rows. Where it does not, something has held a step up.
    """
    steps = sum([weight for _, weight in kept])
    rows = sum([weight * sample.shape.rows for sample, weight in kept])
    took = sum([weight * sample.duration_ns for sample, weight in kept])
    if steps <= 0.0 or rows <= 0.0:
        return []
    low, high = sorted((whole.steps / steps, whole.rows / rows))
    factor = min(max(whole.ns / took, low), high) if took > 0.0 else low
    return [Kept(sample, weight * factor) for sample, weight in kept]


def _intervals(model: Predictor, samples: Sequence[Sample]) -> tuple[Estimate, Estimate, Estimate]:
    """Shares of a typical step that come from cached tokens, and from rows beyond the first; and its forward's time."""
    typical = sorted(samples, key=lambda sample: sample.forward_ns)[len(samples) // 2].shape
    fresh = tuple([(0, new) for _, new in typical.spans])
    without = msgspec.structs.replace(typical, spans=fresh, cells=sum([new for _, new in fresh]), draft=())
    single = Shape(spans=((0, 1),), outputs=1, passes=(Ubatch(1, 1),), cells=1)
    whole = msgspec.structs.replace(typical, draft=())
    drawn = model.draws([typical, whole, without, single], DRAWS)
    cached, rows = drawn[:, 1] - drawn[:, 2], drawn[:, 2] - drawn[:, 3]
    return _estimate(cached / drawn[:, 0]), _estimate(rows / drawn[:, 0]), _estimate(drawn[:, 1])


def _estimate(shares: Any) -> Estimate:
    low, value, high = np.quantile(shares, (0.05, 0.5, 0.95))
    return Estimate(float(value), float(low), float(high))


def _fragmented(model: Predictor, costed: Sequence[Costed]) -> float:
    """What passes beyond the fewest cost."""
    lost = 0.0
    for sample, terms, weight in costed:
        shape = sample.shape
        if len(shape.passes) > 1:
            merged = msgspec.structs.replace(shape, passes=(Ubatch(shape.rows, shape.outputs),))
            lost += weight * max(0.0, terms.forward - model.terms(merged).forward)
    return lost


def _prompt_terms(model: Predictor, costed: Sequence[Costed]) -> Terms:
    """What prompt rows take: whole steps of their own, and what they add to steps in which others decode."""
    added = Terms()
    for sample, terms, weight in costed:
        alone = Terms()
        if sample.others:
            rows = sum([new for _, new in sample.others])
            alone = model.terms(
                msgspec.structs.replace(sample.shape, spans=sample.others, outputs=rows, passes=(Ubatch(rows, rows),))
            )
        pairs = zip(added, terms, alone, strict=True)
        added = Terms(*[so_far + weight * max(0.0, both - other) for so_far, both, other in pairs])
    return added


def _idle_part(sample: Sample) -> float:
    """Of the cells that its rows go through and that belong to other sequences, the share that belongs to none."""
    spans, cells = sample.shape.spans, sample.shape.cells
    idle = cells - sum([cached + new for cached, new in spans])
    foreign = sum([new * (cells - cached - new) for cached, new in spans])
    return min(1.0, idle * sample.shape.rows / foreign) if idle > 0 and foreign > 0 else 0.0


class Rounds(NamedTuple):
    """Steps without prefill, by the model: as they were, as if drafts cost nothing, and as if nothing were drafted."""

    as_is: float
    free: float
    plain: float
    steps: float
    error: Estimate | None
    """Of as they were ÷ plain, as a factor of what the model says. `None`: there is no such step."""


def _rounds(model: Predictor, costed: Sequence[Costed]) -> Rounds:
    as_is = free = plain = steps = 0.0
    for sample, terms, weight in costed:
        as_is += weight * terms.total
        free += weight * (terms.total - terms.draft)
        undrafted = model.terms(_undrafted(sample.shape))
        plain += weight * (undrafted.total - undrafted.draft)
        steps += weight
    return Rounds(as_is, free, plain, steps, _error_of_rounds(model, costed))


def _undrafted(shape: Shape) -> Shape:
    """The same step with a row for each sequence."""
    n = len(shape.spans)
    return Shape(
        spans=tuple([(cached, 1) for cached, _ in shape.spans]), outputs=n, passes=(Ubatch(n, n),), cells=shape.cells
    )


def _error_of_rounds(model: Predictor, costed: Sequence[Costed]) -> Estimate | None:
    """How far a typical round ÷ its plain step may be from what the model says."""
    drafted = sorted((one for one in costed if one.sample.shape.draft), key=lambda one: one.terms.total)
    if not drafted:
        return None
    typical = drafted[len(drafted) // 2].sample.shape
    drawn = model.draws([typical, _undrafted(typical)], DRAWS)
    ratio = _estimate(drawn[:, 0] / drawn[:, 1])
    return Estimate(1.0, ratio.low / ratio.value, ratio.high / ratio.value)


def _speculation(
    tally: Tally, rounds: Rounds | None, model: Predictor | None = None, costed: Sequence[Costed] = ()
) -> Speculation | None:
    if tally.drafted == 0 or tally.pairs == 0:
        return None
    known = rounds if rounds is not None and rounds.plain > 0.0 else None
    break_even = error = shorter = None
    if known is not None:
        break_even, error = known.as_is / known.plain, known.error
    if known is not None and model is not None and tally.emitted * known.plain < tally.pairs * known.as_is:
        shorter = shortening.shorter(model, [(one.sample.shape, one.weight) for one in costed], tally)
    return Speculation(
        tokens_per_forward=tally.emitted / tally.pairs,
        coverage=tally.verifications / tally.pairs,
        acceptance=tally.accepted / tally.drafted,
        drafted=tally.drafted,
        wasted_rows=tally.wasted_rows / tally.verifications,
        length=tally.drafted / tally.verifications,
        break_even=break_even,
        break_even_low=None if break_even is None or error is None else break_even * error.low,
        break_even_high=None if break_even is None or error is None else break_even * error.high,
        break_even_if_free=known.free / known.plain if known is not None else None,
        round_ns=known.as_is / known.steps if known is not None else None,
        plain_ns=known.plain / known.steps if known is not None else None,
        wall_ns=tally.pure,
        survival=shortening.survival(tally),
        shorter=shorter,
    )


def _batching(tally: Tally, fragmented: float | None) -> Batching:
    forwards = max(1, tally.forwards)
    return Batching(
        rows=tally.rows,
        outputs=tally.outputs,
        prefill_rows=tally.prefill_rows,
        decode_rows=tally.decode_rows,
        passes=tally.passes,
        least_passes=tally.least_passes,
        fragmented_ns=fragmented,
        mixed_steps=tally.mixed_steps,
        mixed_ns=tally.mixed,
        pure_steps=tally.pure_steps,
        pure_ns=tally.pure,
        prefill_ns=tally.prefill_only,
        per_output_ns=tally.per_output_ns,
        cached=tally.cached,
        idle_cells=tally.idle_cells / forwards,
        cells=tally.cells / forwards,
    )


def _roofs(kept: Sequence[Kept], pricing: Pricing, standing: Standing) -> Roofs:
    limits, ceilings = standing.limits, None if standing.header is None else standing.header.ceilings
    found = Roofs(
        bandwidth=None if limits.bandwidth is None else limits.bandwidth.value,
        compute=None if limits.compute is None else limits.compute.value,
        fits_cache=None if ceilings is None else ceilings.fits_cache,
    )
    if ceilings is not None and standing.config is not None:
        why_none = ceilings.why_no_limits(standing.config)
        found = found if why_none is None else msgspec.structs.replace(found, why_none=why_none)
    ledger = pricing.target
    if ledger is None or not kept:
        return found
    moved = weight_bytes = head = kv = flops = 0.0
    for sample, weight in kept:
        shape = sample.shape
        account = ledger.price(ledger.count_spans(shape.spans, shape.rows, shape.outputs, shape.passes))
        moved += weight * account.total_bytes
        weight_bytes += weight * account.weight_bytes
        head += weight * account.exact.head_weights
        kv += weight * account.kv_bytes
        flops += weight * account.flops.total
    return msgspec.structs.replace(
        found, bytes=moved, weight_bytes=weight_bytes, head_bytes=head, kv_bytes=kv, flops=flops
    )
