"""What a step would take, with how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackscope.analysis.timing.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.toggles import EngineConfig


class TimeModel:
    """Predicts the time of steps under one configuration. Immutable."""

    def __init__(self, conditions: EngineConfig, pricing: Pricing) -> None:
        self.conditions = conditions
        """The configuration that it is for."""
        self.pricing = pricing
        self.unknown: dict[str, str] = {}
        """Parameters that the data cannot separate, or that were not measured, each with the reason."""
        self.residual = 0.05
        """Standard deviation of ln(measured ÷ predicted) of single steps that is left unexplained."""
        self.is_calibrated = False
        """Ceilings of this machine stand behind it, and not only steps."""

    def terms(self, shape: Shape) -> Terms:
        """The most likely time of a step in parts, in nanoseconds."""
        return Terms(weights=1e6, compute=1e5 * max(0, shape.rows - 1), host=1e5)

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> npt.NDArray[np.float64]:
        """`n` possible total times of each shape, (n, len(shapes)) nanoseconds, all parameters drawn jointly.

        A row is one possible machine: the same one for all shapes, for calls with the same `seed`, and for models
        derived with `under`, so that errors which two predictions share leave their ratio.
        """
        at = np.array([self.terms(shape).total for shape in shapes])
        factors = np.exp(0.05 * np.random.default_rng(seed).standard_normal(n))
        return np.outer(factors, at)

    def under(self, config: EngineConfig, pricing: Pricing) -> TimeModel | str:
        """The same machine, and what was learned of it, under another configuration; or why that cannot be said."""
        return TimeModel(config, pricing)
