"""The likeliest token of each row, and rows that are no numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stackscope.engine.choose import argmax
from stackscope.errors import EngineError

ROWS = 16


def rows() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(1).normal(size=(ROWS, 64)).astype(np.float32)


def test_the_largest_logit_of_each_row_is_chosen() -> None:
    logits = rows()
    logits[:, 7] = -math.inf  # Masked tokens are no trouble.
    assert argmax(logits) == [int(np.argmax(row)) for row in logits]


@pytest.mark.parametrize("row", [0, 5, ROWS - 1])
@pytest.mark.parametrize("column", [0, 40, 63])
def test_one_logit_that_is_not_a_number_is_found_wherever_it_stands(row: int, column: int) -> None:
    logits = rows()
    logits[row, column] = math.nan
    logits[(row + 1) % ROWS, 3] = math.inf  # Must not hide it.
    with pytest.raises(EngineError, match="not numbers"):
        argmax(logits)
