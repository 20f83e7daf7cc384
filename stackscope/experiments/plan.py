"""What an experiment is going to do, as one value that is stored beside its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis import factorial
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.errors import UsageError
from stackscope.experiments.cells import Factor, config_of, label_of, masks
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BLOCKS: Final = 8
MOST_BLOCKS: Final = 20
QUICK_BLOCKS: Final = 3
LEAST_TO_STOP: Final = 5
"""Blocks before which nobody looks whether there are enough: an interval from fewer is narrow by chance too often."""

CONFIDENCE_WHEN_STOPPED: Final = 0.965
"""Of intervals that were looked at until they were narrow enough. Stopping at the first that is narrow favours those
that are so by chance: simulated from 5 blocks to 20, these hold the truth in 93.5 to 97 % of cases, and those of 95 %
in 91 to 95 %."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must keep to count as good. `None`: no limit of that kind."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None

    @property
    def service(self) -> ServiceLimits:
        return ServiceLimits(ttft_ns=self.ttft_ns, tpot_ns=self.tpot_ns)


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """How often everything is repeated."""

    first: int = DEFAULT_BLOCKS
    """Blocks that there are in any case, unless the intervals are narrow enough before."""
    least: int = LEAST_TO_STOP
    most: int = MOST_BLOCKS
    is_adaptive: bool = True
    """End early, or add blocks, by how wide the intervals are. False: `first` blocks, whatever comes."""
    seconds: float | None = 600.0
    """No block is added that would end later than this after the first began, by what blocks took. `None`: no limit."""

    @property
    def confidence(self) -> float:
        return CONFIDENCE_WHEN_STOPPED if self.is_adaptive else factorial.CONFIDENCE


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An ablation: which settings, under what traffic, how often."""

    base: EngineConfig
    """What all cells have but for the settings of the factors."""
    factors: tuple[Factor, ...]
    is_full: bool = False
    """Every combination, instead of each setting alone and all together."""
    workload: WorkloadSpec
    """With the requests that warm up among its requests."""
    limits: Limits = Limits()
    blocks: Blocks = Blocks()
    is_quick: bool = False
    is_recorded: bool = True
    """Every run leaves a recording beside the results."""
    has_quality: bool = True
    """Cells whose weights or KV types differ from the baseline's are held against it on a fixed text."""

    @property
    def cells(self) -> tuple[int, ...]:
        return masks(len(self.factors), is_full=self.is_full)

    @property
    def everything(self) -> int:
        """The cell in which all is on."""
        return (1 << len(self.factors)) - 1

    def config(self, cell: int) -> EngineConfig:
        return config_of(self.base, self.factors, cell)

    def label(self, cell: int) -> str:
        return label_of(self.factors, cell)


def with_warmup(workload: WorkloadSpec) -> WorkloadSpec:
    """The workload with requests before those that are measured: one for each in flight.

    Raises `UsageError` for a workload that is not given by its number of requests: every cell is to have the same.
    """
    if workload.requests is None or workload.duration_s is not None:
        raise UsageError(
            "Cells are compared on the same requests, so it takes their number.",
            remedy="Give --requests instead of --duration.",
        )
    if workload.requests < 2:
        raise UsageError("One request has no spread.", remedy="Give at least --requests 2.")
    return msgspec.structs.replace(workload, requests=workload.requests + warmup_requests(workload))


def warmup_requests(workload: WorkloadSpec) -> int:
    """How many of the first requests are not measured: they fault pages in, start threads, and fill the cache."""
    return workload.concurrency


def difference(before: Mapping[str, object], after: Mapping[str, object], *, inside: str = "") -> list[str]:
    """In what two plans differ, as `name: before, now after`; both as plain JSON types."""
    found = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        where = f"{inside}{name}"
        if isinstance(old, dict) and isinstance(new, dict):
            found += difference(old, new, inside=f"{where}.")
        else:
            found.append(f"{where}: {_shown(old)}, now {_shown(new)}")
    return found


def _shown(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(one, dict) and "label" in one for one in value):
        return " ".join(str(one["label"]) for one in value)
    text = "-" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
