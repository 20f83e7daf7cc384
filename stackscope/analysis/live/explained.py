"""The verdict as the explainer gives it: its name, its number, what was rejected, and the best changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live.snapshot import Ratio, Suggestion, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.diagnosis.naming import Naming
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
    larger = [] if naming.name is None else [one for one in others if _is_beside(one, naming)]
    return Verdict(
        basis="explainer",
        name=naming.name,
        share=naming.share,
        sentence=naming.sentence,
        ahead=_told(naming.ahead, naming),
        beside=_told([one for one in larger if one.is_confirmed], naming),
        unconfirmed=_told([one for one in larger if not one.is_confirmed], naming),
        rejected=_told([one for one in others if one not in larger], naming),
        next=suggestions(explanation),
        since_ns=naming.since_ns,
        previous=naming.previous,
    )


def _is_beside(finding: Finding, naming: Naming) -> bool:
    """It takes more than what is named, or goes on while requests wait; the share of a wait is of another whole."""
    if "queueing" in (naming.name, finding.cause):
        return naming.name == "queueing"
    return (finding.share or 0.0) > (naming.share or 0.0)


def _told(findings: Sequence[Finding], naming: Naming) -> tuple[str, ...]:
    """With their shares, and of what those are where that is not what the share of the name is of."""
    wholes = ["" if (one.cause == "queueing") == (naming.name == "queueing") else _whole(one) for one in findings]
    # Beside a wait, all others are of wall time: that is said once.
    said = [whole if whole != before else "" for whole, before in zip(wholes, ["", *wholes], strict=False)]
    return tuple([f"{one.cause} {units.percent(one.share)}{whole}" for one, whole in zip(findings, said, strict=True)])


def _whole(finding: Finding) -> str:
    return " of requests' time" if finding.cause == "queueing" else " of wall time"


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
