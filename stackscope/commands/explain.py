"""`stackscope explain`: what the cost model says of a model on a machine, without running anything."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final, cast, get_args

import msgspec

from stackscope import units
from stackscope.analysis.ledger import Ledger
from stackscope.analysis.roofline import Case, Exact, Machine, Sized, explain, ladder, variants
from stackscope.commands import quantities
from stackscope.commands.explain_options import Asked, flag
from stackscope.errors import UsageError
from stackscope.hardware import peaks
from stackscope.model.catalog import resolve
from stackscope.model.spec import ModelSpec, load_spec
from stackscope.report import explain as report
from stackscope.report import output
from stackscope.toggles import KvType

if TYPE_CHECKING:
    from stackscope.analysis.roofline import Explained, Forward
    from stackscope.analysis.roofline import Model as CostModel

MOST_BATCH: Final = 65_536
MOST_TOKENS: Final = 10**8
MOST_DRAFT: Final = 1_024


def explain_case(asked: Asked, *, json: bool = False) -> int:
    """Print what the model says; the exit status. Raises `UsageError`, and `ModelFileError` for a file."""
    _require_sense(asked)
    model, words, notes = _model(asked)
    machine, described = _machine(asked)
    case = Case(
        model=model,
        machine=machine,
        batch=quantities.whole("--batch", asked.batch or "1", most=MOST_BATCH),
        context=None
        if asked.context is None
        else quantities.whole("--context", asked.context, least=0, most=MOST_TOKENS),
        draft=_draft(asked),
        draft_length=None
        if asked.draft_length is None
        else quantities.whole("--draft-length", asked.draft_length, most=MOST_DRAFT),
        acceptance=() if asked.acceptance is None else quantities.acceptance("--acceptance", asked.acceptance),
    )
    found = report.ExplainReport(
        case=case,
        explained=explain(case),
        ladder=ladder(case),
        variants=variants(case),
        model=words,
        machine=described,
        notes=(*notes, *_notes(case, asked)),
    )
    if json:
        output.write_json(document(found))
    else:
        output.show(partial(report.shown, found, is_ascii=not _has_braille(sys.stdout.encoding)))
    return 0


def _require_sense(asked: Asked) -> None:
    """Refuse options that contradict each other or lack another. Raises `UsageError`."""
    if asked.params is None and asked.model is None:
        raise UsageError("There is no model to explain.", remedy="Give --params 8B, or --model FILE.gguf.")
    for sized in ("params", "bits", "kv_per_token"):
        if asked.model is not None and getattr(asked, sized) is not None:
            raise UsageError(f"The file says what {flag(sized)} would.", remedy=f"Leave out {flag(sized)} or --model.")
    if asked.params is not None and asked.kv_type is not None:
        raise UsageError("--kv-type needs the geometry of a file.", remedy="Give --kv-per-token 128KiB instead.")
    if asked.gpu is None and asked.bandwidth is None and asked.flops is None:
        raise UsageError(
            "There is no machine to explain it on.", remedy="Give --gpu H200, or --bandwidth 1TB/s --flops 100TFLOP/s."
        )
    for later in ("acceptance", "draft_params", "draft_model"):
        if asked.draft_length is None and getattr(asked, later) is not None:
            raise UsageError(f"{flag(later)} says nothing without drafts.", remedy="Add --draft-length 3.")
    if asked.draft_params is not None and asked.draft_model is not None:
        raise UsageError("There can be one draft model.", remedy="Leave out --draft-params or --draft-model.")
    if asked.draft_bits is not None and asked.draft_params is None:
        raise UsageError("--draft-bits says nothing without --draft-params.", remedy="Add --draft-params 500M.")


def _model(asked: Asked) -> tuple[CostModel, tuple[str, ...], tuple[str, ...]]:
    """(the model, what it is in words, notes)."""
    if asked.model is not None:
        spec = load_spec(resolve(asked.model))
        exact = _exact(spec, asked.kv_type)
        words = (spec.name or spec.path.stem, f"{units.scaled(spec.parameters)} parameters")
        kv = f"KV cache {units.data_size(exact.ledger.kv_bytes_per_token)} per token"
        return exact, (*words, units.data_size(spec.tensor_bytes), kv), exact.ledger.not_modelled
    assert asked.params is not None
    sized = Sized(
        parameters=quantities.parameters("--params", asked.params),
        bits=quantities.bits("--bits", asked.bits or "16"),
        kv_bytes_per_token=None
        if asked.kv_per_token is None
        else quantities.size("--kv-per-token", asked.kv_per_token),
    )
    kv = "" if sized.kv_bytes_per_token is None else f"KV cache {units.data_size(sized.kv_bytes_per_token)} per token"
    bits = int(sized.bits) if sized.bits.is_integer() else sized.bits
    words = (f"{asked.params} parameters", f"{units.number(bits)} bits each")
    return sized, (*words, *([kv] if kv else [])), ()


def _exact(spec: ModelSpec, kv_type: str | None) -> Exact:
    chosen = kv_type or "f16"
    if chosen not in get_args(KvType):
        raise UsageError(f"--kv-type {chosen!r} is not known.", remedy=f"There are: {', '.join(get_args(KvType))}.")
    try:
        return Exact(Ledger(spec.summary(), cast("KvType", chosen), cast("KvType", chosen)))
    except ValueError as error:
        raise UsageError(f"This model cannot have a KV cache of {chosen}: {error}.", remedy="Take f16.") from error


def _draft(asked: Asked) -> CostModel | None:
    if asked.draft_model is not None:
        return _exact(load_spec(resolve(asked.draft_model)), None)
    if asked.draft_params is None:
        return None
    size = quantities.parameters("--draft-params", asked.draft_params)
    bits = quantities.bits("--draft-bits", asked.draft_bits or "16")
    return Sized(parameters=size, bits=bits, kv_bytes_per_token=0.0)


def _machine(asked: Asked) -> tuple[Machine, tuple[str, ...]]:
    """The ceilings, and where they come from."""
    row = None if asked.gpu is None else gpu(asked.gpu)
    bandwidth = None if row is None or row.dram_gb_per_s is None else row.dram_gb_per_s * 1e9
    flops = None if row is None or row.bf16_tflops is None else row.bf16_tflops * 1e12
    if asked.bandwidth is not None:
        bandwidth = quantities.bandwidth("--bandwidth", asked.bandwidth)
    if asked.flops is not None:
        flops = quantities.flop_rate("--flops", asked.flops)
    of_gpu = " (16 bits, dense)" if asked.flops is None and flops is not None else ""
    names = () if row is None else (row.names[0],)
    return Machine(bandwidth=bandwidth, flops=flops), (
        *names,
        units.bandwidth(bandwidth),
        f"{units.flop_rate(flops)}{of_gpu}",
    )


def gpu(name: str) -> peaks.Rated:
    """The row of the table that a name means: the whole name, or words that only one has. Raises `UsageError`."""
    rows = peaks.table()
    wanted = set(name.lower().split())
    fitting = [row for row in rows if name.lower() in map(str.lower, row.names)]
    fitting = fitting or [row for row in rows if wanted and any(wanted <= set(n.lower().split()) for n in row.names)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(row.names[0] for row in fitting or rows)
    problem = "may be several GPUs" if fitting else "is not in the table of GPUs"
    remedy = f"Name one of: {names}." if fitting else f"Give --bandwidth and --flops, or one of: {names}."
    raise UsageError(f"{name!r} {problem}.", remedy=remedy)


def _notes(case: Case, asked: Asked) -> list[str]:
    notes = ["All times are lower bounds: the two ceilings, reached in full, and nothing else. Kernels reach a part."]
    model = case.model
    if isinstance(model, Sized):
        notes.append("A dense model is assumed, whose parameters are all read and multiplied in every forward.")
        if case.context is not None and model.kv_bytes_per_token is None:
            notes.append("What the KV cache takes is not known: give --kv-per-token, or a file with --model.")
        elif case.context is not None:
            notes.append("Arithmetic of attention over the context is left out: it needs the geometry of a file.")
    elif isinstance(model, Exact) and model.ledger.is_sparse:
        notes.append("Drafts wake more experts: independent routing is assumed, and related tokens wake fewer.")
    notes += [
        f"The {whose} was made for contexts of {units.counted(most, 'token')} at most: it runs with none longer."
        for whose, one in (("model", model), ("draft model", case.draft))
        if isinstance(one, Exact) and case.context is not None and case.context > (most := one.ledger.model.context) > 0
    ]
    for what, value, option in (
        ("bandwidth", case.machine.bandwidth, "--bandwidth"), ("arithmetic", case.machine.flops, "--flops"),
    ):  # fmt: skip
        if value is None:
            notes.append(f"The machine's {what} is not known: give {option}.")
    if case.draft_length is not None:
        if case.draft is None:
            notes.append("There is no draft model: drafting takes no time here, as good as true of n-grams.")
        elif isinstance(case.draft, Sized) and case.context:
            notes.append("The KV cache of the draft model is left out.")
        if len(case.acceptance) == 1 and case.draft_length > 1:
            notes.append("One acceptance for every place of a draft is an assumption; a run measures each.")
    if asked.gpu is not None:
        notes.append("Figures of a GPU are rated ones, from a data sheet; none was measured.")
    return notes


def _has_braille(encoding: str | None) -> bool:
    try:
        "⣿│└┴".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def document(found: report.ExplainReport) -> dict[str, object]:
    """The same for machines: times in ns, sizes in bytes, unknown is null."""
    case, explained = found.case, found.explained
    return {
        "model": list(found.model),
        "machine": msgspec.to_builtins(case.machine),
        "batch": case.batch,
        "context": case.context,
        "draft_length": case.draft_length,
        "acceptance": list(case.acceptance),
        "forward": _of_forward(explained.forward),
        "ridge": explained.ridge,
        "crossover_batch": explained.crossover_batch,
        "crossover_context": explained.crossover_context,
        "free_drafts": explained.free_drafts,
        "speculation": _of_speculation(explained),
        "batches": [_of_forward(one) for one in found.ladder],
        "variants": [
            {"name": one.name, "bits": one.bits, "crossover_batch": one.crossover_batch} | _of_forward(one.forward)
            for one in found.variants
        ],
        "notes": list(found.notes),
    }


def _of_forward(one: Forward) -> dict[str, object]:
    derived = {"memory_ns": one.memory_ns, "ns": one.ns, "bound": one.bound, "intensity": one.intensity}
    return {**msgspec.to_builtins(one), **derived}


def _of_speculation(explained: Explained) -> dict[str, object] | None:
    found = explained.speculation
    if found is None:
        return None
    whole = {**msgspec.to_builtins(found), "verify": _of_forward(found.verify), "speed_up": found.speed_up}
    return {**whole, "draft_share": found.draft_share}
