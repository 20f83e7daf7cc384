"""What a search makes of its runs: a belief of every figure of every configuration, whether it ran or not.

The logarithm of a figure is taken for a sum of what each setting does, what pairs of settings do to each other, a rest
that is a configuration's own, and what the runs of a block have in common: a Gaussian process over the axes whose
covariance counts the settings that two configurations share (Duvenaud, Nickisch and Rasmussen, *Additive Gaussian
processes*, NIPS 2011), and in which blocks differ as they like. So a machine that has slowed before the race counts
neither for what was raced nor against it. Where the explainer predicts a configuration, its prediction is the mean,
and what settings do is how far they stray from it. The scale of both is fitted to the runs by their likelihood, among
a few.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from stackscope.analysis import factorial
from stackscope.analysis.statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stackscope.experiments.state import CellRun

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

MAIN_SCALES: Final = (0.05, 0.15, 0.4)
"""What a setting does, standard deviation of the logarithm; that of a pair and of the rest are parts of it."""
PAIR_PART, REST_PART = 0.4, 0.1
NOISE_SCALES: Final = (0.01, 0.03, 0.08)
MORE_NOISE: Final = (*NOISE_SCALES, 0.2)
"""What intervals allow for besides: on a busy machine runs stray by more than a search is led by."""
DISTURBED_NOISE: Final = 0.2
"""Of a run while something else had the engine's cores: a busy core took a quarter of the speed from some, nothing from
others."""
BLOCK_SCALE: Final = 1.0
"""What the runs of a block have in common, standard deviation of the logarithm: more than a machine ever changes by, so
that only configurations that ran in both tell how two blocks differ. Runs before the race are one block."""
GUESSED_PART: Final = 0.5
"""How much less settings stray where the explainer has predicted the configurations."""
OWN_ERROR: Final = 0.1
"""What a prediction of one configuration strays by itself, standard deviation of its logarithm."""


class Belief(NamedTuple):
    """What is thought of a figure's logarithm, by configuration, as in the average run."""

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


class Model:
    """Beliefs from runs. Configurations are numbers."""

    def __init__(self, places: Array, guesses: Mapping[str, Mapping[int, float]]) -> None:
        """`places`: values of each configuration on each axis. `guesses`: predicted figures, by name."""
        self._n = len(places)
        self._guesses = guesses
        self._shared = _shared(places)

    @property
    def matching(self) -> Array:
        """Of the axes that vary, the part on which two configurations have the same value."""
        return self._shared.matching

    def belief(self, runs: Sequence[CellRun], figure: str) -> Belief:
        """What is thought of a figure's logarithm. Before it was measured, nothing: mean 0 and a wide deviation."""
        likeliest = max(self._fits(runs, figure, NOISE_SCALES), key=lambda fit: fit.likelihood, default=None)
        if likeliest is None:
            return Belief(np.zeros(self._n), np.full(self._n, MAIN_SCALES[-1]))
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
        known = [run for run in runs if run.figures.get(figure, 0.0) > 0]
        if not known:
            return
        cells = np.array([run.cell for run in known])
        values = np.log([run.figures[figure] for run in known])
        blocks = np.array([run.block for run in known])
        mean, is_guessed = self._prior(figure)
        part, own = (GUESSED_PART, OWN_ERROR) if is_guessed else (1.0, 0.0)
        for main in MAIN_SCALES:
            kernel = _kernel(self._shared, main * part, own)
            for noise in noises:
                yield _fit(kernel, cells, values, blocks, mean, np.hypot(noise, beside))

    def _prior(self, figure: str) -> tuple[Array, bool]:
        """Predicted logarithms, those that are missing at the mean of the others; and whether there are any."""
        guessed = self._guesses.get(figure, {})
        if not guessed:
            return np.zeros(self._n), False
        logs = {cell: math.log(value) for cell, value in guessed.items() if value > 0}
        usual = sum(logs.values()) / len(logs)
        return np.array([logs.get(cell, usual) for cell in range(self._n)]), True


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


def _fit(kernel: Array, cells: Array, values: Array, blocks: Array, prior: Array, noise: Array | float) -> _Fit:
    """A Gaussian process with this kernel over all configurations, given runs; `noise` of all, or of each.

    It tells of the average run: what a block does to it is the mean over all of them.
    """
    together = BLOCK_SCALE**2 * (blocks[:, None] == blocks[None, :])
    inner = kernel[np.ix_(cells, cells)] + together + noise**2 * np.eye(len(cells))
    lower = np.linalg.cholesky(inner)
    half = np.linalg.solve(lower, values - prior[cells])
    towards = np.linalg.solve(lower, kernel[cells] + together.mean(axis=1)[:, None])
    whole = kernel + together.mean()
    mean: Array = prior + towards.T @ half
    variance = np.maximum(np.diag(whole) - (towards**2).sum(axis=0), 1e-12)
    likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())
    return _Fit(likelihood, Belief(mean, np.sqrt(variance)), whole, towards)
