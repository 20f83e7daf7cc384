"""What a change would do to a working point: ratios with intervals, memory, what limits afterwards, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from stackscope.analysis.whatif import plans, reasons
from stackscope.analysis.whatif.evaluate import Evaluation, contributions, evaluate, normals
from stackscope.analysis.whatif.timer import DRAWS, Array, Timer
from stackscope.records import COST_MODEL_VERSION, Estimate, Prediction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.whatif.plans import State
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig, Setting

UNSEEN: Final = 0.08
"""Standard deviation of the error of a prediction, as a part of the time that the change moves: what no parameter of
the time model stands for, such as kernels that were only timed at other sizes."""
LEAST_UNSEEN: Final = 0.005
"""The same as soon as anything moves: what the scheduler does is only followed on average."""
VAGUE: Final = 3.0
"""An interval whose ends differ by more than this factor is no prediction."""
CROWDED: Final = 0.9
"""Where so many of the steps have a prompt in them, fewer requests decode at a time than before. By how much is not
followed: nothing is said of gaps, and the interval of the speed is wider by `CROWDED_ERROR` (of ln)."""
CROWDED_ERROR: Final = 0.05
BUSY: Final = 0.6
"""Where so many of the steps have a prompt in them, prompts begin to wait for each other, which is not followed either:
nothing is said of the time to the first token."""
_NEGLIGIBLE_WAIT: Final = 0.1
"""Share of the time to the first token that an open loop's queue may have for it to be said how it changes."""
_ROUNDS_OF_LOAD: Final = 3
"""Steps towards the load at which an open loop settles; each leaves a tenth of the error."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two configurations at the same working point. Ratios are after ÷ before."""

    before: Evaluation
    after: Evaluation
    tokens: Estimate
    gap: Estimate | None = None
    ttft: Estimate | None = None
    is_of_arrivals: bool = False
    """Both keep up with an open loop, so that arrivals alone decide how many tokens come."""
    is_overrun: bool = False
    """Arrivals are more than it can serve afterwards."""


class _Speeds(NamedTuple):
    """Tokens per nanosecond, in units of the sample's tokens."""

    values: Array
    is_of_arrivals: bool


class Predictor:
    """Predicts changes of one working point, and remembers what it has timed. For a few seconds: the work goes on."""

    def __init__(self, point: WorkingPoint) -> None:
        self.point = point
        self.state = plans.recorded_state(point)
        self.timer = Timer(point)
        self._known: dict[tuple[State, float | None], Evaluation | str] = {}

    def predict(self, changes: Mapping[str, Setting], at_ns: int = 0, *, is_vague_told: bool = False) -> Prediction:
        """What these settings would do, each given by the value that it would have. `is_vague_told`: with whatever
        interval there is, for somebody who is going to measure it; else one that says nothing is no prediction.

        Raises `TypeError` for a setting that there is not.
        """
        state, after = self.state, self.state.after(changes)
        made = {name: (_setting(state, name), _setting(after, name)) for name in changes}
        made = {name: (was, becomes) for name, (was, becomes) in made.items() if was != becomes}
        memory = self.memory_change(after.config)
        compared = self._refusal(after.config) or self.compare(state, after)
        if not isinstance(compared, str):
            compared = self._checked(compared, is_vague_told=is_vague_told)
        if isinstance(compared, str):
            return Prediction(
                at_ns=at_ns, changes=made, memory_bytes=memory, reason=compared, cost_model=COST_MODEL_VERSION
            )
        return Prediction(
            at_ns=at_ns,
            changes=made,
            tokens=compared.tokens,
            ttft=_told(compared.ttft, is_vague_told=is_vague_told),
            step_gap=_told(compared.gap, is_vague_told=is_vague_told),
            memory_bytes=memory,
            bottleneck=reasons.bottleneck(contributions(compared.after)),
            reason=reasons.reason(
                self.point, compared, made, lambda names: self.evaluate(state.after({n: changes[n] for n in names}))
            ),
            cost_model=COST_MODEL_VERSION,
        )

    def compare(self, before: State, after: State) -> Comparison | str:
        """Two configurations and loads; or why one of them is not known."""
        earlier, later = self.evaluate(before), self.evaluate(after)
        for one in (earlier, later):
            if isinstance(one, str):
                return one
        assert not isinstance(earlier, str)
        assert not isinstance(later, str)
        if earlier.total_ns[0] <= 0.0 or later.total_ns[0] <= 0.0:
            return "The recent steps did no work that could be compared."
        is_crowded = later.crowding > max(CROWDED, earlier.crowding)
        unseen = math.hypot(_unseen(self.point, earlier, later), CROWDED_ERROR if is_crowded else 0.0)
        spread = np.exp(unseen * normals("model"))
        was, becomes = self._speeds(earlier), self._speeds(later)
        if isinstance(was, str):
            return was
        if isinstance(becomes, str):
            return becomes
        arrivals = was.is_of_arrivals and becomes.is_of_arrivals
        ratio = becomes.values / was.values
        tokens = estimate(ratio if arrivals else ratio * spread)
        gap = None
        if earlier.gap_ns[0] > 0.0 and later.gap_ns[0] > 0.0 and not is_crowded:
            gap = estimate(later.gap_ns / earlier.gap_ns * spread)
        overrun = self.point.follows_arrivals and not becomes.is_of_arrivals
        ttft = (
            None
            if overrun or later.crowding > max(BUSY, earlier.crowding)
            else self._ttft(earlier, later, ratio, spread)
        )
        return Comparison(
            before=earlier,
            after=later,
            tokens=tokens,
            gap=gap,
            ttft=ttft,
            is_of_arrivals=arrivals,
            is_overrun=overrun,
        )

    def evaluate(self, state: State, load: float | None = None) -> Evaluation | str:
        """The work under a configuration. `load`: requests in flight relative to the recorded ones; `None`: as many as
        the load that is offered and the time that it takes make."""
        if load is None and not self._is_open(state):
            load = plans.closed_load(self.point, state)
        key = (state, load)
        known = self._known.get(key)
        if known is None:
            known = self._settled(state) if load is None else evaluate(self.timer, state, load)
            self._known[key] = known
        return known

    def memory_change(self, config: EngineConfig) -> int | None:
        """Bytes more that models and contexts would take. `None`: not known."""
        point = self.point
        model = point.model if config.model == point.config.model else point.variants.get(config.model)
        if point.rules is None or point.memory_bytes is None or model is None:
            return None
        after = point.rules.memory_bytes(config, model, self._draft(config))
        return None if after is None else after - point.memory_bytes

    def _draft(self, config: EngineConfig) -> ModelSummary | None:
        return self.point.draft_model if config.draft_model == self.point.config.draft_model else None

    def _refusal(self, config: EngineConfig) -> str | None:
        point = self.point
        model = point.model if config.model == point.config.model else point.variants.get(config.model)
        if point.rules is None or model is None:
            return None
        return point.rules.refusal(config, model, self._draft(config))

    def _is_open(self, state: State) -> bool:
        return self.point.follows_arrivals and state.concurrency is None

    def _settled(self, state: State) -> Evaluation | str:
        """An open loop that is kept up with: there are as many requests in flight as arrive while one is served."""
        base = evaluate(self.timer, self.state, 1.0)
        if isinstance(base, str) or state == self.state:
            return base
        offered = state.rate / self.state.rate if state.rate and self.state.rate else 1.0
        most = self._full_load(state)
        load, slots = min(offered, most), state.config.slots
        now = evaluate(self.timer, state, load, slots=slots)
        for _ in range(_ROUNDS_OF_LOAD):
            if isinstance(now, str) or base.gap_ns[0] <= 0.0 or now.gap_ns[0] <= 0.0:
                return now
            longer = (now.gap_ns[0] / now.tokens[0]) / (base.gap_ns[0] / base.tokens[0])
            wanted = min(offered * float(longer), most)
            if abs(wanted - load) < 0.02 * load:
                return now
            load = wanted
            now = evaluate(self.timer, state, load, slots=slots)
        return now

    def _full_load(self, state: State) -> float:
        busy = self.point.slots_busy
        return state.config.slots / busy if busy else 1.0

    def _speeds(self, one: Evaluation) -> _Speeds | str:
        """Tokens per nanosecond of the sample's work, in all draws, and whether arrivals decide it."""
        point, base = self.point, self.evaluate(self.state)
        if isinstance(base, str):
            return base
        idle_ns = 0.0
        if not self._is_open(one.state):
            if not point.follows_arrivals and point.concurrency is not None and point.idle_share < 1.0:
                idle_ns = float(base.total_ns[0]) * point.idle_share / (1.0 - point.idle_share)
            speed: Array = 1.0 / (one.total_ns + idle_ns)
            return _Speeds(self._no_more_than_arrive(speed, base, one.state), False)
        full = self.evaluate(one.state, self._full_load(one.state))
        if isinstance(full, str):
            return full
        offered = one.state.rate / point.rate if one.state.rate and point.rate else 1.0
        # What is served now takes the busy part of the time.
        arriving = np.full(DRAWS + 1, offered * (1.0 - point.idle_share) / float(base.total_ns[0]))
        capacity = base.total_ns[0] / base.total_ns / full.total_ns
        return _Speeds(np.minimum(arriving, capacity), bool(capacity[0] >= arriving[0]))

    def _no_more_than_arrive(self, speed: Array, base: Evaluation, state: State) -> Array:
        """An open loop that is behind catches up at most."""
        point = self.point
        if state.rate is None or point.tokens_per_request is None or not point.tokens_per_s:
            return speed
        arriving = state.rate * point.tokens_per_request / point.tokens_per_s
        if arriving < 1.0:
            return speed
        limited: Array = np.minimum(speed, arriving / base.total_ns)
        return limited

    def _ttft(self, before: Evaluation, after: Evaluation, speed: Array, spread: Array) -> Estimate | None:
        """Queue and prefill change apart. `None`: what waits in the queue cannot be said, or no prompt was seen."""
        point = self.point
        if before.first_ns[0] <= 0.0 or after.first_ns[0] <= 0.0:
            return None
        own = after.first_ns / before.first_ns * spread
        waits = [max((one.state.concurrency or 0) - plans.in_flight(one.state), 0.0) for one in (before, after)]
        if point.ttft_ns is None or point.wait_ns is None:
            return estimate(own) if point.concurrency is not None and waits == [0.0, 0.0] else None
        wait, rest = point.wait_ns, max(point.ttft_ns - point.wait_ns, 0.0)
        if point.concurrency is None:
            if not point.follows_arrivals or wait > _NEGLIGIBLE_WAIT * point.ttft_ns:
                return None
            return estimate((wait + rest * own) / (wait + rest)) if wait + rest > 0.0 else None
        if waits[0] > 0.0:
            later = wait * waits[1] / waits[0] / (speed * spread)
        elif waits[1] == 0.0:
            later = wait * own
        elif point.tokens_per_request is None or not point.tokens_per_s:
            return None
        else:
            per_request = point.tokens_per_request / point.tokens_per_s * 1e9
            later = wait + waits[1] * per_request / (speed * spread)
        return estimate((later + rest * own) / (wait + rest)) if wait + rest > 0.0 else None

    def _checked(self, compared: Comparison, *, is_vague_told: bool) -> Comparison | str:
        tokens = compared.tokens
        if not all(map(math.isfinite, (tokens.value, tokens.low, tokens.high))) or tokens.low <= 0.0:
            return "The recent steps do not carry a prediction."
        if tokens.high > VAGUE * tokens.low and not is_vague_told:
            times = self.point.times
            remedy = "" if times is None or times.is_calibrated else ": run stackscope calibrate"
            return f"Anything between {tokens.low:.2g} and {tokens.high:.2g} times as many tokens is possible{remedy}."
        return compared


def predict(point: WorkingPoint, changes: Mapping[str, Setting], at_ns: int = 0) -> Prediction:
    """What these settings would do at a working point; see `Predictor.predict`."""
    return Predictor(point).predict(changes, at_ns)


def estimate(values: Array) -> Estimate:
    """A point estimate, which comes first, and its interval from the draws after it."""
    low, high = np.quantile(values[1:], (0.05, 0.95))
    value = float(values[0])
    return Estimate(value, min(value, float(low)), max(value, float(high)))


def _told(one: Estimate | None, *, is_vague_told: bool) -> Estimate | None:
    """`None` for what says nothing."""
    if one is None or one.low <= 0.0 or (one.high > VAGUE * one.low and not is_vague_told):
        return None
    return one


def _unseen(point: WorkingPoint, before: Evaluation, after: Evaluation) -> float:
    """Standard deviation of ln(ratio) by what the time model cannot know: in proportion to the time that moves."""
    one, other = contributions(before), contributions(after)
    most = max(sum(one.values()), sum(other.values()))
    if most <= 0.0 or point.times is None:
        return 0.0
    moved = min(sum(abs(one[name] - other[name]) for name in one) / most, 1.0)
    return 0.0 if moved == 0.0 else math.hypot(LEAST_UNSEEN, moved * math.hypot(UNSEEN, point.times.residual / 2))


def _setting(state: State, name: str) -> Setting:
    value: Setting = getattr(state, name) if name in plans.LOAD else getattr(state.config, name)
    return value
