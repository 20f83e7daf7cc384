"""Simpler predictors of the same changes, which the what-ifs have to beat: each leaves out one thing that they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stackscope.analysis.timing.terms import Terms
from stackscope.analysis.whatif.predict import Predictor
from stackscope.records import Estimate, LengthCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.whatif.contracts import AcceptanceCurve
    from stackscope.analysis.whatif.working_point import WorkingPoint
    from stackscope.toggles import EngineConfig, Setting


class Roofline:
    """Step times from the ledger and two peaks alone, with no overhead and no efficiency below 1.

    A forward takes max(bytes ÷ bandwidth, FLOPs ÷ peak), of the target and of the draft model. Without `flops_per_s`
    everything is memory-bound.
    """

    def __init__(self, pricing: Pricing, bandwidth: float, flops_per_s: float | None = None) -> None:
        self.pricing = pricing
        self.bandwidth = bandwidth
        self.flops_per_s = flops_per_s
        self.unknown: Mapping[str, str] = {}
        self.residual = 0.0
        self.is_calibrated = False

    def terms(self, shape: Shape) -> Terms:
        """All of a forward's time is one term: whichever roof it is under."""
        target, drafter = self.pricing.target, self.pricing.draft
        if target is None:
            return Terms()
        work = target.count_spans(shape.spans, shape.rows, shape.outputs, shape.passes)
        account = target.price(work)
        memory, compute = self._times(account.total_bytes, account.flops.total)
        drafting = 0.0
        if drafter is not None:
            for forward in shape.draft:
                own = drafter.account_draft([forward])
                drafting += max(self._times(own.total_bytes, own.flops.total))
        return Terms(weights=memory if memory >= compute else 0.0, compute=compute if compute > memory else 0.0,
                     draft=drafting)  # fmt: skip

    def _times(self, n_bytes: float, flops: float) -> tuple[float, float]:
        return n_bytes / self.bandwidth * 1e9, 0.0 if self.flops_per_s is None else flops / self.flops_per_s * 1e9

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> npt.NDArray[np.float64]:
        """Always the same: it knows no uncertainty."""
        del seed
        return np.tile(np.array([self.terms(shape).total for shape in shapes]), (n, 1))

    def under(self, config: EngineConfig, pricing: Pricing) -> Roofline:
        """The same peaks, whatever the threads."""
        del config
        return Roofline(pricing, self.bandwidth, self.flops_per_s)


class GeometricCurve:
    """Acceptance of every length from that of the first drafted token, as if each were independent of the others."""

    def __init__(self, curve: AcceptanceCurve, base: int = 1) -> None:
        self._curve = curve
        self._base = base

    def tokens_per_round(self, length: int) -> Estimate | None:
        """1 + coverage × Σ αʲ, with α such that it is right at the base length."""
        counts = self._curve.counts(self._base)
        if counts is None or counts.covered == 0 or counts.drafted == 0:
            return None
        alpha = counts.accepted / counts.drafted
        value = 1.0 + counts.covered / counts.rounds * sum(alpha**j for j in range(1, length + 1))
        return Estimate(value, value, value)

    def counts(self, length: int) -> LengthCounts | None:
        """With the coverage of the base length, and every draft as long as asked."""
        base, tokens = self._curve.counts(self._base), self.tokens_per_round(length)
        if base is None or tokens is None:
            return None
        return LengthCounts(
            length=length,
            rounds=base.rounds,
            covered=base.covered,
            drafted=base.covered * length,
            accepted=round(base.rounds * (tokens.value - 1.0)),
        )

    def is_replayed(self, length: int) -> bool:
        return length == self._base


def memory_bound(point: WorkingPoint, changes: Mapping[str, Setting]) -> float | None:
    """Ratio of tokens per second if only bytes took time. `None`: not predicted."""
    return _tokens(msgspec.structs.replace(point, times=Roofline(point.pricing, 1e9)), changes)


def uncalibrated_roofline(
    point: WorkingPoint, changes: Mapping[str, Setting], *, bandwidth: float, flops_per_s: float
) -> float | None:
    """The same under the roof of two peaks from a data sheet."""
    return _tokens(msgspec.structs.replace(point, times=Roofline(point.pricing, bandwidth, flops_per_s)), changes)


def geometric(point: WorkingPoint, changes: Mapping[str, Setting]) -> float | None:
    """The what-if itself, but with a geometric law of acceptance."""
    curves = {source: GeometricCurve(curve) for source, curve in point.curves.items()}
    return _tokens(msgspec.structs.replace(point, curves=curves), changes)


def product(point: WorkingPoint, changes: Mapping[str, Setting]) -> float | None:
    """Speed-ups of the single changes, multiplied: as if they had nothing to do with each other."""
    predictor = Predictor(point)
    total = 1.0
    for part in _parts(changes):
        tokens = predictor.predict(part).tokens
        if tokens is None:
            return None
        total *= tokens.value
    return total


BASELINES: Final[Mapping[str, Callable[[WorkingPoint, Mapping[str, Setting]], float | None]]] = {
    "always memory-bound": memory_bound,
    "multiplied speed-ups": product,
    "geometric acceptance": geometric,
}
"""By name; the roofline stands apart because it needs two peaks."""

_TOGETHER: Final = (
    frozenset({"speculation", "draft_length", "draft_length_max", "adaptive_draft", "synthetic_acceptance"}),
    frozenset({"kv_type_k", "kv_type_v", "flash_attention"}),
    frozenset({"slots", "slots_max"}),
    frozenset({"prefix_cache", "cache_tokens", "swa_full"}),
)
"""Settings that make up one change."""


def _parts(changes: Mapping[str, Setting]) -> list[dict[str, Setting]]:
    """The single changes that a change consists of."""
    parts = []
    left = dict(changes)
    for group in _TOGETHER:
        part = {name: left.pop(name) for name in list(left) if name in group}
        if part:
            parts.append(part)
    return parts + [{name: value} for name, value in left.items()]


def _tokens(point: WorkingPoint, changes: Mapping[str, Setting]) -> float | None:
    tokens = Predictor(point).predict(changes).tokens
    return None if tokens is None else tokens.value
