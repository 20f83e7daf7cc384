"""Where an optimisation begins to lose: acceptance, batch, context, draft length. Each with interval, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np

from stackscope import units
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.whatif import plans
from stackscope.analysis.whatif.candidates import DRAFT_LENGTHS, Candidate
from stackscope.analysis.whatif.evaluate import Evaluation
from stackscope.analysis.whatif.predict import estimate
from stackscope.analysis.whatif.timer import DRAWS, SEED, Array
from stackscope.records import Estimate, Ubatch

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from stackscope.analysis.whatif.plans import State
    from stackscope.analysis.whatif.predict import Predictor

Kind: TypeAlias = Literal["tokens per round", "acceptance", "batch", "context", "draft length"]
_T = TypeVar("_T")

BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sequences in flight at which speculation is tried."""
NEARLY_ALL: Final = 0.9
"""Part of what is possible from which on an interval that holds it says nothing."""
SURELY_LOST: Final = 0.97
"""Below this in every draw, larger batches are not tried."""
MOST_CONTEXT: Final = 1 << 17
"""Tokens looked at where the model does not state its context."""


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """The value of something at which a gain turns into a loss."""

    kind: Kind
    value: Estimate | None = None
    """`None`: there is no such value here, or it is not known; `sentence` says which."""
    sentence: str
    """With its numbers."""
    source: str | None = None
    """The draft source that it is about. `None`: it is not about drafts."""

    def limits(self, candidate: Candidate) -> bool:
        """Whether the change stops helping at a batch that this names."""
        return self.kind == "batch" and self.value is not None and candidate.family == "speculation"


def all_of(predictor: Predictor) -> tuple[BreakEven, ...]:
    """Every break-even of a working point: of the drafts that run, or else of the best ones known."""
    return whole(all_in_parts(predictor))


def all_in_parts(predictor: Predictor) -> Generator[None, None, tuple[BreakEven, ...]]:
    """The same, one at a time: for whoever has other things to do meanwhile."""
    found = context(predictor)
    yield
    drafting = yield from best_in_parts(predictor)
    if isinstance(drafting, str):
        return BreakEven(kind="acceptance", sentence=drafting), found
    needed = acceptance(predictor, drafting)
    yield
    most = yield from batch_in_parts(predictor, drafting)
    yield
    return *needed, most, draft_length(predictor, drafting), found


def whole(parts: Generator[None, None, _T]) -> _T:
    """What is made in parts, all at once."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: _T = end.value
            return found


def best_drafting(predictor: Predictor) -> State | str:
    """The drafts in force; where there are none, those predicted to bring most; or why nothing is known of any."""
    return whole(best_in_parts(predictor))


def best_in_parts(predictor: Predictor) -> Generator[None, None, State | str]:
    """The same, a length at a time."""
    state = predictor.state
    if state.config.speculation != "off":
        return state
    best: tuple[float, State] | None = None
    why = "No drafts were made or shadowed here yet."
    for source in predictor.point.curves:
        for other, speed in (yield from _lengths_in_parts(predictor, state.after({"speculation": source}))):
            if best is None or speed[0] > best[0]:
                best = float(speed[0]), other
    return why if best is None else best[1]


def acceptance(predictor: Predictor, drafting: State) -> tuple[BreakEven, BreakEven]:
    """Tokens per round, and share of drafted tokens accepted, below which these drafts lose here.

    With A tokens a round the decoding takes (tokens ÷ A) rounds, and with it what drafts add to prefill: A at which all
    of it takes as long as without drafts.
    """
    on, off = predictor.evaluate(drafting), predictor.evaluate(drafting.after({"speculation": "off"}))
    source, length = drafting.config.speculation, drafting.config.draft_length
    for one in (on, off):
        if isinstance(one, str):
            return (
                BreakEven(kind="tokens per round", sentence=one, source=source),
                BreakEven(kind="acceptance", sentence=one, source=source),
            )
    assert isinstance(on, Evaluation)
    assert isinstance(off, Evaluation)
    wanted = on.tokens_needed(off.total_ns)
    if not bool(np.all((wanted > 0.0) & np.isfinite(wanted))):
        why = "Hardly anything was decoded lately."
        return (
            BreakEven(kind="tokens per round", sentence=why, source=source),
            BreakEven(kind="acceptance", sentence=why, source=source),
        )
    needed = _within(estimate(wanted), 1.0, float("inf"))
    has = float(on.tokens[0])
    name = f"drafts of {length} by {plans.SOURCES.get(source, source)}"
    per_round = _drafted(predictor, on)
    tokens = _tokens_needed(name, source, needed, has, per_round)
    if per_round is None:
        why = "How many tokens are drafted per round is not known."
        return tokens, BreakEven(kind="acceptance", sentence=why, source=source)
    rate = _within(Estimate(*[(x - 1.0) / per_round for x in (needed.value, needed.low, needed.high)]), 0.0, 1.0)
    if _says_nothing(rate, 0.0, 1.0):
        sentence = f"At what acceptance {name} begin to lose cannot be told yet: anything is possible."
        return tokens, BreakEven(kind="acceptance", sentence=sentence, source=source)
    if needed.value - 1.0 >= per_round:
        sentence = f"No acceptance is enough for {name}: they would have to bring {units.number(needed.value)} tokens."
        return tokens, BreakEven(kind="acceptance", sentence=sentence, source=source)
    return tokens, BreakEven(
        kind="acceptance",
        value=rate,
        source=source,
        sentence=f"{_capital(name)} lose below an acceptance of {units.percent(rate.value)}; it is "
        f"{units.percent((has - 1.0) / per_round)}.",
    )


def _tokens_needed(name: str, source: str, needed: Estimate, has: float, per_round: float | None) -> BreakEven:
    told = f"they bring {units.number(has)}"
    if per_round is not None and _says_nothing(needed, 1.0, 1.0 + per_round):
        sentence = f"Below how many tokens a forward {name} lose cannot be told yet: anything is possible; {told}."
        return BreakEven(kind="tokens per round", sentence=sentence, source=source)
    sentence = f"{_capital(name)} lose below {units.number(needed.value)} tokens a forward; {told}."
    return BreakEven(kind="tokens per round", value=needed, source=source, sentence=sentence)


def _within(one: Estimate, least: float, most: float) -> Estimate:
    """No more than what is possible: draws know nothing of it."""
    return Estimate(*[min(max(x, least), most) for x in (one.value, one.low, one.high)])


def _says_nothing(one: Estimate, least: float, most: float) -> bool:
    """Its interval holds nearly all that is possible."""
    return most > least and min(one.high, most) - max(one.low, least) >= NEARLY_ALL * (most - least)


def _drafted(predictor: Predictor, one: Evaluation) -> float | None:
    """Tokens drafted per round of a sequence: of drafts in force, those of the steps whose tokens were counted, and not
    of the few that are timed for them."""
    drafting = one.draft.drafting
    if not drafting.is_recorded:
        return drafting.coverage * drafting.mean or None
    return predictor.point.drafted_per_round or one.drafted_per_round or None


def batch(predictor: Predictor, drafting: State) -> BreakEven:
    """The most sequences at a time with which these drafts do not lose."""
    return whole(batch_in_parts(predictor, drafting))


def batch_in_parts(predictor: Predictor, drafting: State) -> Generator[None, None, BreakEven]:
    """The same, a batch at a time."""
    source = drafting.config.speculation
    busy = predictor.point.slots_busy
    if not busy:
        return BreakEven(kind="batch", sentence="How many requests are in flight is not known.", source=source)
    gains: list[Array] = []
    tried: list[int] = []
    for n in BATCHES:
        on = predictor.evaluate(drafting, n / busy)
        off = predictor.evaluate(drafting.after({"speculation": "off"}), n / busy)
        if isinstance(on, str) or isinstance(off, str):
            why = on if isinstance(on, str) else str(off)
            if not gains:
                return BreakEven(kind="batch", sentence=why, source=source)
            break
        gains.append(off.total_ns / on.total_ns)
        tried.append(n)
        if float(gains[-1].max()) < SURELY_LOST:
            break
        yield
    table = np.array(gains)
    last = _last_gaining(table, np.array(tried, dtype=float))
    name = f"drafts of {drafting.config.draft_length} by {plans.SOURCES.get(source, source)}"
    if last[0] == 0.0:
        return BreakEven(kind="batch", sentence=f"{_capital(name)} lose at every batch here.", source=source)
    if last[0] >= tried[-1]:
        sentence = f"{_capital(name)} gain up to {tried[-1]} sequences at a time, the most that were tried."
        return BreakEven(kind="batch", sentence=sentence, source=source)
    value = _within(estimate(last), 1.0, float("inf"))
    if _says_nothing(value, 1.0, float(tried[-1])):
        sentence = (
            f"At how many sequences at a time {name} begin to lose cannot be told yet: "
            f"anywhere from 1 to {tried[-1]} is possible."
        )
        return BreakEven(kind="batch", sentence=sentence, source=source)
    sentence = f"{_capital(name)} lose above {units.counted(int(value.value), 'sequence')} at a time."
    return BreakEven(kind="batch", value=value, sentence=sentence, source=source)


def _last_gaining(gains: Array, tried: Array) -> Array:
    """For each draw, the batch at which the gain first falls below 1, between those tried on a straight line; 0 when it
    does so at once, and the last when it never does. A later return above 1 is not counted on."""
    found = np.zeros(gains.shape[1])
    for draw in range(gains.shape[1]):
        below = np.flatnonzero(gains[:, draw] < 1.0)
        if len(below) == 0:
            found[draw] = tried[-1]
        elif below[0] > 0:
            i = int(below[0])
            upper, lower = gains[i - 1, draw], gains[i, draw]
            found[draw] = tried[i - 1] + (tried[i] - tried[i - 1]) * (upper - 1.0) / max(upper - lower, 1e-12)
    return found


def draft_length(predictor: Predictor, drafting: State) -> BreakEven:
    """The draft length with the most tokens per second here: rows come in blocks, so it need not be a smooth choice."""
    source = drafting.config.speculation
    known = _lengths(predictor, drafting)
    if not known:
        why = predictor.evaluate(drafting)
        sentence = why if isinstance(why, str) else "No other draft length was scored."
        return BreakEven(kind="draft length", sentence=sentence, source=source)
    lengths = np.array([float(state.config.draft_length) for state, _ in known])
    speeds = np.array([speed for _, speed in known])
    best = estimate(lengths[np.argmax(speeds, axis=0)])
    off = predictor.evaluate(drafting.after({"speculation": "off"}))
    gain = "" if isinstance(off, str) else f", {units.ratio(float(speeds[:, 0].max() * off.total_ns[0]))} of none"
    name = f"drafts of {best.value:.0f} by {plans.SOURCES.get(source, source)}"
    sentence = f"Of the lengths scored, {name} bring most{gain}"
    if len(lengths) > 2 and _says_nothing(best, float(lengths[0]), float(lengths[-1])):
        sentence += f", but any from {lengths[0]:.0f} to {lengths[-1]:.0f} may be the best."
        return BreakEven(kind="draft length", sentence=sentence, source=source)
    return BreakEven(kind="draft length", value=best, sentence=f"{sentence}.", source=source)


def _lengths(predictor: Predictor, drafting: State) -> Sequence[tuple[State, Array]]:
    """Every draft length that is known, with its speed in all draws."""
    return whole(_lengths_in_parts(predictor, drafting))


def _lengths_in_parts(predictor: Predictor, drafting: State) -> Generator[None, None, list[tuple[State, Array]]]:
    found = []
    for length in sorted({*DRAFT_LENGTHS, drafting.config.draft_length}):
        state = drafting.after({"draft_length": length})
        one = predictor.evaluate(state, 1.0)
        if not isinstance(one, str) and one.total_ns[0] > 0.0:
            found.append((state, 1.0 / one.total_ns))
        yield
    return found


def context(predictor: Predictor) -> BreakEven:
    """Cached tokens per sequence at which reading them takes as long as reading the weights, at the present batch."""
    point, times = predictor.point, predictor.point.times
    base = predictor.evaluate(predictor.state)
    if isinstance(base, str) or times is None:
        return BreakEven(kind="context", sentence=base if isinstance(base, str) else "Nothing was timed yet.")
    for name in ("weights", "attention"):
        if name in times.unknown:
            return BreakEven(kind="context", sentence=f"{_capital(name)} cannot be told apart: {times.unknown[name]}")
    n = max(1, round(base.sequences))

    def excess(tokens: int) -> float:
        terms = times.terms(_plain(n, tokens))
        return terms.attention - terms.weights - terms.head

    most = point.model.context if point.model is not None and point.model.context > 0 else MOST_CONTEXT
    batch_told = "one sequence" if n == 1 else f"{n} sequences"
    if excess(most) < 0.0:
        sentence = f"With {batch_told} at a time, KV reads stay below weight reads up to {units.count(most)} tokens."
        return BreakEven(kind="context", sentence=sentence)
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(middle) < 0.0 else (low, middle)
    shapes = [_plain(n, 0), _plain(n, high)]
    points = np.array([[times.terms(shape).total for shape in shapes]])
    drawn = np.vstack([points, times.draws(shapes, DRAWS, SEED)])
    weights, attention = drawn[:, 0] / drawn[0, 0], drawn[:, 1] - drawn[:, 0]
    value = estimate(high * weights / np.maximum(attention / max(attention[0], 1e-9), 1e-3))
    value = _within(value, 1.0, float(most))
    if _says_nothing(value, 1.0, float(most)):
        anything = f"anything up to {units.count(most)} tokens is possible"
        sentence = f"At what context KV reads pass weight reads cannot be told yet: {anything}."
        return BreakEven(kind="context", sentence=sentence)
    sentence = f"With {batch_told} at a time, KV reads pass weight reads at {units.count(high)} tokens of context each."
    return BreakEven(kind="context", value=value, sentence=sentence)


def _plain(n: int, cached: int) -> Shape:
    """A step in which `n` sequences decode with so many cached tokens each."""
    return Shape(((cached, 1),) * n, n, (Ubatch(n, n),), (), n * (cached + 1), 0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
