"""What the explainer makes of recordings: predictions from the baseline alone, and what limits a cell."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.diagnosis.follower import namings
from stackscope.analysis.explainer import Explainer
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError
from stackscope.model.spec import load_spec
from stackscope.records import COST_MODEL_VERSION, DraftShadow, Prediction, PrefixShadow, StepRecord
from stackscope.session.replay import Replay
from stackscope.toggles import EngineConfig, changed_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.records import ModelSummary

EVERY_NS: Final = 500_000_000
"""Between two looks of the namer: runs last some seconds, and a name has to stand for two."""


def predictions(
    recordings: Sequence[Path], cells: Mapping[int, EngineConfig], baseline: EngineConfig
) -> dict[int, Prediction]:
    """What each configuration would do, by recordings of the baseline: nothing of the cells themselves is looked at.

    The work is that of the first recording; the others add what shadows found of drafts and prefixes. Where nothing can
    be said, the prediction has no ratio and says why.
    """
    explainer = Explainer(
        rules=Allowances(usable_cores()), variants=_summaries({config.model for config in cells.values()})
    )
    at_ns = _follow(recordings[0], explainer)
    if at_ns is not None:
        for recording in recordings[1:]:
            _add_shadows(recording, explainer, at_ns)
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
    """What the namer calls the limit of a run most of the time, with its mean share. `None`: it names nothing."""
    shares: dict[str, list[float]] = {}
    looks: Counter[str] = Counter()
    with suppress(StackscopeError):
        for naming in namings(Replay(recording).records(), EVERY_NS):
            if naming.name is not None:
                looks[naming.name] += 1
                if naming.share is not None:
                    shares.setdefault(naming.name, []).append(naming.share)
    if not looks:
        return None
    name = looks.most_common(1)[0][0]
    known = shares.get(name, [])
    return f"{name} {units.percent(sum(known) / len(known))}" if known else name


def _follow(recording: Path, explainer: Explainer) -> int | None:
    """Have the explainer see a whole recording; when its last step ended. `None`: it cannot be read."""
    at_ns = 0
    try:
        for record in Replay(recording).records():
            explainer.write(record)
            if isinstance(record, StepRecord):
                at_ns = record.end_ns
    except StackscopeError:
        return None
    return at_ns


def _add_shadows(recording: Path, explainer: Explainer, at_ns: int) -> None:
    """Have the explainer see what shadows found in another run, as if it had been found at the end of the first."""
    with suppress(StackscopeError):
        for record in Replay(recording).records():
            if isinstance(record, DraftShadow | PrefixShadow):
                explainer.write(msgspec.structs.replace(record, at_ns=at_ns))


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
