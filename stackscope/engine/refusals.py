"""What a configuration may not ask of a model, as a sentence. Pure: a screen can tell before the engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope import units
from stackscope.engine import sizing

if TYPE_CHECKING:
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig


def refusal(
    config: EngineConfig, spec: ModelSummary, *, target_cannot: str | None, draft_cannot: str | None
) -> str | None:
    """Why this configuration cannot run on these models. `None`: it can.

    `target_cannot` and `draft_cannot` say why a model's memory cannot forget single positions; `None`: it can.
    """
    if config.speculation == "mtp":
        return (
            "Multi-token prediction needs a model with MTP heads and a context of its own, which this engine has not."
        )
    if config.speculation == "draft" and config.draft_model is None:
        return "Speculation by draft model needs a draft model: give one with --draft."
    if config.speculation != "off" and target_cannot is not None:
        return f"Speculation must take back rejected tokens, but {target_cannot}."
    if config.speculation == "draft" and draft_cannot is not None:
        return f"The draft model must take back rejected tokens, but {draft_cannot}."
    if config.prefix_cache and target_cannot is not None:
        return f"The prefix cache reuses parts of a sequence, but {target_cannot}."
    return window_refusal(config, spec)


def window_refusal(config: EngineConfig, spec: ModelSummary) -> str | None:
    """Sliding-window layers without full-size caches drop the cells that a prefix would need."""
    windows = [layer.window for layer in spec.layers if layer.window is not None]
    if not (config.prefix_cache and windows and not config.swa_full):
        return None
    cell = sizing.kv_bytes_per_cell(config, spec)
    return (
        f"The prefix cache cannot reuse prefixes of {len(windows)} sliding-window layers that keep only the last "
        f"{max(windows)} tokens; --swa-full keeps them, at {units.data_size(cell)} per cell over all layers."
    )


def running_state(spec: ModelSummary) -> str | None:
    """Why this model's memory cannot forget single positions, by its geometry. `None`: nothing speaks against it."""
    if not any(layer.recurrent_state > 0 for layer in spec.layers):
        return None
    kind = "hybrid (partly recurrent)" if any(layer.kv_heads > 0 for layer in spec.layers) else "recurrent"
    return f"its memory is {kind}: one running state per sequence, from which single positions cannot be removed"
