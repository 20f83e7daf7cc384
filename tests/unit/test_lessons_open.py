"""Where a lesson's points cannot be told apart, it gives no answer that rests on their order."""

from __future__ import annotations

import math

import pytest

from stackscope.experiments.lessons import searching
from stackscope.experiments.lessons.data import Data, Point, crossings
from stackscope.experiments.state import CellRun
from tests.unit.lessons_builders import concluded, data, stage

LESS, MORE = math.log(0.9), math.log(1.2)
WIDE = (0.7, 1.0, 1.0, 1.4)
"""What the tokens per second of a cell are multiplied by, block by block: nothing can be told of a few per cent."""


def strayed(number: int, speeds: dict[str, float], wide: dict[str, tuple[float, ...]]) -> Data:
    """Four blocks in which cells that are not in `wide` stray by 1 %."""
    of = stage(number)
    runs = [
        CellRun(
            block=block,
            cell=place,
            figures={
                "tokens_per_s": 50
                * speeds.get(cell.key, 1.0)
                * wide.get(cell.key, (1.0, 1.0, 1.0, 1.0))[block]
                * (1.01 if (block + place) % 2 else 1.0)
            },
            duration_ns=10**9,
        )
        for block in range(4)
        for place, cell in enumerate(of.cells)
    ]
    return Data(of.cells, runs)


def test_a_course_turns_only_between_points_that_are_told_apart() -> None:
    """Lose, who knows, help, lose: one turn somewhere between the first and the third, another between neighbours."""
    points = [Point(0.0, LESS, -1), Point(1.0, LESS, 0), Point(2.0, MORE, 1), Point(3.0, LESS, -1)]
    first, second = crossings(points)
    assert (first.low, first.high, first.at, first.falls) == (0.0, 2.0, None, False)
    assert (second.low, second.high, second.falls) == (2.0, 3.0, True)
    assert second.at == pytest.approx(2 + MORE / (MORE - LESS))
    assert crossings([Point(0.0, LESS, 0), Point(1.0, MORE, 1)]) == []


def test_a_crossing_is_in_doubt_as_its_points_are() -> None:
    """Joined straight, upper ends go from -0.1 to 0.3 and pass 1 after a quarter; lower ones after three."""
    (found,) = crossings([Point(1.0, -0.2, -1, 0.1), Point(2.0, 0.2, 1, 0.1)])
    assert found.at == pytest.approx(1.5)
    assert found.ends == pytest.approx((1.25, 1.75))
    (falling,) = crossings([Point(0.0, 0.2, 1, 0.1), Point(1.0, -0.2, -1, 0.1)])
    assert falling.ends == pytest.approx((0.25, 0.75))
    (exact,) = crossings([Point(0.0, -0.2, -1), Point(1.0, 0.2, 1)])
    assert exact.ends is None


def test_drafts_tell_their_whole_course_over_batches() -> None:
    speeds = {"Q8_0, 1 at a time, drafts": 0.94, "Q8_0, 4 at a time, drafts": 1.3, "Q8_0, 16 at a time, drafts": 0.72}
    text = concluded(6, strayed(6, speeds, {"Q8_0, 1 at a time, drafts": WIDE}))[1]
    assert (
        "With Q8_0 weights they help at 4 at a time and lose at 16 at a time; no difference can be told at 1; " in text
    )
    # ln 1.3 : ln 0.72 cuts the way from 4 to 16 at 44 %: 4 · 4^0.44 = 7.4
    assert "they stop helping at about 7.4" in text
    assert "begin to help" not in text


def test_a_break_even_lies_between_acceptances_that_are_told_apart() -> None:
    speeds = {
        "0 % accepted": 0.6, "20 % accepted": 0.7, "40 % accepted": 0.8, "60 % accepted": 1.02, "80 % accepted": 1.4,
        "100 % accepted": 1.8,
    }  # fmt: skip
    conclusion, text = concluded(3, strayed(3, speeds, {"60 % accepted": WIDE}))
    assert conclusion.holds is True
    assert "break even at an acceptance between 40.0 % and 80.0 %" in text


OBVIOUS = {"Q4_K_M, plain": 2.70, "F16, n-gram drafts of 3": 1.11, "Q4_K_M, n-gram drafts of 3": 2.75}


def test_a_best_that_cannot_be_told_from_another_configuration_decides_nothing() -> None:
    conclusion, text = concluded(10, strayed(10, OBVIOUS, {"Q4_K_M, plain": (0.97, 1.03, 1.0, 1.0)}))
    assert conclusion.holds is None
    assert "but it cannot be told from Q4_K_M, plain, which runs at 0.98" in text


def test_single_settings_that_cannot_be_told_apart_decide_nothing() -> None:
    """Drafts of 3 may be the best ones as well; with them the best is none that intuition would have put together."""
    speeds = {**OBVIOUS, "Q4_K_M, n-gram drafts of 3": 3.5, "F16, drafts of 3": 1.10}
    conclusion, text = concluded(10, strayed(10, speeds, {"F16, drafts of 3": (0.95, 1.05, 1.0, 1.0)}))
    assert conclusion.holds is None
    assert "may as well be those of Q4_K_M, drafts of 3" in text


def test_a_pair_that_hurts_by_its_own_intervals_only_is_a_hint() -> None:
    """1.07 alone has to be told from 1 beside five other pairs."""
    speeds = {**OBVIOUS, "Q4_K_M, n-gram drafts of 3": 3.5, "F16, drafts of 3": 1.07, "Q4_K_M, drafts of 3": 1.7}
    found = strayed(10, speeds, {"F16, drafts of 3": (0.97, 1.03, 1.0, 1.02)})
    assert [(one.one, one.other) for one in searching.nearly_hurting(found)] == [("Q4_K_M", "drafts of 3")]
    text = concluded(10, found)[1]
    assert "A hint: Q4_K_M (2.7" in text
    assert "not where all 6 pairs are to hold together" in text
    sure = data(stage(10), {**speeds, "F16, drafts of 3": 1.4})
    assert searching.nearly_hurting(sure) == []
    assert "A hint" not in concluded(10, sure)[1]


def test_a_best_length_that_may_be_another_decides_nothing() -> None:
    speeds = {f"drafts of {n}, {rate} % accepted": 1 + n / 100 for n in (1, 3, 4, 7, 8) for rate in (40, 90)}
    speeds |= {"drafts of 3, 40 % accepted": 1.5, "drafts of 4, 90 % accepted": 1.6, "drafts of 3, 90 % accepted": 1.57}
    conclusion, text = concluded(8, strayed(8, speeds, {"drafts of 3, 90 % accepted": (0.95, 1.05, 1.0, 1.0)}))
    assert conclusion.holds is None
    assert "do not tell from the best at 90.0 % drafts of 3 (0.98" in text
