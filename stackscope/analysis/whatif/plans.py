"""What a configuration makes of drafts, prompts and load: parameters of the transforms, or why they are not known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope import units
from stackscope.analysis.proportions import log_error
from stackscope.analysis.speculating import CUT_ERROR
from stackscope.analysis.whatif.transforms import Drafting, Prompts
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.whatif.contracts import AcceptanceCurve
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.records import DraftKind, Estimate, PrefixShadow
    from stackscope.toggles import Setting

LOAD: Final = frozenset({"concurrency", "rate"})
"""Settings of the load, which are none of the engine's."""
MOST_DRIFT: Final = 2.0
"""Factor by which what drafts win now may differ from what they won lately, before that is taken for an accident."""
LEAST_REQUESTS: Final = 8
"""Looked up by a simulated prefix cache, before its hit rate is taken for anything."""
LEAST_ROUNDS: Final = 50
"""Counted of a draft length, before it is taken for anything."""
_FILLING_S: Final = 60.0
"""A prefix cache that was just switched on is judged over its first minute."""

NOT_SIMULATED: Final = "What a prefix cache of that size would find was not simulated."

SOURCES: Final = {"ngram": "n-gram look-up", "draft": "the draft model"}

_NOT_MODELLED: Final[Mapping[str, str]] = {
    "draft_model": "Nothing is known of how another draft model would do here.",
    "block_tokens": "What prefixes of another granularity would save is not simulated.",
    "cache_paths": "What more or fewer cached paths would save is not simulated.",
    "gpu_layers": "Layers in another place were never timed.",
    "main_gpu": "Another GPU was never timed.",
    "split_mode": "Another split over GPUs was never timed.",
    "tensor_split": "Another split over GPUs was never timed.",
}
"""Settings that change the speed in a way for which there is no model."""


class State(msgspec.Struct, frozen=True):
    """A configuration and the load offered to it."""

    config: EngineConfig
    concurrency: int | None = None
    rate: float | None = None

    def after(self, changes: Mapping[str, Setting]) -> State:
        """With other values of some settings. Raises `TypeError` for one that there is not."""
        engine = {name: value for name, value in changes.items() if name not in LOAD}
        load = {name: value for name, value in changes.items() if name in LOAD}
        return msgspec.structs.replace(self, config=msgspec.structs.replace(self.config, **engine), **load)


def recorded_state(point: WorkingPoint) -> State:
    """What the working point was recorded under."""
    return State(point.config, point.concurrency, point.rate)


def not_modelled(point: WorkingPoint, config: EngineConfig) -> str | None:
    """Why nothing can be said of a configuration, whatever was measured. `None`: it can."""
    for name, why in _NOT_MODELLED.items():
        if getattr(config, name) != getattr(point.config, name):
            return why
    return None


class DraftPlan(NamedTuple):
    """How is drafted, and how many tokens a round then brings."""

    drafting: Drafting
    tokens: float = 1.0
    """A: tokens per round of a sequence."""
    error: float = 0.0
    """Standard deviation of its logarithm."""
    level_error: float = 0.0
    """The same of how well the drafts in force do: all lengths of their source share it."""
    curve: AcceptanceCurve | None = None
    """Where it is from. `None`: recorded, or none is needed."""


def draft_plan(point: WorkingPoint, config: EngineConfig) -> DraftPlan | str:
    """Drafts under a configuration; or why their acceptance is not known."""
    if _drafts_as_recorded(point.config, config):
        recorded = Drafting(config.speculation, True, config.draft_length, whole=point.full_share)
        tokens_per_round = 1.0 if point.tokens_per_round is None else point.tokens_per_round
        return DraftPlan(recorded, tokens_per_round, level_error=_level_error(point))
    if config.speculation == "off":
        return DraftPlan(Drafting())
    if config.speculation == "mtp":
        return "This engine has no multi-token prediction."
    if config.adaptive_draft:
        return "Which lengths adaptive drafts would have is not replayed."
    source, length = config.speculation, config.draft_length
    curve = point.curves.get(source)
    if (config.ngram_min, config.ngram_max) != (point.config.ngram_min, point.config.ngram_max):
        curve = None if source == "ngram" else curve
    counts = None if curve is None else curve.counts(length)
    if config.synthetic_acceptance is not None:
        return _synthetic(config, None if counts is None or counts.rounds == 0 else counts.covered / counts.rounds)
    tokens = None if curve is None else curve.tokens_per_round(length)
    if curve is None or counts is None or tokens is None:
        return (
            f"Drafts of {units.counted(length, 'token')} by {SOURCES[source]} were neither made nor shadowed here: "
            f"let shadows follow some requests, or try it."
        )
    if counts.rounds < LEAST_ROUNDS:
        return f"Only {units.counted(counts.rounds, 'round')} of drafts by {SOURCES[source]} have been scored yet."
    drafting = Drafting(
        source,
        length=length,
        coverage=counts.covered / counts.rounds,
        mean=counts.drafted / counts.covered if counts.covered > 0 else 0.0,
        whole=counts.whole / counts.covered if counts.covered > 0 else 0.0,
    )
    error = log_error(tokens)
    if not curve.is_replayed(length):
        error = math.hypot(error, CUT_ERROR)
    brought = _brought_to_now(point, source, tokens)
    return DraftPlan(drafting, brought, error, _level_error(point) if brought != tokens.value else 0.0, curve)


def _brought_to_now(point: WorkingPoint, source: DraftKind, tokens: Estimate) -> float:
    """Tokens per round at another length of the drafts in force, as much better or worse as those do in the sample than
    over the time that the curve is of: both lengths are then of the same moment."""
    own = _own(point)
    if own is None or point.config.speculation != source or own.value <= 1.0 or point.tokens_per_round is None:
        return tokens.value
    factor = (point.tokens_per_round - 1.0) / (own.value - 1.0)
    return 1.0 + (tokens.value - 1.0) * min(max(factor, 1.0 / MOST_DRIFT), MOST_DRIFT)


def _own(point: WorkingPoint) -> Estimate | None:
    """Tokens per round of the drafts in force, by their curve. `None`: none are, or their length or tokens are not what
    a curve is of."""
    config = point.config
    if config.adaptive_draft or config.synthetic_acceptance is not None:
        return None
    curve = point.curves.get(config.speculation) if config.speculation in ("ngram", "draft") else None
    return None if curve is None else curve.tokens_per_round(config.draft_length)


def _level_error(point: WorkingPoint) -> float:
    """How far what the sample shows of the drafts in force may be from what they go on to do: texts differ, and it is
    of few requests. As much as the curve is unsure, and a quarter of what the sample differs from it."""
    own = _own(point)
    if own is None or own.value <= 0.0 or not point.tokens_per_round:
        return 0.0
    apart = min(abs(math.log(point.tokens_per_round / own.value)), math.log(MOST_DRIFT))
    return math.hypot(log_error(own), apart / 4.0)


def _drafts_as_recorded(before: EngineConfig, after: EngineConfig) -> bool:
    if before.speculation != after.speculation:
        return False
    if after.speculation == "off":
        return True
    names = ["draft_length", "adaptive_draft", "synthetic_acceptance"]
    names += ["ngram_min", "ngram_max"] if after.speculation == "ngram" else ["draft_model"]
    return all(getattr(before, name) == getattr(after, name) for name in names)


def _synthetic(config: EngineConfig, coverage: float | None) -> DraftPlan | str:
    """Acceptance by lot: each token with the same probability, so that the geometric law is exact for once."""
    assert config.synthetic_acceptance is not None
    if coverage is None:
        if config.speculation == "ngram":
            return "How often n-gram look-up would find anything is not known here."
        coverage = 1.0
    length, rate = config.draft_length, config.synthetic_acceptance
    tokens = 1.0 + coverage * sum(rate**j for j in range(1, length + 1))
    return DraftPlan(Drafting(config.speculation, False, length, coverage, float(length), rate**length), tokens)


class PromptPlan(NamedTuple):
    """What is computed of prompts, and what cached prefixes take of the KV cache."""

    prompts: Prompts = Prompts()
    error: float = 0.0
    """Standard deviation of the logarithm of what is computed."""
    most_error: float = math.inf
    """No more than this is possible, either way."""
    idle_cells: int | None = None
    """`None`: as recorded."""
    idle_error: float = 0.0
    """Standard deviation of `idle_cells`, relative to it."""


def prompt_plan(point: WorkingPoint, config: EngineConfig) -> PromptPlan | str:
    """Prompts under a configuration; or why it is not known what would be found of them."""
    before = point.config
    if not config.prefix_cache:
        if not before.prefix_cache:
            return PromptPlan()
        return PromptPlan(Prompts(_all_found(point), takes_back=True), idle_cells=0)
    if not before.prefix_cache:
        return _switched_on(point, config)
    capacity, was = _capacity(point, config), _capacity(point, before)
    if capacity == was:
        return PromptPlan()
    most = point.most_resident or 0
    if _holds(was, most + 1) and _holds(capacity, most + 1):
        return PromptPlan()
    now = point.useful_hit_rate
    if now is None or now >= 1.0:
        return NOT_SIMULATED
    is_larger = capacity is None or (was is not None and capacity > was)
    shadow = _shadow(point, capacity)
    if shadow is None:
        return _between(point, now) if is_larger else NOT_SIMULATED
    rate = shadow.useful_hit_tokens / shadow.lookup_tokens
    least = (max if is_larger else min)(rate, now)
    idle = capacity if capacity is not None and capacity < most else None
    return PromptPlan(Prompts((1.0 - least) / (1.0 - now)), _rate_error(shadow, rate), idle_cells=idle)


def _all_found(point: WorkingPoint) -> float:
    """What all prompts would take without a cache, relative to what those few would that stand for them. 1 where the
    cache counts no hits: not every source does."""
    chunks = [(one.chunk_weight * chunk.new, chunk) for one in point.rounds for chunk in one.chunks]
    demanded = sum(weight * (chunk.computed + chunk.found) / chunk.computed for weight, chunk in chunks)
    computed, share = sum(weight for weight, _ in chunks), point.computed_share
    return 1.0 if not share or share >= 1.0 or demanded <= 0.0 else computed / demanded / share


def _between(point: WorkingPoint, now: float) -> PromptPlan | str:
    """A larger cache that could not hold all there is: it finds no less than one that finds `now`, and no more than one
    without limit."""
    unlimited = next((one for one in _seen(point) if one.capacity_tokens is None), None)
    if unlimited is None:
        return NOT_SIMULATED
    most = unlimited.useful_hit_tokens / unlimited.lookup_tokens
    half = max(math.log((1.0 - now) / max(1.0 - most, 0.02)), 0.0) / 2.0
    return PromptPlan(Prompts(math.exp(-half)), half, most_error=half)


def _switched_on(point: WorkingPoint, config: EngineConfig) -> PromptPlan | str:
    cells = _capacity(point, config)
    shadow = _shadow(point, cells)
    if shadow is None:
        return "What a prefix cache would find here was not simulated yet: let its shadow see some requests."
    rate = shadow.useful_hit_tokens / shadow.lookup_tokens
    speed = point.tokens_per_s or 0.0
    stored = speed * (1.0 + (point.computed_per_token or 0.0) * (1.0 - rate)) * _FILLING_S
    idle = stored if cells is None else min(stored, float(cells))
    return PromptPlan(Prompts(1.0 - rate), _rate_error(shadow, rate), idle_cells=round(idle / 2), idle_error=0.58)


def _capacity(point: WorkingPoint, config: EngineConfig) -> int | None:
    """Tokens that prefixes may take: no more than there are cells. `None`: no limit is known."""
    cells = None if point.rules is None or point.model is None else point.rules.cells(config, point.model)
    limits = [limit for limit in (config.cache_tokens, cells) if limit is not None]
    return min(limits, default=None)


def _holds(capacity: int | None, tokens: int) -> bool:
    return capacity is None or tokens <= capacity


def _shadow(point: WorkingPoint, capacity: int | None) -> PrefixShadow | None:
    """What was simulated of that capacity, or without limit where all of that would fit; else of the nearest capacity
    below, which finds no more."""
    seen = _seen(point)
    for shadow in seen:
        if shadow.capacity_tokens == capacity and capacity is not None:
            return shadow
        is_all_held = point.remembered is None or _holds(capacity, point.remembered)
        if shadow.capacity_tokens is None and is_all_held:
            return shadow
    below = [one for one in seen if one.capacity_tokens is not None and _holds(capacity, one.capacity_tokens)]
    return max(below, key=lambda one: one.capacity_tokens or 0, default=None)


def _seen(point: WorkingPoint) -> list[PrefixShadow]:
    return [one for one in point.prefix_shadows if one.requests >= LEAST_REQUESTS and one.lookup_tokens > 0]


def _rate_error(shadow: PrefixShadow, rate: float) -> float:
    """Error of ln(1 − rate): the requests of a shadow differ, and are few."""
    spread = math.sqrt(max(rate * (1.0 - rate), 1e-4) / shadow.requests)
    return min(spread / max(1.0 - rate, 0.02), 1.0)


def in_flight(state: State) -> float:
    """Requests that are in slots at a time when more are offered than fit, or all that are."""
    slots = float(state.config.slots)
    return slots if state.concurrency is None else min(slots, float(state.concurrency))


def closed_load(point: WorkingPoint, state: State) -> float:
    """Requests in flight relative to the recorded ones, where arrivals do not decide it.

    No more than the KV cache has room for.
    """
    load = in_flight(state) / in_flight(recorded_state(point))
    if load <= 1.0 or point.rules is None or point.model is None:
        return load
    cells = point.rules.cells(state.config, point.model)
    length = mean_length(point)
    if cells is None or length <= 0.0 or point.slots_busy is None or point.slots_busy <= 0.0:
        return load
    return max(1.0, min(load, cells / length / point.slots_busy))


def mean_length(point: WorkingPoint) -> float:
    """Mean tokens in the cache of a sequence in flight."""
    held = n = 0.0
    for one in point.rounds:
        held += one.weight * sum(cached + new for cached, new in one.shape.spans)
        n += one.weight * one.requests
    return held / n if n > 0 else 0.0
