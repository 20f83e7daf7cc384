"""How long the recent work takes under a configuration: a point estimate and draws from what is not known exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.proportions import log_error
from stackscope.analysis.timing.terms import TERMS, Terms
from stackscope.analysis.whatif import plans
from stackscope.analysis.whatif.plans import DraftPlan, State
from stackscope.analysis.whatif.timer import DRAWS, SEED, Array
from stackscope.analysis.whatif.transforms import Step, forwards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.whatif.plans import PromptPlan
    from stackscope.analysis.whatif.timer import Timer
    from stackscope.analysis.whatif.working_point import Round, WorkingPoint

    _Made = list[tuple[Round, list[Step]]]
    """Recorded rounds, each with what it becomes."""

_GRANTED: Final = 0.95
"""Part of the drafts that the token budget must leave for the recorded acceptance to hold."""
SPLIT_ERROR: Final = 0.3
"""Standard deviation of ln(passes) of a batch over a split cache: from one pass, when slots were filled in order, to
half as many as there are sequences."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The decoding part of some steps, prompts left out. Arrays begin with the point estimate; draws follow."""

    pairs: float
    """Sequences that decode, summed over the steps."""
    steps: float
    """With such sequences."""
    drafted: float
    """Tokens drafted for them."""
    decode_ns: Array
    """Time of those steps."""
    gap_ns: Array
    """The same, prompts included, each step counted for every sequence that decodes in it."""
    terms: Terms
    """Summed over the steps."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the sample under one configuration.

    The prompts of the sample take the steps that they take, in which some sequences decode as well; what then remains
    to be decoded takes steps without prompts.
    """

    state: State
    draft: DraftPlan
    load: float
    """Requests in flight relative to the recorded ones."""
    tokens: Array
    """A: per round of a sequence."""
    whole_tokens: float
    """Decode tokens of the recorded sample, which all configurations have to produce."""
    plain: Group
    """Steps without prompts, as many as were recorded."""
    mixed: Group
    """The decoding part of those with prompts, as many as the prompts take."""
    prefill_ns: Array
    """What prompts add."""
    first_ns: Array
    """Sum over prompts of the steps that they are computed in."""
    first_steps: float
    """How many those are, each counted for every prompt that it advances."""
    prompt_steps: float
    """Steps with prompts."""

    @property
    def total_ns(self) -> Array:
        """For the tokens and prompts of the recorded sample (the closed loop)."""
        return self.decode_total_ns + self.prefill_ns

    @property
    def decode_total_ns(self) -> Array:
        """The part of decoding: as many steps as those tokens take."""
        few, more = self._shares
        total: Array = few * self.mixed.decode_ns + more * self.plain.decode_ns
        return total

    @property
    def gap_ns(self) -> Array:
        """Mean time between emissions of a request; 0 when nothing decodes."""
        few, more = self._shares
        pairs = few * self.mixed.pairs + more * self.plain.pairs
        gap: Array = (few * self.mixed.gap_ns + more * self.plain.gap_ns) / np.maximum(pairs, 1e-9)
        return gap

    @property
    def terms(self) -> Terms:
        """Of a mean step that decodes."""
        few, more = self._now
        steps = few * self.mixed.steps + more * self.plain.steps
        if steps <= 0.0:
            return Terms()
        both = zip(self.mixed.terms, self.plain.terms, strict=True)
        return Terms(*[(few * one + more * other) / steps for one, other in both])

    @property
    def sequences(self) -> float:
        """Mean sequences of a step that decodes."""
        few, more = self._now
        steps = few * self.mixed.steps + more * self.plain.steps
        return (few * self.mixed.pairs + more * self.plain.pairs) / steps if steps > 0.0 else 0.0

    @property
    def drafted_per_round(self) -> float:
        """Tokens drafted per round of a sequence."""
        pairs = self.mixed.pairs + self.plain.pairs
        return (self.mixed.drafted + self.plain.drafted) / pairs if pairs > 0.0 else 0.0

    @property
    def crowding(self) -> float:
        """Steps with prompts ÷ steps that decode, for the same work: near 1, decoding waits for prompts."""
        few, more = self._now
        rounds = few * self.mixed.steps + more * self.plain.steps
        return self.prompt_steps / rounds if rounds > 0.0 else 0.0

    def tokens_needed(self, total_ns: Array) -> Array:
        """A with which the same work would take so long. Not positive or infinite: no A would do."""
        left = total_ns - self.prefill_ns
        if self.plain.pairs <= 0.0:
            rounds = left * self.mixed.pairs / np.maximum(self.mixed.decode_ns, 1e-9)
        else:
            rounds = self.mixed.pairs + (left - self.mixed.decode_ns) * self.plain.pairs / self.plain.decode_ns
        needed: Array = self.whole_tokens / rounds
        return needed

    @property
    def _now(self) -> tuple[float, float]:
        few, more = self._shares
        return float(few[0]), float(more[0])

    @property
    def _shares(self) -> tuple[Array, Array]:
        """How often the steps of `mixed` and of `plain` are needed for the tokens."""
        rounds = self.whole_tokens / self.tokens
        if self.plain.pairs <= 0.0:
            return rounds / max(self.mixed.pairs, 1e-9), np.zeros_like(rounds)
        if self.mixed.pairs <= 0.0:
            return np.zeros_like(rounds), rounds / self.plain.pairs
        few = np.minimum(rounds / self.mixed.pairs, 1.0)
        return few, (rounds - few * self.mixed.pairs) / self.plain.pairs


def evaluate(timer: Timer, state: State, load: float, *, slots: int | None = None) -> Evaluation | str:
    """The work of a working point under a configuration and so many times the requests in flight; or why not.

    `slots`: what no round can have more of; `None`: the load is taken as it is.
    """
    point = timer.point
    why = plans.not_modelled(point, state.config)
    if why is not None:
        return why
    draft = plans.draft_plan(point, state.config)
    prompt = plans.prompt_plan(point, state.config)
    times = timer.model(state.config)
    for answer in (draft, prompt, times):
        if isinstance(answer, str):
            return answer
    assert not isinstance(draft, str)
    assert not isinstance(prompt, str)

    def steps(one: Round) -> list[Step]:
        return forwards(
            one,
            state.config,
            recorded=point.config,
            load=load,
            drafting=draft.drafting,
            prompts=prompt.prompts,
            idle_cells=prompt.idle_cells,
            slots=slots,
        )

    made = [(one, steps(one)) for one in point.rounds]
    if not any(step.decode is not None for _, its in made for step in its):
        # All recent steps had prompts, and with so few requests none decodes beside one: they decode afterwards.
        alone = [msgspec.structs.replace(one, chunks=(), chunk_outputs=0) for one in point.rounds if one.decoding]
        made += [(one, steps(one)) for one in alone]
    granted = _as_granted(draft, made)
    return granted if isinstance(granted, str) else _timed(timer, state, load, granted, prompt, made)


def _as_granted(plan: DraftPlan, made: _Made) -> DraftPlan | str:
    """The plan, its acceptance that of the drafts which the token budget leaves."""
    drafting = plan.drafting
    if drafting.source == "off" or drafting.is_recorded or plan.curve is None or drafting.mean <= 0.0:
        return plan
    steps = [step for _, its in made for step in its if step.decode is not None]
    drafted = sum(step.share * step.decode.drafted for step in steps if step.decode is not None)
    wanted = sum(step.share * step.sequences for step in steps) * drafting.coverage * drafting.mean
    if wanted <= 0.0 or drafted >= _GRANTED * wanted:
        return plan
    length = int(drafting.mean * drafted / wanted)
    tokens = plan.curve.tokens_per_round(length)
    if tokens is None:
        return "The token budget leaves shorter drafts, of a length that was not scored."
    return plan._replace(tokens=tokens.value, error=log_error(tokens))


_ROWS: Final = ("plain", "plain gap", "mixed", "mixed gap", "prefill", "first")


class _Sums:
    """Which shapes are to be timed, and with what weight each counts in each sum."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []
        self.pairs = {"plain": 0.0, "mixed": 0.0}
        self.steps = {"plain": 0.0, "mixed": 0.0}
        self.drafted = {"plain": 0.0, "mixed": 0.0}
        self.first_steps = self.prompt_steps = 0.0
        self._places: dict[Shape, int] = {}
        self._rows: dict[str, list[float]] = {name: [] for name in _ROWS}

    def take(self, one: Round, step: Step) -> None:
        """Count what a round has become."""
        n = step.sequences
        if step.mixed is None:
            self._decode("plain", step, one.weight * step.share)
            return
        weight = one.chunk_weight * step.times * step.share
        self.first_steps += weight * step.prompts
        self.prompt_steps += weight
        self._add(step.mixed, {"prefill": weight, "mixed gap": weight * n, "first": weight * step.prompts})
        if step.decode is not None:
            self._decode("mixed", step, weight)
            self._add(step.decode, {"prefill": -weight, "mixed gap": -weight * n})

    def _decode(self, group: str, step: Step, weight: float) -> None:
        if step.decode is None:
            return
        self.pairs[group] += weight * step.sequences
        self.steps[group] += weight
        self.drafted[group] += weight * step.decode.drafted
        self._add(step.decode, {group: weight, f"{group} gap": weight * step.sequences})

    def _add(self, shape: Shape, weights: Mapping[str, float]) -> None:
        place = self._places.get(shape)
        if place is None:
            place = self._places[shape] = len(self.shapes)
            self.shapes.append(shape)
            for row in self._rows.values():
                row.append(0.0)
        for name, weight in weights.items():
            self._rows[name][place] += weight

    def weights(self, name: str) -> Array:
        return np.array(self._rows[name])


def _timed(timer: Timer, state: State, load: float, draft: DraftPlan, prompt: PromptPlan, made: _Made) -> Evaluation:
    point = timer.point
    sums = _Sums()
    for one, its in made:
        for step in its:
            sums.take(one, step)
    terms, table = timer.times(state.config, sums.shapes)
    matrix = np.array(terms).reshape(-1, len(TERMS))
    layout = _layout_spread(point, state, load, sums)

    def group(name: str) -> Group:
        weights = sums.weights(name)
        parts = [float(part) for part in weights @ matrix]
        spread = _idle_spread(prompt, parts[TERMS.index("resident")])
        decode = (weights @ table) * layout + spread
        gap = (sums.weights(f"{name} gap") @ table) * layout
        pairs, steps = sums.pairs[name], sums.steps[name]
        gap = gap + spread * (pairs / steps if steps > 0.0 else 0.0)
        return Group(
            pairs=pairs, steps=steps, drafted=sums.drafted[name], decode_ns=decode, gap_ns=gap, terms=Terms(*parts)
        )

    prefill = sums.weights("prefill") @ table
    whole = sum(one.weight * len(one.decoding) for one in point.rounds)
    return Evaluation(
        state=state,
        draft=draft,
        load=load,
        tokens=_tokens(draft),
        whole_tokens=whole * (1.0 if point.tokens_per_round is None else point.tokens_per_round),
        plain=group("plain"),
        mixed=group("mixed"),
        prefill_ns=np.maximum(prefill, 0.0)
        * np.exp(np.clip(prompt.error * normals("prompts"), -prompt.most_error, prompt.most_error)),
        first_ns=sums.weights("first") @ table,
        first_steps=sums.first_steps,
        prompt_steps=sums.prompt_steps,
    )


def _tokens(draft: DraftPlan) -> Array:
    """Tokens per round: the point estimate, and draws."""
    source = draft.drafting.source
    drawn: Array = np.exp(draft.error * normals(source) + draft.level_error * normals(f"{source} level"))
    return draft.tokens * drawn


def _layout_spread(point: WorkingPoint, state: State, load: float, sums: _Sums) -> Array | float:
    """What not knowing the order of slots adds under split KV: passes depend on which of them are neighbours."""
    if state.config.unified_kv or (not point.config.unified_kv and load == 1.0):
        return 1.0
    weights = sums.weights("plain") + sums.weights("mixed")
    passes = float(weights @ np.array([len(shape.passes) for shape in sums.shapes])) / max(float(weights.sum()), 1e-9)
    spread: Array = np.exp(SPLIT_ERROR * (1.0 - 1.0 / max(passes, 1.0)) * normals("layout"))
    return spread


def _idle_spread(prompt: PromptPlan, resident_ns: float) -> Array | float:
    """What not knowing how full the prefix cache will be adds: that part of the time is in proportion to it."""
    if prompt.idle_error == 0.0:
        return 0.0
    spread: Array = resident_ns * np.clip(prompt.idle_error * normals("idle"), -1.0, 1.0)
    return spread


@lru_cache(maxsize=16)
def normals(what: str) -> Array:
    """Standard normal draws for one thing that is not known, the same in all predictions; 0 for the point estimate."""
    seed = [SEED, *what.encode()]
    drawn: Array = np.concatenate([[0.0], np.random.default_rng(seed).standard_normal(DRAWS)])
    return drawn


def contributions(one: Evaluation) -> dict[str, float]:
    """Nanoseconds of the whole work by term of the decoding steps, and `prefill`."""
    mean, total = one.terms, float(one.decode_total_ns[0])
    scale = total / mean.total if mean.total > 0.0 else 0.0
    parts = {name: scale * value for name, value in zip(TERMS, mean, strict=True)}
    return {**parts, "prefill": float(one.prefill_ns[0])}
