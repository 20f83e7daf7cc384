"""Figures of configurations that did not run in the same blocks, as if all had run under the same conditions.

The logarithm of a figure is taken for a sum of what a configuration does and what a block has in common: a two-way
layout with cells missing, fitted by least squares (Searle, *Linear Models for Unbalanced Data*, 1987). A figure on the
common footing is as in the average run. Blocks that no configuration connects are taken to be alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from stackscope.analysis import factorial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.experiments.state import CellRun

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

OF_SPEED: Final = frozenset({"tokens_per_s", "bytes_per_s", "goodput", "joules_per_token"})
"""Figures beside latencies that change when the machine does; what is counted or occupied does not."""


class Spread(NamedTuple):
    """How runs of the same configuration differ, beyond what their blocks have in common."""

    deviation: float
    """Standard deviation of the logarithm."""
    freedom: int
    """Degrees of freedom that it rests on."""

    def reach(self, n: int, n_other: int) -> float:
        """Half-width of the interval of a ratio of two configurations that ran so often, as a logarithm."""
        quantile = factorial.quantile(self.freedom, (1 + factorial.CONFIDENCE) / 2)
        return quantile * self.deviation * math.sqrt(1 / n + 1 / n_other)


class _Fit(NamedTuple):
    common: Array
    """What the block of each run does to it, less what blocks do to the average run."""
    rest: Array
    """What is neither the configuration's nor the block's."""
    freedom: int


def is_uneven(runs: Sequence[CellRun]) -> bool:
    """Some configurations ran in other blocks than others, so that their plain figures are not comparable."""
    blocks: dict[int, set[int]] = {}
    for run in runs:
        blocks.setdefault(run.cell, set()).add(run.block)
    return len({frozenset(some) for some in blocks.values()}) > 1


def levelled(runs: Sequence[CellRun]) -> list[CellRun]:
    """The runs with their figures on the common footing; as they are where all ran in the same blocks."""
    if not is_uneven(runs):
        return list(runs)
    figures = [dict(run.figures) for run in runs]
    for name in {name for one in figures for name in one if name in OF_SPEED or name.endswith("_ns")}:
        known = [place for place, one in enumerate(figures) if one.get(name, 0.0) > 0]
        if known:
            common = _fit([runs[place] for place in known], name).common
            for place, log in zip(known, common, strict=True):
                figures[place][name] *= math.exp(-log)
    return [msgspec.structs.replace(run, figures=some) for run, some in zip(runs, figures, strict=True)]


def spread(runs: Sequence[CellRun], figure: str) -> Spread | None:
    """How a figure differs between runs of the same configuration. `None`: none ran twice beside others."""
    known = [run for run in runs if run.figures.get(figure, 0.0) > 0]
    fit = _fit(known, figure) if known else None
    if fit is None or fit.freedom < 1:
        return None
    return Spread(math.sqrt(float(fit.rest @ fit.rest) / fit.freedom), fit.freedom)


def _fit(runs: Sequence[CellRun], figure: str) -> _Fit:
    """The two-way layout, by what is left of blocks and values when each configuration's mean is taken out."""
    _, cells = np.unique([run.cell for run in runs], return_inverse=True)
    _, blocks = np.unique([run.block for run in runs], return_inverse=True)
    logs = np.log([run.figures[figure] for run in runs])
    members = np.eye(blocks.max() + 1)[blocks]
    inside, left = _centred(members, cells), _centred(logs[:, None], cells)[:, 0]
    effects, _, rank, _ = np.linalg.lstsq(inside, left, rcond=None)
    common = members @ effects
    freedom = len(runs) - int(cells.max() + 1) - int(rank)
    return _Fit(common - common.mean(), left - inside @ effects, freedom)


def _centred(values: Array, cells: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> Array:
    """Rows less the mean of those of the same configuration."""
    sums = np.zeros((cells.max() + 1, values.shape[1]))
    np.add.at(sums, cells, values)
    means = sums / np.bincount(cells)[:, None]
    centred: Array = values - means[cells]
    return centred
