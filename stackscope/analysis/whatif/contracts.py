"""What the what-ifs ask of others: times of steps, acceptance of drafts, and what the engine would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from numpy import float64

    from stackscope.analysis.ledgers import Pricing
    from stackscope.analysis.timing.shapes import Shape
    from stackscope.analysis.timing.terms import Terms
    from stackscope.records import Estimate, LengthCounts, ModelSummary
    from stackscope.toggles import EngineConfig


class StepTimes(Protocol):
    """Times of steps under one configuration; `timing.model.TimeModel` is one."""

    @property
    def unknown(self) -> Mapping[str, str]:
        """Parameters that are not known, with the reason."""

    @property
    def residual(self) -> float:
        """Standard deviation of ln(measured ÷ predicted) that is left of single steps."""

    @property
    def is_calibrated(self) -> bool: ...

    def terms(self, shape: Shape) -> Terms:
        """The most likely time of a step in parts, nanoseconds."""

    def draws(self, shapes: Sequence[Shape], n: int = 200, seed: int = 0) -> npt.NDArray[float64]:
        """(n, shapes) possible times, nanoseconds; a row is one possible machine, the same for models of one fit."""

    def under(self, config: EngineConfig, pricing: Pricing) -> StepTimes | str:
        """The same machine under another configuration, or why that cannot be said."""


class AcceptanceCurve(Protocol):
    """What drafts of one source have accepted, by draft length; `speculating.Curve` is one."""

    def tokens_per_round(self, length: int) -> Estimate | None:
        """A: tokens per round of one sequence, rounds without a draft included. `None`: not measured at this length."""

    def counts(self, length: int) -> LengthCounts | None:
        """What was counted at this length. `None`: nothing is known of it."""

    def is_replayed(self, length: int) -> bool:
        """Its rounds were really of this length. False: longer drafts were cut to it."""


class Rules(Protocol):
    """What the engine would make of a configuration; `engine.allowances.Allowances` is one."""

    @property
    def cores(self) -> int | None:
        """Cores that it may use. `None`: not known."""

    def holding(self, built: EngineConfig, *, longest: int, in_flight: int, free: int | None) -> Rules:
        """The same, given what the context in force was built for; the tokens, with output, of the longest request so
        far and of the longest in flight; and the bytes of memory that are free. `None`: not known."""

    def refusal(self, config: EngineConfig, model: ModelSummary, draft: ModelSummary | None) -> str | None:
        """Why it would not run, as a sentence. `None`: nothing is known against it."""

    def memory_bytes(self, config: EngineConfig, model: ModelSummary, draft: ModelSummary | None) -> int | None:
        """Weights, KV cells and logits of all models and contexts. `None`: the configuration is refused."""

    def cells(self, config: EngineConfig, model: ModelSummary) -> int | None:
        """KV cells of the target's context. `None`: the configuration is refused."""
