"""Searches many configurations with few runs: a model says where to look, and those that look best are raced.

*The model.* The logarithm of a figure is taken for a sum of what each setting does, what pairs of settings do to each
other, and a rest that is a configuration's own: a Gaussian process over the axes whose covariance counts the settings
that two configurations share (Duvenaud, Nickisch and Rasmussen, *Additive Gaussian processes*, NIPS 2011). Where the
explainer predicts a configuration, its prediction is the mean, and what settings do is how far they stray from it. The
scale of both is fitted to the runs by their likelihood, among a few.

*Where to look.* The first runs spread over all values. Each further one goes where the expected improvement over the
best configuration is
largest (Jones, Schonlau and Welch, *Journal of Global Optimization* 13, 1998), times the
probability that the constraints hold; every third one for a random weighting of the objectives, so that the Pareto set
is found and not its end only (Knowles, ParEGO, *IEEE Transactions on Evolutionary Computation* 10, 2006).

*The race.* The last half of the runs goes to the configurations that then look best, in blocks, as in an ablation:
after each, the worse half leaves (successive halving: Jamieson and Talwalkar, AISTATS 2016).

What to run next follows from the plan and the runs so far alone, so that a killed search goes on as it would have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from stackscope.analysis import factorial
from stackscope.analysis.statistics import Interval
from stackscope.experiments.blocks import order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from stackscope.experiments.search_goals import Goals
    from stackscope.experiments.state import CellRun

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

RACE_SHARE: Final = 0.45
"""Of the runs, those that are kept for the race."""
LEAST_RACERS: Final = 2
EXPLORING: Final = -1
"""Block of the runs before the race: they are no blocks."""

MAIN_SCALES: Final = (0.05, 0.15, 0.4)
"""What a setting does, standard deviation of the logarithm; that of a pair and of the rest are parts of it."""
PAIR_PART, REST_PART = 0.4, 0.1
NOISE_SCALES: Final = (0.01, 0.03, 0.08)
MORE_NOISE: Final = (*NOISE_SCALES, 0.2)
"""What intervals allow for besides: on a busy machine runs stray by more than a search is led by."""
DISTURBED_NOISE: Final = 0.2
"""Of a run while something else had the engine's cores: a busy core took a quarter of the speed from some, nothing from
others."""
GUESSED_PART: Final = 0.5
"""How much less settings stray where the explainer has predicted the configurations."""
OWN_ERROR: Final = 0.1
"""What a prediction of one configuration strays by itself, standard deviation of its logarithm."""

EVERY: Final = 3
"""Of the exploring runs, one in so many is for a random weighting of the objectives."""


class Pick(NamedTuple):
    """What to run next."""

    block: int
    """`EXPLORING`, or the number of the race's block."""
    cell: int


class Belief(NamedTuple):
    """What is thought of a figure's logarithm, by configuration."""

    mean: Array
    deviation: Array


class _Fit(NamedTuple):
    """A belief under one set of scales, and what tells how the errors of two configurations go together."""

    likelihood: float
    """Its logarithm."""
    belief: Belief
    kernel: Array
    towards: Array

    def between(self, cell: int, over: int) -> tuple[float, float]:
        """(mean, variance) of a configuration's logarithm less another's."""
        kernel, towards = self.kernel, self.towards[:, cell] - self.towards[:, over]
        variance = float(kernel[cell, cell] + kernel[over, over] - 2 * kernel[cell, over] - towards @ towards)
        return float(self.belief.mean[cell] - self.belief.mean[over]), max(variance, 1e-12)


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
        self._shared = _shared(self._places)
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

    def best(self, runs: Sequence[CellRun]) -> int | None:
        """The configuration that is best by what is known, among those that ran and keep the constraints."""
        ran = self._ran(runs)
        if not ran:
            return None
        return max(ran, key=lambda cell: self._worth(runs)[cell])

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
            closest = max(self._shared.matching[cell, other] for other in seen)
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
        racers = self._top(before, _n_racers(left))
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

    # What is believed

    def _ran(self, runs: Sequence[CellRun]) -> set[int]:
        refused = {run.cell for run in runs if run.refusal is not None}
        return {run.cell for run in runs if run.refusal is None} - refused

    def _worth(self, runs: Sequence[CellRun]) -> Array:
        """The main objective as a logarithm of which more is better, where what breaks a constraint is last."""
        believed = self.belief(runs, self._goals.main)
        feasible = self._feasible(runs)
        worth: Array = self._goals.sign(self._goals.main) * believed.mean - 100.0 * (feasible < 0.5)
        return worth

    def _scalar(self, runs: Sequence[CellRun], weights: Mapping[str, float]) -> tuple[Array, Array]:
        """(worth, its deviation) of a weighting of the objectives, as logarithms."""
        worth = np.zeros(len(self._places))
        variance = np.zeros(len(self._places))
        for name, weight in weights.items():
            believed = self.belief(runs, name)
            worth += weight * self._goals.sign(name) * believed.mean
            variance += (weight * believed.deviation) ** 2
        return worth, np.sqrt(variance)

    def _feasible(self, runs: Sequence[CellRun]) -> Array:
        """Probability that every constraint holds, by configuration."""
        together = np.ones(len(self._places))
        for constraint in self._goals.constraints:
            believed = self.belief(runs, constraint.figure)
            if np.isnan(believed.mean).any():
                continue
            together *= constraint.probability(believed.mean, believed.deviation)
        return together

    def belief(self, runs: Sequence[CellRun], figure: str) -> Belief:
        """What is thought of a figure's logarithm. Before it was measured, nothing: mean 0 and a wide deviation."""
        likeliest = max(self._fits(runs, figure, NOISE_SCALES), key=lambda fit: fit.likelihood, default=None)
        if likeliest is None:
            n = len(self._places)
            return Belief(np.zeros(n), np.full(n, MAIN_SCALES[-1]))
        return likeliest.belief

    def ratio(self, runs: Sequence[CellRun], figure: str, cell: int, over: int) -> Interval | None:
        """A configuration's figure ÷ another's by all runs together, with its interval. `None`: no run knows it.

        Of few runs the likeliest scales are often those that take noise for effects, so the interval allows for all
        scales, each by its likelihood.
        """
        beside = [DISTURBED_NOISE if run.is_disturbed else 0.0 for run in runs if run.figures.get(figure, 0.0) > 0]
        fits = [
            (fit.likelihood, *fit.between(cell, over)) for fit in self._fits(runs, figure, MORE_NOISE, np.array(beside))
        ]
        if not fits:
            return None
        likelihoods, means, variances = np.array(fits).T
        weights = np.exp(likelihoods - likelihoods.max())
        weights /= weights.sum()
        mean = float(weights @ means)
        error = math.sqrt(float(weights @ (variances + (means - mean) ** 2)))
        reach = factorial.quantile(max(len(runs) - 1, 1), (1 + factorial.CONFIDENCE) / 2) * error
        return Interval(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))

    def _fits(
        self, runs: Sequence[CellRun], figure: str, noises: Sequence[float], beside: Array | float = 0.0
    ) -> Iterator[_Fit]:
        """The belief under each set of scales; none before the figure was measured. `beside`: further noise of each run
        that knows it."""
        known = [(run.cell, run.figures[figure]) for run in runs if run.figures.get(figure, 0.0) > 0]
        if not known:
            return
        cells = np.array([cell for cell, _ in known])
        values = np.log([value for _, value in known])
        mean, is_guessed = self._prior(figure)
        part, own = (GUESSED_PART, OWN_ERROR) if is_guessed else (1.0, 0.0)
        for main in MAIN_SCALES:
            kernel = _kernel(self._shared, main * part, own)
            for noise in noises:
                yield _fit(kernel, cells, values, mean, np.hypot(noise, beside))

    def _prior(self, figure: str) -> tuple[Array, bool]:
        """Predicted logarithms, those that are missing at the mean of the others; and whether there are any."""
        guessed = self._guesses.get(figure, {})
        if not guessed:
            return np.zeros(len(self._places)), False
        logs = {cell: math.log(value) for cell, value in guessed.items() if value > 0}
        usual = sum(logs.values()) / len(logs)
        return np.array([logs.get(cell, usual) for cell in range(len(self._places))]), True


class _Shared(NamedTuple):
    """How much configurations have in common, each with each."""

    matching: Array
    """Axes on which they have the same value, as a part of all that vary."""
    main: Array
    pairs: Array
    same: Array


def _shared(places: Array) -> _Shared:
    varying = [axis for axis in range(places.shape[1]) if len(set(places[:, axis].tolist())) > 1]
    equal = np.array([places[:, axis][:, None] == places[:, axis][None, :] for axis in varying], dtype=float)
    main = equal.sum(axis=0)
    pairs = (main * main - main) / 2  # of the equal axes, taken two at a time
    return _Shared(main / len(varying), main, pairs, (main == len(varying)).astype(float))


def _kernel(shared: _Shared, scale: float, own: float) -> Array:
    """Covariance of configurations. `own` is what they stray by besides, each by itself."""
    kernel = scale**2 * (shared.main + PAIR_PART**2 * shared.pairs + REST_PART**2 * shared.same)
    # A level of its own, which nothing is known of beforehand.
    found: Array = kernel + 4.0 + own**2 * shared.same
    return found


def _fit(kernel: Array, cells: Array, values: Array, prior: Array, noise: Array | float) -> _Fit:
    """A Gaussian process with this kernel over all configurations, given runs; `noise` of all, or of each."""
    inner = kernel[np.ix_(cells, cells)] + noise**2 * np.eye(len(cells))
    lower = np.linalg.cholesky(inner)
    half = np.linalg.solve(lower, values - prior[cells])
    towards = np.linalg.solve(lower, kernel[cells])
    mean: Array = prior + towards.T @ half
    variance = np.maximum(np.diag(kernel) - (towards**2).sum(axis=0), 1e-12)
    likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())
    return _Fit(likelihood, Belief(mean, np.sqrt(variance)), kernel, towards)


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
