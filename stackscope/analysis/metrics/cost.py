"""What a token cost, in bytes moved and FLOPs executed. Every forward is in it, prefill and drafting included, over the
tokens that entered outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope.analysis.metrics.base import Figures, Metric, Need, ratio

if TYPE_CHECKING:
    from stackscope.analysis.account import Account


class CostPerToken(Metric[float]):
    """Target and draft model together, ÷ emitted tokens."""

    unit = "B/token"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "model")

    def of(self, account: Account) -> float:
        """What of an account is meant."""
        raise NotImplementedError

    def compute(self, figures: Figures) -> float | None:
        if figures.target is None or figures.draft is None:
            return None
        return ratio(self.of(figures.target) + self.of(figures.draft), figures.steps.work.emitted)


class WeightBytesPerToken(CostPerToken):
    """Weights read per emitted token: once per pass, whatever the batch. Experts by expectation."""

    tag = "weight_bytes_per_token"
    header = "weights"
    formula = "Σ weight bytes read by target and draft model ÷ Σ emitted"

    def of(self, account: Account) -> float:
        return account.weight_bytes


class KvBytesPerToken(CostPerToken):
    """KV cache read and written per emitted token. Each cached token is read once per forward and layer (logical)."""

    tag = "kv_bytes_per_token"
    header = "KV"
    formula = "Σ KV bytes read and written by target and draft model ÷ Σ emitted"

    def of(self, account: Account) -> float:
        return account.kv_bytes


class BytesPerToken(CostPerToken):
    """All bytes of the ledger per emitted token. Activations are modelled, not counted, and stay out."""

    tag = "bytes_per_token"
    header = "bytes"
    formula = "Σ (weights + embedding rows + KV + recurrent state) of target and draft model ÷ Σ emitted"

    def of(self, account: Account) -> float:
        return account.total_bytes


class FlopsPerToken(CostPerToken):
    """FLOPs executed per emitted token, rejected rows and prefill included."""

    tag = "flops_per_token"
    header = "FLOPs"
    unit = "FLOP/token"
    formula = "Σ FLOPs of target and draft model ÷ Σ emitted"

    def of(self, account: Account) -> float:
        return account.flops.total


class BytesByPart(Metric[dict[str, float]]):
    """Bytes per emitted token by part of the target's account, and the draft model's as one part. They sum to
    `bytes_per_token`; a part named `_expected` is an expectation over expert routing, the others are exact."""

    tag = "bytes_per_token_by_part"
    header = "bytes by part"
    unit = "B/token"
    formula = "Σ bytes of the part ÷ Σ emitted"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "model")

    def compute(self, figures: Figures) -> dict[str, float] | None:
        emitted = figures.steps.work.emitted
        if figures.target is None or figures.draft is None or emitted == 0:
            return None
        parts = figures.target.named_bytes() | {"draft_model": figures.draft.total_bytes}
        return {name: size / emitted for name, size in parts.items()}


class FlopsByPart(Metric[dict[str, float]]):
    """FLOPs per emitted token by part of the target's account, and the draft model's as one part. They sum to
    `flops_per_token`."""

    tag = "flops_per_token_by_part"
    header = "FLOPs by part"
    unit = "FLOP/token"
    formula = "Σ FLOPs of the part ÷ Σ emitted"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "model")

    def compute(self, figures: Figures) -> dict[str, float] | None:
        emitted = figures.steps.work.emitted
        if figures.target is None or figures.draft is None or emitted == 0:
            return None
        parts = figures.target.flops.named() | {"draft_model": figures.draft.flops.total}
        return {name: flops / emitted for name, flops in parts.items()}


class TargetBandwidth(Metric[float]):
    """Bytes that the target's forwards moved, by the ledger, per second that they ran."""

    tag = "target_bytes_per_s"
    header = "bytes/s"
    unit = "B/s"
    formula = "Σ bytes of the target ÷ Σ forward phase"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "phases", "model")

    def compute(self, figures: Figures) -> float | None:
        if figures.target is None:
            return None
        return ratio(figures.target.total_bytes * 1e9, figures.steps.time.forward_total_ns)


class TargetFlopRate(Metric[float]):
    """FLOPs that the target's forwards executed, by the ledger, per second that they ran."""

    tag = "target_flops_per_s"
    header = "FLOP/s"
    unit = "FLOP/s"
    formula = "Σ FLOPs of the target ÷ Σ forward phase"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "phases", "model")

    def compute(self, figures: Figures) -> float | None:
        if figures.target is None:
            return None
        return ratio(figures.target.flops.total * 1e9, figures.steps.time.forward_total_ns)


COST_METRICS: tuple[Metric[object], ...] = (
    WeightBytesPerToken(),
    KvBytesPerToken(),
    BytesPerToken(),
    BytesByPart(),
    FlopsPerToken(),
    FlopsByPart(),
    TargetBandwidth(),
    TargetFlopRate(),
)
