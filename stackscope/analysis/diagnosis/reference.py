"""The time model that measured steps are held against, and how much longer than it says they took."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackscope.analysis.diagnosis.gather import Bucket
    from stackscope.analysis.diagnosis.predicted import Predictor, Sample
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.terms import Terms
    from stackscope.toggles import EngineConfig


class Pace(NamedTuple):
    """How long the forwards of half a second took."""

    at_ns: int
    """Its middle."""
    ratio: float
    """Measured ÷ predicted."""


class Reference:
    """The time model that stands for the undisturbed machine."""

    def __init__(self) -> None:
        self.model: Predictor | None = None
        self._is_calm = False
        self._is_early = False
        """What stands has learned from the first steps alone."""
        self._known: dict[int, Terms] = {}

    def update(
        self,
        newest: Predictor | None,
        config: EngineConfig | None,
        pricing: Pricing,
        *,
        is_calm: bool,
        is_early: bool = False,
    ) -> bool:
        """Take the newest model if the machine is calm now, or nothing better is there; whether what stands is calm.

        `is_early`: it has learned from the first steps alone. It then counts only if these were not starved, and the
        first one that knows more replaces it.
        """
        standing = self.model
        if newest is None:
            if standing is not None and standing.conditions != config:
                self._take(None, is_calm=False)
        elif is_early and newest.is_starved and not is_calm:
            if standing is not None and standing.conditions != newest.conditions:
                self._take(None, is_calm=False)
        elif standing is None or is_calm or self._is_early or not self._is_calm:
            self._take(newest, is_calm=is_calm or newest.is_undisturbed)
            self._is_early = is_early
        elif standing.conditions != newest.conditions:
            derived = standing.under(newest.conditions, pricing)
            self._take(newest if isinstance(derived, str) else derived, is_calm=not isinstance(derived, str))
        return self._is_calm

    def total(self, newest: Predictor | None) -> Callable[[Sample], float] | None:
        """What a sampled step takes by the model that stands, else by the newest. `None`: there is no model."""
        if self.model is not None:
            return lambda sample: self.terms(sample).total
        return None if newest is None else lambda sample: newest.terms(sample.shape).total

    def _take(self, model: Predictor | None, *, is_calm: bool) -> None:
        if model is not self.model:
            self._known.clear()
        self.model, self._is_calm = model, is_calm and model is not None and "starvation" not in model.unknown

    def terms(self, sample: Sample) -> Terms:
        """Of one sampled step."""
        assert self.model is not None
        known = self._known.get(sample.n)
        if known is None:
            if len(self._known) > 2_000:
                self._known.clear()
            known = self._known[sample.n] = self.model.terms(sample.shape)
        return known


def paces(reference: Reference, buckets: Sequence[Bucket]) -> list[Pace]:
    """Of each half second, by the sampled steps that have a forward; none without a model."""
    found = []
    for bucket in buckets if reference.model is not None else ():
        ratios = [
            sample.forward_ns / predicted
            for sample in (*bucket.plain, *bucket.mixed)
            if (predicted := reference.terms(sample).forward) > 0.0
        ]
        if ratios:
            found.append(Pace(bucket.middle_ns, median(ratios)))
    return found
