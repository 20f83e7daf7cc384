"""What is staged, as data: models, settings, load and faults, block by block, and what a namer should say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from stackscope.records import Cause
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

Stand = Literal["small", "lab", "lab-q8", "twins", "gemma"]
"""Models: the bundled pair, its target inflated (with the same draft, quantised, or as its own draft), Gemma 3 270M."""
Goal = Literal["time", "toggles", "naming", "tau"]
Neighbour = Literal["bandwidth", "compute", "stop"]

ENGINE: Final = "stackscope.engine.loop:Engine"
FAULTY: Final = "benchmarks.validate.engines:"
"""Where the engines with a built-in fault are."""

NATURAL: Final[frozenset[Cause]] = frozenset(
    {"weight bandwidth", "LM head", "compute", "KV and attention", "host scheduling", "sampling", "co-limited"}
)
"""What may limit a healthy engine. To name anything else of a placebo is a false alarm."""


class Fault(msgspec.Struct, frozen=True):
    """Something beside the engine that is on for a block."""

    kind: Neighbour
    duty: float
    """Part of the time in which it is at work, 0 to 1; 0 is a placebo."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a session in which nothing changes."""

    seconds: float
    settings: dict[str, Any] = {}
    """What differs from the session's own configuration."""
    concurrency: int | None = None
    """`None`: as before."""
    rate_factor: float | None = None
    """From here on requests come at a rate of their own: so many times what the block before served."""
    fault: Fault | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One session to be recorded, and what it is for. The label is nothing that a recording holds."""

    name: str
    goal: Goal
    stand: Stand
    workload: WorkloadSpec
    blocks: tuple[Block, ...]
    settings: dict[str, Any] = {}
    """Fields of the engine's configuration."""
    engine: str = ENGINE
    delay_ms: float = 0.0
    """What an engine with a built-in delay waits in each step, from its second block on."""
    family: str = ""
    """Doses of one fault have one family."""
    dose: float = 0.0
    """Orders a family; larger is worse."""
    cause: Cause | None = None
    """What should be named. `None`: this is a placebo."""
    also_right: frozenset[Cause] = frozenset()
    """Names that nothing observable tells apart from the cause."""
    is_quick: bool = False
    """Part of the short run."""

    @property
    def seconds(self) -> float:
        return sum(block.seconds for block in self.blocks)

    @property
    def fault_block(self) -> int:
        """The block that the scenario is about: the one with a fault, else the last."""
        return next((number for number, block in enumerate(self.blocks) if block.fault is not None), -1)

    @property
    def ending_with_fault(self) -> Scenario:
        """The same without what comes after that block."""
        return msgspec.structs.replace(self, blocks=self.blocks[: range(len(self.blocks))[self.fault_block] + 1])

    @property
    def has_control(self) -> bool:
        """Other blocks differ from that one by the fault alone, so that they say what the fault took."""
        return len(self.blocks) > 1 and (self.blocks[self.fault_block].fault is not None or self.delay_ms > 0)

    @property
    def is_placebo(self) -> bool:
        return self.goal == "naming" and self.cause is None


def steady(seconds: float, **changes: Any) -> tuple[Block, ...]:
    """One block."""
    return (Block(seconds=seconds, **changes),)


def calm_then(calm: float, seconds: float, **changes: Any) -> tuple[Block, ...]:
    """A block without the fault, for reference, and one with it."""
    return Block(seconds=calm), Block(seconds=seconds, **changes)


def between(calm: float, seconds: float, fault: Fault) -> tuple[Block, ...]:
    """A block with the fault between two without, so that what drifts does not count for it."""
    return Block(seconds=calm), Block(seconds=seconds, fault=fault), Block(seconds=calm)


def visits(toggles: Sequence[dict[str, Any]], seconds: float, *, rounds: int = 2) -> tuple[Block, ...]:
    """Every toggle between two blocks without any, in one order and then in its reverse.

    A drift that is linear in time then falls on all alike, and each toggle has a pair of neighbours per visit.
    """
    orders = [list(toggles), list(toggles)[::-1]] * ((rounds + 1) // 2)
    blocks = [Block(seconds=seconds)]
    for order in orders[:rounds]:
        for toggle in order:
            blocks += [Block(seconds=seconds, settings=dict(toggle)), Block(seconds=seconds)]
    return tuple(blocks)


def fixed(name: str, prompt: int, output: int, concurrency: int, **changes: Any) -> WorkloadSpec:
    """Endless traffic of a built-in workload whose requests are all of one length."""
    from stackscope.workload.spec import Length

    return WorkloadSpec(
        name=name,  # type: ignore[arg-type]
        concurrency=concurrency,
        prompt_tokens=Length.fixed(prompt),
        output_tokens=Length.fixed(output),
        ignore_eos=True,
        **changes,
    )
