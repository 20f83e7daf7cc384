"""One step as the time model sees it, recorded or imagined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.records import DraftForward, Ubatch

if TYPE_CHECKING:
    from stackscope.records import StepRecord


class Shape(msgspec.Struct, frozen=True):
    """What one step does, without how long it takes."""

    spans: tuple[tuple[int, int], ...]
    """(cached, new) tokens per sequence in the target's forward; empty when there was none."""
    outputs: int
    """Rows for which logits are computed."""
    passes: tuple[Ubatch, ...]
    """Passes over the weights: at least one when there are spans."""
    draft: tuple[DraftForward, ...] = ()
    """Forwards of the draft model."""
    cells: int = 0
    """Occupied KV cells at the end of the step, idle prefixes included."""
    drafted: int = 0
    """Tokens that verification looks at."""

    @classmethod
    def of(cls, step: StepRecord) -> Shape:
        """The shape of a recorded step."""
        spans = tuple([(slot.cached, slot.new) for slot in step.work])
        drafted = sum([slot.drafted for slot in step.work])
        return cls(spans, step.outputs, step.passes, step.draft, step.kv_cells, drafted)

    @property
    def rows(self) -> int:
        return sum([new for _, new in self.spans])


def one_row(cached: int) -> Shape:
    """A sequence that decodes alone."""
    return Shape(((cached, 1),), 1, (Ubatch(1, 1),), cells=cached + 1)
