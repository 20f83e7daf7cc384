"""Toggles: what was predicted before the first visit, beside what the visits measured."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from scipy import stats

from benchmarks.validate.figures import Judged
from benchmarks.validate.reading import Knowledge
from stackscope.analysis.whatif.baselines import BASELINES, uncalibrated_roofline
from stackscope.analysis.whatif.predict import Predictor
from stackscope.analysis.whatif.watch import Watch
from stackscope.pipeline import time_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.validate.reading import Recording
    from stackscope.analysis.whatif.contracts import AcceptanceCurve
    from stackscope.records import DraftKind, Estimate, ModelSummary
    from stackscope.toggles import EngineConfig, Setting

MEMORY: Final = "always memory-bound"
PRODUCT: Final = "multiplied speed-ups"
GEOMETRIC: Final = "geometric acceptance"
ROOFLINE: Final = "uncalibrated roofline"
MEASURED_PRODUCT: Final = "multiplied (measured) speed-ups"
"""What multiplying makes of the parts once they have been tried: it knows more than any prediction."""
DRAFTING: Final = frozenset({"speculation", "draft_length", "adaptive_draft"})
SHEET_BANDWIDTH: Final = 51.2e9
"""Bytes per second that a data sheet promises: two channels of DDR4-3200."""

Key = frozenset[tuple[str, str]]
"""Settings and what they became, as text."""


class Toggle(NamedTuple):
    """One toggle of a session, or several at a time."""

    settings: dict[str, Setting]
    measured: float
    """Tokens per second after ÷ before: geometric mean over visits."""
    noise: float
    """Half the 90 % interval of its logarithm."""
    predicted: Estimate | None
    why_not: str | None
    """Why there is no prediction."""
    simpler: Mapping[str, float]
    """What simpler predictors said, by their names."""
    session: str = ""
    drafts_otherwise: bool = False
    """Drafts of another length or source are tried after it, so that it matters how acceptance is thought of."""
    is_pair: bool = False
    """It is made of others that its session has measured alone."""

    @property
    def judged(self) -> Judged | None:
        one = self.predicted
        return None if one is None else Judged(one.value, one.low, one.high, self.measured, self.noise)

    def judged_by(self, name: str) -> Judged | None:
        """The same of a simpler predictor, which knows no interval. `None`: it said nothing."""
        value = self.simpler.get(name)
        return None if value is None else Judged(value, value, value, self.measured, self.noise)

    @property
    def name(self) -> str:
        return ", ".join(f"{key} {_told(value)}" for key, value in sorted(self.settings.items()))


def _told(value: Setting) -> str:
    return str(value).rpartition("/")[2]


def key_of(settings: Mapping[str, Setting]) -> Key:
    return frozenset((name, str(value)) for name, value in settings.items())


def ratios(recording: Recording) -> dict[Key, tuple[dict[str, Setting], list[float]]]:
    """Speed in every block with a toggle ÷ the geometric mean of the blocks without beside it, by toggle."""
    found: dict[Key, tuple[dict[str, Setting], list[float]]] = {}
    stretches = recording.stretches
    for number in range(1, len(stretches) - 1, 2):
        before, between, after = (stretches[number + i].tokens_per_s for i in (-1, 0, 1))
        if before and between and after:
            settings = stretches[number].changes
            found.setdefault(key_of(settings), (settings, []))[1].append(between / math.sqrt(before * after))
    return found


class Guess(NamedTuple):
    """What was expected of a toggle just before its first visit."""

    tokens: Estimate | None = None
    why_not: str | None = "it was never predicted"
    simpler: Mapping[str, float] = MappingProxyType({})


def toggles(recording: Recording, session: str = "") -> list[Toggle]:
    """Every toggle of a session with its prediction, which saw nothing of it."""
    made, measured = predictions(recording), ratios(recording)
    reach = _reach([visits for _, visits in measured.values()])
    found = []
    for key, (settings, visits) in measured.items():
        guess = made.get(key, Guess())
        mean = math.exp(math.fsum(map(math.log, visits)) / len(visits))
        noise = reach / math.sqrt(len(visits))
        drafts = drafts_otherwise(recording, key)
        found.append(Toggle(settings, mean, noise, guess.tokens, guess.why_not, guess.simpler, session, drafts))
    return with_products(found)


def drafts_otherwise(recording: Recording, key: Key) -> bool:
    """Whether drafts of another length or source are tried after a toggle than before."""
    first = next(stretch for stretch in recording.stretches[1::2] if key_of(stretch.changes) == key)
    drafts = first.config is not None and first.config.speculation != "off"
    return drafts and not DRAFTING.isdisjoint(first.changes)


def with_products(found: Sequence[Toggle]) -> list[Toggle]:
    """The toggles of a session, pairs with what multiplying makes of them."""
    made = []
    for one in found:
        product = multiplied(found, one)
        if product is not None:
            simpler = {**one.simpler, MEASURED_PRODUCT: product.predicted}
            one = one._replace(is_pair=True, simpler=simpler)
        made.append(one)
    return made


def _reach(visits: Sequence[Sequence[float]]) -> float:
    """Half the 90 % interval of the logarithm of one visit, from how the visits of each toggle differ; Student's t.

    0 where each was visited once: nothing is known of it then.
    """
    freedom = sum(len(some) - 1 for some in visits)
    if freedom < 1:
        return 0.0
    logs = [[math.log(one) for one in some] for some in visits]
    squares = math.fsum((one - math.fsum(some) / len(some)) ** 2 for some in logs for one in some)
    return float(stats.t.ppf(0.95, freedom)) * math.sqrt(squares / freedom)


def predictions(recording: Recording) -> dict[Key, Guess]:
    """What was expected of each toggle just before its first visit."""
    watch, knowledge = Watch(), Knowledge(recording.header)
    variants = _variants(recording)
    due = [stretch for stretch in recording.stretches[1::2] if stretch.changes]
    made: dict[Key, Guess] = {}
    for record in recording.records:
        at_ns = time_ns(record)
        while due and at_ns is not None and at_ns >= due[0].begins_ns:
            stretch = due.pop(0)
            key = key_of(stretch.changes)
            if key not in made:
                made[key] = _predicted(watch, knowledge, variants, stretch.changes)
        watch.write(record)
        knowledge.write(record)
    return made


def _predicted(
    watch: Watch, knowledge: Knowledge, variants: Mapping[str, ModelSummary], changes: Mapping[str, Setting]
) -> Guess:
    kinds: tuple[DraftKind, ...] = ("ngram", "draft")
    known = ((kind, knowledge.curves.curve(kind)) for kind in kinds)
    curves: dict[DraftKind, AcceptanceCurve] = {kind: curve for kind, curve in known if curve is not None}
    point = watch.point(knowledge.fit.model(), curves=curves, variants=variants)
    if isinstance(point, str):
        return Guess(None, point)
    found = Predictor(point).predict(changes)
    simpler = {name: guess for name, predict in BASELINES.items() if (guess := predict(point, changes)) is not None}
    sheet = uncalibrated_roofline(point, changes, bandwidth=SHEET_BANDWIDTH, flops_per_s=sheet_flops(point.config))
    if sheet is not None:
        simpler[ROOFLINE] = sheet
    return Guess(found.tokens, None if found.tokens is not None else found.reason, simpler)


def sheet_flops(config: EngineConfig) -> float:
    """FLOP/s that a data sheet promises of the engine's cores: 32 a cycle (two fused multiply-adds of 8) at 3.5 GHz."""
    return (config.threads or 1) * 32 * 3.5e9


def _variants(recording: Recording) -> dict[str, ModelSummary]:
    """Weights that are changed to: what a screen knows of the files beside the model's."""
    from stackscope.records import ConfigEvent

    return {
        event.config.model: event.model
        for event in recording.records
        if isinstance(event, ConfigEvent) and event.config is not None and event.model is not None
    }


def multiplied(found: Sequence[Toggle], pair: Toggle) -> Judged | None:
    """What multiplying the measured effects of its parts makes of a pair. `None`: a part was not measured alone."""
    singles = {key_of(one.settings): one for one in found}
    left = set(key_of(pair.settings))
    product = 1.0
    for key, one in sorted(singles.items(), key=lambda item: -len(item[0])):
        if key < key_of(pair.settings) and key <= left:
            product *= one.measured
            left -= key
    return None if left else Judged(product, product, product, pair.measured, pair.noise)
