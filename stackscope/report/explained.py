"""What a run's summary says of why it was as fast as it was, and of what would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from rich.text import Text

from stackscope import units
from stackscope.analysis.diagnosis import stalls
from stackscope.analysis.live.explained import suggested
from stackscope.report.layout import SEPARATOR, row

if TYPE_CHECKING:
    from stackscope.analysis.explainer import Explanation
    from stackscope.analysis.whatif.ranking import Ranked, Ranking
    from stackscope.records import Estimate

MOST_CHANGES: Final = 3
MOST_NAMES: Final = 3
LEAST_UNNAMED: Final = 0.005
"""Share of the run without a name below which that is not told."""


class Told(NamedTuple):
    """Phrases that belong together."""

    label: str
    """Empty: they go on with what is above."""
    phrases: list[str | Text]
    style: str = ""

    @property
    def plain(self) -> str:
        return SEPARATOR.join([phrase if isinstance(phrase, str) else phrase.plain for phrase in self.phrases])


def lines(explanation: Explanation, width: int) -> list[Text]:
    """A block of the summary; empty where nothing is known."""
    return [row(one.label, one.phrases, width, style=one.style) for one in told(explanation)]


def told(explanation: Explanation) -> list[Told]:
    """What limited the session, and what would have helped; empty where nothing is known."""
    found = _limits(explanation)
    stalled = stalls.sentence(explanation.stalls, explanation.n_stalls)
    if stalled is not None:
        found.append(Told("stalled", [stalled], "yellow"))
    if explanation.ranking is None:
        return found
    best = explanation.ranking.recommended[:MOST_CHANGES]
    found += [Told("would help" if n == 0 else "", _change(one)) for n, one in enumerate(best)]
    if found and not best:
        found.append(Told("would help", [_nothing_helps(explanation.ranking)]))
    found += [Told("but", [sentence]) for sentence in explanation.ranking.contradictions[:1]]
    return found


def _nothing_helps(ranking: Ranking) -> str:
    if ranking.doubt is not None:
        return f"not said: {ranking.doubt}"
    if all(one.gain is None for one in ranking.singles):
        return "nothing could be predicted"
    return "nothing that was predicted gains beyond doubt"


def _limits(explanation: Explanation) -> list[Told]:
    """What was named for longest, with its claim; else why nothing is named."""
    stood = explanation.stood[:MOST_NAMES]
    if not stood:
        sentence = explanation.naming.sentence
        return [Told("limited by", [f"not named: {sentence}"])] if explanation.naming.shares else []
    first = stood[0]
    found = [Told("limited by", [Text(str(first.naming.name), style="bold"), first.naming.sentence])]
    if len(explanation.stood) > 1 or first.share < 1:
        found.append(Told("", [*_shares(explanation), "its figures: the last seconds in which it was named"], "dim"))
    finding = first.naming.finding
    if finding is not None and finding.counterfactual:
        found.append(Told("", [finding.counterfactual], "dim"))
    return found


def _shares(explanation: Explanation) -> list[str]:
    """For how much of the run each name was the verdict, and for how much there was none."""
    first, *others = explanation.stood[:MOST_NAMES]
    told = [f"{first.naming.name} was named for {units.percent(first.share)} of the run"]
    told += [f"{one.naming.name} for {units.percent(one.share)}" for one in others]
    unnamed = 1.0 - sum(one.share for one in explanation.stood)
    return told if unnamed < LEAST_UNNAMED else [*told, f"nothing for {units.percent(unnamed)}"]


def _change(one: Ranked) -> list[str | Text]:
    """In the words of the verdict: what it gains, and what that costs the first token."""
    made = suggested(one)
    gain = units.change(made.predicted.value - 1, made.predicted.low - 1, made.predicted.high - 1)
    figure = "step gap " if made.figure == "step_gap" else ""
    told: list[str | Text] = [Text(f"{made.label} {figure}{gain}", style="bold")]
    if made.price is not None:
        told.append(Text(f"but TTFT {units.change(made.price.value - 1)}", style="yellow"))
    return [*told, one.prediction.reason.rstrip(".")]


def document(explanation: Explanation) -> dict[str, object]:
    """The same, and all else that is known, as plain JSON types. Ratios are after ÷ before, durations nanoseconds."""
    naming, ranking = explanation.naming, explanation.ranking
    return {
        "name": naming.name,
        "share": naming.share,
        "sentence": naming.sentence,
        "finding": msgspec.to_builtins(naming.finding),
        "shares": dict(naming.shares),
        "unexplained": naming.unexplained,
        "rejected": msgspec.to_builtins(naming.rejected),
        "notes": list(naming.notes),
        "stalls": msgspec.to_builtins(explanation.stalls),
        "n_stalls": explanation.n_stalls,
        "stood": [{"name": one.naming.name, "ns": one.ns, "share": one.share} for one in explanation.stood],
        "time_model": {
            "calibrated": explanation.is_calibrated,
            "residual": explanation.residual,
            "step_ns": dict(explanation.terms),
            "unknown": explanation.unknown,
        },
        "changes": [] if ranking is None else [_predicted(one) for one in (*ranking.singles, *ranking.pairs)],
        "contradictions": [] if ranking is None else list(ranking.contradictions),
        "break_evens": [] if ranking is None else msgspec.to_builtins(ranking.break_evens),
        "doubt": None if ranking is None else ranking.doubt,
        "not_predicted": explanation.why_no_ranking if ranking is None else None,
        "drafts": msgspec.to_builtins(explanation.drafts),
    }


def _predicted(one: Ranked) -> dict[str, object]:
    prediction = one.prediction
    return {
        "change": one.label,
        "settings": {name: after for name, (_, after) in prediction.changes.items()},
        "recommended": one.is_recommended,
        "tokens": _interval(prediction.tokens),
        "ttft": _interval(prediction.ttft),
        "step_gap": _interval(prediction.step_gap),
        "memory_bytes": prediction.memory_bytes,
        "then_limits": prediction.bottleneck,
        "reason": prediction.reason,
    }


def _interval(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}
