"""From samples to ceilings: medians, rates by the ledger's counts, slopes, and what follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope.analysis.ledger import Ledger
from stackscope.experiments import samples
from stackscope.records import DraftForward
from stackscope.records.ceilings import (
    Ceiling,
    Ceilings,
    ForwardTime,
    Handoff,
    Measured,
    OtherCache,
    ReadRate,
    TypeRate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stackscope.analysis.account import Account
    from stackscope.experiments.protocol import Findings, Item, Kind, Series
    from stackscope.experiments.samples import Sample
    from stackscope.records import ModelSummary
    from stackscope.records.ceilings import CacheKind, Conditions, Place


_PLACES: Final[dict[Place, str]] = {"memory": "memory", "cache": "the cache"}


class Occasion(NamedTuple):
    """What the parent process knows of a calibration."""

    conditions: Conditions
    measured: str
    stackscope: str
    is_full: bool
    duration_ns: int
    foreign_share: float | None
    is_quiet: bool
    cache_bytes: int | None
    draft: str | None
    """Name of the draft model's file."""


def assemble(findings: Findings, occasion: Occasion) -> Ceilings:
    """Everything that follows from the samples."""
    config = occasion.conditions
    ledger = Ledger(findings.model, config.kv_type_k, config.kv_type_v)  # type: ignore[arg-type]
    unknown = dict(findings.unknown)
    cache_bytes = None if findings.is_gpu else occasion.cache_bytes
    fits = _fits(findings.model, cache_bytes)
    read, kinds, times = reads(findings, unknown), types(findings, unknown), forwards(findings, "forward")
    depth = cost_of_depth(findings, ledger)
    if depth.why_not is not None:
        unknown.setdefault("context", depth.why_not)
    left = fixed(forwards(findings, "forward", estimate=samples.best_duration), kinds, findings.model)
    fixed_ns = None if isinstance(left, str) else left
    if isinstance(left, str):
        unknown["fixed cost"] = left
    return Ceilings(
        conditions=config,
        measured=occasion.measured,
        stackscope=occasion.stackscope,
        is_full=occasion.is_full,
        duration_ns=occasion.duration_ns,
        foreign_share=occasion.foreign_share,
        is_quiet=occasion.is_quiet,
        cache_bytes=cache_bytes,
        fits_cache=fits,
        draft_fits_cache=None if findings.draft is None else _fits(findings.draft, cache_bytes),
        reads=read,
        types=kinds,
        forwards=times,
        contexts=forwards(findings, "context"),
        other_caches=other_caches(findings),
        context_ns_per_token=depth.ns_per_token,
        kv_read_bytes_per_s=depth.read_bytes_per_s,
        fixed_ns=fixed_ns,
        draft=occasion.draft,
        draft_forwards=forwards(findings, "draft"),
        rebuild_ns=_single(findings, "rebuild"),
        load_ns=_single(findings, "load"),
        handoff=handoff(findings),
        compute=compute(times, ledger),
        bandwidth=bandwidth(times, ledger, read, fits_cache=fits),
        unknown=unknown,
    )


def weight_bytes(model: ModelSummary) -> int:
    """Weights that a forward of one row reads."""
    return int(Ledger(model).account_draft([DraftForward(((0, 1),), 1)]).weight_bytes)


def _fits(model: ModelSummary, cache_bytes: int | None) -> bool | None:
    return None if cache_bytes is None else weight_bytes(model) <= cache_bytes


def _named(findings: Findings, kind: Kind) -> list[Series]:
    return [series for series in findings.series if series.item.kind == kind and series.samples]


def _single(findings: Findings, kind: Kind) -> Measured | None:
    """How long something takes of which there is one kind only. `None`: it was not measured."""
    found = _named(findings, kind)
    return samples.duration(found[0].samples) if found else None


def reads(findings: Findings, unknown: dict[str, str]) -> tuple[ReadRate, ...]:
    """Reading alone, by place; what does not agree with itself is put among the unknown."""
    found = (
        ReadRate(
            place=series.item.place,
            set_bytes=series.item.bytes,
            bytes_per_s=samples.best_rate(series.item.bytes, series.samples),
        )
        for series in _named(findings, "read")
    )
    return tuple(each for each in found if _has_worth(each.bytes_per_s, f"reading {_PLACES[each.place]}", unknown))


def _has_worth(found: Measured, what: str, unknown: dict[str, str]) -> bool:
    """Whether a figure agrees with itself; else `unknown` says that it does not."""
    why = samples.why_worthless(found)
    if why is not None:
        unknown.setdefault(what, why)
    return why is None


def types(findings: Findings, unknown: dict[str, str]) -> tuple[TypeRate, ...]:
    """Products by storage type, in the order they were measured; what does not agree with itself is left out of them
    and put among the unknown."""
    found: dict[str, TypeRate] = {}
    for series in _named(findings, "product"):
        item = series.item
        known = found.setdefault(item.type, TypeRate(type=item.type, place=item.place))
        flops = samples.best_rate(item.flops, series.samples)
        if not _has_worth(flops, f"{item.type} matrices × {item.rows}", unknown):
            continue
        if item.rows == 1:
            read = samples.best_rate(item.bytes, series.samples)
            known = msgspec.structs.replace(known, vector_bytes_per_s=read, vector_flops_per_s=flops)
        else:
            known = msgspec.structs.replace(known, matrix_flops_per_s=flops, matrix_rows=item.rows)
        found[item.type] = known
    return tuple(found.values())


def forwards(
    findings: Findings, kind: Kind, cache: CacheKind | None = None, *,
    estimate: Callable[[Sequence[Sample]], Measured] = samples.duration,
) -> tuple[ForwardTime, ...]:  # fmt: skip
    """Forward times of a kind, by depth, rows and outputs; `cache` is another than the configured one.

    They are what forwards usually take, as predictions are held against such: the median, unless another `estimate` is
    given.
    """
    found = [
        ForwardTime(
            rows=series.item.rows,
            sequences=series.item.sequences,
            outputs=series.item.outputs,
            cached=series.item.cached,
            others=series.item.others,
            ns=estimate(series.samples),
        )
        for series in _named(findings, kind)
        if series.item.cache == cache
    ]
    return tuple(sorted(found, key=lambda time: (time.cached, time.rows, -time.outputs, time.others)))


def other_caches(findings: Findings) -> tuple[OtherCache, ...]:
    """What was measured with other kinds of cache, in the order in which they were tried."""
    kinds = dict.fromkeys(series.item.cache for series in _named(findings, "context"))
    return tuple(OtherCache(kind=kind, contexts=forwards(findings, "context", kind)) for kind in kinds if kind)


def handoff(findings: Findings) -> Handoff | None:
    """Saving and loading the state of a sequence. `None`: it was not measured."""
    saves, loads = _named(findings, "save"), _named(findings, "load state")
    if not saves or not loads:
        return None
    item = saves[0].item
    return Handoff(
        tokens=item.cached,
        state_bytes=item.bytes,
        save_bytes_per_s=samples.rate(item.bytes, saves[0].samples),
        load_bytes_per_s=samples.rate(item.bytes, loads[0].samples),
    )


class Depth(NamedTuple):
    """What cached tokens add to the forward of one row."""

    ns_per_token: Measured | None = None
    read_bytes_per_s: Measured | None = None
    why_not: str | None = None


def cost_of_depth(findings: Findings, ledger: Ledger) -> Depth:
    """Slope of forward time against the KV bytes that the ledger counts, so that windows need no rule of their own.

    Each round of samples, one at every depth, gives a slope; a token of full attention is priced by it.
    """
    items = _named(findings, "context")
    series = [s for s in items if (s.item.rows, s.item.others, s.item.cache) == (1, 0, None)]
    read = [priced(_forward(each.item), ledger).exact.kv_read for each in series]
    rounds = min((len(each.samples) for each in series), default=0)
    fitted = (samples.slope(read, [each.samples[nth].ns for each in series]) for nth in range(rounds))
    slopes = [slope for slope in fitted if slope is not None]
    if not slopes:
        return Depth(why_not="the context holds too few tokens to see what they cost")
    if sum(slope > 0 for slope in slopes) <= len(slopes) / 2:
        return Depth(why_not="what cached tokens cost is lost in the noise")
    full = sum(group.bytes_per_token for group in ledger.groups if group.window is None)
    per_byte = samples.measured(slopes)
    why_not = samples.why_worthless(per_byte)
    if why_not is not None:
        return Depth(why_not=why_not)
    per_token = samples.measured([slope * full for slope in slopes]) if full else None
    return Depth(per_token, msgspec.structs.replace(per_byte, value=1e9 / per_byte.value))


def fixed(times: Sequence[ForwardTime], kinds: Sequence[TypeRate], model: ModelSummary) -> float | str:
    """Time of a forward of one row that its matrices, at their own rates, leave over, in nanoseconds; or why nothing is
    known of it.
    """
    one = next((time for time in times if time.rows == 1), None)
    rates = {kind.type: kind.vector_bytes_per_s for kind in kinds}
    if one is None:
        return "no forward of one row was timed"
    left = one.ns.value
    for type_name, n_bytes in matrix_bytes(model).items():
        rate = rates.get(type_name)
        if rate is None:
            return f"how fast {type_name} matrices are multiplied by one row is not known"
        left -= 1e9 * n_bytes / rate.value
    return left if left > 0 else "a forward of one row takes no longer than its matrices alone do"


def matrix_bytes(model: ModelSummary) -> dict[str, float]:
    """Bytes of matrices that a forward of one row multiplies by, by storage type."""
    found: dict[str, float] = {}
    for tensor in model.tensors:
        is_table = tensor.role == "embedding" and tensor.elements == model.vocabulary * model.embedding
        is_head = model.tied_head and is_table
        if tensor.is_matrix or is_head:
            share = model.experts_used / model.experts if tensor.role == "expert" and model.experts else 1.0
            found[tensor.type] = found.get(tensor.type, 0.0) + share * tensor.bytes
    return found


def compute(times: Iterable[ForwardTime], ledger: Ledger) -> Ceiling | None:
    """Most FLOP/s that forwards reached, at any number of rows; those whose samples do not agree are left out."""
    return _best(times, lambda time: priced(time, ledger).flops.total)


def bandwidth(
    times: Iterable[ForwardTime], ledger: Ledger, read: Iterable[ReadRate], *, fits_cache: bool | None
) -> Ceiling | None:
    """Larger of what reading alone and what forwards reached; the cache counts for a model that stays in it."""
    best = _best(times, lambda time: priced(time, ledger).total_bytes)
    for each in read:
        is_ours = each.place == "memory" or fits_cache
        if is_ours and (best is None or each.bytes_per_s.value > best.value):
            best = Ceiling(value=each.bytes_per_s.value, kind=each.place, spread=each.bytes_per_s.spread)
    return best


def priced(time: ForwardTime, ledger: Ledger) -> Account:
    """What the ledger counts for one such forward."""
    return ledger.account_draft([_shape(time)])


def _shape(time: ForwardTime) -> DraftForward:
    return DraftForward(time.spans, time.outputs)


def _best(times: Iterable[ForwardTime], amount: Callable[[ForwardTime], float]) -> Ceiling | None:
    found = [
        Ceiling(value=1e9 * amount(t) / t.ns.value, kind="forward", rows=t.rows, spread=t.ns.spread)
        for t in times
        if samples.why_worthless(t.ns) is None
    ]
    return max(found, key=lambda ceiling: ceiling.value, default=None)


def _forward(item: Item) -> ForwardTime:
    """A forward of an item's shape, without its time."""
    return ForwardTime(
        rows=item.rows, sequences=item.sequences, outputs=item.outputs, cached=item.cached, ns=Measured(value=0.0)
    )
