"""What the explainer makes of recordings: predictions from the baseline alone, and what limits a cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stackscope import units
from stackscope.analysis.explainer import Explainer
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError
from stackscope.model.spec import load_spec
from stackscope.pipeline import time_ns
from stackscope.records import COST_MODEL_VERSION, Prediction
from stackscope.session.replay import Replay
from stackscope.toggles import EngineConfig, changed_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.records import ModelSummary


def predictions(recording: Path, cells: Mapping[int, EngineConfig], baseline: EngineConfig) -> dict[int, Prediction]:
    """What each configuration would do, by a recording of the baseline: nothing of the cells themselves is looked at.

    Where nothing can be said, the prediction has no ratio and says why.
    """
    explainer = Explainer(
        rules=Allowances(usable_cores()), variants=_summaries({config.model for config in cells.values()})
    )
    at_ns = _follow(recording, explainer)
    found = {}
    for cell, config in cells.items():
        made = changed_fields(baseline, config)
        after = {name: value for name, (_, value) in made.items()}
        prediction = None if at_ns is None else explainer.predict(after, at_ns)
        if prediction is None:
            reason = "The baseline's recording cannot be read." if at_ns is None else "No step has run."
            prediction = Prediction(at_ns=0, changes=made, reason=reason, cost_model=COST_MODEL_VERSION)
        found[cell] = prediction
    return found


def limits_of(recording: Path) -> str | None:
    """What limits a run, as the namer calls it, with its share of the time. `None`: it names nothing."""
    explainer = Explainer()
    at_ns = _follow(recording, explainer)
    if at_ns is None:
        return None
    naming = explainer.final(at_ns).naming
    if naming.name is None:
        return None
    return naming.name if naming.share is None else f"{naming.name} {units.percent(naming.share)}"


def _follow(recording: Path, explainer: Explainer) -> int | None:
    """Have the explainer see a whole recording; when its last step ended. `None`: it cannot be read."""
    at_ns = 0
    try:
        for record in Replay(recording).records():
            explainer.write(record)
            at_ns = max(at_ns, time_ns(record) or 0)
    except StackscopeError:
        return None
    return at_ns


def _summaries(paths: Iterable[str]) -> dict[str, ModelSummary]:
    """What each of these files consists of; one that cannot be read is left out, and nothing is predicted of it."""
    found = {}
    for path in paths:
        try:
            found[path] = load_spec(Path(path)).summary()
        except StackscopeError:
            continue
    return found


def refusals_of(configs: Sequence[EngineConfig], rules: Allowances) -> dict[int, str]:
    """Why some of these configurations cannot run, by their place, as far as that is known without trying."""
    models = _summaries({config.model for config in configs})
    drafts = _summaries({config.draft_model for config in configs if config.draft_model is not None})
    found = {}
    for place, config in enumerate(configs):
        model = models.get(config.model)
        draft = None if config.draft_model is None else drafts.get(config.draft_model)
        why = None if model is None else rules.refusal(config, model, draft)
        if why is not None:
            found[place] = why
    return found
