"""What is said of a lesson before it is measured: by a short look at the cells that others are held against."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.analysis.diagnosis.follower import namings
from stackscope.analysis.explainer import Explainer
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError
from stackscope.experiments.lessons.data import Limit
from stackscope.model.spec import load_spec
from stackscope.records import COST_MODEL_VERSION, Prediction, StepRecord
from stackscope.session.replay import Replay
from stackscope.toggles import changed_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.analysis.diagnosis.naming import Naming
    from stackscope.experiments.lessons.contracts import LessonCell
    from stackscope.records import ModelSummary
    from stackscope.toggles import Setting

EVERY_NS: Final = 500_000_000
"""Between two looks of the namer: runs last some seconds, and a name has to stand for two."""

LOAD: Final = frozenset({"concurrency", "requests"})
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
    """What the namer calls the limit of a run most of the time, with the mean shares of those looks."""
    seen: list[Naming] = []
    try:
        seen += namings(Replay(recording).records(), EVERY_NS)
    except StackscopeError:
        return Limit(name=None, sentence="The recording cannot be read.")
    names = Counter(naming.name for naming in seen if naming.name is not None)
    if not names:
        sentence = seen[-1].sentence if seen else "No step has run."
        return Limit(name=None, sentence=sentence, shares=dict(seen[-1].shares) if seen else {})
    name = names.most_common(1)[0][0]
    looks = [naming for naming in seen if naming.name == name]
    known = [naming.share for naming in looks if naming.share is not None]
    return Limit(
        name=name,
        share=sum(known) / len(known) if known else None,
        sentence=looks[-1].sentence,
        shares=_mean_shares(looks),
    )


def _mean_shares(looks: Sequence[Naming]) -> dict[str, float]:
    """Of the wall time by cause, on average, the largest first; a cause that a look does not list had no time in it."""
    total: dict[str, float] = {}
    for naming in looks:
        for cause, share in naming.shares:
            total[cause] = total.get(cause, 0.0) + share / len(looks)
    return dict(sorted(total.items(), key=lambda item: -item[1]))


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


def _summaries(paths: Iterable[str]) -> dict[str, ModelSummary]:
    """What each of these files consists of; nothing is predicted of one that cannot be read."""
    found = {}
    for path in paths:
        try:
            found[path] = load_spec(Path(path)).summary()
        except StackscopeError:
            continue
    return found
