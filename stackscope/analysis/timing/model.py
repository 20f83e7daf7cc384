"""What a step would take, with how sure that is."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from stackscope.analysis.timing.design import BLOCKS, COLUMNS_OF, Design
from stackscope.analysis.timing.drawing import latent
from stackscope.analysis.timing.products import multiplied
from stackscope.analysis.timing.shapes import one_row
from stackscope.analysis.timing.terms import TERMS, Terms
from stackscope.records import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.curves import Floats
    from stackscope.analysis.timing.drawing import Belief
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.records import Ceilings
    from stackscope.toggles import EngineConfig

UNSEEN_ROWS: Final = 0.02
"""What a number of rows that was never measured may be off by beside what its neighbours say (ln)."""
PER_OCTAVE: Final = 0.05
"""What each doubling from the nearest measured number of rows adds to that."""
UNSEEN_REST: Final = 0.04
"""What it adds that no other number of rows with the same remainder by four was measured: the teeth of the saw."""
MOST_OCTAVES: Final = 3.0

PER_CONTEXT: Final = 0.15
"""How much attention may be off (ln) for each e-fold of context, or of occupied cells, beyond the most that was
measured."""

MOST_SHAPES: Final = 64
"""Whose columns are remembered."""

_FEW: Final = 256
"""Cached tokens that make no difference."""

MOST_STARVED: Final = 0.25
"""Share of the steps that were starved. Calm sessions had up to 0.16, first seconds beside a loading screen 0.5."""

_GRID: Final = np.linspace(0.0, 1.0, 41)


_TERM_OF: Final = tuple(np.array([TERMS.index(term) for term in COLUMNS_OF[name].terms]) for name in BLOCKS)

_IS_CONTEXT: Final = np.array([term in ("attention", "resident") for term in COLUMNS_OF["target"].terms])
"""Columns of the target's forward that are for what is attended to."""


class Seen(NamedTuple):
    """What was measured, by calibration or in steps."""

    rows: tuple[int, ...] = ()
    """Rows of passes, in order."""
    deepest: int = 0
    """Most cached tokens of a sequence."""
    cells: int = 0
    """Most occupied cells of the cache."""

    def doubt(self, rows: int, *, is_blocked: bool) -> float:
        """Standard deviation (ln) of a pass of so many rows because none like it was measured; 0 when one was."""
        if rows in self.rows or rows == 0:
            return 0.0
        if not self.rows:
            return UNSEEN_ROWS + PER_OCTAVE * MOST_OCTAVES
        octaves = min([abs(float(np.log2(rows / other))) for other in self.rows])
        doubt = UNSEEN_ROWS + PER_OCTAVE * min(MOST_OCTAVES, octaves)
        if is_blocked and rows < 64 and not any(other % 4 == rows % 4 and other > 3 for other in self.rows):
            doubt += UNSEEN_REST
        return doubt


class Source(NamedTuple):
    """Where predictions for other configurations start from."""

    ceilings: Ceilings | None
    """Of the configuration that the model is for."""
    others: tuple[Ceilings, ...]
    known: Mapping[tuple[object, ...], TimeModel]
    """Models of configurations that steps were seen of."""
    level: float
    """Steps ÷ what the calibration said."""


class Errors(NamedTuple):
    """How far single steps lie from the prediction."""

    residual: float
    drift: float
    """Standard deviation (ln) of the machine's level over seconds, which steps of one time share."""
    quantiles: tuple[float, ...]
    """Of ln(measured ÷ predicted), at 41 even steps from least to most; empty: not known, taken for normal."""


class TimeModel:
    """Predicts the time of steps under one configuration. Immutable."""

    def __init__(
        self, conditions: EngineConfig, pricing: Pricing, *, beliefs: tuple[Belief, ...], seen: Seen, errors: Errors,
        source: Source, is_gpu: bool, is_calibrated: bool, unknown: dict[str, str], starved: float = 0.0,
    ) -> None:  # fmt: skip
        self.conditions = conditions
        """The configuration that it is for."""
        self.pricing = pricing
        self.design = Design(conditions, pricing, is_gpu=is_gpu)
        self.beliefs = beliefs
        """Of each block's parameters, in the order of `BLOCKS`."""
        self._each = tuple(
            belief.mean[list(COLUMNS_OF[name].parameter)] for name, belief in zip(BLOCKS, beliefs, strict=True)
        )
        self.seen = seen
        self.errors = errors
        self.source = source
        self.is_gpu = is_gpu
        self.unknown = unknown
        """Parameters that the data cannot separate, or that were not measured, each with the reason."""
        self.is_calibrated = is_calibrated
        """Ceilings of this machine under these conditions stand behind it, and not only steps."""
        self.starved = starved
        """Share of the steps that was left out because the engine's threads waited for a CPU."""
        self._columns: dict[Shape, tuple[Floats, ...]] = {}
        """Of some shapes: whoever asks for draws asks for terms too."""
        self._drawn: tuple[tuple[int, int], list[Floats]] | None = None
        """The machines last drawn, by block, for how many and which seed: most calls want the same again."""

    @property
    def residual(self) -> float:
        """Standard deviation of ln(measured ÷ predicted) of single steps that is left unexplained."""
        return self.errors.residual

    @property
    def is_starved(self) -> bool:
        """Threads lacked their cores in so many of its steps that the others are no undisturbed machine's either."""
        return self.starved >= MOST_STARVED

    @property
    def is_undisturbed(self) -> bool:
        """It is calibrated, and others are not known to have disturbed that, or the steps that it has learned from."""
        ceilings = self.source.ceilings
        return self.is_calibrated and not (ceilings is not None and ceilings.is_busy) and not self.is_starved

    def terms(self, shape: Shape) -> Terms:
        """The most likely time of a step in parts, in nanoseconds."""
        sums = np.zeros(len(TERMS))
        for where, each, columns in zip(_TERM_OF, self._each, self._columns_of(shape), strict=True):
            sums += np.bincount(where, weights=columns * each, minlength=len(TERMS))
        return Terms(*sums.tolist())

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> Floats:
        """`n` possible mean times of each shape, (n, len(shapes)) nanoseconds, all parameters drawn jointly.

        A row is one possible machine: the same one for all shapes, for calls with the same `seed`, and for models
        derived with `under`, so that errors which two predictions share leave their ratio. What single steps stray by
        (`residual`) is not in it: `interval` is for those.
        """
        total = np.zeros((n, len(shapes)))
        columns = [self._columns_of(shape) for shape in shapes]
        for index, (name, drawn) in enumerate(zip(BLOCKS, self._machines(n, seed), strict=True)):
            matrix = np.array([row[index] for row in columns]).reshape(len(shapes), len(COLUMNS_OF[name].terms))
            if name == "target":
                total += self._target(drawn, matrix, shapes, seed)
            elif matrix.any():
                total += multiplied(drawn, matrix.T)
        return total * np.exp(self.errors.drift * latent("drift", n, seed))[:, None]

    def _columns_of(self, shape: Shape) -> tuple[Floats, ...]:
        known = self._columns.get(shape)
        if known is None:
            if len(self._columns) >= MOST_SHAPES:
                self._columns.clear()
            known = self._columns[shape] = self.design.columns(shape)
        return known

    def _machines(self, n: int, seed: int) -> list[Floats]:
        """Draws of the columns' parameters, (n, columns) for each block."""
        if self._drawn is None or self._drawn[0] != (n, seed):
            drawn = [
                belief.draws(n, seed)[:, list(COLUMNS_OF[name].parameter)]
                for name, belief in zip(BLOCKS, self.beliefs, strict=True)
            ]
            self._drawn = (n, seed), drawn
        return self._drawn[1]

    def _target(self, drawn: Floats, matrix: Floats, shapes: Sequence[Shape], seed: int) -> Floats:
        """Draws of the target's forward, with what grows with the distance from what was measured."""
        n = len(drawn)
        is_context = _IS_CONTEXT
        context = multiplied(drawn[:, is_context], matrix[:, is_context].T)
        far = np.array([self._depth(shape) for shape in shapes])
        context *= np.exp(np.outer(latent("context", n, seed), far))
        total: Floats = multiplied(drawn[:, ~is_context], matrix[:, ~is_context].T) + context
        for index, shape in enumerate(shapes):
            rows = max([one.rows for one in shape.passes], default=0)
            doubt = self.seen.doubt(rows, is_blocked=not self.is_gpu)
            if doubt > 0.0:
                total[:, index] *= np.exp(doubt * latent(f"rows {rows}", n, seed))
        return total

    def _depth(self, shape: Shape) -> float:
        """What attention may be off by (ln) because no such context, or no cache so full, was measured."""
        deepest = max([cached for cached, _ in shape.spans], default=0)
        beyond = (deepest + _FEW) / (self.seen.deepest + _FEW), (shape.cells + _FEW) / (self.seen.cells + _FEW)
        return PER_CONTEXT * max(0.0, float(np.log(max(beyond))))

    def interval(self, shape: Shape, n: int = 400, seed: int = 0) -> Estimate:
        """What one step of this shape takes, in nanoseconds: nine in ten such steps lie within."""
        times = self.draws([shape], n, seed)[:, 0] * np.exp(self._strays(n, seed))
        low, high = np.quantile(times, (0.05, 0.95))
        return Estimate(self.terms(shape).total, float(low), float(high))

    def _strays(self, n: int, seed: int) -> Floats:
        """What single steps stray by (ln), as those that were seen did."""
        if not self.errors.quantiles:
            return self.errors.residual * latent("stray", n, seed)
        uniform = (np.argsort(np.argsort(latent("stray", n, seed))) + 0.5) / n
        return np.interp(uniform, _GRID, self.errors.quantiles)

    def phi(self, cached: int) -> float | None:
        """How often keys and values seem to be read, by the time of one row at a depth: φ of equation 4.

        The time that `cached` tokens add ÷ that of reading them once as fast as weights are read. `None`: no attention,
        or no weights to compare with.
        """
        w, at = self.design.target, COLUMNS_OF["target"].parameters.index("target.weights")
        taken_ns = float(self.beliefs[0].mean[at])
        n_bytes = sum([group.bytes_per_token * group.count([(cached, 1)])[0] for group in w.ledger.groups])
        if n_bytes <= 0 or taken_ns <= 0.0 or w.body_bytes <= 0:
            return None
        return self.terms(one_row(cached)).attention / (n_bytes * taken_ns / w.body_bytes)

    def under(self, config: EngineConfig, pricing: Pricing) -> TimeModel | str:
        """The same machine, and what was learned of it, under another configuration; or why that cannot be said.

        What was measured there counts, be it in steps or by a calibration. Else bytes and FLOPs are scaled, and what
        is not known of the other kernels widens the prediction and stands in `unknown`.
        """
        from stackscope.analysis.timing.deriving import derive

        return derive(self, config, pricing)

    def with_live(self, config: EngineConfig, known: Mapping[tuple[object, ...], TimeModel] | None = None) -> TimeModel:
        """The same under a configuration that differs in nothing that the time of a step of given shape depends on.

        `known`: what is known of others, when not what this one has.
        """
        return TimeModel(
            config, self.pricing, beliefs=self.beliefs, seen=self.seen, errors=self.errors,
            source=self.source if known is None else self.source._replace(known=known), is_gpu=self.is_gpu,
            is_calibrated=self.is_calibrated, unknown=self.unknown, starved=self.starved,
        )  # fmt: skip


def conditions_of(config: EngineConfig) -> tuple[object, ...]:
    """What the parameters depend on: steps of configurations that agree in it teach the same."""
    return tuple(getattr(config, name) for name in CONDITIONS)


def origin_of(config: EngineConfig) -> str:
    """What beliefs of these conditions are drawn by: the same wherever the models lie."""
    names = {name: PurePath(path).name for name in ("model", "draft_model") if (path := getattr(config, name))}
    return repr(conditions_of(msgspec.structs.replace(config, **names)))


CONDITIONS: Final = (
    "model", "draft_model", "kv_type_k", "kv_type_v", "flash_attention", "unified_kv", "swa_full", "threads",
    "gpu_layers", "main_gpu", "split_mode", "tensor_split",
)  # fmt: skip
