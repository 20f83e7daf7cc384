"""A recorded run as the basis of predictions: the explainer sees it, and nothing of the runs that it foresees."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stackscope.analysis.explainer import Explainer
from stackscope.engine.allowances import Allowances
from stackscope.engine.openmp import usable_cores
from stackscope.errors import StackscopeError
from stackscope.model.spec import load_spec
from stackscope.records import COST_MODEL_VERSION, DraftShadow, Prediction, PrefixShadow, StepRecord
from stackscope.session.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig, Setting


class Basis:
    """What one run says of others."""

    def __init__(self, recording: Path, others: Iterable[EngineConfig], *, name: str) -> None:
        """`others` are the configurations to be foreseen. `name` is what the recording is called in a reason."""
        self._explainer = Explainer(
            rules=Allowances(usable_cores()), variants=summaries({config.model for config in others})
        )
        self._name = name
        self._at_ns = self._see(recording)
        """When its last step ended. `None`: it cannot be read."""

    def _see(self, recording: Path) -> int | None:
        at_ns = 0
        try:
            for record in Replay(recording).records():
                self._explainer.write(record)
                if isinstance(record, StepRecord):
                    at_ns = record.end_ns
        except StackscopeError:
            return None
        return at_ns

    def add_shadows(self, recording: Path) -> None:
        """Take what shadows found in another run, as if it had been found at the end of this one."""
        if self._at_ns is None:
            return
        with suppress(StackscopeError):
            for record in Replay(recording).records():
                if isinstance(record, DraftShadow | PrefixShadow):
                    self._explainer.write(msgspec.structs.replace(record, at_ns=self._at_ns))

    def foresee(self, changes: Mapping[str, tuple[Setting, Setting]], *, is_vague_told: bool = False) -> Prediction:
        """What these changes, given as values before and after, would do. `is_vague_told`: however wide the interval.

        Where nothing can be said, the prediction has no ratio and says why.
        """
        if self._at_ns is None:
            return unpredicted(changes, f"{self._name} cannot be read.")
        after = {name: value for name, (_, value) in changes.items()}
        found = self._explainer.predict(after, self._at_ns, is_vague_told=is_vague_told)
        return unpredicted(changes, "No step has run.") if found is None else found


def unpredicted(changes: Mapping[str, tuple[Setting, Setting]], reason: str) -> Prediction:
    """Of changes that nothing can be said of."""
    return Prediction(at_ns=0, changes=dict(changes), reason=reason, cost_model=COST_MODEL_VERSION)


def summaries(paths: Iterable[str]) -> dict[str, ModelSummary]:
    """What each of these files consists of; one that cannot be read is left out, and nothing is predicted of it."""
    found = {}
    for path in paths:
        try:
            found[path] = load_spec(Path(path)).summary()
        except StackscopeError:
            continue
    return found
