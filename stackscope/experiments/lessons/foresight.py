"""What is said of a lesson before it is measured: by a short look at the cells that others are held against."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stackscope.analysis.explainer import Explainer
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError
from stackscope.experiments.lessons.data import Limit
from stackscope.model.spec import load_spec
from stackscope.pipeline import time_ns
from stackscope.records import COST_MODEL_VERSION, Prediction
from stackscope.session.replay import Replay
from stackscope.toggles import changed_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.experiments.lessons.contracts import LessonCell
    from stackscope.records import ModelSummary
    from stackscope.toggles import Setting

LOAD = frozenset({"concurrency", "requests"})
"""What the traffic of two cells may differ in, for the one to be predicted from the other."""


def foresee(recording: Path, reference: LessonCell, cells: Sequence[LessonCell]) -> dict[str, Prediction]:
    """What these cells would do, by key, from a recording of the one that they are held against.

    Nothing of the cells themselves is looked at. Where nothing can be said, the prediction has no ratio and says why.
    """
    rules = Allowances(usable_cores())
    explainer = Explainer(rules=rules, variants=_summaries({cell.config.model for cell in cells}))
    at_ns = _follow(recording, explainer)
    return {cell.key: _prediction(explainer, at_ns, reference, cell) for cell in cells}


def _prediction(explainer: Explainer, at_ns: int | None, reference: LessonCell, cell: LessonCell) -> Prediction:
    changes: dict[str, tuple[Setting, Setting]] = changed_fields(reference.config, cell.config)
    before, after = reference.workload, cell.workload
    differing = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    if before.concurrency != after.concurrency:
        changes["concurrency"] = before.concurrency, after.concurrency
    reason = "The first look cannot be read." if at_ns is None else "No step has run."
    if differing - LOAD:
        reason = "Its traffic is another one."
    elif at_ns is not None:
        made = explainer.predict({name: value for name, (_, value) in changes.items()}, at_ns)
        if made is not None:
            return made
    return Prediction(at_ns=0, changes=changes, reason=reason, cost_model=COST_MODEL_VERSION)


def limit_of(recording: Path) -> Limit:
    """What the namer says of a run at its end."""
    explainer = Explainer()
    at_ns = _follow(recording, explainer)
    if at_ns is None:
        return Limit(name=None, sentence="The recording cannot be read.")
    naming = explainer.final(at_ns).naming
    return Limit(name=naming.name, share=naming.share, sentence=naming.sentence, shares=dict(naming.shares))


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
    """What each of these files consists of; nothing is predicted of one that cannot be read."""
    found = {}
    for path in paths:
        try:
            found[path] = load_spec(Path(path)).summary()
        except StackscopeError:
            continue
    return found
