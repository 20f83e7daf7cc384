"""Which prediction belongs to which change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.predictions import JOIN_NS, MOST_WAITING, Predictions
from stackscope.records import Prediction

if TYPE_CHECKING:
    from stackscope.toggles import Setting

SECOND: Final = 1_000_000_000
SLOTS: Final[dict[str, tuple[Setting, Setting]]] = {"slots": (4, 8)}


def predicted(at_ns: int = 0, **changes: tuple[Setting, Setting]) -> Prediction:
    return Prediction(at_ns=at_ns, changes=changes or SLOTS)


def waiting(*predictions: Prediction) -> Predictions:
    those = Predictions()
    for prediction in predictions:
        those.add(prediction)
    return those


@pytest.mark.parametrize("at_ns", [0, SECOND, JOIN_NS])
def test_a_prediction_waits_for_its_change(at_ns: int) -> None:
    assert waiting(predicted()).take(at_ns, SLOTS) == predicted()


@pytest.mark.parametrize(
    ("prediction", "at_ns"),
    [
        (predicted(slots=(4, 16)), SECOND),
        (predicted(slots=(4, 8), threads=(1, 2)), SECOND),
        (predicted(), JOIN_NS + 1),
        (predicted(at_ns=2 * SECOND), SECOND),
    ],
    ids=["other value", "more settings", "too late", "before it"],
)
def test_nothing_else_is_its_change(prediction: Prediction, at_ns: int) -> None:
    assert waiting(prediction).take(at_ns, SLOTS) is None


def test_the_newest_prediction_of_a_change_counts_and_older_ones_are_spent() -> None:
    those = waiting(predicted(), predicted(at_ns=SECOND))
    assert those.take(2 * SECOND, SLOTS) == predicted(at_ns=SECOND)
    assert those.take(3 * SECOND, SLOTS) is None


def test_another_change_spends_a_prediction() -> None:
    """It was about what was in force before."""
    those = waiting(predicted())
    assert those.take(SECOND, {"threads": (1, 2)}) is None
    assert those.take(2 * SECOND, SLOTS) is None


def test_a_refusal_spends_all_predictions_of_its_change() -> None:
    """Else one of them would attach to the same change, made later by somebody else."""
    those = waiting(predicted(), predicted(at_ns=SECOND))
    those.refuse(SLOTS)
    assert those.take(2 * SECOND, SLOTS) is None


def test_the_refusal_of_another_change_leaves_a_prediction_be() -> None:
    those = waiting(predicted())
    those.refuse({"slots": (4, 500)})
    assert those.take(SECOND, SLOTS) == predicted()


def test_a_setting_that_is_restated_is_no_part_of_the_change() -> None:
    prediction = predicted(speculation=("off", "ngram"), draft_length=(3, 3))
    speculation: dict[str, tuple[Setting, Setting]] = {"speculation": ("off", "ngram")}
    assert waiting(prediction).take(SECOND, speculation) == prediction
    those = waiting(prediction)
    those.refuse(speculation)
    assert those.take(SECOND, speculation) is None


def test_of_too_many_the_oldest_are_forgotten() -> None:
    newer = [predicted(threads=(1, n)) for n in range(MOST_WAITING)]
    assert waiting(predicted(), *newer[1:]).take(SECOND, SLOTS) == predicted()
    assert waiting(predicted(), *newer).take(SECOND, SLOTS) is None
    those = waiting(predicted(), *newer[1:])
    those.refuse({"seed": (0, 1)})
    those.add(newer[0])
    assert those.take(SECOND, SLOTS) is None
