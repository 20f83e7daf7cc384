"""What a metric is, and what it is computed from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from stackscope.analysis.account import Account
    from stackscope.analysis.distribution import Spread
    from stackscope.analysis.totals import EventTotals, RequestTotals, StepTotals
    from stackscope.records import Header, RequestRecord

T_co = TypeVar("T_co", covariant=True)

Need: TypeAlias = Literal[
    "steps", "requests", "phases", "cpu", "prefix_cache", "acceptance", "slots", "model", "limits"
]
CAPABILITIES: Final[frozenset[Need]] = frozenset({"phases", "cpu", "prefix_cache", "acceptance", "slots"})
"""Needs that a source declares in its header. The others show in the records themselves."""


def unknown_needs(header: Header | None) -> frozenset[Need]:
    """What the source of a session cannot know, by its header.

    A header without capabilities makes no statement about them; but whoever reads another program's figures knows only
    what it names.
    """
    if header is None or not (header.capabilities or header.source == "attach"):
        return frozenset()
    return CAPABILITIES - frozenset(header.capabilities)


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """What a request must keep to count as good. `None`: no limit of that kind."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None

    @property
    def is_given(self) -> bool:
        return self.ttft_ns is not None or self.tpot_ns is not None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Everything that a metric may draw on, for a whole run or for one epoch of it."""

    steps: StepTotals
    requests: RequestTotals
    events: EventTotals
    target: Account | None = None
    """Cost of the target's forwards. `None`: the model's geometry is not known."""
    draft: Account | None = None
    """Cost of the draft model's forwards; nothing when there were none. `None`: there were, and its geometry is not
    known."""
    limits: ServiceLimits = ServiceLimits()

    @property
    def wall_s(self) -> float | None:
        """Seconds from the start of the first step to the end of the last. `None`: no time passed."""
        return self.steps.time.wall_ns / 1e9 if self.steps.time.wall_ns > 0 else None


class Metric(ABC, Generic[T_co]):
    """One metric. The class docstring says in words what it means; `T_co` is the type of its value."""

    tag: ClassVar[str]
    """Its name in JSON and in code."""
    header: ClassVar[str]
    """Its name on screen."""
    unit: ClassVar[str]
    """Unit of the value; `1` for a plain ratio."""
    formula: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]]
    """Without any of these the value is unknown."""

    @abstractmethod
    def compute(self, figures: Figures) -> T_co | None:
        """The value. `None`: unknown or undefined."""


class RequestMetric(Metric["Spread"]):
    """A metric with a value (or several) per request, reported as a distribution over completed requests."""

    needs = ("requests",)

    @abstractmethod
    def values(self, request: RequestRecord) -> tuple[float, ...]:
        """What one completed request adds to the distribution. Empty: undefined for it."""

    def compute(self, figures: Figures) -> Spread | None:
        return figures.requests.values[self.tag].spread()


def ratio(part: float, whole: float) -> float | None:
    """`part ÷ whole`. `None` where nothing was there to divide by."""
    return part / whole if whole != 0 else None
