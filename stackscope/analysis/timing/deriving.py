"""What is learned of one configuration, under another.

In this order: what steps of it taught; what a calibration of it measured, brought to the level of the steps seen; else
the ledger's new bytes and FLOPs at the rates learned, widened by what nobody measured of the other kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.caches import measured_cache, with_cache
from stackscope.analysis.timing.design import COLUMNS_OF, Design
from stackscope.analysis.timing.drawing import Belief, Load
from stackscope.analysis.timing.learning import learn, priors, seen_by
from stackscope.analysis.timing.model import Source, TimeModel, conditions_of, origin_of
from stackscope.analysis.timing.scaling import Change, weights_change
from stackscope.analysis.timing.solving import NO_DATA, solve
from stackscope.records.ceilings import placement

if TYPE_CHECKING:
    from stackscope.analysis.timing.curves import Floats
    from stackscope.records import Ceilings
    from stackscope.toggles import EngineConfig

TARGET, DRAFT = 0, 1

COMPUTE_EXPONENT: Final = (0.75, 0.17)
"""Speed-up of computing by threads, as a power of their number: between √n and n. Mean and standard deviation."""
READ_EXPONENT: Final = (0.5, 0.32)
"""The same of reading, between none and n: a few threads take all the bandwidth there is (llama.cpp#12966)."""
FEW: Final = 2
READ_EXPONENT_OF_FEW: Final = (0.8, 0.15)
"""The same between one thread and two, which do not: Gemma 3 270M made 24 tokens/s on one Zen 3 core and 42 on two."""
FIXED_EXPONENT: Final = (0.0, 0.3)

STEPS_SLOWER: Final = 0.06
"""How differently steps of two configurations are slower than their calibrations (ln, standard deviation)."""

STARVED: Final = 0.3
"""The same where their threads did not have their cores, as much then as now."""

KV_KERNEL: Final = (0.1, 0.4)
"""ln of what attention costs more with other types of KV: from nothing (llama.cpp PR 7372) to 2.8 times (#28454)."""
KERNEL: Final = 0.6
"""The same of attention with and without the fused kernel."""


def derive(model: TimeModel, config: EngineConfig, pricing: Pricing) -> TimeModel | str:
    """A model for another configuration, or why there can be none."""
    refusal = _refusal(model, config, pricing)
    if refusal is not None:
        return refusal
    key = conditions_of(config)
    same_target = model.pricing.target is not None and model.pricing.target.model == _of(pricing)
    if key == conditions_of(model.conditions) and same_target:
        return model.with_live(config)
    known = model.source.known.get(key)
    if known is not None and known.pricing.target is not None and known.pricing.target.model == _of(pricing):
        return _as_starved(known.with_live(config, model.source.known), model)
    found = None
    if not same_target or _differs(model.conditions, config, _OF_TARGET):
        found = next((one for one in model.source.others if one.conditions.hold_for(config)), None)
    if found is not None:
        return _calibrated(model, config, pricing, found)
    if not _differs(model.conditions, config, OF_CACHE):
        return _scaled(model, config, pricing)
    if same_target and not _differs(model.conditions, config, _BESIDE_CACHE):
        return _of_cache(model, config, pricing)
    return _one_by_one(model, config, pricing)


def _as_starved(known: TimeModel, model: TimeModel) -> TimeModel:
    """What steps of another configuration taught, as slow as those of the present one are, where the engine's threads
    lacked their cores in either: else how much they had of them then and now would pass for the change."""
    if "starvation" not in known.unknown and "starvation" not in model.unknown:
        return known
    factor = model.source.level / known.source.level
    unsure = "starved " + repr(conditions_of(known.conditions))
    forwards = tuple(
        belief.times(np.full(len(belief.mean), factor), (Load(unsure, np.full(len(belief.mean), STARVED)),))
        for belief in known.beliefs[: DRAFT + 1]
    )
    return TimeModel(
        known.conditions, known.pricing, beliefs=(*forwards, *known.beliefs[DRAFT + 1 :]), seen=known.seen,
        errors=known.errors, is_gpu=known.is_gpu,
        source=known.source._replace(level=model.source.level), is_calibrated=known.is_calibrated,
        unknown=known.unknown, starved=known.starved,
    )  # fmt: skip


OF_CACHE: Final = ("kv_type_k", "kv_type_v", "flash_attention")
_BESIDE_CACHE: Final = ("unified_kv", "swa_full", "threads")
_OF_TARGET: Final = ("model", *OF_CACHE, *_BESIDE_CACHE)


def _differs(one: EngineConfig, other: EngineConfig, names: tuple[str, ...]) -> bool:
    return any(getattr(one, name) != getattr(other, name) for name in names)


def _of_cache(model: TimeModel, config: EngineConfig, pricing: Pricing) -> TimeModel:
    """Another kind of cache, as it was measured, else by bytes and FLOPs."""
    found = measured_cache(_all_ceilings(model), model.conditions, config)
    if found is None:
        return _scaled(model, config, pricing)
    unknown = {name: why for name, why in model.unknown.items() if name != "attention"}
    target = with_cache(model, config, found)
    draft = _draft(model, Design(config, pricing, is_gpu=model.is_gpu), config, unknown)
    return TimeModel(
        config, pricing, beliefs=(target, draft, *model.beliefs[2:]), errors=model.errors, is_gpu=model.is_gpu,
        seen=model.seen, source=model.source, is_calibrated=model.is_calibrated, unknown=unknown,
    )  # fmt: skip


def _one_by_one(model: TimeModel, config: EngineConfig, pricing: Pricing) -> TimeModel | str:
    """Another kind of cache and something else: in the order of which more was measured."""
    mine = {name: getattr(model.conditions, name) for name in OF_CACHE}
    beside = msgspec.structs.replace(config, **mine)
    cache = msgspec.structs.replace(model.conditions, **{name: getattr(config, name) for name in OF_CACHE})
    ceilings = _all_ceilings(model)
    is_first = measured_cache(ceilings, beside, config) is None and measured_cache(ceilings, model.conditions, config)
    between, of = (cache, model.pricing) if is_first else (beside, pricing)
    assert of.target is not None
    try:
        target, draft = (
            None if ledger is None else Ledger(ledger.model, between.kv_type_k, between.kv_type_v)
            for ledger in (of.target, of.draft)
        )
    except ValueError:
        return _scaled(model, config, pricing)
    halfway = derive(model, between, Pricing(target, draft, between.threads))
    return halfway if isinstance(halfway, str) else derive(halfway, config, pricing)


def _of(pricing: Pricing) -> object:
    return None if pricing.target is None else pricing.target.model


def _refusal(model: TimeModel, config: EngineConfig, pricing: Pricing) -> str | None:
    """Why nothing can be said of a configuration."""
    if pricing.target is None:
        return "the geometry of the other weights is not known"
    if placement(config) != placement(model.conditions):
        return "nothing was measured with the model placed like that"
    if config.threads != model.conditions.threads and "starvation" in model.unknown:
        return "the engine's threads do not have their cores, so that what another number of them would do is open"
    if config.speculation == "mtp":
        return "what multi-token prediction costs was never measured"
    if config.speculation == "draft" and pricing.draft is None:
        return "there is no draft model whose geometry is known"
    return None


def _calibrated(model: TimeModel, config: EngineConfig, pricing: Pricing, ceilings: Ceilings) -> TimeModel:
    """From a calibration of the other configuration, as much slower or faster as steps were here."""
    design = Design(config, pricing, is_gpu=model.is_gpu)
    learned = learn(priors(design, config, ceilings), (), origin=origin_of(config), seen=seen_by(ceilings))
    level = model.source.level
    beliefs: list[Belief] = []
    for index, belief in enumerate(learned.beliefs):
        if index > DRAFT:
            beliefs.append(model.beliefs[index])
            continue
        n = len(belief.mean)
        unsure = Load("level " + repr(key_of(ceilings)), np.full(n, STEPS_SLOWER))
        beliefs.append(belief.times(np.full(n, level), (unsure,)))
    is_kept = pricing.draft is not None and model.pricing.draft is not None and not ceilings.draft_forwards
    if is_kept and _same_draft(model, pricing):
        beliefs[DRAFT] = model.beliefs[DRAFT]
    return TimeModel(
        config, pricing, beliefs=tuple(beliefs), seen=learned.seen, errors=model.errors, is_gpu=model.is_gpu,
        source=Source(ceilings, model.source.others, model.source.known, level), is_calibrated=True,
        unknown={},
    )  # fmt: skip


def key_of(ceilings: Ceilings) -> tuple[object, ...]:
    """What tells one set of ceilings from another."""
    c = ceilings.conditions
    return c.model, c.kv_type_k, c.kv_type_v, c.threads, c.flash_attention, c.unified_kv, c.swa_full


def _same_draft(model: TimeModel, pricing: Pricing) -> bool:
    mine, other = model.pricing.draft, pricing.draft
    return mine is not None and other is not None and mine.model == other.model


def _scaled(model: TimeModel, config: EngineConfig, pricing: Pricing) -> TimeModel:
    """By bytes and FLOPs."""
    design = Design(config, pricing, is_gpu=model.is_gpu)
    unknown = dict(model.unknown)
    target = _target(model, design, config, unknown)
    draft = _draft(model, design, config, unknown)
    is_same = not _differs(config, model.conditions, _OF_TARGET)
    return TimeModel(
        config, pricing, beliefs=(target, draft, *model.beliefs[2:]), errors=model.errors, is_gpu=model.is_gpu,
        seen=model.seen, source=model.source, is_calibrated=model.is_calibrated and is_same, unknown=unknown,
    )  # fmt: skip


def _target(model: TimeModel, design: Design, config: EngineConfig, unknown: dict[str, str]) -> Belief:
    """The target's forward under another configuration."""
    names = [name.partition(".")[2] for name in COLUMNS_OF["target"].parameters]
    factors, loads = np.ones(len(names)), list[Load]()
    mine, other = model.design.target, design.target
    if mine.ledger.model != other.ledger.model:
        change = weights_change(mine, other, _all_ceilings(model))
        _apply(names, factors, loads, change)
        unknown.update(change.unknown)
        layers = len(other.ledger.model.layers) / max(1, len(mine.ledger.model.layers))
        _multiply(names, factors, ("fixed",), layers)
    _settings(model, config, names, factors, loads, unknown)
    return model.beliefs[TARGET].times(factors, loads)


def _all_ceilings(model: TimeModel) -> tuple[Ceilings, ...]:
    mine = model.source.ceilings
    return model.source.others if mine is None else (mine, *model.source.others)


def _apply(names: list[str], factors: Floats, loads: list[Load], change: Change) -> None:
    """Scale the weights' parameters by a change of the weights."""
    for role, part in (("body", change.body), ("head", change.head)):
        first = "weights" if role == "body" else "head.1"
        reading = (first, f"{role}.alone")
        _multiply(names, factors, reading, part.first)
        near = tuple(f"{role}.{label}" for label in ("2", "3", "r", "b4", "b8"))
        few = [name.startswith(near) for name in names]
        all_rows = [name.startswith((f"{role}.2", f"{role}.3", f"{role}.b", f"{role}.r")) for name in names]
        for index, (is_few, is_any) in enumerate(zip(few, all_rows, strict=True)):
            if is_any:
                factors[index] *= float(np.sqrt(part.first * part.each)) if is_few else part.each
        for kind, sd in part.first_sd.items():
            loads.append(Load(f"read {kind}", np.array([sd if name in reading else 0.0 for name in names])))
        for kind, sd in part.each_sd.items():
            loads.append(Load(f"multiply {kind}", np.array([sd if one else 0.0 for one in all_rows])))
        if part.kernel_sd > 0.0:
            loads.append(Load(f"rows {role}", np.array([part.kernel_sd if one else 0.0 for one in few])))


def _multiply(names: list[str], factors: Floats, prefixes: tuple[str, ...], by: float) -> None:
    for index, name in enumerate(names):
        if name.startswith(prefixes):
            factors[index] *= by


def _settings(
    model: TimeModel, config: EngineConfig, names: list[str], factors: Floats, loads: list[Load],
    unknown: dict[str, str],
) -> None:  # fmt: skip
    """Scale what settings change, weights apart."""
    mine = model.conditions
    attention = ("pair.", "far.", "scan.")
    types, before = (config.kv_type_k, config.kv_type_v), (mine.kv_type_k, mine.kv_type_v)
    if types != before:
        mean, sd = KV_KERNEL
        is_plain = {"f16", "f32", "bf16"}.issuperset(types)
        if not model.is_gpu:
            _multiply(names, factors, ("pair.", "far."), float(np.exp(-mean if is_plain else mean)))
        part = 0.5 if model.is_gpu else 1.0
        loads.append(_load(f"kv {'/'.join(sorted({*types, *before}))}", names, ("pair.", "far.", "read"), part * sd))
        unknown["attention"] = f"attention over KV in {'/'.join(dict.fromkeys(types))} was never measured here"
    if config.flash_attention != mine.flash_attention:
        loads.append(_load("fused attention", names, attention, KERNEL))
        unknown["attention"] = "attention of the other kind was never measured here"
    if config.threads != mine.threads and not model.is_gpu:
        _threads(mine.threads, config.threads, names, factors, loads, unknown)


def _threads(
    before: int | None, after: int | None, names: list[str], factors: Floats, loads: list[Load], unknown: dict[str, str]
) -> None:
    """Another number of threads, on a curve that nobody measured."""
    if before is None or after is None:
        unknown["threads"] = "how many threads there are is not known"
        loads.append(_load("threads", names, ("",), 0.3))
        return
    log = float(np.log(before / after))
    read = READ_EXPONENT_OF_FEW if max(before, after) <= FEW else READ_EXPONENT
    compute = ("body.", "head.alone", "head.2", "head.3", "head.b", "head.r", "pair.", "far.", "scan.")
    for label, prefixes, (mean, sd) in (
        ("compute", compute, COMPUTE_EXPONENT),
        ("read", ("weights", "head.1", "read", "state"), read),
        ("fixed", ("fixed",), FIXED_EXPONENT),
    ):
        _multiply(names, factors, prefixes, float(np.exp(mean * log)))
        loads.append(_load(f"threads {label}", names, prefixes, sd * log))
    unknown["threads"] = f"{after} threads were never measured here"


def _load(name: str, names: list[str], prefixes: tuple[str, ...], sd: float) -> Load:
    return Load(name, np.array([sd if one.startswith(prefixes) else 0.0 for one in names]))


def _draft(model: TimeModel, design: Design, config: EngineConfig, unknown: dict[str, str]) -> Belief:
    """Obtaining drafts under another configuration."""
    names = [name.partition(".")[2] for name in COLUMNS_OF["draft"].parameters]
    mine, other = model.design.draft, design.draft
    if other is None:
        return model.beliefs[DRAFT]
    if mine is None:
        ceilings = next(iter(_all_ceilings(model)), None)
        (_, (prior, data), _, _) = priors(design, config, ceilings)
        posterior = solve(prior, data, NO_DATA)
        if len(data.times) == 0:
            unknown["draft"] = "no forward of the draft model was timed"
        unsure = _load("draft level", names, ("weights", "fixed", "body", "head", "pair", "scan"), prior.level_sd / 2)
        return Belief(COLUMNS_OF["draft"].parameters, posterior.mean, posterior.root, (unsure,), "draft")
    factors, loads = np.ones(len(names)), list[Load]()
    if mine.ledger.model != other.ledger.model:
        change = weights_change(mine, other, _all_ceilings(model))
        _apply(names, factors, loads, change)
        layers = len(other.ledger.model.layers) / max(1, len(mine.ledger.model.layers))
        _multiply(names, factors, ("fixed",), layers)
        unknown["draft"] = "the other draft model was never timed"
    _settings(model, config, names, factors, loads, {})
    return model.beliefs[DRAFT].times(factors, loads)
