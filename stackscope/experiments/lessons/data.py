"""The figures of a lesson, for the code that concludes from them: ratios with intervals, paired by block."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from stackscope import units
from stackscope.analysis import factorial
from stackscope.experiments.blocks import whole_blocks
from stackscope.experiments.effects import logs
from stackscope.experiments.lessons.contracts import Bar, LessonCell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.limits import Limit
    from stackscope.experiments.state import CellRun
    from stackscope.records import Estimate, Prediction

RATE = "tokens_per_s"


class Point(NamedTuple):
    """A ratio somewhere along a course."""

    x: float
    log: float
    side: int
    """1 above a ratio of 1, -1 below it; 0: it cannot be told from 1."""
    doubt: float = 0.0
    """Half the width of the logarithm's interval. 0: it is taken as it is."""


class Crossing(NamedTuple):
    """Where a course goes through a ratio of 1."""

    low: float
    """The points around it that are each told apart from 1."""
    high: float
    at: float | None
    """Straight in ln ratio. `None`: a point between the two cannot be told from 1."""
    falls: bool
    ends: tuple[float, float] | None = None
    """Where the ends of both intervals, joined straight, go through 1. `None`: as `at`, or nothing is in doubt."""


class Data:
    """What was predicted and measured of a lesson's cells. Only blocks that are whole count."""

    def __init__(
        self,
        cells: Sequence[LessonCell],
        runs: Sequence[CellRun],
        predictions: Mapping[str, Prediction] | None = None,
        limits: Mapping[str, Limit] | None = None,
        searched: Sequence[CellRun] = (),
        chosen: str | None = None,
    ) -> None:
        """`runs` name their cells by place. `searched` are those of a search, which `chosen` came out of."""
        self.cells = {cell.key: cell for cell in cells}
        self._places = {cell.key: place for place, cell in enumerate(cells)}
        self._blocks = whole_blocks(runs, range(len(cells)))
        self.predictions = {} if predictions is None else predictions
        self.limits = {} if limits is None else limits
        self.searched = searched
        self.chosen = chosen

    @property
    def n_blocks(self) -> int:
        return len(self._blocks)

    @property
    def n_disturbed(self) -> int:
        """Runs during which something else had the engine's cores."""
        runs = [run for block in self._blocks for run in block.values()]
        return sum(run.is_disturbed for run in runs)

    def figure(self, key: str, name: str = RATE) -> float | None:
        """The median of a figure over the blocks. `None`: no run has it."""
        place = self._places[key]
        values = [block[place].figures[name] for block in self._blocks if name in block[place].figures]
        return median(values) if values else None

    def fastest(self, keys: Iterable[str]) -> str:
        """The one with most tokens per second, by geometric means over the blocks as ratios are formed: no other of
        them has a ratio above its own. The first, where nothing was measured."""
        return max(keys, key=self.rank)

    def rivals(self, keys: Sequence[str]) -> list[str]:
        """Those that may be the fastest as well: the one that is ahead is not beyond doubt faster."""
        best = self.fastest(keys)
        return [key for key in keys if key != best and not is_less(self.ratio(key, best))]

    def rank(self, key: str) -> float:
        """The logarithm of that mean; minus infinity where nothing was measured."""
        place = self._places[key]
        values = [math.log(block[place].figures[RATE]) for block in self._blocks if block[place].figures.get(RATE)]
        return sum(values) / len(values) if values else -math.inf

    def contrast(self, weights: Mapping[str, float], name: str = RATE) -> Contrast | None:
        """exp Σ weight × ln figure, formed within each block. `None`: a run lacks the figure, or there is no block."""
        places = [self._places[key] for key in weights]
        responses = logs(self._blocks, places, name) if self._blocks else None
        if responses is None:
            return None
        return factorial.estimate(responses, {self._places[key]: weight for key, weight in weights.items()})

    def ratio(self, key: str, over: str | None = None, name: str = RATE) -> Contrast | None:
        """A cell's figure ÷ another's, or that of the cell it is held against. `None`: as `contrast`."""
        reference = self.cells[key].over if over is None else over
        assert reference is not None
        return self.contrast({key: 1.0, reference: -1.0}, name)

    def cost(self, key: str) -> float | None:
        """What a round of a cell with drafts takes, in steps of the cell it is held against: A ÷ speed-up.

        Prefill is in both, so that with long prompts it is drawn towards A. `None`: not known.
        """
        ratio, tokens = self.ratio(key), self.figure(key, "tokens_per_forward")
        return None if ratio is None or tokens is None else tokens / ratio.ratio

    def estimate(self, key: str, name: str = RATE) -> Estimate | None:
        """The ratio of a figure to that of the cell it is held against, as predicted. `None`: it was not."""
        prediction = self.predictions.get(key)
        if prediction is None:
            return None
        by_name = {RATE: prediction.tokens, "ttft_p50_ns": prediction.ttft, "step_gap_p50_ns": prediction.step_gap}
        return by_name.get(name)

    def predicted(self, key: str, name: str = RATE) -> float | None:
        """The same without its interval."""
        found = self.estimate(key, name)
        return None if found is None else found.value

    def bar(self, key: str, label: str, *, name: str = RATE, over: str | None = None, group: str = "") -> Bar:
        """A ratio as a row of a picture, with what was predicted of it."""
        predicted = self.predicted(key, name) if over in (None, self.cells[key].over) else None
        return bar_of(self.ratio(key, over, name), label, predicted=predicted, group=group)


def bar_of(contrast: Contrast | None, label: str, *, predicted: float | None = None, group: str = "") -> Bar:
    """Any contrast as a row of a picture."""
    if contrast is None:
        return Bar(label=label, value=None, predicted=predicted, group=group)
    interval = contrast.interval()
    return Bar(
        label=label,
        value=contrast.ratio,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        predicted=predicted,
        group=group,
    )


def told(contrast: Contrast | None) -> str:
    """A ratio with its interval, in a sentence."""
    if contrast is None:
        return units.UNKNOWN
    interval = contrast.interval()
    return units.ratio(contrast.ratio) if interval is None else units.ratio(interval.value, interval.low, interval.high)


def foretold(estimate: Estimate | None) -> str:
    """A predicted ratio with its interval, in a sentence."""
    return units.UNKNOWN if estimate is None else units.ratio(estimate.value, estimate.low, estimate.high)


def is_same(contrast: Contrast | None, margin: float) -> bool:
    """Beyond doubt no further from 1 than a margin, which is a logarithm."""
    return contrast is not None and abs(contrast.log) + contrast.half_width() <= margin


def is_more(contrast: Contrast | None) -> bool:
    """Beyond doubt above 1."""
    return contrast is not None and contrast.log > 0 and contrast.is_from_one()


def is_less(contrast: Contrast | None) -> bool:
    """Beyond doubt below 1."""
    return contrast is not None and contrast.log < 0 and contrast.is_from_one()


def measured_at(x: float, ratio: Contrast) -> Point:
    """A ratio that was measured: it has a side where it has one beyond doubt."""
    side = is_more(ratio) - is_less(ratio)
    return Point(x, ratio.log, side, ratio.half_width() if side else 0.0)


def expected_at(x: float, ratio: Estimate) -> Point:
    """A ratio that is expected: it has a side where its interval leaves 1 out."""
    side = (ratio.low > 1) - (ratio.high < 1)
    return Point(x, math.log(ratio.value), side, math.log(ratio.high / ratio.low) / 2 if side else 0.0)


def crossings(points: Sequence[Point]) -> list[Crossing]:
    """Where a course, given by rising x, goes from one side of 1 to the other."""
    known = [(place, point) for place, point in enumerate(points) if point.side != 0]
    found = []
    for (place, one), (next_place, other) in pairwise(known):
        if one.side != other.side:
            is_next = next_place == place + 1
            at = _root(one, other, 0.0) if is_next else None
            ends = (
                (_root(one, other, -1.0), _root(one, other, 1.0)) if is_next and one.doubt + other.doubt > 0 else None
            )
            found.append(Crossing(one.x, other.x, at, other.side < 0, ends if ends is None else (min(ends), max(ends))))
    return found


def _root(one: Point, other: Point, bound: float) -> float:
    """Where the straight line between two points meets 1, both moved by `bound` times their doubt."""
    start, end = one.log + bound * one.doubt, other.log + bound * other.doubt
    return one.x - (other.x - one.x) * start / (end - start)


def why_lost(data: Data, key: str, what: str = "Drafting") -> str | None:
    """Why drafts lose in a cell, by its own figures: what a round costs, and what it brings. `None`: not known."""
    cost, tokens = data.cost(key), data.figure(key, "tokens_per_forward")
    if cost is None or tokens is None or cost <= tokens:
        return None
    rows = data.cells[key].config.draft_length + 1
    return (
        f"{what} loses there because a round of up to {units.counted(rows, 'row')} and its drafts costs "
        f"{units.number(cost)} plain steps and brings {units.number(tokens)} tokens."
    )
