"""What the explainer makes of recordings: predictions from the baseline alone, and what limits a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope import units
from stackscope.experiments.basis import Basis, summaries
from stackscope.experiments.limits import limit_of
from stackscope.toggles import changed_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stackscope.engine.allowances import Allowances
    from stackscope.records import Prediction
    from stackscope.toggles import EngineConfig


def predictions(
    recordings: Sequence[Path], cells: Mapping[int, EngineConfig], baseline: EngineConfig
) -> dict[int, Prediction]:
    """What each configuration would do, by recordings of the baseline: nothing of the cells themselves is looked at.

    The work is that of the first recording; the others add what shadows found of drafts and prefixes. Where nothing can
    be said, the prediction has no ratio and says why.
    """
    basis = Basis(recordings[0], cells.values(), name="The baseline's recording")
    for recording in recordings[1:]:
        basis.add_shadows(recording)
    return {cell: basis.foresee(changed_fields(baseline, config)) for cell, config in cells.items()}


def limits_of(recording: Path) -> str | None:
    """What the namer calls the limit of a run most of the time, with its mean share. `None`: it names nothing."""
    limit = limit_of(recording)
    if limit.name is None or limit.share is None:
        return limit.name
    return f"{limit.name} {units.percent(limit.share)}"


def refusals_of(configs: Sequence[EngineConfig], rules: Allowances) -> dict[int, str]:
    """Why some of these configurations cannot run, by their place, as far as that is known without trying.

    The engine leaves out a prefix cache that a model cannot have: that is no reason.
    """
    models = summaries({config.model for config in configs})
    drafts = summaries({config.draft_model for config in configs if config.draft_model is not None})
    found = {}
    for place, config in enumerate(configs):
        model = models.get(config.model)
        draft = None if config.draft_model is None else drafts.get(config.draft_model)
        why = None if model is None else rules.refusal(config, model, draft)
        bare = msgspec.structs.replace(config, prefix_cache=False)
        if model is not None and why is not None and rules.refusal(bare, model, draft) is not None:
            found[place] = why
    return found
