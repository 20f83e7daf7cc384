"""Which parameters the data cannot tell apart, or says nothing of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope.analysis.timing.design import COLUMNS_OF
from stackscope.analysis.timing.sampled import unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.timing.curves import Floats
    from stackscope.analysis.timing.learning import Learned
    from stackscope.analysis.timing.sampled import Kept
    from stackscope.records import Ceilings

VAGUE: Final = 0.05
"""A term that is uncertain by more than this share of a step, and by more than a tenth of itself, is not known."""

TWINS: Final = -0.6
"""Correlation of two terms' errors from which on one has what the other lacks."""

_PAIRED: Final = (
    ("weights", "head", "the head and the other weights cannot be told apart"),
    ("compute", "head", "rows of the head and rows of the rest cannot be told apart"),
    ("attention", "resident", "cells that are read and cells that are only passed over cannot be told apart"),
    ("compute", "attention", "rows and what they attend to cannot be told apart"),
)


def unknown_of(learned: Learned, ceilings: Ceilings | None) -> dict[str, str]:
    """Reasons by parameter (the name of a term, or of what was never seen)."""
    unknown: dict[str, str] = {}
    steps = learned.unstarved
    if all(len(kept.rows) == 1 for kept in steps) and (ceilings is None or ceilings.fixed_ns is None):
        unknown["fixed"] = "weights and fixed cost cannot be told apart: all steps have one pass"
    columns = unpacked(steps)[0]
    if len(steps) > 0:
        unknown.update(_inseparable(learned, steps, columns))
    _never_seen(unknown, columns, ceilings, learned)
    best = learned.shares_at_best
    if best is not None and best < 0.9:
        unknown["starvation"] = (
            f"the engine's threads had {best:.0%} of their cores at most: the times are those of a starved engine"
        )
    return unknown


def _inseparable(learned: Learned, steps: Sequence[Kept], columns: Floats) -> dict[str, str]:
    """Pairs of terms of a typical step whose errors make up for each other."""
    where = COLUMNS_OF["target"]
    mean = np.mean(columns, axis=0)
    belief = learned.beliefs[0]
    names = list(dict.fromkeys(where.terms))
    matrix = np.zeros((len(names), len(belief.mean)))
    for column, (parameter, term) in enumerate(zip(where.parameter, where.terms, strict=True)):
        matrix[names.index(term), parameter] += mean[column]
    values = matrix @ belief.mean
    root = matrix @ belief.root
    covariance = root @ root.T
    sd = np.sqrt(np.diag(covariance))
    total = float(values.sum())
    unknown: dict[str, str] = {}
    for one, other, words in _PAIRED:
        i, j = names.index(one), names.index(other)
        is_vague = all(sd[k] > VAGUE * total * 0.5 and sd[k] > 0.1 * values[k] for k in (i, j))
        if is_vague and covariance[i, j] < TWINS * sd[i] * sd[j]:
            vaguer = one if sd[i] / max(values[i], 1.0) > sd[j] / max(values[j], 1.0) else other
            unknown.setdefault(vaguer, f"{words}: {_why(one, other, steps)}")
    return unknown


def _why(one: str, other: str, steps: Sequence[Kept]) -> str:
    """What all steps have in common that keeps two terms together."""
    if "head" in (one, other):
        if all(kept.rows == kept.outputs for kept in steps):
            return "every row has an output"
        return "outputs hardly vary beside rows"
    if one == "attention":
        return "cells of others and contexts grow together"
    return "contexts hardly vary beside rows"


def _never_seen(unknown: dict[str, str], columns: Floats, ceilings: Ceilings | None, learned: Learned) -> None:
    """What neither steps nor calibration had."""
    where = COLUMNS_OF["target"]

    def is_seen(column: int) -> bool:
        return bool(len(columns) and (columns[:, column] > 0.0).any())

    resident = [index for index, term in enumerate(where.terms) if term == "resident"]
    if len(columns) and not any(is_seen(column) for column in resident):
        unknown.setdefault("resident", "no step had cells of other sequences in its span")
    if learned.seen.deepest == 0:
        unknown.setdefault("attention", "no step and no calibration had cached tokens")
    if ceilings is None:
        rows = learned.seen.rows
        seen = ", ".join(str(one) for one in rows[:6]) + (" …" if len(rows) > 6 else "")
        unknown.setdefault("rows", f"not calibrated: only steps of {seen or 'no'} rows were seen")
