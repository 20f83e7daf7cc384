"""A whole step as columns of linear models, one for each part of it that is timed apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.analysis.timing.forwards import COLUMNS, N_COLUMNS, Columns, ForwardDesign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.curves import Floats
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.records import StepRecord
    from stackscope.toggles import EngineConfig

BLOCKS: Final = ("target", "draft", "sample", "host")
"""The parts: the target's forward, obtaining drafts, choosing tokens, and the rest of the loop."""

_LOOK: Final = ("ngram.sequence", "ngram.token", "model.forward", "model.sequence", "model.token")
"""What it takes beside the draft model's forwards to look for drafts: per decoding sequence and per drafted token, and
for filling the batch of each forward and choosing from its logits."""
_SAMPLE: Final = ("step", "output", "drafted")
_HOST: Final = ("step", "sequence", "chunk", "row")
"""A prompt costs by being there, piece by piece: it is looked up, kept for others, makes room. Its rows cost little."""


def _named(block: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{block}.{name}" for name in names)


def _plain(block: str, names: tuple[str, ...]) -> Columns:
    return Columns(_named(block, names), tuple(range(len(names))), (block,) * len(names))


def _draft() -> Columns:
    n = len(COLUMNS.parameters)
    owners = (*COLUMNS.parameter, *range(n, n + len(_LOOK)))
    return Columns(_named("draft", (*COLUMNS.parameters, *_LOOK)), owners, ("draft",) * len(owners))


COLUMNS_OF: Final = {
    "target": Columns(_named("target", COLUMNS.parameters), COLUMNS.parameter, COLUMNS.terms),
    "draft": _draft(),
    "sample": _plain("sample", _SAMPLE),
    "host": _plain("host", _HOST),
}


class Times(NamedTuple):
    """What a step took, in nanoseconds, by block."""

    target: int
    draft: int
    sample: int
    host: int


def times_of(step: StepRecord) -> Times:
    """Of a recorded step. What the shadows took belongs to none: no configuration needs it."""
    p = step.phases
    return Times(p.decode, p.draft, p.sample, p.admit + p.build + p.commit + p.emit + p.other)


class Design:
    """Turns shapes into columns, for one configuration."""

    def __init__(self, config: EngineConfig, pricing: Pricing, *, is_gpu: bool) -> None:
        """`pricing` has a target."""
        assert pricing.target is not None
        self.is_gpu = is_gpu
        self.target = ForwardDesign(pricing.target, config, is_gpu=is_gpu)
        self.draft = None if pricing.draft is None else ForwardDesign(pricing.draft, config, is_gpu=is_gpu)
        self._speculation = config.speculation

    def columns(self, shape: Shape, speculation: str | None = None) -> tuple[Floats, ...]:
        """One vector for each block. `speculation`: where drafts came from, when not from what is configured."""
        sequences, rows = len(shape.spans), shape.rows
        return (
            self.target.row(shape.spans, shape.passes, shape.cells),
            self._draft_columns(shape, speculation or self._speculation),
            np.array((float(shape.outputs > 0), shape.outputs, shape.drafted)),
            np.array((1.0, sequences, _chunks(shape), max(0, rows - shape.outputs))),
        )

    def _draft_columns(self, shape: Shape, speculation: str) -> Floats:
        made = np.zeros(N_COLUMNS + len(_LOOK))
        if self.draft is not None:
            for forward in shape.draft:
                made[:N_COLUMNS] += self.draft.row(forward.spans, forward.passes, shape.cells)
        if speculation == "ngram" or shape.draft:
            sequences = sum([1 for _, new in shape.spans if new <= shape.drafted + 1])
            if shape.draft:
                made[N_COLUMNS + 2 :] = len(shape.draft), sequences, shape.drafted
            else:
                made[N_COLUMNS : N_COLUMNS + 2] = sequences, shape.drafted
        return made


def _chunks(shape: Shape) -> int:
    """Pieces of prompts, which have more rows than any draft."""
    return sum([1 for _, new in shape.spans if new > shape.drafted + 1])


def by_parameter(columns: Columns, rows: Sequence[Floats] | Floats) -> Floats:
    """Columns, (n, columns), summed by the parameter that they belong to: (n, parameters)."""
    matrix = np.asarray(rows, dtype=float).reshape(-1, len(columns.terms))
    made = np.zeros((len(matrix), len(columns.parameters)))
    for column, parameter in enumerate(columns.parameter):
        made[:, parameter] += matrix[:, column]
    return made
