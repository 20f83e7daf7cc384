"""What is kept of a session to compare it: numbers and arrays, a few tens of megabytes for a million steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar, cast

import numpy as np

from stackscope.analysis.comparing.columns import AT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.analysis.comparing.counting import Floats, Ints, ShortInts
    from stackscope.analysis.comparing.loads import LoadSpan
    from stackscope.analysis.metrics.base import Metric
    from stackscope.records import Footer, Header
    from stackscope.toggles import EngineConfig

T = TypeVar("T")


@dataclass(frozen=True)
class Values:
    """Values of a distribution, and what they belong to: requests (or blocks of steps) are what is resampled."""

    values: Floats
    owners: ShortInts
    """Of each value, the index of its request or block; never falling."""
    ordered: Floats
    """The same values from least to most."""

    @classmethod
    def of(cls, values: Floats, owners: ShortInts) -> Self:
        """From values and their owners."""
        return cls(values, owners, np.sort(values))

    @property
    def n_owners(self) -> int:
        """Requests, or blocks, that have values."""
        return 0 if len(self.owners) == 0 else 1 + int(np.count_nonzero(np.diff(self.owners)))


def percentile_of(ordered: Floats, percentile: float) -> float:
    """Between order statistics, linearly; of at least one value, from least to most."""
    last = len(ordered) - 1
    below, part = divmod(last * percentile, 100)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, last)]
    return float(low + (high - low) * part / 100)


@dataclass(frozen=True)
class Requests:
    """The requests that completed, in the order in which they finished. One element each."""

    ids: Ints
    prompt_tokens: Ints
    output_tokens: Ints


@dataclass(frozen=True)
class MachineState:
    """How the machine was meanwhile, by its readings. `None`: no reading tells."""

    readings: int = 0
    throttled: Mapping[str, float] | None = None
    """Share of the readings in which something held the clocks of a GPU in use down, by reason. Empty: nothing did."""
    quota_share: float | None = None
    """Mean share of the periods in which a quota held the engine's control group up."""
    cpu_pressure: float | None = None
    """Mean share of the time in which something runnable waited for a core."""
    swap_bytes_per_s: float | None = None
    """Mean."""
    memory_peak_bytes: int | None = None
    """Most that the engine process held."""
    gpu_memory_peak_bytes: int | None = None
    """Most that it held on the GPUs."""
    gpu_energy_j: float | None = None
    """Of the GPUs in use, from the first reading to the last."""
    package_energy_j: float | None = None
    """Of the processor packages: mean power × time."""
    energy_ns: int = 0
    """Time between the readings that the energies are of."""


@dataclass(frozen=True)
class TermTimes:
    """Where the time model sees the target's forward go, on average over a sample of steps, in nanoseconds."""

    terms: Mapping[str, float]
    """By name; the forward's only."""
    predicted_ns: float
    """Their sum."""
    measured_ns: float
    """Decode phase of the same steps."""
    steps: int


@dataclass(frozen=True)
class EpochSpan:
    """One configuration that a session ran under."""

    number: int
    config: EngineConfig | None
    steps: int


@dataclass(frozen=True)
class Digest:
    """A session, summed up for a comparison."""

    name: str
    """What it is called, usually its file."""
    header: Header
    values: Mapping[str, object]
    """Metrics of the whole session by tag. `None`: unknown or undefined."""
    blocks: Floats
    """(columns, blocks): sums over a few consecutive steps each. The columns are `columns.NAMES`."""
    distributions: Mapping[str, Values]
    """By the tag of the metric: of completed requests, and of steps."""
    requests: Requests
    in_flight: int
    """Most sequences that a step had in it. 0: there was no step with any."""
    n_finished: int
    """Requests that finished, in whatever way."""
    epochs: tuple[EpochSpan, ...]
    """Those that steps ran under, in that order."""
    loads: tuple[LoadSpan, ...]
    """Those that were offered while steps ran, in that order."""
    machine: MachineState
    terms: TermTimes | str
    """`str`: why the time model says nothing."""
    first_step: int | None
    """Number of the first step. Above 0, the recording began in the middle. `None`: there is no step."""
    warm_blocks: int
    """Blocks of the prefix cache that were resident after the first step, which had not written them."""
    warmup_ns: int
    """What began before this instant of the session was left out."""
    warmup_steps: int
    warmup_requests: int
    footer: Footer | None
    truncated: str | None
    """Why the recording ends early, as a sentence."""
    left_out: str | None
    """What of it could not be read, as a sentence. `None`: nothing."""

    def __getitem__(self, metric: type[Metric[T]]) -> T | None:
        """The value of a metric, with its type."""
        return cast("T | None", self.values[metric.tag])

    @property
    def is_cut_off(self) -> bool:
        """It ends early: what it was to hold is not all there."""
        return self.truncated is not None and self.footer is None

    def total(self, name: str) -> float:
        """The sum of a column over the whole session."""
        return float(self.column(name).sum())

    def column(self, name: str) -> Floats:
        """A column's sums by block. `idle` is what of `wall` is not `busy`."""
        if name == "idle":
            return self.column("wall") - self.column("busy")
        found: Floats = self.blocks[AT[name]]
        return found
