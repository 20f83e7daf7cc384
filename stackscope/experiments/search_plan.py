"""What a sweep is going to do, as one value that is stored beside its results; and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.errors import UsageError
from stackscope.experiments.plan import Blocks, Limits
from stackscope.experiments.search_goals import Goals
from stackscope.experiments.search_space import Axis, Configuration, configurations
from stackscope.toggles import EngineConfig
from stackscope.toml_file import read_toml
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_BLOCKS: Final = 3
"""Of a grid: many configurations are compared, so fewer runs of each will do than in an ablation."""


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep: which configurations, under what traffic, how often, and what for."""

    base: EngineConfig
    axes: tuple[Axis, ...]
    workload: WorkloadSpec
    """With the requests that warm up among its requests."""
    limits: Limits = Limits()
    goals: Goals = Goals()
    budget: int | None = None
    """Runs of a search at most. `None`: a grid, in which everything runs in every block."""
    blocks: Blocks = Blocks(first=DEFAULT_BLOCKS, least=DEFAULT_BLOCKS, is_adaptive=False, seconds=None)
    """Of a grid."""
    is_recorded: bool = True
    has_quality: bool = True
    """Weights and KV types are held against those of the first configuration on a fixed text."""
    refused: tuple[int, ...] = ()
    """Configurations that cannot run, as is known beforehand."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        return configurations(self.base, self.axes)


class SweepFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep in TOML: its axes, and options of a run by their names."""

    title: str = ""
    axes: dict[str, list[str | int | float | bool]]
    options: dict[str, str | int | float | bool] = {}
    objectives: str | None = None
    constraints: str | None = None


def read_sweep(path: Path) -> SweepFile:
    """The sweep in a file. Raises `UsageError`, which names the file and what is wrong with it."""
    try:
        return msgspec.convert(read_toml(path), SweepFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is no sweep: {error}.", remedy="See profiles/sweeps for one.") from None
