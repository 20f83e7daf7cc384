"""What is believed of a forward's time before any step was seen: the ledger's bytes and FLOPs at measured or usual
rates, and how far that may be off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.analysis.timing.curves import INCREMENTS, increments
from stackscope.analysis.timing.design import by_parameter
from stackscope.analysis.timing.forwards import COLUMNS, FAR, N_COLUMNS, PARAMETERS
from stackscope.analysis.timing.solving import Data, Prior
from stackscope.records import Ubatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.timing.curves import Floats
    from stackscope.analysis.timing.forwards import ForwardDesign
    from stackscope.records import Ceilings
    from stackscope.records.ceilings import ForwardTime, TypeRate

N: Final = len(PARAMETERS)
AT: Final = {name: index for index, name in enumerate(PARAMETERS)}

SYSTEMATIC: Final = 0.02
"""A measured forward is not believed to better than this, however stable it was."""

BUSY: Final = 5.0
"""How much less sure forwards are that others on the machine disturbed: by so many times what those had of one CPU."""

LIKENESS: Final = 0.35
"""How much neighbouring increments of the curve differ per row, as a standard deviation relative to either."""

MEASURED: Final = 0.25
UNMEASURED: Final = 0.7
"""How unsure reading is at rates that were measured with other weights, and at those that were not; relative."""

ALONE: Final = 0.03
"""What one row's kernel takes longer than reading with the kernel of two, as a share of reading: mostly nothing,"""
ALONE_UNSURE: Final = 5.0
"""but so many times as much is no surprise (standard deviation)."""

_MEGA: Final = 1e6


class Rates(NamedTuple):
    """What a machine reads and computes per second when nothing was measured, or roughly when something was."""

    read: float
    """Bytes."""
    vector: float
    """FLOPs with one row, whatever is read."""
    matrix: float
    """FLOPs with many rows."""
    attention: float
    """FLOPs of query–key pairs."""
    layer_ns: float
    """Of a forward, for each block, beside its matrices."""
    is_measured: bool


USUAL: Final = {
    False: Rates(12e9, 20e9, 60e9, 20e9, 12_000.0, False),
    True: Rates(500e9, 5e12, 30e12, 1e12, 12_000.0, False),
}
"""By whether it is a GPU. Only ratios matter much: the common factor comes from the first steps."""


def rates(ceilings: Ceilings | None, *, is_gpu: bool) -> Rates:
    """Rates of the whole machine: the mean over what was measured, by bytes where it matters."""
    usual = USUAL[is_gpu]
    if ceilings is None or not ceilings.types:
        return usual
    read = _mean([t.vector_bytes_per_s.value for t in ceilings.types if t.vector_bytes_per_s is not None])
    vector = _mean([t.vector_flops_per_s.value for t in ceilings.types if t.vector_flops_per_s is not None])
    matrix = _mean([t.matrix_flops_per_s.value for t in ceilings.types if t.matrix_flops_per_s is not None])
    if read is None:
        return usual
    vector = vector or usual.vector
    return Rates(read, vector, matrix or 2.0 * vector, matrix or vector, usual.layer_ns, True)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.exp(np.mean(np.log(values)))) if values else None


class Reading(NamedTuple):
    """How the rates of reading that were measured apply to some weights."""

    factor: float
    unsure: float
    """Relative standard deviation of what reading then takes."""


def reading(design: ForwardDesign, ceilings: Ceilings | None) -> Reading:
    """Rates that were measured in the processor's cache say little of weights that do not fit it, and the other way
    round: 200 MB were read at 30 GB/s by two Zen cores that read 21 MB at 73."""
    if ceilings is None or not rates(ceilings, is_gpu=design.is_gpu).is_measured:
        return Reading(1.0, UNMEASURED)
    here = design.place(ceilings.cache_bytes)
    there = next(rate.place for rate in ceilings.types if rate.vector_bytes_per_s is not None)
    if here is None or here == there:
        return Reading(1.0, MEASURED)
    known = {read.place: read.bytes_per_s.value for read in ceilings.reads}
    if "cache" in known and "memory" in known:
        # Products do more than read: of the difference between the rates, half is taken to reach them.
        return Reading(float(np.sqrt(known[here] / known[there])), MEASURED)
    if here == "cache":
        return Reading(1.0, UNMEASURED)
    # What memory usually does, and what no memory does, are the bounds.
    general = rates(ceilings, is_gpu=design.is_gpu).read
    return Reading(float(np.sqrt(min(USUAL[design.is_gpu].read / general, 1.0))), UNMEASURED)


class Parts(NamedTuple):
    """Seconds that a model's body or head takes at one row and, for each further one, at many."""

    first: float
    each: float


def parts(design: ForwardDesign, ceilings: Ceilings | None, roles: Iterable[str]) -> Parts:
    """Of the tensors with these roles, by the measured rates of their storage types, else by the others'."""
    measured = {} if ceilings is None else {rate.type.lower(): rate for rate in ceilings.types}
    general, factor = rates(ceilings, is_gpu=design.is_gpu), reading(design, ceilings).factor
    model = design.ledger.model
    wanted = set(roles)
    if "head" in wanted and model.tied_head:
        wanted.add("embedding")
    share = model.experts_used / model.experts if model.experts else 1.0
    first = each = 0.0
    for tensor in model.tensors:
        if tensor.role not in wanted:
            continue
        part = share if tensor.role == "expert" else 1.0
        read, matrix = _of_type(measured.get(tensor.type.lower()), general)
        first += part * tensor.bytes / (factor * read)
        each += part * 2 * tensor.elements / matrix if tensor.is_matrix or tensor.role == "embedding" else 0.0
    return Parts(first, each)


def _of_type(rate: TypeRate | None, general: Rates) -> tuple[float, float]:
    """(bytes, FLOPs) per second of one storage type, with one row and with many."""
    if rate is None:
        return general.read, general.matrix
    read = general.read if rate.vector_bytes_per_s is None else rate.vector_bytes_per_s.value
    return read, general.matrix if rate.matrix_flops_per_s is None else rate.matrix_flops_per_s.value


BODY_ROLES: Final = ("attention", "ffn", "expert", "norm", "recurrent", "other")


def prior(design: ForwardDesign, ceilings: Ceilings | None) -> Prior:
    """What is believed of one model's forwards; where it was calibrated, `calibration` says much more."""
    general = rates(ceilings, is_gpu=design.is_gpu)
    body, head = parts(design, ceilings, BODY_ROLES), parts(design, ceilings, ("head",))
    layers = len(design.ledger.model.layers)
    mean, unsure = np.zeros(N), np.ones(N)
    fixed = general.layer_ns * layers + 30_000.0
    fixed_sure = 2.0
    if ceilings is not None and ceilings.fixed_ns is not None and ceilings.fixed_ns > 0.0:
        fixed, fixed_sure = ceilings.fixed_ns, 0.5
    mean[AT["fixed.forward"]], mean[AT["fixed.pass"]] = 0.3 * fixed, 0.7 * fixed
    unsure[AT["fixed.forward"]] = unsure[AT["fixed.pass"]] = fixed_sure
    mean[AT["weights"]], mean[AT["head.1"]] = 1e9 * body.first, 1e9 * head.first
    unsure[AT["weights"]] = unsure[AT["head.1"]] = reading(design, ceilings).unsure
    likeness: list[Floats] = []
    for name, part in (("body", body), ("head", head)):
        likeness += _curve(mean, unsure, name, part)
    likeness += _attention(mean, unsure, design, general)
    sd = np.maximum(unsure * mean, 1e-3)
    return Prior(mean, sd, np.array(likeness), 0.1 if general.is_measured else 1.5)


def _curve(mean: Floats, unsure: Floats, name: str, part: Parts) -> list[Floats]:
    """Fill in the increments of one curve; which of them are alike.

    A row alone costs between a share of a block and a whole reading; a GPU's first rows are nearly free.
    """
    base = AT[f"{name}.{INCREMENTS[0]}"]
    block = 1e9 * part.each
    single = max(block, float(np.sqrt(block * 1e9 * part.first)))
    likeness: list[Floats] = []
    mean[base], unsure[base] = ALONE * 1e9 * part.first, ALONE_UNSURE
    for index, (label, one) in enumerate(zip(INCREMENTS, increments(), strict=True)):
        if index == 0:
            continue
        is_block = label.startswith("b")
        mean[base + index] = one.rows * (block if is_block else single)
        unsure[base + index] = 1.0
        if one.like is not None:
            other = increments()[one.like]
            row = np.zeros(N)
            scale = LIKENESS * (block if is_block else single) + 1e-3
            row[base + index], row[base + one.like] = 1.0 / (one.rows * scale), -1.0 / (other.rows * scale)
            likeness.append(row)
    return likeness


def _attention(mean: Floats, unsure: Floats, design: ForwardDesign, general: Rates) -> list[Floats]:
    """Fill in what cached tokens cost; which of it is alike."""
    each = _MEGA * 1e9 / general.attention
    if design.is_gpu:
        mean[AT["pair.row"]], mean[AT["read"]] = each, _MEGA * 1e9 / general.read
        unsure[AT["read"]] = 0.5
    flops_per_cell = _flops_per_cell(design)
    for regime in ("row", "split", "tile"):
        mean[AT[f"pair.{regime}"]] = each
        unsure[AT[f"pair.{regime}"]] = 1.5
        mean[AT[f"scan.{regime}"]] = (0.3 if regime == "tile" else 0.05) * each * flops_per_cell
        unsure[AT[f"scan.{regime}"]] = 1.5
    mean[AT["state"]] = _MEGA * 1e9 / general.read
    for tokens in FAR:
        mean[AT[f"far.{tokens}"]] = 0.15 * each
        unsure[AT[f"far.{tokens}"]] = 1.5
    row = np.zeros(N)
    row[AT["pair.row"]], row[AT["pair.split"]] = 1.0 / (0.4 * each), -1.0 / (0.4 * each)
    return [row]


def _flops_per_cell(design: ForwardDesign) -> float:
    """FLOPs of one query–key pair of one head, the mean over layers."""
    heads = sum(design.heads)
    flops = sum([group.flops_per_pair for group in design.ledger.groups])
    return flops / heads if heads else 0.0


def calibration(design: ForwardDesign, ceilings: Ceilings, times: Iterable[ForwardTime]) -> Data:
    """Measured forwards, from these ceilings, as data."""
    busy = 1.0 + (BUSY * ceilings.foreign_share if ceilings.is_busy and ceilings.foreign_share is not None else 0.0)
    rows: list[Floats] = []
    taken: list[float] = []
    sd: list[float] = []
    for time in times:
        if time.ns.value > 0.0:
            rows.append(design.row(time.spans, (Ubatch(time.rows, time.outputs),), time.cells))
            taken.append(time.ns.value)
            spread = 0.2 if time.ns.spread is None else time.ns.spread
            own = max(SYSTEMATIC, spread / 1.35 / np.sqrt(max(1, time.ns.n)))
            sd.append(own * busy)
    columns = np.array(rows).reshape(len(rows), N_COLUMNS)
    return Data(by_parameter(COLUMNS, columns), np.array(taken), np.array(sd))
