"""How long the recent work takes under a configuration: a point estimate and draws from what is not known exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.terms import TERMS, Terms
from stackscope.analysis.whatif import plans
from stackscope.analysis.whatif.plans import DraftPlan, State
from stackscope.analysis.whatif.transforms import Step, forwards

if TYPE_CHECKING:
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.whatif.contracts import StepTimes
    from stackscope.analysis.whatif.plans import PromptPlan
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig, KvType

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

DRAWS: Final = 100
"""Machines drawn: the ends of an interval then stray by a tenth of its width."""
SEED: Final = 20_240_917
"""One for all predictions: what two of them do not know alike leaves their ratio."""
_GRANTED: Final = 0.95
"""Part of the drafts that the token budget must leave for the recorded acceptance to hold."""
SPLIT_ERROR: Final = 0.3
"""Standard deviation of ln(passes) of a batch over a split cache: from one pass, when slots were filled in order, to
half as many as there are sequences."""

NOT_TIMED: Final = "Nothing was timed on this machine yet: run stackscope calibrate, or let it run for some seconds."


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the sample under one configuration. Arrays begin with the point estimate; draws follow."""

    state: State
    draft: DraftPlan
    load: float
    """Requests in flight relative to the recorded ones."""
    tokens: Array
    """A: per round of a sequence."""
    pairs: float
    """Sequences that decode, summed over the sample's steps."""
    drafted: float
    """Tokens drafted for them."""
    steps: float
    """Of the sample, with sequences that decode."""
    decode_ns: Array
    """Of those steps, their prompts left out."""
    prefill_ns: Array
    """What prompts add."""
    gap_ns: Array
    """Mean time between emissions of a request."""
    first_ns: Array
    """Sum over prompts of the steps that they are computed in."""
    first_steps: float
    """How many those are, each counted for every prompt that it advances."""
    terms: Terms
    """Of a mean step that decodes."""
    whole_tokens: float
    """Decode tokens of the recorded sample, which all configurations have to produce."""

    @property
    def total_ns(self) -> Array:
        """For the tokens and prompts of the recorded sample (the closed loop)."""
        return self.decode_total_ns + self.prefill_ns

    @property
    def decode_total_ns(self) -> Array:
        """The part of decoding: as many steps as those tokens take."""
        if self.pairs <= 0.0:
            return np.zeros_like(self.decode_ns)
        scaled: Array = self.decode_ns * (self.whole_tokens / (self.pairs * self.tokens))
        return scaled

    @property
    def sequences(self) -> float:
        """Mean sequences of a step that decodes."""
        return self.pairs / self.steps if self.steps > 0 else 0.0


def times_under(point: WorkingPoint, config: EngineConfig) -> StepTimes | str:
    """The time model under a configuration, or why there is none."""
    if point.times is None:
        return NOT_TIMED
    if config == point.config:
        return point.times
    priced = pricing_under(point, config)
    if isinstance(priced, str):
        return priced
    return point.times.under(config, priced)


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


def evaluate(point: WorkingPoint, state: State, load: float) -> Evaluation | str:
    """The work of a working point under a configuration and so many times the requests in flight; or why not."""
    why = plans.not_modelled(point, state.config)
    if why is not None:
        return why
    draft = plans.draft_plan(point, state.config)
    prompt = plans.prompt_plan(point, state.config)
    times = times_under(point, state.config)
    for answer in (draft, prompt, times):
        if isinstance(answer, str):
            return answer
    assert not isinstance(draft, str)
    assert not isinstance(prompt, str)
    assert not isinstance(times, str)
    made = [
        forwards(
            one,
            state.config,
            recorded=point.config,
            load=load,
            drafting=draft.drafting,
            prompts=prompt.prompts,
            idle_cells=prompt.idle_cells,
        )
        for one in point.rounds
    ]
    granted = _as_granted(draft, made)
    return granted if isinstance(granted, str) else _timed(point, state, load, granted, prompt, times, made)


def _as_granted(plan: DraftPlan, made: list[list[Step]]) -> DraftPlan | str:
    """The plan, its acceptance that of the drafts which the token budget leaves."""
    drafting = plan.drafting
    if drafting.source == "off" or drafting.is_recorded or plan.curve is None or drafting.mean <= 0.0:
        return plan
    steps = [step for one in made for step in one if step.decode is not None]
    drafted = sum(step.share * step.decode.drafted for step in steps if step.decode is not None)
    wanted = sum(step.share * step.sequences for step in steps) * drafting.coverage * drafting.mean
    if wanted <= 0.0 or drafted >= _GRANTED * wanted:
        return plan
    length = int(drafting.mean * drafted / wanted)
    tokens = plan.curve.tokens_per_round(length)
    if tokens is None:
        return "The token budget leaves shorter drafts, of a length that was not scored."
    return plan._replace(tokens=tokens.value, error=plans.log_error(tokens))


class _Sums:
    """Which shapes are to be timed, and with what weight each counts in each sum."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self._places: dict[Shape, int] = {}
        self._rows: list[list[float]] = [[], [], [], [], []]

    def add(self, shape: Shape, *, decode: float = 0.0, prefill: float = 0.0, gap: float = 0.0, more: float = 0.0,
            first: float = 0.0) -> None:  # fmt: skip
        place = self._places.get(shape)
        if place is None:
            place = self._places[shape] = len(self.shapes)
            self.shapes.append(shape)
            for row in self._rows:
                row.append(0.0)
        for row, weight in zip(self._rows, (decode, prefill, gap, more, first), strict=True):
            row[place] += weight

    @property
    def weights(self) -> Array:
        return np.array(self._rows)


def _timed(
    point: WorkingPoint,
    state: State,
    load: float,
    draft: DraftPlan,
    prompt: PromptPlan,
    times: StepTimes,
    made: list[list[Step]],
) -> Evaluation:
    sums = _Sums()
    pairs = steps = drafted = whole = first_steps = 0.0
    for one, its in zip(point.rounds, made, strict=True):
        whole += one.weight * len(one.decoding)
        for step in its:
            part = one.chunk_weight * step.times * step.share if step.mixed is not None else 0.0
            n = step.sequences
            if step.decode is not None:
                weight = one.weight * step.share
                pairs += weight * n
                steps += weight
                drafted += weight * step.decode.drafted
                sums.add(step.decode, decode=weight, prefill=-part, gap=weight * n, more=-part * n)
            if step.mixed is not None:
                first_steps += part * len(one.chunks)
                sums.add(step.mixed, prefill=part, more=part * n, first=part * len(one.chunks))
    terms = [times.terms(shape) for shape in sums.shapes]
    table = np.vstack([np.array([[one.total for one in terms]]), times.draws(sums.shapes, DRAWS, SEED)])
    weights = sums.weights
    decode, prefill, gap, more, first = weights @ table.T
    tokens = draft.tokens * np.exp(draft.error * normals(draft.drafting.source))
    prefill = np.maximum(prefill, 0.0) * np.exp(prompt.error * normals("prompts"))
    whole *= 1.0 if point.tokens_per_round is None else point.tokens_per_round
    mean = np.zeros_like(decode)
    if pairs > 0.0:
        mean = gap / pairs + np.maximum(more, 0.0) * tokens / whole
        decode = decode * _layout_spread(point, state, load, sums.shapes, weights[0])
        decode = decode + _idle_spread(prompt, terms, weights[0])
    return Evaluation(
        state=state,
        draft=draft,
        load=load,
        tokens=tokens,
        pairs=pairs,
        drafted=drafted,
        steps=steps,
        decode_ns=decode,
        prefill_ns=prefill,
        gap_ns=mean,
        first_ns=first,
        first_steps=first_steps,
        terms=_mean_terms(terms, weights[0]),
        whole_tokens=whole,
    )


def _layout_spread(
    point: WorkingPoint, state: State, load: float, shapes: list[Shape], weights: Array
) -> Array | float:
    """What not knowing the order of slots adds under split KV: passes depend on which of them are neighbours."""
    if state.config.unified_kv or (not point.config.unified_kv and load == 1.0):
        return 1.0
    passes = float(weights @ np.array([len(shape.passes) for shape in shapes])) / max(float(weights.sum()), 1e-9)
    spread: Array = np.exp(SPLIT_ERROR * (1.0 - 1.0 / max(passes, 1.0)) * normals("layout"))
    return spread


def _idle_spread(prompt: PromptPlan, terms: list[Terms], weights: Array) -> Array:
    """What not knowing how full the prefix cache will be adds: that part of the time is in proportion to it."""
    if prompt.idle_error == 0.0:
        return np.zeros(DRAWS + 1)
    resident = float(weights @ np.array([one.resident for one in terms]))
    spread: Array = resident * np.clip(prompt.idle_error * normals("idle"), -1.0, 1.0)
    return spread


def _mean_terms(terms: list[Terms], weights: Array) -> Terms:
    total = float(weights.sum())
    if total <= 0.0:
        return Terms()
    means = weights @ np.array(terms) / total
    return Terms(*[float(one) for one in means])


@lru_cache(maxsize=16)
def normals(what: str) -> Array:
    """Standard normal draws for one thing that is not known, the same in all predictions; 0 for the point estimate."""
    seed = [SEED, *what.encode()]
    drawn: Array = np.concatenate([[0.0], np.random.default_rng(seed).standard_normal(DRAWS)])
    return drawn


def contributions(one: Evaluation) -> dict[str, float]:
    """Nanoseconds of the whole work by term of the decoding steps, and `prefill`."""
    scale = 0.0
    if one.decode_ns[0] > 0.0 and one.terms.total > 0.0:
        scale = float(one.decode_total_ns[0]) / one.terms.total
    parts = {name: scale * value for name, value in zip(TERMS, one.terms, strict=True)}
    return {**parts, "prefill": float(one.prefill_ns[0])}
