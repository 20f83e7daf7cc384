"""Learns the time model from ceilings and steps as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.analysis.timing.model import TimeModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.records import Ceilings, StepRecord
    from stackscope.toggles import EngineConfig


class Fit:
    """Takes steps in their order, in bounded memory; what it knows at any time is a `TimeModel`."""

    def __init__(self, ceilings: Ceilings | None, others: Sequence[Ceilings] = ()) -> None:
        self._ceilings = ceilings
        self._others = tuple(others)
        self._config: EngineConfig | None = None
        self._pricing: Pricing | None = None

    def begin(self, config: EngineConfig | None, pricing: Pricing) -> None:
        """The configuration that the steps from here on ran under."""
        self._config, self._pricing = config, pricing

    def add(self, steps: Iterable[StepRecord]) -> None:
        """Learn from steps of the configuration in force. Aborted steps are left out."""

    def model(self) -> TimeModel | None:
        """What is known now. `None`: no configuration, no geometry, or nothing was ever timed."""
        if self._config is None or self._pricing is None or self._pricing.target is None:
            return None
        return TimeModel(self._config, self._pricing)
