"""Whether drafting wins is said only where the break-even is known well enough to tell."""

from __future__ import annotations

import pytest

from stackscope.analysis.diagnosis.causes_speculation import low_acceptance, outcome
from stackscope.analysis.diagnosis.evidence import Evidence, Speculation
from stackscope.analysis.diagnosis.slices import Slices


def rounds(tokens: float, low: float | None, high: float | None) -> Speculation:
    """Rounds that cost 4 plain steps by the model, which is sure of that to so much."""
    return Speculation(
        tokens_per_forward=tokens, coverage=1.0, acceptance=0.4, drafted=300, length=4.0, break_even=4.0,
        break_even_low=low, break_even_high=high, break_even_if_free=3.0, wall_ns=1e9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "low", "high", "what"),
    [
        (2.25, 3.8, 4.2, "acceptance"),
        (2.25, 2.0, 6.0, "even"),
        (5.0, 2.0, 6.0, "even"),
        (5.0, 3.8, 4.2, "wins"),
        (2.25, None, None, "acceptance"),
        (3.95, 3.99, 4.01, "even"),  # However sure the model is: nearer than 3 % nobody can tell.
    ],
)
def test_a_break_even_in_doubt_decides_nothing(tokens: float, low: float | None, high: float | None, what: str) -> None:
    assert outcome(rounds(tokens, low, high)) == what


def test_what_cannot_be_told_claims_no_time_and_shows_the_interval() -> None:
    evidence = Evidence(speculation=rounds(2.25, 2.0, 6.0))
    finding = low_acceptance(evidence, Slices(evidence)).finding
    assert finding.against == "2.25 tokens per forward, 4.00 [2.00, 6.00] needed to break even"
    assert (finding.share, finding.claim) == (None, "")
