"""What is learned of one configuration, under another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.model import TimeModel
    from stackscope.toggles import EngineConfig


def derive(model: TimeModel, config: EngineConfig, pricing: Pricing) -> TimeModel | str:
    del pricing
    return model.with_live(config)
