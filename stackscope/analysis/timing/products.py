"""Matrix products in pieces too small for BLAS to give to its threads.

Those wait busily for each other, and beside an engine that has all cores a product of 120 × 65 × 65 then takes 10 ms
instead of 0.1; and the engine loses the cores meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from stackscope.analysis.timing.curves import Floats

PIECE: Final = 200_000
"""Multiplications that OpenBLAS does by itself (it begins to share them at 262,144)."""


def multiplied(left: Floats, right: Floats) -> Floats:
    """(n, k) × (k, m): (n, m)."""
    n, k = left.shape
    m = right.shape[1]
    width = max(1, min(m, PIECE // max(1, k)))
    height = max(1, PIECE // max(1, k * width))
    made = np.empty((n, m))
    for column in range(0, m, width):
        of = right[:, column : column + width]
        for row in range(0, n, height):
            made[row : row + height, column : column + width] = left[row : row + height] @ of
    return made


def squared(rows: Floats) -> Floats:
    """(n, k) transposed × itself: (k, k)."""
    n, k = rows.shape
    height = max(1, PIECE // max(1, k * k))
    total = np.zeros((k, k))
    for start in range(0, n, height):
        piece = rows[start : start + height]
        total += piece.T @ piece
    return total
