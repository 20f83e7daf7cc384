"""The numbers that are compared, and what each is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from stackscope.analysis.comparing.counting import PARTS
from stackscope.analysis.metrics import cost, latency, load, speculation, time
from stackscope.analysis.metrics.base import Metric, ratio

if TYPE_CHECKING:
    from stackscope.analysis.comparing.counting import Floats
    from stackscope.analysis.comparing.digest import Digest
    from stackscope.analysis.distribution import Spread

Better: TypeAlias = Literal["more", "less", "neither"]
"""Which way a number gets better. `neither`: it explains, and is no aim by itself."""

PERCENTILES: Final = (50, 90, 95, 99)
SHOWN_PERCENTILES: Final = (50, 95, 99)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of a session."""

    name: str
    """What it is called in `--fail-if` and in JSON."""
    header: str
    unit: str
    better: Better
    formula: str

    def of(self, digest: Digest) -> float | None:
        """Its value. `None`: unknown or undefined."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Rate(Figure):
    """A sum ÷ another, over all blocks of a session."""

    amounts: tuple[str, ...]
    """Columns, added up."""
    base: str
    scale: float = 1.0
    """What the ratio is multiplied by, to be in `unit`."""
    metric: type[Metric[float]] | None = None
    """The metric whose value it is. `None`: only comparisons have it."""

    def of(self, digest: Digest) -> float | None:
        if self.metric is not None:
            return digest[self.metric]
        found = ratio(sum(digest.total(name) for name in self.amounts), digest.total(self.base))
        return None if found is None else found * self.scale

    def blocks(self, digest: Digest) -> tuple[Floats, Floats]:
        """(amounts, bases) by block; their sums' ratio × `scale` is the value."""
        amounts: Floats = np.sum([digest.column(name) for name in self.amounts], axis=0)
        return amounts, digest.column(self.base)


@dataclass(frozen=True, kw_only=True)
class Percentile(Figure):
    """A percentile of a distribution."""

    metric: type[Metric[Spread]]
    percentile: int

    def of(self, digest: Digest) -> float | None:
        spread = digest[self.metric]
        return None if spread is None else float(getattr(spread, f"p{self.percentile}"))

    def is_supported(self, digest: Digest) -> bool:
        """At least one value lies beyond; otherwise it is no more than the maximum."""
        spread = digest[self.metric]
        return spread is not None and f"p{self.percentile}" not in spread.unsupported


@dataclass(frozen=True, kw_only=True)
class Level(Figure):
    """A number that a session has once: there is nothing to estimate a spread from."""

    kind: Literal["memory", "gpu memory", "energy"]

    def of(self, digest: Digest) -> float | None:
        machine = digest.machine
        if self.kind == "memory":
            return machine.memory_peak_bytes
        if self.kind == "gpu memory":
            return machine.gpu_memory_peak_bytes
        spent = self._spent(digest).values()
        rate = digest[load.OutputRate]
        if not spent or rate is None or machine.energy_ns == 0:
            return None
        return ratio(sum(spent), rate * machine.energy_ns / 1e9)

    def parts(self, digest: Digest) -> frozenset[str]:
        """What of the machine it is of."""
        return frozenset(self._spent(digest) if self.kind == "energy" else {self.kind})

    @staticmethod
    def _spent(digest: Digest) -> dict[str, float]:
        machine = digest.machine
        found = {"GPUs": machine.gpu_energy_j, "processors": machine.package_energy_j}
        return {name: joules for name, joules in found.items() if joules is not None}


def name_of(metric: type[Metric[object]]) -> str:
    """A metric's name in expressions: its tag, without the nanoseconds."""
    return metric.tag.removesuffix("_ns")


def _rate(metric: type[Metric[float]], amounts: str, base: str, better: Better, scale: float = 1.0) -> Rate:
    return Rate(
        name=name_of(metric), header=metric.header, unit=metric.unit, better=better, formula=metric.formula,
        amounts=tuple(amounts.split()), base=base, scale=scale, metric=metric,
    )  # fmt: skip


DISTRIBUTIONS: Final[tuple[type[Metric[Spread]], ...]] = (
    latency.TimeToFirstToken,
    latency.TimePerOutputToken,
    latency.StepGap,
    latency.EndToEnd,
    latency.QueueTime,
    time.StepTime,
)
"""All of them times, so that less is better."""

TOKENS: Final = _rate(load.OutputRate, "emitted", "wall", "more", 1e9)

HOST_PHASES: Final = ("admit", "build", "sample", "commit", "emit", "shadow", "other")

RATES: Final[tuple[Rate, ...]] = (
    TOKENS,
    _rate(load.InputRate, "prefill_rows", "wall", "neither", 1e9),
    _rate(speculation.TokensPerForward, "decode_emitted", "decode_forwards", "more"),
    _rate(speculation.AcceptanceRate, "committed", "drafted", "more"),
    _rate(speculation.Coverage, "verifications", "decode_forwards", "neither"),
    _rate(load.UsefulHitRate, "useful_hit_tokens", "lookup_tokens", "more"),
    _rate(load.Occupancy, "busy_slots", "slots", "neither"),
    Rate(
        name="rows_per_forward", header="rows/forward", unit="rows", better="neither", amounts=("rows",),
        base="forwards", formula="Σ rows of the target's forwards ÷ those forwards",
    ),
    Rate(
        name="step_mean", header="step, mean", unit="ns", better="neither", amounts=("busy",), base="steps",
        formula="Σ step time ÷ steps",
    ),
    Rate(
        name="host_share", header="host share", unit="1", better="neither", amounts=HOST_PHASES, base="busy",
        formula="Σ phases but draft and decode ÷ Σ step time",
    ),
    _rate(time.CpuShare, "cpu", "threads", "more"),
    _rate(time.IdleShare, "idle", "wall", "neither"),
    _rate(cost.TargetBandwidth, " ".join(PARTS), "forward", "neither", 1e9),
)  # fmt: skip

LEVELS: Final = (
    Level(name="memory", header="memory", unit="B", better="less", kind="memory", formula="most that the engine held"),
    Level(
        name="gpu_memory", header="GPU memory", unit="B", better="less", kind="gpu memory",
        formula="most that the engine held on GPUs",
    ),
    Level(
        name="energy_per_token", header="energy", unit="J/token", better="less", kind="energy",
        formula="energy between readings of GPUs and processors ÷ (tokens/s × that time)",
    ),
)  # fmt: skip


def _percentile(metric: type[Metric[Spread]], percentile: int) -> Percentile:
    return Percentile(
        name=f"{name_of(metric)}_p{percentile}", header=f"{metric.header} p{percentile}", unit=metric.unit,
        better="less", formula=metric.formula, metric=metric, percentile=percentile,
    )  # fmt: skip


ALL_PERCENTILES: Final = tuple(_percentile(metric, p) for metric in DISTRIBUTIONS for p in PERCENTILES)
FIGURES: Final[tuple[Figure, ...]] = (
    TOKENS,
    *(one for one in ALL_PERCENTILES if one.percentile in SHOWN_PERCENTILES and one.metric in DISTRIBUTIONS[:4]),
    *RATES[1:],
    *LEVELS,
)
"""Those that a table shows, in its order."""

BY_NAME: Final[dict[str, Figure]] = {one.name: one for one in (*RATES, *ALL_PERCENTILES, *LEVELS)}
"""Every figure that an expression may name."""
