"""Lessons without an engine: their stages, and runs whose figures are planted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackscope.experiments.lessons.catalogue import lesson_of
from stackscope.experiments.lessons.contracts import Lesson
from stackscope.experiments.lessons.data import Data
from stackscope.experiments.state import CellRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackscope.experiments.lessons.contracts import Conclusion, Stage
    from stackscope.experiments.limits import Limit
    from stackscope.records import Prediction

RATE: Final = 50.0


class FakeModels:
    """Names of files that are not there."""

    target = "/models/target-f16.gguf"
    small = "/models/small-f16.gguf"

    def __init__(self, draft: str | None = "/models/draft-f16.gguf") -> None:
        self.draft = draft

    def weights(self, kind: str) -> str:
        return f"/models/target-{kind.lower()}.gguf"


def lesson(number: int) -> Lesson:
    found = lesson_of(number)
    assert isinstance(found, Lesson)
    return found


def stage(number: int, *, is_quick: bool = False) -> Stage:
    return lesson(number).stage(FakeModels(), is_quick)


def planted(
    of: Stage, speeds: Mapping[str, float], figures: Mapping[str, Mapping[str, float]] | None = None, n_blocks: int = 5
) -> list[CellRun]:
    """Runs whose tokens per second are `speeds` times 50, those of other cells 50; each strays by 0.2 %."""
    unknown = {*speeds, *(figures or {})} - {cell.key for cell in of.cells}
    assert not unknown, unknown
    random = np.random.default_rng(1)
    runs = []
    for block in range(n_blocks):
        common = random.normal(0, 0.05)  # A machine that is slower in one block than in another.
        for place, cell in enumerate(of.cells):

            def strayed(value: float, sign: float = 1.0, common: float = common) -> float:
                return float(value * np.exp(sign * common + random.normal(0, 0.002)))

            own = {
                name: strayed(value, -1.0) if name.endswith("_ns") else value
                for name, value in (figures or {}).get(cell.key, {}).items()
            }
            rate = strayed(RATE * speeds.get(cell.key, 1.0))
            runs.append(CellRun(block=block, cell=place, figures={"tokens_per_s": rate, **own}, duration_ns=10**9))
    return runs


def data(
    of: Stage,
    speeds: Mapping[str, float],
    figures: Mapping[str, Mapping[str, float]] | None = None,
    *,
    predictions: Mapping[str, Prediction] | None = None,
    limits: Mapping[str, Limit] | None = None,
    searched: Sequence[CellRun] = (),
    chosen: str | None = None,
) -> Data:
    return Data(of.cells, planted(of, speeds, figures), predictions, limits, searched, chosen)


def concluded(number: int, found: Data) -> tuple[Conclusion, str]:
    """What a lesson concludes, and its sentences as one text."""
    conclusion = lesson(number).conclude(found)
    return conclusion, " ".join(conclusion.sentences)
