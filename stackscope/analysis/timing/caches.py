"""The time model with the KV cache kept in other types, or gone through by the other way of attention, as a calibration
measured it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.timing import beliefs as believed
from stackscope.analysis.timing.drawing import Load
from stackscope.analysis.timing.forwards import PARAMETERS, ForwardDesign
from stackscope.analysis.timing.solving import NO_DATA, Prior, solve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.timing.curves import Floats
    from stackscope.analysis.timing.drawing import Belief
    from stackscope.analysis.timing.model import TimeModel
    from stackscope.records import Ceilings
    from stackscope.records.ceilings import CacheKind, ForwardTime, OtherCache
    from stackscope.toggles import EngineConfig

PLAIN: Final = frozenset({"f16", "f32", "bf16"})

ATTENTION: Final = ("pair.", "far.", "scan.", "read")
PER_PASS: Final = "fixed.pass"
"""Here it is paid that what is new is turned into the types of the cache."""

ATTENTION_SD: Final = 1.5
SHARED_SD: Final = 1e-3
"""Of what a cache leaves as it is, relative: what is seen of it here is noise."""
PER_PASS_SD: Final = 0.3
MOST_SD: Final = 0.4
"""ln of what attention may be off by where another kind of cache was measured, but no forward like it."""

OTHER_TYPE: Final = 0.25
"""ln of what attention over one quantised type may take more or less than over another one that was measured."""


def measured_cache(
    ceilings: Iterable[Ceilings], before: EngineConfig, after: EngineConfig
) -> tuple[Ceilings, OtherCache] | None:
    """The measurement that says most of a change of the cache alone: the very kind that it becomes, else another one
    that is quantised as well. `None`: there is none."""
    similar: tuple[Ceilings, OtherCache] | None = None
    for one in ceilings:
        if not one.conditions.hold_for(before):
            continue
        for other in one.other_caches:
            if _is(other.kind, after):
                return one, other
            if similar is None and _is_like(other.kind, after):
                similar = one, other
    return similar


def _is(kind: CacheKind, config: EngineConfig) -> bool:
    mine = config.kv_type_k, config.kv_type_v, config.flash_attention
    return mine == (kind.kv_type_k, kind.kv_type_v, kind.flash_attention)


def _is_like(kind: CacheKind, config: EngineConfig) -> bool:
    """Both types are quantised in both, and attention is the same."""
    types = {kind.kv_type_k, kind.kv_type_v, config.kv_type_k, config.kv_type_v}
    return types.isdisjoint(PLAIN) and kind.flash_attention == config.flash_attention


def with_cache(model: TimeModel, config: EngineConfig, found: tuple[Ceilings, OtherCache]) -> Belief:
    """The target's forward with a cache of another kind: what attention takes is fitted anew, all else stays.

    Raises `ValueError` for types that do not divide the model's rows into blocks.
    """
    ceilings, other = found
    kind, belief, mine = other.kind, model.beliefs[0], model.design.target
    theirs = msgspec.structs.replace(
        config, kv_type_k=kind.kv_type_k, kv_type_v=kind.kv_type_v, flash_attention=kind.flash_attention
    )
    ledger = Ledger(mine.ledger.model, kind.kv_type_k, kind.kv_type_v)
    design = ForwardDesign(ledger, theirs, is_gpu=model.is_gpu)
    is_attention = np.array([name.startswith(ATTENTION) for name in PARAMETERS])
    data = believed.calibration(design, ceilings, _at_level(mine, belief.mean, ceilings, other.contexts))
    posterior = solve(_prior(design, ceilings, belief.mean, is_attention), data, NO_DATA)
    unsure = np.minimum(_relative(posterior.sd, posterior.mean), MOST_SD)
    loads = [Load(f"cache {kind.described}", np.where(is_attention, unsure, 0.0))]
    if not _is(kind, config):
        loads.append(Load("another type of cache", np.where(is_attention, OTHER_TYPE, 0.0)))
    # What else takes time is the same unknown as before; what attention takes is another one.
    root = belief.root * np.where(is_attention, 0.0, _relative(posterior.mean, belief.mean))[:, None]
    return belief._replace(mean=posterior.mean, root=root, loads=(*belief.loads, *loads))


def _relative(values: Floats, to: Floats) -> Floats:
    """Values ÷ others; 0 where those are none."""
    made: Floats = np.where(to > 0.0, values / np.maximum(to, 1e-9), 0.0)
    return made


def _prior(design: ForwardDesign, ceilings: Ceilings, mean: Floats, is_attention: Floats) -> Prior:
    """What is believed before the other cache was seen: attention might take anything, and all else what it takes."""
    usual = believed.prior(design, ceilings).mean
    sd = np.where(is_attention, ATTENTION_SD * np.maximum(mean, usual), SHARED_SD * mean)
    at = PARAMETERS.index(PER_PASS)
    sd[at] = PER_PASS_SD * mean[at]
    return Prior(mean, np.maximum(sd, 1e-3), np.zeros((0, len(mean))), 0.0)


def _at_level(
    design: ForwardDesign, mean: Floats, ceilings: Ceilings, times: Sequence[ForwardTime]
) -> list[ForwardTime]:
    """Forwards with another cache as this model would have them: in each, what the model says of the same forward with
    the cache as it was takes the place of what the calibration said. Both were measured within seconds."""
    mine = [time for time in (*ceilings.forwards, *ceilings.contexts) if time.ns.value > 0.0]
    known = believed.calibration(design, ceilings, mine)
    ratios = known.columns @ mean / known.times
    usual = float(np.exp(np.median(np.log(ratios))))
    by_shape = {_shape(time): float(ratio) for time, ratio in zip(mine, ratios, strict=True)}
    return [
        msgspec.structs.replace(
            time, ns=msgspec.structs.replace(time.ns, value=time.ns.value * by_shape.get(_shape(time), usual))
        )
        for time in times
    ]


def _shape(time: ForwardTime) -> tuple[int, ...]:
    return time.rows, time.sequences, time.outputs, time.cached, time.others
