"""What is said of a lesson before it is measured: by a short look at the cells that others are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.experiments.basis import Basis, unpredicted
from stackscope.toggles import changed_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.experiments.lessons.contracts import LessonCell
    from stackscope.records import Prediction
    from stackscope.toggles import Setting

LOAD: Final = frozenset({"concurrency", "requests"})
"""What the traffic of two cells may differ in, for the one to be predicted from the other."""


def foresee(recording: Path, reference: LessonCell, cells: Sequence[LessonCell]) -> dict[str, Prediction]:
    """What these cells would do, by key, from a recording of the one that they are held against.

    Nothing of the cells themselves is looked at. Where nothing can be said, the prediction has no ratio and says why.
    """
    basis = Basis(recording, [cell.config for cell in cells], name="The first look")
    return {cell.key: _prediction(basis, reference, cell) for cell in cells}


def _prediction(basis: Basis, reference: LessonCell, cell: LessonCell) -> Prediction:
    changes: dict[str, tuple[Setting, Setting]] = changed_fields(reference.config, cell.config)
    before, after = reference.workload, cell.workload
    differing = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    if before.concurrency != after.concurrency:
        changes["concurrency"] = before.concurrency, after.concurrency
    if differing - LOAD:
        return unpredicted(changes, "Its traffic is another one.")
    return basis.foresee(changes, is_vague_told=True)  # It is measured right afterwards: a wide one can be wrong too.
