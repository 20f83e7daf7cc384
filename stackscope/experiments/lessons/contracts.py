"""What a lesson is made of: the claim, how it is staged, what follows from the figures, and a picture of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from stackscope.errors import UsageError
from stackscope.experiments.search_space import Axis
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from stackscope.experiments.lessons.data import Data
    from stackscope.toggles import Setting, Speculation

LEAST_BLOCKS: Final = 3
MOST_BLOCKS: Final = 12
CACHE_REQUESTS: Final = 10
"""Of a look that is to say something of a prefix cache; its shadow wants eight behind those that warm up."""


class Models(Protocol):
    """The files that lessons run on. They are made when asked for, which may take some seconds the first time."""

    @property
    def target(self) -> str:
        """One that is limited by reading its weights: the bundled one, inflated, or the user's own."""

    @property
    def small(self) -> str:
        """One whose attention counts: the bundled one as it is, or the user's own."""

    @property
    def draft(self) -> str | None:
        """`None`: the user named a model, and no draft for it."""

    def weights(self, kind: str) -> str:
        """The target with weights of another type. Raises `UsageError` and `ModelFileError`."""


class LessonCell(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration under one traffic."""

    key: str
    """What it is called, for people and for the code that concludes."""
    config: EngineConfig
    workload: WorkloadSpec
    """With the requests that warm up among its requests."""
    over: str | None = None
    """Key of the cell that it is held against. `None`: it is one of those, and predictions are made from it."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What is run for a lesson."""

    cells: tuple[LessonCell, ...]
    told: tuple[str, ...]
    """What is staged, and what to look at, in sentences."""
    quick: str = ""
    """What a quick run leaves out of it, beside blocks."""
    figures: tuple[str, ...] = ("tokens_per_s",)
    """Those that the table shows, by their names in a run."""
    look_requests: int = 0
    """Requests that a first look takes at least: what a prefix cache would find shows only after some."""
    names_limits: bool = False
    """The namer says of each cell what limits it."""
    axes: tuple[Axis, ...] = ()
    """The cells are all configurations of these, in their order, and a search is tried on them."""
    search_runs: int = 0

    def cell(self, key: str) -> LessonCell:
        return next(cell for cell in self.cells if cell.key == key)

    @property
    def references(self) -> tuple[LessonCell, ...]:
        return tuple(cell for cell in self.cells if cell.over is None)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How long a lesson may take."""

    seconds: float
    """No block is begun that would end later than this after the start, by what blocks took."""
    least: int = LEAST_BLOCKS
    """Blocks that there are in any case: fewer give no interval worth the name."""
    most: int = MOST_BLOCKS


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a picture."""

    label: str
    value: float | None
    """`None`: not measured."""
    low: float | None = None
    """The ends of the interval. `None`: there is none."""
    high: float | None = None
    predicted: float | None = None
    group: str = ""
    """Rows of a group stand together under its name."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Bars of one quantity."""

    title: str
    bars: tuple[Bar, ...]
    unit: str = "×"
    mark: float | None = 1.0
    """A value that is marked in every row. `None`: there is none."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures say of the claim, here."""

    holds: bool | None
    """`None`: the figures leave it open."""
    sentences: tuple[str, ...]


Staging: TypeAlias = Callable[[Models, bool], Stage]
"""Of the models, and whether it is to be quick."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One claim of the field."""

    number: int
    title: str
    claim: str
    """In our own words, with why one would expect it."""
    elsewhere: str
    """Where the claim need not hold, and why."""
    stage: Staging
    expect: Callable[[Data], str]
    """What follows from the predictions, in a sentence; empty where nothing does."""
    conclude: Callable[[Data], Conclusion]
    picture: Callable[[Data], Picture]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A claim that cannot be staged yet."""

    number: int
    title: str
    claim: str
    waits_for: str
    """A sentence."""


def drafting(models: Models) -> Speculation:
    """Where drafts come from with these models."""
    return "ngram" if models.draft is None else "draft"


def require_draft(models: Models) -> str:
    """The draft model. Raises `UsageError`."""
    if models.draft is None:
        raise UsageError("This lesson takes a draft model beside the target.", remedy="Give one with --draft.")
    return models.draft


def changed(config: EngineConfig, **changes: Setting) -> EngineConfig:
    """The configuration with other settings."""
    return msgspec.structs.replace(config, **changes)
