"""The running score of predictions: each beside what was measured of the change that it was made for.

A prediction counts when the change that it names follows (`predictions`), and what that did could be measured. All else
is counted apart, with its reason: a change that nobody predicted, a prediction without a number, a measurement that
could not be compared.

- *Sign*: asked only where the measured effect is outside ±3 % and its interval leaves out none; others have no sign.
- *Error*: |ln(predicted ÷ measured)|, in percent for all that matters.
- *Interval*: the prediction holds when it differs from the measurement by no more than both their 90 % intervals
  allow together, taken as independent: the measurement is not the truth either.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from stackscope import units
from stackscope.analysis.ledgers import UNPRICED
from stackscope.analysis.live.bins import Bins
from stackscope.analysis.live.blocks import Blocks
from stackscope.analysis.live.effects import Effects
from stackscope.analysis.live.standing import Standing
from stackscope.analysis.live.sums import end_times
from stackscope.analysis.metrics.base import unknown_needs
from stackscope.analysis.predictions import Predictions
from stackscope.records import ConfigEvent, Estimate, Footer, Header, Prediction, StepRecord, TrafficEvent
from stackscope.toggles import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stackscope.analysis.live.snapshot import Effect, Ratio
    from stackscope.records import AnyRecord

NEGLIGIBLE: Final = math.log(1.03)
"""Effects within ±3 % have no sign."""
FEW: Final = 20
"""Fewer scored predictions say little, and that is said with them."""
MOST_STEPS: Final = 256
"""Summed up together."""
MEASURED_AT: Final = 2.5758293035489004
"""Standard errors on either side of a measured interval: `live.effects` gives 99 %."""
_NINE_IN_TEN: Final = 1.6448536269514722


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One change: what was predicted of it, and what it did."""

    at_ns: int
    changes: dict[str, tuple[Setting, Setting]]
    predicted: Estimate | None = None
    """Ratio of tokens per second. `None`: not predicted."""
    measured: Estimate | None = None
    """With an interval of 90 %. `None`: not measured, or not yet."""
    why: str | None = None
    """Why it does not count. `None`: it does."""
    is_final: bool = True
    """False: it is still being measured."""

    @property
    def error(self) -> float | None:
        """ln(predicted ÷ measured). `None`: it does not count."""
        if self.predicted is None or self.measured is None or self.why is not None:
            return None
        return math.log(self.predicted.value / self.measured.value)

    @property
    def is_sign_right(self) -> bool | None:
        """`None`: it does not count, or the effect is too small, or too uncertain, to have a sign."""
        if self.error is None or self.measured is None or self.predicted is None:
            return None
        effect = math.log(self.measured.value)
        if abs(effect) <= NEGLIGIBLE or self.measured.holds(1.0):
            return None
        return math.log(self.predicted.value) * effect > 0.0

    @property
    def is_covered(self) -> bool | None:
        """The two intervals allow for the difference. `None`: it does not count."""
        error = self.error
        if error is None or self.predicted is None or self.measured is None:
            return None
        one, other = self.predicted, self.measured
        # Towards each other: what counts is the end on the side of the other value.
        own = math.log(one.value / one.low) if error > 0.0 else math.log(one.high / one.value)
        its = math.log(other.high / other.value) if error > 0.0 else math.log(other.value / other.low)
        return abs(error) <= math.hypot(own, its)

    @property
    def agreement(self) -> Literal["agrees", "vague", "differs"] | None:
        """How the measurement stands to the prediction, in words. `None`: it does not count.

        `vague`: the intervals allow for the difference, but what was measured may be no effect, or goes the other way.
        """
        if self.is_covered is None or self.predicted is None or self.measured is None:
            return None
        if not self.is_covered:
            return "differs"
        is_opposite = (self.predicted.value - 1.0) * (self.measured.value - 1.0) < 0.0
        return "agrees" if self.measured.is_from_one and not is_opposite else "vague"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How well predictions did."""

    n: int = 0
    """Predictions that could be scored."""
    n_signs: int = 0
    """Of those, effects large enough to have a sign."""
    signs_right: int = 0
    median_error: float | None = None
    """Of |ln(predicted ÷ measured)|. `None`: there is none."""
    covered: int = 0
    """Predictions whose interval allowed for what was measured."""
    n_pending: int = 0
    """Changes that are still being measured."""
    left_out: dict[str, int] = {}
    """Changes that do not count, by the reason."""
    outcomes: tuple[Outcome, ...] = ()
    """Those that it is of, oldest first."""

    @property
    def coverage(self) -> float | None:
        """Share of intervals that held. `None`: nothing was scored."""
        return self.covered / self.n if self.n > 0 else None

    @property
    def is_of_few(self) -> bool:
        """So few that the score says little."""
        return self.n < FEW

    @property
    def why_none(self) -> str | None:
        """Why no change of a recording is scored, in words. `None`: at least one is."""
        if self.n > 0:
            return None
        if not self.outcomes:
            return "nothing was changed while it was recorded, so nothing could be predicted and measured"
        reasons = [f"{why} ({units.count(n)})" for why, n in self.left_out.items()]
        reasons += [f"it is still being measured ({units.count(self.n_pending)})"] if self.n_pending else []
        return f"of {units.counted(len(self.outcomes), 'change')} none counts: {'; '.join(reasons)}"

    @property
    def sentence(self) -> str:
        """The score in words."""
        if self.n == 0 or self.median_error is None:
            return "No prediction has been scored yet."
        signs = f"{self.signs_right} of {units.counted(self.n_signs, 'sign')} right, " if self.n_signs > 0 else ""
        few = ", too few to judge by" if self.is_of_few else ""
        return (
            f"{units.counted(self.n, 'prediction')} scored: {signs}median error {units.percent(self.median_error)}, "
            f"{self.covered} of {units.counted(self.n, 'interval')} held{few}."
        )

    @property
    def told(self) -> str | None:
        """The score in words, or why there is none. `None`: nothing was predicted."""
        if not any(one.predicted is not None for one in self.outcomes):
            return None
        return self.sentence if self.why_none is None else f"None was scored: {self.why_none}."


def score_of(outcomes: Iterable[Outcome]) -> Score:
    """The score of changes."""
    told = tuple(outcomes)
    scored = [one for one in told if one.error is not None]
    signs = [one.is_sign_right for one in scored if one.is_sign_right is not None]
    errors = [abs(one.error) for one in scored if one.error is not None]
    reasons = Counter(one.why for one in told if one.why is not None and one.is_final)
    return Score(
        n=len(scored),
        n_signs=len(signs),
        signs_right=sum(signs),
        median_error=statistics.median(errors) if errors else None,
        covered=sum(one.is_covered is True for one in scored),
        n_pending=sum(not one.is_final for one in told),
        left_out=dict(reasons.most_common()),
        outcomes=told,
    )


def merged(scores: Iterable[Score]) -> Score:
    """The score over several sessions."""
    return score_of(outcome for score in scores for outcome in score.outcomes)


class Scorecard:
    """Joins predictions with the changes that follow them and what those did."""

    def __init__(self, effect_of: Callable[[int], Effect | None], *, most: int | None = None) -> None:
        """`effect_of` says what the change at a time did, as far as is known (`live.effects.Effects.effect_of`).

        `most`: changes that are remembered, the newest. `None`: all of them.
        """
        self._effect_of = effect_of
        self._predictions = Predictions()
        self._made: list[tuple[int, dict[str, tuple[Setting, Setting]], Prediction | None]] = []
        """Changes whose measurement is not known to be final, with their predictions."""
        self._outcomes: deque[Outcome] = deque(maxlen=most)
        self._scored: tuple[list[Outcome], Score] | None = None
        """What the score was last made of, and the score: screens ask again and again."""

    def predicted(self, prediction: Prediction) -> None:
        """Take a prediction; the change that it is for is still to come."""
        self._predictions.add(prediction)

    def changed(self, at_ns: int, changes: Mapping[str, tuple[Setting, Setting]]) -> Prediction | None:
        """Take a change that was made, and that `effect_of` knows of: its values before and after.

        What was measured of those before it is final with that.

        What was predicted of it. `None`: nothing.
        """
        self.settle()
        prediction = self._predictions.take(at_ns, changes)
        self._made.append((at_ns, dict(changes), prediction))
        return prediction

    def refused(self, changes: Mapping[str, tuple[Setting, Setting]]) -> None:
        """Take a change that was not made."""
        self._predictions.refuse(changes)

    def settle(self) -> None:
        """Take the measurements as they are now for final: the next change, or the end of the session, ended them."""
        self._outcomes.extend([self._outcome(*made, is_final=True) for made in self._made])
        self._made.clear()

    def outcomes(self) -> list[Outcome]:
        """All changes so far, with the latest as far as it has been measured."""
        return [*self._outcomes, *[self._outcome(*made, is_final=False) for made in self._made]]

    def score(self) -> Score:
        """The score so far."""
        outcomes = self.outcomes()
        if self._scored is None or self._scored[0] != outcomes:
            self._scored = outcomes, score_of(outcomes)
        return self._scored[1]

    def _outcome(
        self,
        at_ns: int,
        changes: dict[str, tuple[Setting, Setting]],
        prediction: Prediction | None,
        *,
        is_final: bool,
    ) -> Outcome:
        effect = self._effect_of(at_ns)
        predicted = None if prediction is None else prediction.tokens
        measured, why = _measured(effect)
        is_measuring = effect is not None and effect.state in ("settling", "measuring")
        if prediction is None:
            why = "it was not predicted"
        elif predicted is None:
            why = "the prediction gave no number"
        elif effect is not None and effect.tokens is not None and effect.why is not None and why is None:
            why = "it was measured together with other changes"
        return Outcome(
            at_ns=at_ns,
            changes=changes,
            predicted=predicted,
            measured=measured,
            why=why,
            is_final=is_final or not is_measuring,
        )


def _measured(effect: Effect | None) -> tuple[Estimate | None, str | None]:
    """What a change did, with an interval of 90 %; or why that is not known."""
    if effect is None:
        return None, "it was not measured"
    if effect.tokens is None or effect.state not in ("measured", "not distinguishable"):
        return None, _kind_of(effect)
    return at_ninety(effect.tokens), None


def at_ninety(measured: Ratio) -> Estimate:
    """A measured ratio of tokens per second with the interval that predictions have, of 90 %."""
    part = _NINE_IN_TEN / MEASURED_AT
    low, high = (measured.value * (end / measured.value) ** part for end in (measured.low, measured.high))
    return Estimate(measured.value, low, high)


def _kind_of(effect: Effect) -> str:
    """Why an effect is no measurement, without the figures of this one: reasons are counted."""
    if effect.state in ("settling", "measuring"):
        return "it was still being measured"
    why = effect.why or "it could not be compared"
    return why.partition(":")[0].partition(" after ")[0].strip()


class Scorer:
    """A sink that scores a session: measures what each change did as the live view does. Bounded memory."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, header: Header | None) -> None:
        self._standing = Standing(header)
        self._steps: list[StepRecord] = []
        self._effects = Effects()
        self._blocks = Blocks(self._effects.add_block)
        self._blocks.concurrency = self._standing.closed_loop
        self._bins = Bins(unknown_needs(header), on_steps=self._blocks.add, on_close=self._blocks.close)
        self._has_begun = False
        self.card = Scorecard(self._effects.effect_of)

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session, in the order of their time."""
        if isinstance(record, StepRecord):
            if self._steps and (record.epoch != self._steps[-1].epoch or len(self._steps) >= MOST_STEPS):
                self._sum_up()
            self._steps.append(record)
            return
        match record:
            case Header():
                self._begin(record)
            case Prediction():
                self.card.predicted(record)
            case ConfigEvent():
                self._sum_up()
                self._change(record)
            case TrafficEvent():
                self._sum_up()
                self._change_load(record)
            case Footer():
                self._sum_up()
                self._end(record.at_ns)
            case _:
                pass

    def close(self) -> None:
        """The session is over, with or without a footer."""
        self._sum_up()
        self._end(self._bins.covered_ns or 0)

    def _sum_up(self) -> None:
        """Hand on steps, of which none is left waiting then. They are priced by nothing: only tokens and time count."""
        if self._steps:
            steps, self._steps = self._steps, []
            self._has_begun = True
            self._bins.add(steps, end_times(steps), UNPRICED)

    def _change(self, event: ConfigEvent) -> None:
        if event.kind == "refused":
            self.card.refused(event.changes)
            return
        self._standing.change(event)
        self._blocks.cut()
        if event.changes:
            self._effects.add_change(event)  # First: it ends the measurement before, which is final then.
            self.card.changed(event.at_ns, event.changes)

    def _change_load(self, event: TrafficEvent) -> None:
        changes = self._standing.change_load(event)
        if not changes:
            return
        self._blocks.cut()
        self._blocks.concurrency = self._standing.closed_loop
        if self._has_begun:
            self._effects.add_change(event)
            self.card.changed(event.at_ns, changes)

    def _end(self, at_ns: int) -> None:
        self._blocks.close()
        self._effects.end(at_ns)
        self.card.settle()


def score_session(records: Iterable[AnyRecord]) -> Score:
    """The score of one session's predictions, from its records in their order."""
    scorer = Scorer()
    for record in records:
        scorer.write(record)
    scorer.close()
    return scorer.card.score()
