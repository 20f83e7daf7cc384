"""How the time of a matrix product grows with its rows, as columns of a linear model.

ggml's kernels on a CPU take rows by four (`ggml-cpu/repack.cpp`, `llamafile/sgemm.cpp`) and what is left over one by
one, so that seven rows may take longer than eight. The curve is therefore built of whole blocks, and of what one, two
and three rows beyond them add; one to three rows alone have values of their own. Which of these steps are there at all
is for the measurements to say: a kernel without blocks has even ones. A GPU's curve is piecewise linear.

Every coefficient is an increment in nanoseconds and not negative. They are counted from what reading alone takes, which
has no column here. One row adds something to it as well: it has a kernel of its own, which with some types is slower
than that of two (Q8_0 on two Zen 4 cores: 5.5 ms for one row and 4.1 ms for two).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BLOCK: Final = 4
"""Rows that a kernel takes together."""

KNOTS: Final = (4, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512)
"""Rows between which whole blocks are interpolated. Beyond the last, its slope goes on."""

INCREMENTS: Final = ("alone", "2", "3", *(f"b{knot}" for knot in KNOTS), "r1", "r2", "r3")
"""What each column is: one row alone beyond reading, two rows beyond it, from two to three, from reading to each knot
in turn, and each row beyond the last whole block."""

N: Final = len(INCREMENTS)

_FIRST_KNOT: Final = 3
_FIRST_LEFT: Final = _FIRST_KNOT + len(KNOTS)


class Curve:
    """The columns of any number of rows."""

    def __init__(self, *, is_blocked: bool) -> None:
        self.is_blocked = is_blocked
        self._known: dict[int, Floats] = {}

    def columns(self, rows: int) -> Floats:
        """How often each increment is in a product of so many rows; all zero for none."""
        known = self._known.get(rows)
        if known is None:
            if len(self._known) > 4096:
                self._known.clear()
            known = self._known[rows] = self._made(rows)
            known.flags.writeable = False
        return known

    def _made(self, rows: int) -> Floats:
        made = np.zeros(N)
        if rows < 1:
            return made
        if rows == 1:
            made[0] = 1.0
        elif not self.is_blocked:
            _climb(made, rows)
        elif rows < BLOCK:
            made[1:rows] = 1.0
        else:
            left = rows % BLOCK
            _climb(made, rows - left)
            made[_FIRST_LEFT : _FIRST_LEFT + left] = 1.0
        return made


def _climb(made: Floats, rows: int) -> None:
    """Fill in the share of each knot's increment that whole blocks of so many rows have."""
    below = 1
    for index, knot in enumerate(KNOTS):
        share = (rows - below) / (knot - below)
        is_last = index == len(KNOTS) - 1
        if share <= 0.0:
            return
        made[_FIRST_KNOT + index] = share if is_last else min(1.0, share)
        below = knot


class Increment(NamedTuple):
    """What is known beforehand of an increment, relative to the others."""

    rows: float
    """How many rows it adds to the first."""
    like: int | None
    """The increment whose time per row is probably about the same. `None`: there is none."""


def increments() -> tuple[Increment, ...]:
    """Rows and likeness of every increment, in the order of `INCREMENTS`."""
    found = [Increment(0.0, None), Increment(1.0, None), Increment(1.0, 1)]
    below = 1
    for index, knot in enumerate(KNOTS):
        found.append(Increment(float(knot - below), None if index < 2 else _FIRST_KNOT + index - 1))
        below = knot
    return (*found, Increment(1.0, None), Increment(1.0, _FIRST_LEFT), Increment(1.0, _FIRST_LEFT + 1))
