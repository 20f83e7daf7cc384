"""Times of steps under any configuration of one working point, from its time model."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing

if TYPE_CHECKING:
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.timing.terms import Terms
    from stackscope.analysis.whatif.contracts import StepTimes
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig, KvType

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

DRAWS: Final = 100
"""Machines drawn: the ends of an interval then stray by a tenth of its width."""
SEED: Final = 20_240_917
"""One for all predictions: what two of them do not know alike leaves their ratio."""
SHAPES_ONLY: Final = (
    "draft_length", "adaptive_draft", "ngram_min", "ngram_max", "synthetic_acceptance", "prefix_cache", "block_tokens",
    "cache_tokens", "cache_paths", "slots", "token_budget", "context_tokens", "slots_max", "draft_length_max",
    "shadows", "shadow_share", "causal_probes", "seed",
)  # fmt: skip
"""Settings that decide what steps there are, and not how long one of a given shape takes."""

NOT_TIMED: Final = "Nothing was timed on this machine yet: run stackscope calibrate, or let it run for some seconds."


class Timer:
    """Times steps of one working point under any configuration, each shape once per kind of step."""

    def __init__(self, point: WorkingPoint) -> None:
        self.point = point
        self._models: dict[EngineConfig, StepTimes | str] = {}
        self._timed: dict[EngineConfig, dict[Shape, tuple[Terms, Array]]] = {}

    def model(self, config: EngineConfig) -> StepTimes | str:
        """The time model under a configuration, or why there is none."""
        point = self.point
        if point.times is None:
            return NOT_TIMED
        key = self._key(config)
        known = self._models.get(key)
        if known is None:
            if key == point.config:
                known = point.times
            else:
                priced = pricing_under(point, key)
                known = priced if isinstance(priced, str) else point.times.under(key, priced)
            self._models[key] = known
        return known

    def times(self, config: EngineConfig, shapes: list[Shape]) -> tuple[list[Terms], Array]:
        """Terms of each shape, and its times (shapes, 1 + DRAWS): the point estimate, then the draws.

        Only for configurations that there is a model of.
        """
        model = self.model(config)
        assert not isinstance(model, str)
        known = self._timed.setdefault(self._key(config), {})
        fresh = [shape for shape in shapes if shape not in known]
        if fresh:
            drawn = model.draws(fresh, DRAWS, SEED)
            for i, shape in enumerate(fresh):
                terms = model.terms(shape)
                known[shape] = terms, np.concatenate([[terms.total], drawn[:, i]])
        found = [known[shape] for shape in shapes]
        return [terms for terms, _ in found], np.array([times for _, times in found]).reshape(-1, DRAWS + 1)

    def _key(self, config: EngineConfig) -> EngineConfig:
        """The configuration as far as the time of a step of given shape depends on it."""
        own = self.point.config
        return msgspec.structs.replace(config, **{name: getattr(own, name) for name in SHAPES_ONLY})


def pricing_under(point: WorkingPoint, config: EngineConfig) -> Pricing | str:
    """Ledgers of a configuration, or why its weights are not known."""
    model = point.model if config.model == point.config.model else point.variants.get(config.model)
    if model is None:
        return "What these weights consist of is not known: their file has not been read."
    try:
        target = _ledger(model, config.kv_type_k, config.kv_type_v)
        draft = point.draft_model
        drafter = None if draft is None else _ledger(draft, config.kv_type_k, config.kv_type_v)
    except ValueError as error:
        return f"Its cost cannot be counted: {error}."
    return Pricing(target, drafter, config.threads)


@lru_cache(maxsize=32)
def _ledger(model: ModelSummary, kv_type_k: KvType, kv_type_v: KvType) -> Ledger:
    return Ledger(model, kv_type_k, kv_type_v)
