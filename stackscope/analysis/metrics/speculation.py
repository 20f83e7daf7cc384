"""What speculation won. The bonus token (the target's own, after the drafts) is never counted as accepted, and nothing
past the end of an output is counted at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from stackscope.analysis.metrics.base import Figures, Metric, Need, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping


class TokensPerForward(Metric[float]):
    """A, the headline: tokens that a sequence wins per target forward it takes part in while decoding. 1 without
    speculation at any batch size; the first token, which the prefill yields, is in neither part."""

    tag = "tokens_per_forward"
    header = "A"
    unit = "tokens"
    formula = "tokens emitted by decoding and verifying sequences ÷ (sequence, forward) pairs of that kind"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> float | None:
        work = figures.steps.work
        return ratio(work.decode_emitted, work.decode_forwards)


class Coverage(Metric[float]):
    """Share of a decoding sequence's forwards that carried a draft. High acceptance of few drafts wins little."""

    tag = "coverage"
    header = "coverage"
    unit = "1"
    formula = "(sequence, forward) pairs with a draft ÷ those that were decoding or verifying"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> float | None:
        work = figures.steps.work
        return ratio(work.verifications.total(), work.decode_forwards)


class DraftedTokens(Metric[int]):
    """Tokens that were drafted and fed to the target for verification."""

    tag = "drafted_tokens"
    header = "drafted"
    unit = "tokens"
    formula = "Σ drafted"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> int | None:
        return drafted_tokens(figures.steps.work.verifications)


class AcceptanceRate(Metric[float]):
    """Share of the drafted tokens that entered the output. Undefined when none was drafted."""

    tag = "acceptance_rate"
    header = "acceptance"
    unit = "1"
    formula = "Σ min(accepted, emitted) ÷ Σ drafted"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> float | None:
        table = figures.steps.work.verifications
        return ratio(committed_tokens(table), drafted_tokens(table))


class AcceptanceByPosition(Metric[tuple[float, ...]]):
    """How often a draft's j-th token entered the output, over all drafts: one that is shorter counts as a miss. This is
    the per-position rate of vLLM and llama.cpp."""

    tag = "acceptance_by_position"
    header = "acceptance at j"
    unit = "1"
    formula = "verifications that committed ≥ j drafted tokens ÷ verifications, for j = 1, 2, …"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> tuple[float, ...] | None:
        table = figures.steps.work.verifications
        n = table.total()
        return tuple([hits / n for hits, _ in by_position(table)]) if n > 0 else None


class Survival(Metric[tuple[float | None, ...]]):
    """Probability that at least j drafted tokens are accepted when j are drafted (Kaplan–Meier). A draft shorter than
    j, or cut before j by the end of the output, says nothing about j. None where no draft reached j."""

    tag = "survival_by_position"
    header = "survival to j"
    unit = "1"
    formula = "S_j = Π_{i≤j} (committed ≥ i) ÷ (position i seen and committed ≥ i − 1)"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> tuple[float | None, ...] | None:
        survival: float | None = 1.0
        curve: list[float | None] = []
        for hits, at_risk in by_position(figures.steps.work.verifications):
            if survival is not None and survival > 0.0:
                survival = survival * hits / at_risk if at_risk > 0 else None
            curve.append(survival)
        return tuple(curve) if curve else None


class WastedRows(Metric[float]):
    """Rows of a verification that committed nothing: rejected drafts, and what was verified past the end."""

    tag = "wasted_rows_per_verification"
    header = "wasted rows"
    unit = "rows"
    formula = "Σ (drafted + 1 − emitted) ÷ verifications"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> float | None:
        table = figures.steps.work.verifications
        return ratio(wasted_rows(table), table.total())


class WastedRowShare(Metric[float]):
    """Share of the rows of decoding and verifying sequences that committed nothing."""

    tag = "wasted_row_share"
    header = "wasted share"
    unit = "1"
    formula = "Σ (drafted + 1 − emitted) ÷ Σ rows of decoding and verifying sequences"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "acceptance")

    def compute(self, figures: Figures) -> float | None:
        work = figures.steps.work
        return ratio(wasted_rows(work.verifications), work.decode_rows)


SPECULATION_METRICS: tuple[Metric[object], ...] = (
    TokensPerForward(),
    Coverage(),
    DraftedTokens(),
    AcceptanceRate(),
    AcceptanceByPosition(),
    Survival(),
    WastedRows(),
    WastedRowShare(),
)


def committed(verification: tuple[int, int, int]) -> int:
    """Drafted tokens of a (drafted, accepted, emitted) verification that entered the output."""
    _, accepted, emitted = verification
    return min(accepted, emitted)


def drafted_tokens(verifications: Mapping[tuple[int, int, int], int]) -> int:
    """Tokens that were drafted and fed to the target."""
    return sum([drafted * n for (drafted, _, _), n in verifications.items()])


def committed_tokens(verifications: Mapping[tuple[int, int, int], int]) -> int:
    """Of the drafted tokens, those that entered the output."""
    return sum([committed(key) * n for key, n in verifications.items()])


MOST_POSITIONS: Final = 4_096
"""Of a draft, whatever a damaged record claims."""


def by_position(verifications: Mapping[tuple[int, int, int], int]) -> list[tuple[int, int]]:
    """(committed at least j, at risk at j) for j = 1, 2, … up to the longest draft."""
    longest = min(max((drafted for drafted, _, _ in verifications), default=0), MOST_POSITIONS)
    hits, at_risk = [0] * (longest + 1), [0] * (longest + 1)
    for key, n in verifications.items():
        drafted, accepted, emitted = key
        kept = committed(key)
        # Without a bonus token the output ended inside the block: the fate of the tokens behind is not known.
        seen = drafted if emitted > accepted else kept
        for j in range(1, min(seen, kept + 1, longest) + 1):
            at_risk[j] += n
            hits[j] += n if kept >= j else 0
    return list(zip(hits[1:], at_risk[1:], strict=True))


def wasted_rows(verifications: Mapping[tuple[int, int, int], int]) -> int:
    """Rows fed to verifications that committed no token."""
    return sum(max(drafted + 1 - emitted, 0) * n for (drafted, _, emitted), n in verifications.items())
