"""Why a prefix was not found, and what is said of prompts that were: the words behind the prefix cache's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stackscope import units
from stackscope.analysis.kv import key_bytes, value_bytes

if TYPE_CHECKING:
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig


class PromptFigures(NamedTuple):
    """What became of prompt tokens. `None` is undefined, and shown as a dash."""

    hit_rate: float | None
    """Cached ÷ (cached + processed)."""
    tokens_per_s: float | None
    """Processed tokens ÷ the time that they took; cached ones took none."""


def prompt_figures(cached: int, processed: int, processing_ns: int) -> PromptFigures:
    """Figures of prompts of which some tokens were cached and the others processed in some time."""
    total = cached + processed
    return PromptFigures(
        hit_rate=cached / total if total > 0 else None,
        tokens_per_s=processed * 1e9 / processing_ns if processed > 0 and processing_ns > 0 else None,
    )


def smallest_window(model: ModelSummary) -> int | None:
    """Tokens of the narrowest sliding window. `None`: every layer attends to everything."""
    return min([layer.window for layer in model.layers if layer.window is not None], default=None)


def is_window_evicted(first_position: int, window: int, matched: int) -> bool:
    """Whether window layers have lost what the token after `matched` tokens looks back to.

    `first_position` is the oldest that they still hold. llama.cpp computes such a prompt from its beginning.
    """
    return first_position > max(0, matched - window)


def miss_reason(*, first_position: int, window: int | None, matched: int, prompt: int) -> str | None:
    """Why a prompt whose first `matched` tokens equal cached ones was not reused from there. `None`: it was.

    `window` is that of the narrowest layers. `None`: there is none.
    """
    if window is not None and is_window_evicted(first_position, window, matched):
        return (
            f"window evicted (first position {units.count(first_position)}, window {units.count(window)}): the tokens "
            "are the same, but window layers no longer hold what they look back to"
        )
    return f"prompt changed at token {units.count(matched)}" if matched < prompt else None


def full_window_bytes(model: ModelSummary, config: EngineConfig, cells: int) -> int | None:
    """KV memory that `swa_full` adds: window layers then hold all cells. `None`: types that the model cannot have."""
    added = 0
    try:
        for layer in model.layers:
            if layer.window is None or layer.kv_heads == 0 or layer.shares_kv:
                continue
            per_token = key_bytes(layer, config.kv_type_k) + value_bytes(layer, config.kv_type_v)
            added += per_token * max(0, cells - layer.window)
    except ValueError:
        return None
    return added


def window_miss(model: ModelSummary | None, config: EngineConfig | None, cells: int | None = None) -> str | None:
    """What sliding-window layers cost the prefix cache under a configuration, and what would help.

    `None`: there are none, they are kept whole, or it is not known.
    """
    if model is None or config is None or config.swa_full:
        return None
    window = smallest_window(model)
    if window is None:
        return None
    size = cells if cells is not None else config.context_tokens
    added = None if size is None else full_window_bytes(model, config, size)
    cost = "" if added is None else f", for {units.data_size(added)} of memory"
    return f"window evicted: layers keep {units.count(window)} tokens only; swa_full would keep all of them{cost}"
