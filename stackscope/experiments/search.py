"""Searches many configurations with few runs: a model says where to look, and those that look best are raced.

What is believed of them is in `search_model`.

*Where to look.* The first runs spread over all values. Each further one goes where the expected improvement over the
best configuration is
largest (Jones, Schonlau and Welch, *Journal of Global Optimization* 13, 1998), times the
probability that the constraints hold; every third one for a random weighting of the objectives, so that the Pareto set
is found and not its end only (Knowles, ParEGO, *IEEE Transactions on Evolutionary Computation* 10, 2006).

*The race.* The last half of the runs goes to the configurations that then look best, in blocks, as in an ablation:
after each, the worse half leaves (successive halving: Jamieson and Talwalkar, AISTATS 2016). The best is one of those
that were raced: the runs before were made one after the other, on a machine that may have changed meanwhile.

What to run next follows from the plan and the runs so far alone, so that a killed search goes on as it would have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.analysis import factorial
from stackscope.experiments.blocks import order
from stackscope.experiments.search_model import Model

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stackscope.experiments.search_goals import Goals
    from stackscope.experiments.search_model import Array
    from stackscope.experiments.state import CellRun

RACE_SHARE: Final = 0.45
"""Of the runs, those that are kept for the race."""
LEAST_RACERS: Final = 2
EXPLORING: Final = -1
"""Block of the runs before the race: they are no blocks."""

EVERY: Final = 3
"""Of the exploring runs, one in so many is for a random weighting of the objectives."""


class Pick(NamedTuple):
    """What to run next."""

    block: int
    """`EXPLORING`, or the number of the race's block."""
    cell: int


class Search:
    """Chooses runs. Configurations are numbers; `places` are their values on each axis."""

    def __init__(
        self,
        places: Sequence[tuple[int, ...]],
        goals: Goals,
        *,
        budget: int,
        seed: int,
        guesses: Mapping[str, Mapping[int, float]] | None = None,
        refused: Collection[int] = (),
    ) -> None:
        """`budget`: runs at most. `guesses`: predicted figures by name and configuration, those of some may be missing;
        they are taken relative to each other, so that their unit does not matter. `refused`: what cannot run, as is
        known beforehand.
        """
        self._places = np.array(places)
        self._goals = goals
        self._budget = budget
        self._seed = seed
        self._guesses = {} if guesses is None else guesses
        self._refused = frozenset(refused)
        self.model = Model(self._places, self._guesses)
        self._n_race = _race_runs(budget)

    def next(self, runs: Sequence[CellRun]) -> Pick | None:
        """The next run. `None`: the budget is spent, or nothing is left to find out."""
        if len(runs) >= self._budget:
            return None
        explored = [run for run in runs if run.block == EXPLORING]
        raced = [run for run in runs if run.block != EXPLORING]
        if not raced and len(explored) < self._budget - self._n_race:
            cell = self._explore(explored)
            if cell is not None:
                return Pick(EXPLORING, cell)
        return self._race(runs, raced)

    def best(self, runs: Sequence[CellRun], able: Collection[int] | None = None) -> int | None:
        """The configuration that is best by what is known, among those that ran.

        It is one that was raced, unless none of those keeps the constraints. `able` are the configurations that do;
        `None`: those that probably do.
        """
        ran = self._ran(runs)
        if able is None:
            feasible = self._feasible(runs)
            able = [cell for cell in ran if feasible[cell] >= 0.5] or ran
        raced = {run.cell for run in runs if run.block != EXPLORING}
        worth = self._worth(runs)
        return max(ran & raced & {*able} or ran & {*able}, key=lambda cell: worth[cell], default=None)

    # Exploring

    def _explore(self, runs: Sequence[CellRun]) -> int | None:
        """Where to look next. `None`: everything has been looked at."""
        seen = {run.cell for run in runs}
        left = [cell for cell in range(len(self._places)) if cell not in seen | self._refused]
        if not left:
            return None
        if not seen:
            return left[0]  # What all is compared with, and what predictions are made from.
        n_spread = self._n_spread()
        if len(seen) < n_spread:
            return self._most_different(left, sorted(seen))
        random = np.random.default_rng([self._seed, len(runs)])
        weights = self._goals.weights(random if len(runs) % EVERY == 0 else None)
        worth, deviation = self._scalar(runs, weights)
        best = max(worth[run.cell] for run in runs if run.refusal is None) if self._ran(runs) else -math.inf
        gain = _expected_improvement(worth, deviation, best) * self._feasible(runs)
        return max(left, key=lambda cell: (gain[cell], worth[cell]))

    @property
    def n_untried(self) -> int:
        """Values of the axes that get no run before the race, since there are too few of those."""
        return max(self._n_values - (self._budget - self._n_race), 0)

    @property
    def _n_values(self) -> int:
        """Runs until every value of every axis was tried, if each tries one more."""
        return int(self._places.max(axis=0).sum()) + 1

    def _n_spread(self) -> int:
        """Runs until every value of every axis was tried; a third of the exploring ones where predictions guide."""
        exploring = self._budget - self._n_race
        return min(self._n_values, exploring // 3 if self._guesses else 2 * exploring // 3)

    def _most_different(self, left: Sequence[int], seen: Sequence[int]) -> int:
        """The configuration with most values that were tried least, the better predicted one among equals."""
        random = np.random.default_rng([self._seed, 1 << 20, len(seen)])
        tried = [
            np.bincount(self._places[seen, axis], minlength=self._places[:, axis].max() + 1)
            for axis in range(self._places.shape[1])
        ]
        guessed = self._guesses.get(self._goals.main, {})
        sign = self._goals.sign(self._goals.main)

        def rank(cell: int) -> tuple[float, float, float]:
            new = sum(1.0 / (1 + tried[axis][place]) ** 2 for axis, place in enumerate(self._places[cell]))
            closest = max(self.model.matching[cell, other] for other in seen)
            return (new - 0.1 * closest, sign * math.log(guessed[cell]) if cell in guessed else 0.0, random.random())

        return max(left, key=rank)

    # The race

    def _race(self, runs: Sequence[CellRun], raced: Sequence[CellRun]) -> Pick | None:
        block, cells = self._racers(runs, raced)
        if not cells:
            return None
        done = {run.cell for run in raced if run.block == block}
        for cell in order(self._seed, block, cells):
            if cell not in done:
                return Pick(block, cell)
        raise AssertionError("a block that is whole is followed by another")

    def _racers(self, runs: Sequence[CellRun], raced: Sequence[CellRun]) -> tuple[int, list[int]]:
        """The block of the race that is on, and who is in it: by the runs before the block alone."""
        before = [run for run in runs if run.block == EXPLORING]
        left = self._budget - len(before)
        racers = self._linked(self._top(before, _n_racers(left)), before)
        for block in range(self._budget):
            done = {run.cell for run in raced if run.block == block}
            if not done.issuperset(racers):
                return block, racers
            before += [run for run in raced if run.block == block]
            left = self._budget - len(before)
            n = min(left, max(LEAST_RACERS, math.ceil(len(racers) / 2)))
            if n < LEAST_RACERS:
                return block, []
            alive = [cell for cell in racers if cell in self._ran(before)]
            worth = self._worth(before)
            racers = sorted(alive, key=lambda cell, worth=worth: -worth[cell])[:n]  # type: ignore[misc]
            if len(racers) < LEAST_RACERS:
                return block, []
        return 0, []

    def _top(self, runs: Sequence[CellRun], n: int) -> list[int]:
        """The configurations that look best, whether they ran or not; none that was refused."""
        refused = {run.cell for run in runs if run.refusal is not None} | self._refused
        worth = self._worth(runs)
        cells = [cell for cell in range(len(self._places)) if cell not in refused]
        return sorted(cells, key=lambda cell: -worth[cell])[:n]

    def _linked(self, racers: list[int], explored: Sequence[CellRun]) -> list[int]:
        """The racers, with one among them that ran before: it tells what the race has in common."""
        ran = self._ran(explored)
        if not racers or not ran or not ran.isdisjoint(racers):
            return racers
        return [*racers[:-1], next(cell for cell in self._top(explored, len(self._places)) if cell in ran)]

    # What is believed

    def _ran(self, runs: Sequence[CellRun]) -> set[int]:
        refused = {run.cell for run in runs if run.refusal is not None}
        return {run.cell for run in runs if run.refusal is None} - refused

    def _worth(self, runs: Sequence[CellRun]) -> Array:
        """The main objective as a logarithm of which more is better, where what breaks a constraint is last."""
        believed = self.model.belief(runs, self._goals.main)
        feasible = self._feasible(runs)
        worth: Array = self._goals.sign(self._goals.main) * believed.mean - 100.0 * (feasible < 0.5)
        return worth

    def _scalar(self, runs: Sequence[CellRun], weights: Mapping[str, float]) -> tuple[Array, Array]:
        """(worth, its deviation) of a weighting of the objectives, as logarithms."""
        worth = np.zeros(len(self._places))
        variance = np.zeros(len(self._places))
        for name, weight in weights.items():
            believed = self.model.belief(runs, name)
            worth += weight * self._goals.sign(name) * believed.mean
            variance += (weight * believed.deviation) ** 2
        return worth, np.sqrt(variance)

    def _feasible(self, runs: Sequence[CellRun]) -> Array:
        """Probability that every constraint holds, by configuration."""
        together = np.ones(len(self._places))
        for constraint in self._goals.constraints:
            believed = self.model.belief(runs, constraint.figure)
            if np.isnan(believed.mean).any():
                continue
            together *= constraint.probability(believed.mean, believed.deviation)
        return together


def _expected_improvement(worth: Array, deviation: Array, best: float) -> Array:
    if not math.isfinite(best):
        return deviation
    z = (worth - best) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    gained: Array = (worth - best) * factorial.normal(z) + deviation * density
    return gained


def _race_runs(budget: int) -> int:
    """Runs that are kept for the race: two blocks of two at least, but no more than half of all."""
    return max(round(budget * RACE_SHARE), min(2 * LEAST_RACERS, budget // 2)) if budget > 3 else 0


def _n_racers(budget: int) -> int:
    """How many can start so that halving them down to two fits: n + n/2 + … ≤ budget."""
    n = LEAST_RACERS
    while _cost(n + 1) <= budget:
        n += 1
    return n if budget >= LEAST_RACERS else 0


def _cost(n: int) -> int:
    total = n
    while n > LEAST_RACERS:
        n = max(LEAST_RACERS, math.ceil(n / 2))
        total += n
    return total
