"""Tokens per round at other draft lengths: replayed and by the geometric law, with intervals over requests.

Shadows count some requests together (a second of them), so that these are what is drawn. Which requests a count holds
is known to within one at either end, which widens the interval of the replay's error and of nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.validate.figures import UNKNOWN, Figure, figure
from benchmarks.validate.pairing import Compared, Simpler, resampled
from benchmarks.validate.score_tau import Rounds, by_request, geometric, replayed
from benchmarks.validate.score_toggles import GEOMETRIC
from stackscope.records import DraftShadow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from benchmarks.validate.checks import Following
    from stackscope.records import AnyRecord

    Floats = npt.NDArray[np.float64]
    Draws = npt.NDArray[np.int64]


class Worst(NamedTuple):
    """Worst relative errors over draft lengths."""

    replayed: Figure = UNKNOWN
    law: Simpler | None = None
    """The geometric law from the shortest length, at the others."""


def worst(followed: Following) -> Worst:
    """How far off tokens per round are at the worst length."""
    shadows = [[one] for one in followed.without if isinstance(one, DraftShadow) and one.source == followed.source]
    lengths = sorted(followed.by_length)
    replays = {n: _table([replayed(one, followed.source, n) for one in shadows]) for n in lengths}
    reals = {n: _table(_grouped(followed.by_length[n], shadows)) for n in lengths}
    if not shadows or not all(replays[n][:, 0].sum() and reals[n][:, 0].sum() for n in lengths):
        return Worst()

    def ours(some: Draws, of: Sequence[int]) -> Floats:
        return _largest([_tau(replays[n], some) / _tau(reals[n], some) for n in of])

    def law(some: Draws) -> Floats:
        first = reals[lengths[0]][some].sum(axis=1)
        guesses = {n: np.array([geometric(Rounds(*row), n) or np.nan for row in first]) for n in longer}
        return _largest([guesses[n] / _tau(reals[n], some) for n in longer])

    longer = lengths[1:]
    found = _figure(len(shadows), lambda some: ours(some, lengths), len(lengths))
    if not longer or not reals[lengths[0]][:, 4].sum():
        return Worst(found)
    same = _figure(len(shadows), lambda some: ours(some, longer), len(longer))
    theirs = _figure(len(shadows), law, len(longer))
    apart = _figure(len(shadows), lambda some: law(some) - ours(some, longer), len(longer))
    return Worst(found, Simpler(GEOMETRIC, theirs, same, Compared(apart)))


def _grouped(records: Sequence[AnyRecord], shadows: Sequence[Sequence[DraftShadow]]) -> list[Rounds]:
    """Rounds of the requests that each count of the shadows is about, in the order in which they came."""
    requests = [rounds for _, rounds in sorted(by_request(records).items())]
    ends = np.cumsum([one.tokens for (one,) in shadows]).astype(float)
    places = (np.arange(len(requests)) + 0.5) / max(len(requests), 1) * (ends[-1] if len(ends) else 0.0)
    groups = np.searchsorted(ends, places)
    table = _table(requests)
    return [Rounds(*(int(v) for v in table[groups == number].sum(axis=0))) for number in range(len(shadows))]


def _table(rounds: Sequence[Rounds]) -> Draws:
    return np.array([tuple(one) for one in rounds], dtype=np.int64).reshape(len(rounds), len(Rounds._fields))


def _tau(table: Draws, some: Draws) -> Floats:
    drawn = table[some].sum(axis=1)
    return np.asarray(drawn[:, 1] / drawn[:, 0])


def _largest(ratios: Sequence[Floats]) -> Floats:
    return np.asarray(np.max(np.abs(np.array(ratios) - 1), axis=0))


def _figure(n_groups: int, of: Callable[[Draws], Floats], n: int) -> Figure:
    value = float(of(np.arange(n_groups)[None, :])[0])
    return figure(value, resampled(n_groups, of), n)
