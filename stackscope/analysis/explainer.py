"""Explains a session while it goes on: what limits, what each change would bring, and how well that was said before.

Everything here is a sink's work: records in, and an `Explanation` out whenever one is asked for. Its parts are made
anew at intervals by what they cost, so that all of it takes a small, fixed share of one core.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.analysis.diagnosis.evidence import Stall
from stackscope.analysis.diagnosis.follower import Follower
from stackscope.analysis.diagnosis.naming import LEAST_FORWARDS, LEAST_SHARE, Naming
from stackscope.analysis.diagnosis.responses import Response
from stackscope.analysis.doubts import (
    STARVATION,
    STARVED,
    UNEXPLAINED,
    has_moved,
    is_unexplained,
    starves,
)
from stackscope.analysis.speculating import Acceptance, Curves
from stackscope.analysis.stood import Names, Stood
from stackscope.analysis.timing.terms import TERMS
from stackscope.analysis.whatif.breakevens import BreakEven, all_in_parts
from stackscope.analysis.whatif.predict import Predictor
from stackscope.analysis.whatif.ranking import Ranking, rank_in_parts
from stackscope.analysis.whatif.watch import Watch
from stackscope.records import (
    ConfigEvent,
    DraftKind,
    Footer,
    Header,
    ModelSummary,
    Prediction,
    StepRecord,
    TrafficEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from stackscope.analysis.diagnosis.naming import NameChange
    from stackscope.analysis.whatif.contracts import Rules
    from stackscope.records import AnyRecord
    from stackscope.toggles import Setting

NAMING_SHARE: Final = 0.003
RANKING_SHARE: Final = 0.003
"""Shares of one core that naming and predicting may take."""
NAMING_NS: Final = (1_000_000_000, 3_000_000_000)
RANKING_NS: Final = (5_000_000_000, 30_000_000_000)
"""They are made anew no sooner than this, and no later: the first time is dear, as modules are imported for it."""
BREAK_EVENS_NS: Final = 45_000_000_000
"""How long break-evens stay while nothing is changed. They take as long as the rest of a ranking, and hardly move."""
RENEWED_NS: Final = 10_000_000_000
"""The same no later than this for the first ones of a session or after a change, which are of few steps, and for those
of other traffic than there is now."""
SETTLING_NS: Final = 6_000_000_000
REFILLING_NS: Final = 12_000_000_000
"""How long after the first step or a change, and after a rebuild that emptied the caches, nothing is ranked: what is
cold, and prompts that all begin at once, are not typical."""
MOST_STALLS: Final = 128
"""Kept. A stall takes a second at least, so that what is forgotten left the seconds that are looked at long ago."""
SOURCES: Final[tuple[DraftKind, ...]] = ("ngram", "draft")


def unhurried() -> int:
    """The CPU clock of an explainer that names once a second of the session, whatever that costs and whoever looks.

    Of the same records it says the same every time: `run` as it recorded them, `replay` and `report` afterwards.
    """
    return 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of why the session is as fast as it is, and of what would change that."""

    naming: Naming = Naming()
    terms: tuple[tuple[str, float], ...] = ()
    """Nanoseconds of a mean step by term of the time model, over the seconds that were named. Empty: no model."""
    ranking: Ranking | None = None
    """What each change would bring. `None`: nothing can be predicted, and `why_no_ranking` says why."""
    why_no_ranking: str = "No step has run yet."
    ranked_at_ns: int | None = None
    drafts: tuple[Acceptance, ...] = ()
    """How drafts of each source and length do, made or shadowed."""
    residual: float | None = None
    """Standard deviation of ln(measured ÷ predicted) of single steps. `None`: no model."""
    is_calibrated: bool = False
    unknown: dict[str, str] = {}
    """Parameters of the time model that the data cannot separate, or that were not measured, with the reason."""
    responses: tuple[Response, ...] = ()
    """What causal probes found of each part of a step that was delayed."""
    stood: tuple[Stood, ...] = ()
    """What was named since the session began, longest first."""
    stalls: tuple[Stall, ...] = ()
    """Steps since then that stalled, which no name and no figure of a name counts: the longest, and the newest."""
    n_stalls: int = 0
    """All of them."""


class Explainer:
    """A sink. Bounded memory; for one thread at a time."""

    def __init__(
        self,
        *,
        rules: Rules | None = None,
        variants: Mapping[str, ModelSummary] | None = None,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
        part_ns: int | None = None,
    ) -> None:
        """`rules` are what the engine would allow. `variants` are other files of the same model, by path; more may be
        added at any time. `cpu_ns` is a clock of the CPU time that this takes. `part_ns` is how much of it one look may
        spend on predictions, for somebody who draws: they then come some looks later. `None`: as much as they take.
        """
        self._rules = rules
        self._variants = {} if variants is None else variants
        self._cpu_ns = cpu_ns
        self._part_ns = part_ns
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower()
        self._watch = Watch()
        self._curves = Curves()
        self._explanation = Explanation()
        self._name_from_ns = self._rank_from_ns = 0
        self._has_steps = self._is_over = False
        self._break_evens: tuple[BreakEven, ...] | None = None
        """`None`: to be found anew."""
        self._break_evens_until_ns = 0
        self._ranking: Generator[None, None, None] | None = None
        """That is being made. `None`: none is."""
        self._ranking_ns = 0
        """CPU time of what has been made of it."""
        self._ranked: Ranking | None = None
        """The last one as it was made."""
        self._ranked_share: float | None = None
        """Of the time that it is of, that of steps with prompts."""
        self._is_first, self._has_changed = True, False
        """None was made since the session began or something was changed; and something was."""
        self._names = Names()
        self._stalls: dict[int, Stall] = {}
        self._n_stalls_forgotten = 0

    def write(self, record: AnyRecord) -> None:
        """Take the next record of the session, in the order of their time. A header begins a session anew."""
        if isinstance(record, Header):
            self._begin()
        elif isinstance(record, StepRecord):
            if not self._has_steps and not self._is_over:
                self._rank_from_ns = max(self._rank_from_ns, record.start_ns + SETTLING_NS)
            self._has_steps = True
        elif isinstance(record, ConfigEvent | TrafficEvent):
            self._change(record)
        elif isinstance(record, Footer):
            self._end()
        self._follower.write(record)
        self._watch.write(record)
        self._curves.write(record)
        if self._cpu_ns is unhurried and isinstance(record, StepRecord):
            self._name_when_due(record.end_ns)

    def _change(self, event: ConfigEvent | TrafficEvent) -> None:
        """What was predicted is of what was in force until now; what comes first after a change is not typical."""
        settling_ns = SETTLING_NS
        if isinstance(event, ConfigEvent):
            if event.kind == "refused" or not event.changes:
                return
            if event.kind == "rebuild":
                settling_ns = (event.duration_ns or 0) + REFILLING_NS
        self._rank_from_ns = event.at_ns + settling_ns
        self._break_evens = self._ranking = self._ranked = None
        self._is_first = self._has_changed = True
        self._explanation = msgspec.structs.replace(
            self._explanation, ranking=None, why_no_ranking=self._why_not_yet(event.at_ns), ranked_at_ns=None
        )

    def _why_not_yet(self, at_ns: int) -> str:
        if at_ns >= self._rank_from_ns:
            return "Predictions are being made."
        left = units.counted(max(-(-(self._rank_from_ns - at_ns) // 1_000_000_000), 1), "second")
        if self._has_changed:
            return f"Something has just changed: predictions start anew in {left}."
        return f"The session has just begun: predictions start in {left}."

    def _end(self) -> None:
        """Whoever looks from now on is told what `final` says."""
        self._is_over = True
        self._break_evens = self._ranking = None
        self._name_from_ns = self._rank_from_ns = 0

    def close(self) -> None:
        """Nothing is held that needs releasing."""

    def explanation(self, at_ns: int) -> Explanation:
        """What is known now; parts of it as of some seconds ago, where making them anew would cost too much."""
        named_ns = self._name_from_ns
        self.follow(at_ns)
        has_named = self._name_from_ns != named_ns
        # Somebody who draws does not wait for both.
        if self._has_steps and at_ns >= self._rank_from_ns and not (has_named and self._part_ns is not None):
            self._go_on_ranking(at_ns)
        if self._has_steps and self._explanation.ranking is None and self._explanation.ranked_at_ns is None:
            why = self._why_not_yet(at_ns)
            self._explanation = msgspec.structs.replace(self._explanation, why_no_ranking=why)
        return self._explanation

    def rest(self, at_ns: int, *, is_over: bool = False) -> bool:
        """Time stands still: have the next look tell what limits at this moment. Whether a look would tell more yet.

        `is_over`: no record will come any more, and none has said so.
        """
        if is_over and not self._is_over:
            self._end()
        if not self._has_steps:
            return False
        if self._names.named_ns != at_ns:
            self._name_from_ns = min(self._name_from_ns, at_ns)
        return at_ns >= min(self._name_from_ns, self._rank_from_ns)

    def follow(self, at_ns: int) -> Explanation:
        """The same while nobody looks, for the course of things: what limits is named, and nothing is predicted.

        With the clock `unhurried` that is done as the steps come, so that no look makes a difference.
        """
        if self._cpu_ns is not unhurried:
            self._name_when_due(at_ns)
        return self._explanation

    def _name_when_due(self, at_ns: int) -> None:
        if not self._has_steps or at_ns < self._name_from_ns:
            return
        began_ns = self._cpu_ns()
        self._name(at_ns)
        self._name_from_ns = at_ns + _stays(self._cpu_ns() - began_ns, NAMING_SHARE, NAMING_NS)
        evidence = self._follower.evidence
        if evidence is not None and evidence.forwards < LEAST_FORWARDS:
            # That there are too few, 4 of 8, is not true for long.
            self._name_from_ns = at_ns + NAMING_NS[0]

    def take_changes(self) -> tuple[NameChange, ...]:
        """What has been named since this was asked last, oldest first, however seldom somebody looks."""
        return self._names.take_changes()

    def final(self, at_ns: int) -> Explanation:
        """What is known at the end, all of it made anew."""
        self._break_evens = self._ranking = None
        self._is_over = True
        if self._has_steps:
            self._name(at_ns)
            deque(self._rank(at_ns), maxlen=0)
        return self._explanation

    def predict(self, changes: Mapping[str, Setting], at_ns: int, *, is_vague_told: bool = False) -> Prediction | None:
        """What these settings would do, by their new values; see `Predictor.predict`. `None`: no step has run."""
        if not self._has_steps:
            return None
        predictor = self._predictor()
        if isinstance(predictor, str):
            config = self._watch.config
            made = {name: (getattr(config, name, None), value) for name, value in changes.items()}
            return Prediction(at_ns=at_ns, changes=made, reason=predictor)
        return predictor.predict(changes, at_ns, is_vague_told=is_vague_told)

    def _go_on_ranking(self, at_ns: int) -> None:
        """Make predictions, or another part of them, of what was known when they were begun."""
        if self._ranking is None:
            self._ranking, self._ranking_ns = self._rank(at_ns), 0
        began_ns = self._cpu_ns()
        for _ in self._ranking:
            spent_ns = self._cpu_ns() - began_ns
            if self._part_ns is not None and spent_ns >= self._part_ns:
                self._ranking_ns += spent_ns
                return
        self._ranking = None
        spent_ns = self._ranking_ns + self._cpu_ns() - began_ns
        self._rank_from_ns = at_ns + _stays(spent_ns, RANKING_SHARE, RANKING_NS)
        if self._explanation.ranking is None:
            # That there are too few steps, 6 of 8, is not true for long, and took next to nothing to find out.
            self._rank_from_ns = at_ns + NAMING_NS[0]
        elif self._is_first:
            self._rank_from_ns = min(self._rank_from_ns, at_ns + RENEWED_NS)
            self._is_first = False

    def _name(self, at_ns: int) -> None:
        naming = self._follower.name(at_ns, is_over=self._is_over)
        self._names.remember(naming, at_ns)
        evidence, model = self._follower.evidence, self._follower.fit.model()
        self.remember_stalls(() if evidence is None else evidence.stalls)
        terms: tuple[tuple[str, float], ...] = ()
        if evidence is not None and evidence.terms is not None and evidence.steps > 0:
            terms = tuple([(name, ns / evidence.steps) for name, ns in zip(TERMS, evidence.terms, strict=True)])
        self._explanation = msgspec.structs.replace(
            self._explanation,
            naming=naming,
            stood=self._names.standing(at_ns),
            terms=terms,
            responses=() if evidence is None else tuple(evidence.responses.values()),
            residual=None if model is None else model.residual,
            is_calibrated=model is not None and model.is_calibrated,
            unknown={} if model is None else dict(model.unknown),
        )
        self._withhold()
        if self._ranked is None:
            return
        ranked_ns = self._explanation.ranked_at_ns or 0
        if self._ranked.doubt == STARVED and self._starved() is None:
            # The cores are free again: what was not recommended for want of them is not kept from the user longer.
            self._rank_from_ns = min(self._rank_from_ns, ranked_ns + RANKING_NS[0])
        elif has_moved(self._ranked_share, self._watch.prompt_share):
            self._rank_from_ns = min(self._rank_from_ns, ranked_ns + RENEWED_NS)

    def _withhold(self) -> None:
        """Recommend nothing of what was predicted while something speaks against it; nor, once the engine's threads had
        lost their cores, until it is predicted anew."""
        if self._ranked is None:
            return
        ranking, starved = self._ranked, self._starved()
        if starved is not None and ranking.doubt is None:
            ranking = self._ranked = ranking.withheld(starved)
        elif ranking.doubt is None and is_unexplained(self._explanation.naming, self._follower.evidence):
            ranking = ranking.withheld(UNEXPLAINED)
        self._explanation = msgspec.structs.replace(self._explanation, ranking=ranking)

    def _starved(self) -> str | None:
        """Why nothing may be recommended where the engine's threads lack their cores: the model has learned from
        starved steps, too.

        At the end, what limited for most of the run counts as well. `None`: they have them.
        """
        stood = self._explanation.stood
        is_most = self._is_over and bool(stood) and stood[0].naming.name == STARVATION and stood[0].share >= LEAST_SHARE
        return STARVED if is_most or starves(self._explanation.naming) else None

    def remember_stalls(self, found: tuple[Stall, ...]) -> None:
        """Take the stalls of the last seconds; the oldest but the longest are forgotten."""
        self._stalls |= {stall.n: stall for stall in found}
        while len(self._stalls) > MOST_STALLS:
            first, second = itertools.islice(self._stalls, 2)
            longest = max(self._stalls.values(), key=lambda stall: stall.duration_ns)
            del self._stalls[second if first == longest.n else first]
            self._n_stalls_forgotten += 1
        self._explanation = msgspec.structs.replace(
            self._explanation,
            stalls=tuple(self._stalls.values()),
            n_stalls=len(self._stalls) + self._n_stalls_forgotten,
        )

    def _rank(self, at_ns: int) -> Generator[None, None, None]:
        """Predict everything, a candidate at a time."""
        share = self._watch.prompt_share
        predictor = self._predictor()
        ranking, why = None, ""
        if isinstance(predictor, str):
            why = predictor
        else:
            if self._break_evens is None or at_ns >= self._break_evens_until_ns:
                self._break_evens = yield from all_in_parts(predictor)
                self._break_evens_until_ns = at_ns + BREAK_EVENS_NS
            ranking = yield from rank_in_parts(predictor, at_ns, self._break_evens, self._starved())
        self._explanation = msgspec.structs.replace(
            self._explanation, ranking=ranking, why_no_ranking=why, ranked_at_ns=at_ns, drafts=self._drafts()
        )
        self._ranked, self._ranked_share = ranking, share
        self._withhold()  # It may have taken seconds.

    def _predictor(self) -> Predictor | str:
        curves = {source: curve for source in SOURCES if (curve := self._curves.curve(source)) is not None}
        point = self._watch.point(self._follower.model, curves=curves, variants=dict(self._variants), rules=self._rules)
        return point if isinstance(point, str) else Predictor(point)

    def _drafts(self) -> tuple[Acceptance, ...]:
        curves = [curve for source in SOURCES if (curve := self._curves.curve(source)) is not None]
        told = [curve.standing(length) for curve in curves for length in curve.lengths]
        return tuple([one for one in told if one is not None])


def _stays(cost_ns: int, share: float, bounds_ns: tuple[int, int]) -> int:
    """How long something that took so much CPU time has to stay to take no more than a share of one core, in ns."""
    least_ns, most_ns = bounds_ns
    return min(max(least_ns, round(cost_ns / share)), most_ns)
