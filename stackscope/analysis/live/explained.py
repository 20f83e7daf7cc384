"""The verdict as the explainer gives it: its name, its number, what was rejected, and the best changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live.snapshot import Ratio, Suggestion, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.analysis.explainer import Explanation
    from stackscope.analysis.whatif.ranking import Ranked
    from stackscope.records import Estimate, Finding

MOST_REJECTED: Final = 5
MOST_SUGGESTED: Final = 2
LEAST_TOLD: Final = 0.005
"""Smaller shares are not worth rejecting."""
LEAST_PRICE: Final = 1.1
"""A first token that takes less than this times as long is not held against a change."""


def verdict(explanation: Explanation) -> Verdict:
    """What limits now, in the form that all verdicts have."""
    naming = explanation.naming
    others = [finding for finding in naming.rejected if finding.claim and (finding.share or 0.0) >= LEAST_TOLD]
    others = [finding for finding in others if finding not in naming.ahead]
    others = others[: max(MOST_REJECTED - len(naming.ahead), 0)]
    larger = [] if naming.name is None else [one for one in others if (one.share or 0.0) > (naming.share or 0.0)]
    return Verdict(
        basis="explainer",
        name=naming.name,
        share=naming.share,
        sentence=naming.sentence,
        ahead=_told(naming.ahead),
        beside=_told(one for one in larger if one.is_confirmed),
        unconfirmed=_told(one for one in larger if not one.is_confirmed),
        rejected=_told(one for one in others if one not in larger),
        next=suggestions(explanation),
        since_ns=naming.since_ns,
        previous=naming.previous,
    )


def _told(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple([f"{one.cause} {units.percent(one.share)}" for one in findings])


def suggestions(explanation: Explanation) -> tuple[Suggestion, ...]:
    """The changes that are predicted to gain most, beyond doubt."""
    ranking = explanation.ranking
    if ranking is None:
        return ()
    return tuple([suggested(one) for one in ranking.recommended[:MOST_SUGGESTED] if one.gain is not None])


def suggested(one: Ranked) -> Suggestion:
    """A change that has a gain, with what it costs the first token."""
    assert one.gain is not None
    first, gap = one.prediction.ttft, one.prediction.step_gap
    # Where arrivals decide the tokens per second, changes are ranked by how much sooner those come.
    is_gap = gap is not None and one.gain != one.prediction.tokens
    return Suggestion(
        changes=dict(one.candidate.changes),
        predicted=ratio(gap if is_gap and gap is not None else one.gain),
        figure="step_gap" if is_gap else "tokens_per_s",
        label=one.label,
        price=ratio(first) if first is not None and first.low > LEAST_PRICE else None,
    )


def ratio(estimate: Estimate) -> Ratio:
    return Ratio(value=estimate.value, low=estimate.low, high=estimate.high)
