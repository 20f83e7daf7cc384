"""Least squares with non-negative parameters, a prior, and no regard for outliers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.analysis.timing.products import squared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stackscope.analysis.timing.curves import Floats

ROUNDS: Final = 10
"""Reweightings. The first few are gentle, so that a bad start does not throw good steps out."""
GENTLE_ROUNDS: Final = 4

HUBER: Final = 1.345
BISQUARE: Final = 4.685
"""Tuning constants of the two weight functions, in standard deviations, for 95 % efficiency with normal errors (Huber
1964; Beaton and Tukey 1974)."""

LEAST_SCALE: Final = 0.004
"""Residuals are not believed to be smaller than this, so that a perfect fit does not make its own outliers."""

USUAL_SCALE: Final = 0.05
"""What single steps of a machine that does nothing else stray by (ln, standard deviation)."""
FEW: Final = 8
"""So many steps say as much of their spread as is known beforehand."""
ALIKE: Final = 3
"""So many steps that did alike work are no accident: what most of them say is not."""

MAD: Final = 1.4826
"""Median absolute deviation to standard deviation, of normal errors."""

KINSHIP: Final = 2.0
"""Variance of a mean of steps ÷ that of as many independent ones: neighbours in time err together."""

_ZERO: Final = 1e-9
_NUDGE: Final = 1e-10
_HELD: Final = 1e-4
"""Standard deviation of a parameter that stays as it is."""


class Prior(NamedTuple):
    """What is believed of the parameters beforehand."""

    mean: Floats
    sd: Floats
    likeness: Floats
    """(n, parameters): linear combinations that are about zero, in units of their standard deviation."""
    level_sd: float
    """Standard deviation of the logarithm of a factor common to all means, which the data is asked for first."""
    slower: float = 0.12
    """How much steps are slower than a calibration (ln, standard deviation), before any was seen."""
    colder: tuple[int, float] | None = None
    """(parameter, ns): the one that a forward among others has more of than one of many in a row, and by how much
    (standard deviation): its weights left the processor's nearer caches. `None`: none."""

    def scaled(self, factor: float) -> Prior:
        """With every time multiplied by a factor."""
        return self._replace(mean=self.mean * factor, sd=self.sd * factor, likeness=self.likeness / factor)

    def warmth(self, columns: Floats) -> Floats:
        """(n,) how often each row has what is `colder`."""
        return np.zeros(len(columns)) if self.colder is None else columns[:, self.colder[0]]


class Data(NamedTuple):
    """Times and what was done in them."""

    columns: Floats
    """(n, parameters)."""
    times: Floats
    """(n,) ns, positive."""
    sd: Floats
    """(n,) known standard deviation of their logarithms; 0 where only the residuals tell."""
    kinds: NDArray[np.intp] | None = None
    """(n,) which of them did alike work, counted from 0. `None`: nothing is known of that."""


class Posterior(NamedTuple):
    """What is believed afterwards."""

    mean: Floats
    root: Floats
    """(parameters, parameters + 2): its product with standard normal numbers is a draw's deviation from the mean."""
    scale: float | None
    """Standard deviation of ln(measured ÷ predicted), outliers left out. `None`: there were no steps."""
    level: float
    """Steps ÷ what prior and calibration said: the common factor."""
    residuals: Floats
    """(n,) ln(measured ÷ predicted) of the steps, in their order."""

    @property
    def sd(self) -> Floats:
        """Standard deviation of each parameter."""
        sd: Floats = np.sqrt(np.sum(self.root**2, axis=1))
        return sd


NO_DATA: Final = Data(np.zeros((0, 0)), np.zeros(0), np.zeros(0))


def solve(prior: Prior, calibration: Data, steps: Data) -> Posterior:
    """The parameters that explain calibration and steps best, given what is believed.

    The relative errors are minimised. What else goes on beside steps makes all of them slower than a calibration by a
    common factor, which is a parameter of its own, and what its cold caches add to each is another: the calibration
    says how the curve goes where no steps were, and the steps say how high it lies.
    """
    start, factor = np.append(prior.mean, (1.0, 0.0)), 1.0
    if len(calibration.times):
        start = _iterate(prior, calibration, NO_DATA, start)[0]
    if len(steps.times):
        factor = _level(steps, start[:-2], prior.slower if len(calibration.times) else prior.level_sd)
        prior = prior.scaled(factor)
        start = np.append(start[:-2] * factor, (1.0 + np.log(factor), 0.0))
    theta, weights, scale = _iterate(prior, calibration, steps, start)
    root = _root(prior, calibration, steps, theta, weights)
    found = theta[:-2]
    residuals = np.log(steps.times / _predicted(steps.columns, found)) if len(steps.times) else np.zeros(0)
    # Without a calibration nothing holds the level beside the parameters, which have it in them.
    level = float(np.exp(theta[-2] - 1.0)) if len(calibration.times) else factor
    return Posterior(found, root, scale if len(steps.times) else None, level, residuals)


def scale_of(residuals: Floats) -> float:
    """Standard deviation of residuals without their outliers, as far as there are enough of them to tell."""
    spread = MAD * _median(np.abs(residuals - _median(residuals)))
    n = len(residuals)
    return max(LEAST_SCALE, float(np.sqrt((FEW * USUAL_SCALE**2 + n * spread**2) / (FEW + n))))


def _median(values: Floats) -> float:
    """`np.median` of some numbers, none of them NaN, in a third of its time: a fit asks for hundreds."""
    in_order = np.sort(values)
    n = len(in_order)
    return 0.5 * (float(in_order[(n - 1) // 2]) + float(in_order[n // 2]))


def among_alike(residuals: Floats, kinds: NDArray[np.intp] | None) -> Floats:
    """How far each step is from those that did alike work, where there are enough of them; else from the prediction.

    An outlier is a step that took longer than others do for the same. Where all of a kind are off it is the prediction
    that is wrong, and they are what has to change it, however few kinds agree with them.
    """
    if kinds is None:
        return residuals
    in_order = residuals[np.lexsort((residuals, kinds))]
    counts = np.bincount(kinds)
    ends = np.cumsum(counts)
    first = np.minimum(ends - counts, len(residuals) - 1)  # Of kinds without steps too, which nobody asks for.
    below, above = first + np.maximum(counts - 1, 0) // 2, first + counts // 2
    medians = 0.5 * (in_order[below] + in_order[np.minimum(above, len(residuals) - 1)])
    made: Floats = residuals - np.where(counts >= ALIKE, medians, 0.0)[kinds]
    return made


def _level(steps: Data, theta: Floats, sd: float) -> float:
    """The factor between steps and a prediction: the median, drawn towards 1 while there are few."""
    logs = np.log(steps.times / _predicted(steps.columns, theta))
    noise = max(USUAL_SCALE, scale_of(logs))
    information = len(logs) / noise**2
    return float(np.exp(_median(logs) * information / (information + 1.0 / sd**2)))


def _predicted(columns: Floats, theta: Floats) -> Floats:
    predicted: Floats = np.maximum(columns @ theta, 1.0)
    return predicted


def _iterate(prior: Prior, calibration: Data, steps: Data, theta: Floats) -> tuple[Floats, Floats, float]:
    """Reweighted least squares from a start; the parameters, the steps' weights, and the scale of their residuals.

    The last but one parameter is 1 + ln(steps ÷ calibration), the last one what steps have more of `Prior.colder`.
    """
    unit = _unit(prior, steps)
    weights, scale = np.ones(len(steps.times)), LEAST_SCALE
    for nth in range(ROUNDS):
        is_gentle = nth < GENTLE_ROUNDS
        if len(steps.times):
            residuals = among_alike(np.log(steps.times / _predicted(steps.columns, theta[:-2])), steps.kinds)
            scale = scale_of(residuals)
            weights = _weights(residuals / scale, is_gentle=is_gentle)
        matrix, target = _system(prior, calibration, steps, theta, weights, scale)
        found = _non_negative(matrix, target, unit)
        change = float(np.max(np.abs(found - theta) / (unit + _ZERO)))
        theta = found
        if change < 1e-3 and not (is_gentle and len(steps.times)):
            break
    return theta, weights / scale, scale


def _unit(prior: Prior, steps: Data) -> Floats:
    """What the parameters are counted in. Without steps there is nothing that the level could be told from."""
    cold = _HELD if prior.colder is None or not len(steps.times) else prior.colder[1]
    return np.append(prior.sd, (prior.slower if len(steps.times) else _HELD, cold))


def _weights(deviations: Floats, *, is_gentle: bool) -> Floats:
    """Square roots of the weights of residuals given in standard deviations."""
    size = np.abs(deviations)
    if is_gentle:
        return np.sqrt(np.minimum(1.0, HUBER / np.maximum(size, HUBER)))
    firm: Floats = np.clip(1.0 - (size / BISQUARE) ** 2, 0.0, None)
    return firm


def _system(
    prior: Prior, calibration: Data, steps: Data, theta: Floats, weights: Floats, scale: float
) -> tuple[Floats, Floats]:
    """Normal matrix and right-hand side of the linear problem whose solution is the next guess, in units of `_unit`.

    ln(t) is linear in the parameters near the last guess p: ln(t/p) ≈ (t − p)/p, so that a time of measured logarithm
    counts as p·(1 + ln(t/p)). The prior keeps the matrix well away from being singular.
    """
    unit = _unit(prior, steps)
    matrix = np.eye(len(unit))
    matrix[:-2, :-2] += squared(prior.likeness * prior.sd)
    target = np.append(prior.mean, (1.0, 0.0)) / unit
    if len(calibration.times):
        warm = prior.warmth(calibration.columns)
        by = np.maximum(calibration.columns @ theta[:-2] - warm * theta[-1], 1.0)
        logs = np.log(calibration.times / by)
        firm = _weights((logs - np.median(logs)) / (calibration.sd + 0.03), is_gentle=True) / calibration.sd
        ends = np.stack((-np.ones(len(by)), -warm / by), axis=1)
        rows = np.concatenate((calibration.columns / by[:, None], ends), axis=1)
        rows *= unit * firm[:, None]
        matrix += squared(rows)
        target = target + rows.T @ (logs * firm)
    if len(steps.times):
        by = _predicted(steps.columns, theta[:-2])
        firm = weights / (scale * np.sqrt(KINSHIP))
        rows = steps.columns * prior.sd * (firm / by)[:, None]
        matrix[:-2, :-2] += squared(rows)
        target[:-2] += rows.T @ ((1.0 + np.log(steps.times / by)) * firm)
    return matrix, target


def _factor(matrix: Floats) -> tuple[Floats, Floats]:
    """(lower, scale): a triangular factor of the matrix with its rows and columns multiplied by a scale.

    The scale makes all diagonal elements 1, and the little that is added to them matters only where data of absurd size
    leaves nothing of the prior in double precision.
    """
    scale: Floats = 1.0 / np.sqrt(np.diag(matrix))
    scaled = matrix * scale * scale[:, None]
    lower: Floats = np.linalg.cholesky(scaled + _NUDGE * np.eye(len(scaled))).astype(np.float64)
    return lower, scale


def _non_negative(matrix: Floats, target: Floats, unit: Floats) -> Floats:
    """The non-negative solution, by way of the triangular factor: as many rows as parameters, however many steps."""
    from scipy import optimize

    lower, scale = _factor(matrix)
    right = np.linalg.solve(lower, target * scale)
    try:
        found, _ = optimize.nnls(lower.T, right, maxiter=20 * len(unit))
    except RuntimeError:  # It went round in a circle: the unbounded solution, cut off at zero, is close enough.
        found = np.clip(np.linalg.solve(lower.T, right), 0.0, None)
    theta: Floats = found * scale * unit
    return theta


def _root(prior: Prior, calibration: Data, steps: Data, theta: Floats, weights: Floats) -> Floats:
    """A square root of the covariance of those parameters that are not held at zero; the last two are columns only."""
    unit = _unit(prior, steps)
    n = len(theta)
    free = np.flatnonzero(theta > _ZERO * unit)
    root = np.zeros((n, n))
    matrix, _ = _system(prior, calibration, steps, theta, weights, 1.0)
    lower, scale = _factor(matrix[np.ix_(free, free)])
    root[np.ix_(free, free)] = np.linalg.inv(lower).T * (scale * unit[free])[:, None]
    if len(steps.times) == 0:
        root[:, -2] += prior.slower * theta
        if prior.colder is not None:
            root[prior.colder[0], -1] += prior.colder[1]
    made: Floats = root[:-2]
    return made
