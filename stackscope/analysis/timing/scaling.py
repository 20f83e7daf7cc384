"""How much longer other weights take to read and to multiply, by their bytes, elements and storage types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope.analysis.timing.beliefs import BODY_ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.analysis.timing.forwards import ForwardDesign
    from stackscope.records import Ceilings, ModelSummary
    from stackscope.records.ceilings import TypeRate

UNMEASURED: Final = 0.3
"""Standard deviation (ln) of the rate of a storage type that nobody measured here, against those that were: they differ
by 20 to 45 % (llama.cpp on a Raspberry Pi and on an i7, as gathered by llama-roofline)."""
UNMEASURED_MATRIX: Final = 0.45
"""The same of products with many rows, where kernels differ more: on two Zen 3 cores Q5_0 117, F16 120, Q8_0 151, Q4_K
256 and Q6_K 277 GFLOP/s."""
MEASURED: Final = 0.08
"""Of one whose matrix products were timed, though not inside this model."""
IN_USE: Final = 0.1
"""Of one that is in use, when nothing tells its rate from that of the others in the model."""
OTHER_KERNEL: Final = 0.5
"""Of how the first few rows go, which is another kernel's affair when the types are others."""
OTHER_PLACE: Final = 0.4
"""Of all reading, when the weights come to lie in the processor's cache, or leave it, and its rates are not known."""
KNOWN_PLACE: Final = 0.15
"""The same when they are."""


class Part(NamedTuple):
    """Change of the body or of the head."""

    first: float
    """Time of one row, after ÷ before."""
    each: float
    """Time of one of many rows, after ÷ before."""
    first_sd: Mapping[str, float]
    """Standard deviations (ln) of the former, by what they come from."""
    each_sd: Mapping[str, float]
    kernel_sd: float


class Change(NamedTuple):
    """From one model's weights to another's."""

    body: Part
    head: Part
    unknown: dict[str, str]


class _Mix(NamedTuple):
    """Time of a set of tensors by storage type, in arbitrary units."""

    first: dict[str, float]
    each: dict[str, float]


def weights_change(mine: ForwardDesign, other: ForwardDesign, ceilings: Sequence[Ceilings]) -> Change:
    """What the ledgers of two models and measured rates say of their difference."""
    rates = _comparable(mine, ceilings)
    place, place_sd = _place(mine, other, ceilings)
    before, after = mine.ledger.model, other.ledger.model
    used = {tensor.type.lower() for tensor in before.tensors}
    parts = [
        _part(_mix(before, roles, rates), _mix(after, roles, rates), rates, used, place, place_sd)
        for roles in (BODY_ROLES, ("head",))
    ]
    strange = sorted({tensor.type for tensor in after.tensors if tensor.is_matrix} - {t.type for t in before.tensors})
    strange = [kind for kind in strange if kind.lower() not in rates]
    unknown = {}
    if strange:
        unknown["weights"] = f"no matrices in {', '.join(strange)} were measured here: by their bytes alone"
    elif before != after:
        unknown["weights"] = "the other weights were never measured as a whole"
    return Change(parts[0], parts[1], unknown)


def _comparable(mine: ForwardDesign, ceilings: Sequence[Ceilings]) -> dict[str, TypeRate]:
    """Rates of storage types that may be set against each other, by type.

    Those of a disturbed machine are not set against those of a calm one, nor reading in the cache against reading in
    memory: a type that was only measured elsewhere counts by its bytes.
    """
    calm = [one for one in ceilings if not one.is_busy]
    cache = next((one.cache_bytes for one in ceilings if one.cache_bytes is not None), None)
    here = "cache" if cache is not None and not mine.is_gpu and _fits(mine, cache) else "memory"
    found: dict[str, TypeRate] = {}
    for one in reversed(calm or ceilings):
        for rate in one.types:
            is_here = mine.is_gpu or rate.place == here
            known = found.get(rate.type.lower())
            if known is not None and known.vector_bytes_per_s is not None and not is_here:
                continue
            found[rate.type.lower()] = rate if is_here else msgspec.structs.replace(rate, vector_bytes_per_s=None)
    return found


def _fits(design: ForwardDesign, cache: int) -> bool:
    return design.body_bytes + design.ledger.weights.head.bytes < 0.8 * cache


def _mix(model: ModelSummary, roles: Iterable[str], rates: Mapping[str, TypeRate]) -> _Mix:
    wanted = set(roles)
    if "head" in wanted and model.tied_head:
        wanted.add("embedding")
    reads = [r.vector_bytes_per_s.value for r in rates.values() if r.vector_bytes_per_s is not None]
    products = [r.matrix_flops_per_s.value for r in rates.values() if r.matrix_flops_per_s is not None]
    usual_read = sum(reads) / len(reads) if reads else 1.0
    usual_product = sum(products) / len(products) if products else 1.0
    share = model.experts_used / model.experts if model.experts else 1.0
    first: dict[str, float] = {}
    each: dict[str, float] = {}
    for tensor in model.tensors:
        if tensor.role not in wanted or not (tensor.is_matrix or tensor.role == "embedding"):
            continue
        kind = tensor.type.lower()
        rate = rates.get(kind)
        read = usual_read if rate is None or rate.vector_bytes_per_s is None else rate.vector_bytes_per_s.value
        product = usual_product if rate is None or rate.matrix_flops_per_s is None else rate.matrix_flops_per_s.value
        part = share if tensor.role == "expert" else 1.0
        first[kind] = first.get(kind, 0.0) + part * tensor.bytes / read
        each[kind] = each.get(kind, 0.0) + part * tensor.elements / product
    return _Mix(first, each)


def _part(
    before: _Mix, after: _Mix, rates: Mapping[str, TypeRate], used: set[str], place: float, place_sd: float
) -> Part:
    """The ratio of two mixes, and how uncertain each type makes it.

    A type's unknown rate counts by how much its share of the time changes: what is in both leaves the ratio.
    """
    read = {kind for kind, rate in rates.items() if rate.vector_bytes_per_s is not None}
    multiplied = {kind for kind, rate in rates.items() if rate.matrix_flops_per_s is not None}
    first, first_sd = _ratio(before.first, after.first, read, used, UNMEASURED)
    each, each_sd = _ratio(before.each, after.each, multiplied, used, UNMEASURED_MATRIX)
    if place_sd > 0.0:
        first_sd["place"] = place_sd
    is_other = set(before.first) != set(after.first)
    return Part(first * place, each, first_sd, each_sd, OTHER_KERNEL if is_other else 0.0)


def _ratio(
    before: dict[str, float], after: dict[str, float], measured: set[str], used: set[str], unmeasured: float
) -> tuple[float, dict[str, float]]:
    was, now = sum(before.values()), sum(after.values())
    if was <= 0.0 or now <= 0.0:
        return 1.0, {}
    sd: dict[str, float] = {}
    for kind in sorted({*before, *after}):
        moved = after.get(kind, 0.0) / now - before.get(kind, 0.0) / was
        doubt = MEASURED if kind in measured else IN_USE if kind in used else unmeasured
        if abs(moved) > 1e-3:
            sd[kind] = moved * doubt
    return now / was, sd


def _place(mine: ForwardDesign, other: ForwardDesign, ceilings: Sequence[Ceilings]) -> tuple[float, float]:
    """(time after ÷ before, its standard deviation) for weights that move between cache and memory."""
    cache = next((one.cache_bytes for one in ceilings if one.cache_bytes is not None), None)
    if cache is None or mine.is_gpu:
        return 1.0, 0.0

    if _fits(mine, cache) == _fits(other, cache):
        return 1.0, 0.0
    reads = {read.place: read.bytes_per_s.value for one in ceilings for read in one.reads}
    if "cache" not in reads or "memory" not in reads:
        return 1.0, OTHER_PLACE
    gain = reads["memory"] / reads["cache"]
    # Products do more than read: of the difference between the rates, half is taken to reach them.
    return (gain**0.5 if _fits(other, cache) else gain**-0.5), KNOWN_PLACE + 0.25 * abs(1.0 - gain)
