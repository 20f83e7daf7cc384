"""All candidates by what they are predicted to gain, which of them to recommend, and where recommendations conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.whatif import wording
from stackscope.analysis.whatif.breakevens import BreakEven, whole
from stackscope.analysis.whatif.candidates import Candidate, pairs, singles
from stackscope.records import Estimate, Prediction

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from stackscope.analysis.whatif.contracts import StepTimes
    from stackscope.analysis.whatif.predict import Predictor


MOST_COMBINED: Final = 7
"""Families whose best are combined: 21 pairs."""
WORTH_SAYING: Final = 0.03
"""An interaction smaller than this (of ln) is not told."""
LEAST_GAIN: Final = 1.01
"""Less is not recommended, however sure it is: it is no more than what the engine's speed drifts by."""
MOST_STRAY: Final = 0.4
"""Standard deviation (of ln) of single steps around the model above which no change is recommended: what they have in
common with other settings is then a small part of what decides about them."""
MOST_PAIRS: Final = 3
"""Recommended beside single changes."""
MOST_CONTRADICTIONS: Final = 4


class Ranked(msgspec.Struct, frozen=True):
    """A candidate with its prediction."""

    candidate: Candidate
    prediction: Prediction
    gain: Estimate | None
    """What it is ranked by: tokens per second as a ratio, or, where arrivals decide those, how much sooner tokens come.
    `None`: not predicted."""
    label: str
    """The change in a few words."""
    is_doubtful: bool = False
    """What it was predicted from is not to be trusted that far (see `Ranking.doubt`), or it is ranked by how soon
    tokens follow each other, and nobody knows what becomes of the first."""

    @property
    def is_recommended(self) -> bool:
        """It gains something worth the name, and its interval can tell that from nothing."""
        is_sure = self.gain is not None and self.gain.low > 1.0 and self.gain.value >= LEAST_GAIN
        return is_sure and not self.is_doubtful


class Ranking(msgspec.Struct, frozen=True):
    """What could be done now, the best first."""

    singles: tuple[Ranked, ...]
    """All of them; those that are not predicted come last, with the reason."""
    pairs: tuple[Ranked, ...]
    contradictions: tuple[str, ...] = ()
    """Sentences on changes that help alone and not together, or only up to some batch."""
    break_evens: tuple[BreakEven, ...] = ()
    doubt: str | None = None
    """Why nothing is recommended whatever it is predicted to gain, without a full stop. `None`: nothing speaks against
    it."""

    @property
    def recommended(self) -> tuple[Ranked, ...]:
        """The best of each family that gains beyond doubt, and the best pairs that gain more than any of those."""
        chosen = [one for one in best_of_families(self.singles) if one.is_recommended]
        most = max((one.gain.value for one in chosen if one.gain is not None), default=1.0)
        more = most * LEAST_GAIN
        better = [one for one in self.pairs if one.is_recommended and one.gain is not None and one.gain.value > more]
        chosen += better[:MOST_PAIRS]
        return tuple(sorted(chosen, key=_by_gain))

    def withheld(self, doubt: str) -> Ranking:
        """The same predictions, none of them recommended for this reason."""
        alone = tuple([msgspec.structs.replace(one, is_doubtful=True) for one in self.singles])
        return Ranking(alone, (), (), self.break_evens, doubt)


def rank(predictor: Predictor, at_ns: int = 0, found: Sequence[BreakEven] = ()) -> Ranking:
    """Everything that the configuration allows, and pairs of the best, predicted and put in order.

    `found`: break-evens of this or a recent working point (`breakevens.all_of`, which takes as long as this).
    """
    return whole(rank_in_parts(predictor, at_ns, found))


def rank_in_parts(
    predictor: Predictor, at_ns: int = 0, found: Sequence[BreakEven] = (), doubt: str | None = None
) -> Generator[None, None, Ranking]:
    """The same, a candidate at a time: for whoever has other things to do meanwhile.

    `doubt` is what else than the times speaks against recommending anything. `None`: nothing does.
    """
    point = predictor.point
    if doubt is None and point.times is not None:
        doubt = doubt_of(point.times)
    if doubt is not None:
        told = yield from _in_parts(predictor, singles(point), at_ns, is_doubtful=True)
        return Ranking(tuple(sorted(told, key=_by_gain)), (), (), tuple(found), doubt)
    alone = sorted((yield from _in_parts(predictor, singles(point), at_ns)), key=_by_gain)
    best = [one for one in best_of_families(alone) if one.gain is not None and one.gain.value > 1.0][:MOST_COMBINED]
    combined = yield from _in_parts(predictor, pairs([one.candidate for one in best]), at_ns)
    together = tuple(sorted(combined, key=_by_gain))
    return Ranking(tuple(alone), together, contradictions(predictor, best, together, found), tuple(found))


def doubt_of(times: StepTimes) -> str | None:
    """Why times like these recommend nothing. `None`: they may.

    That threads had less than their cores is no doubt by itself: those that wait for each other sleep too, on calm
    machines with many of them. Whether it is what limits is the namer's to say.
    """
    if times.residual <= MOST_STRAY:
        return None
    return f"single steps stray by {units.percent(times.residual)} from what is known of them"


def best_of_families(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The first of each family, in order."""
    first: dict[str, Ranked] = {}
    for one in ranked:
        first.setdefault(one.candidate.family, one)
    return list(first.values())


def contradictions(
    predictor: Predictor, best: Sequence[Ranked], together: Sequence[Ranked], found: Sequence[BreakEven]
) -> tuple[str, ...]:
    """Where what helps alone does not help with something else, or not at other loads; and what falls short of the
    product of its parts."""
    told = []
    helpful = [one for one in best if one.is_recommended]
    for one in helpful:
        also: list[str] = []
        not_with: list[str] = []
        for other in helpful:
            if other is one or one.candidate.changes.keys() & other.candidate.changes.keys():
                continue
            state = predictor.state.after(other.candidate.changes)
            compared = predictor.compare(state, state.after(one.candidate.changes))
            if isinstance(compared, str):
                continue
            (also if compared.tokens.low > 1.0 else not_with).append(other.label)
        limit = next((b for b in found if b.limits(one.candidate)), None)
        if not_with or limit is not None:
            told.append(_contradiction(one, also, not_with, limit))
    # Of changes that are not put forward anyway, it is no news that they do not multiply.
    told += [said for pair in together if (said := _interaction(helpful, pair)) is not None][:1]
    return tuple(told[:MOST_CONTRADICTIONS])


def _contradiction(one: Ranked, also: list[str], not_with: list[str], limit: BreakEven | None) -> str:
    parts = [f"{one.label}: helps alone"]
    if also:
        parts.append(f"and with {' or '.join(also)}")
    but = [f"with {' or '.join(not_with)}"] if not_with else []
    if limit is not None and limit.value is not None:
        but.append(f"above batch {int(limit.value.value)}")
    sentence = ", ".join(parts) + f", but not {' or '.join(but)}."
    return sentence[:1].upper() + sentence[1:]


def _interaction(best: Sequence[Ranked], pair: Ranked) -> str | None:
    """That a pair falls short of the product of its parts. `None`: it does not, or hardly."""
    gains = {one.candidate.family: one for one in best}
    parts = [gains[family] for family in pair.candidate.family.split(" + ") if family in gains]
    if len(parts) != 2 or pair.gain is None or any(one.gain is None for one in parts):
        return None
    product = 1.0
    for one in parts:
        assert one.gain is not None
        product *= one.gain.value
    if pair.gain.value > product * (1.0 - WORTH_SAYING):
        return None
    names = " and ".join(one.label for one in parts)
    sentence = f"{names} together give {units.ratio(pair.gain.value)}, less than the product of {units.ratio(product)}."
    return sentence[:1].upper() + sentence[1:]


def _in_parts(
    predictor: Predictor, candidates: Sequence[Candidate], at_ns: int, *, is_doubtful: bool = False
) -> Generator[None, None, list[Ranked]]:
    made = []
    for one in candidates:
        made.append(_ranked(predictor, one, at_ns, is_doubtful=is_doubtful))
        yield
    return made


def _ranked(predictor: Predictor, candidate: Candidate, at_ns: int, *, is_doubtful: bool = False) -> Ranked:
    prediction = predictor.predict(candidate.changes, at_ns)
    gain, label = _gain(predictor, prediction), wording.label(predictor.point, candidate.changes)
    # Tokens may come sooner one after the other because requests wait for their first one in a queue.
    is_blind = gain is not None and gain is not prediction.tokens and prediction.ttft is None
    return Ranked(candidate, prediction, gain, label, is_doubtful or is_blind)


def _gain(predictor: Predictor, prediction: Prediction) -> Estimate | None:
    tokens, gap = prediction.tokens, prediction.step_gap
    if tokens is None:
        return None
    if predictor.point.follows_arrivals and tokens.low == tokens.high == 1.0:
        return None if gap is None else Estimate(1.0 / gap.value, 1.0 / gap.high, 1.0 / gap.low)
    return tokens


def _by_gain(one: Ranked) -> float:
    return float("inf") if one.gain is None else -one.gain.value
