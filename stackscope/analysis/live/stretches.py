"""Stretches of a session under one configuration: whether two of them did the same work, and how fast each was."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.live.snapshot import Ratio
from stackscope.analysis.statistics import LEAST_BLOCKS, Series, rate_difference, rate_ratio

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from stackscope.analysis.live.effects import Block

WINDOW_NS: Final = 60_000_000_000
"""Most of a stretch that is used."""

LEAST_NS: Final = 3_000_000_000
"""Shortest stretch that is compared."""

MOST_BLOCKS: Final = 600
"""Kept of a stretch, should they be shorter than they are meant to be."""

TOLERANCE: Final = 0.25
"""How much the work may differ between two stretches, relative to the larger, even when it is not by chance."""

BUSY_TOLERANCE: Final = 0.1
"""The same for requests in flight."""

CORES_TOLERANCE: Final = 0.1
"""The same for the share of its cores that the engine had: others' work, come or gone, is no effect of a change."""

LEAST_CORES: Final = 0.4
"""Share of its cores below which an engine mostly waits: what is measured then is not what a change does."""

NEGLIGIBLE_PROMPTS: Final = 0.1
"""Prompt tokens per output token that make no difference worth the name."""

FULL: Final = 0.9
"""Share of slots that must be busy for the engine, rather than the arrivals, to decide the rate."""

CONFIDENCE: Final = 0.99
"""Of a single look; see `effects`."""

LOAD: Final = frozenset({"concurrency", "rate"})
_EXPLAINS_BUSY: Final = LOAD | {"slots", "slots_max", "context_tokens", "unified_kv"}
_EXPLAINS_CORES: Final = frozenset({"threads", "gpu_layers"})
_EXPLAINS_REUSE: Final = _EXPLAINS_BUSY | {"prefix_cache", "block_tokens", "cache_tokens", "cache_paths", "swa_full"}


class Stretch:
    """Blocks under one configuration: the first minute of them, or the last."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque(maxlen=MOST_BLOCKS)
        self.wall_ns = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: Block) -> None:
        """Take a block, and let go of those that ended a minute of blocks ago."""
        if len(self._blocks) == MOST_BLOCKS:
            self.wall_ns -= self._blocks[0].wall_ns
        self._blocks.append(block)
        self.wall_ns += block.wall_ns
        while self.wall_ns - self._blocks[0].wall_ns >= WINDOW_NS:
            self.wall_ns -= self._blocks.popleft().wall_ns

    @property
    def is_full(self) -> bool:
        return self.wall_ns >= WINDOW_NS or len(self._blocks) == MOST_BLOCKS

    @property
    def is_long_enough(self) -> bool:
        return self.wall_ns >= LEAST_NS and len(self._blocks) >= LEAST_BLOCKS

    @property
    def has_enough_tokens(self) -> bool:
        """So many blocks have some that their spread can be told."""
        return sum(block.tokens > 0 for block in self._blocks) >= LEAST_BLOCKS

    @property
    def ends_ns(self) -> int:
        return self._blocks[-1].at_ns

    @property
    def tokens_per_s(self) -> float:
        return self.speed.rate

    @property
    def speed(self) -> Series:
        """Tokens per second."""
        return Series([block.tokens for block in self._blocks], [block.wall_ns / 1e9 for block in self._blocks])

    @property
    def demand(self) -> Series:
        """Prompt tokens demanded per output token."""
        return self._per_token([block.prompt_tokens for block in self._blocks])

    @property
    def prefill(self) -> Series | None:
        """Prompt tokens computed per output token. `None`: not known."""
        computed = [block.prefilled for block in self._blocks if block.prefilled is not None]
        return self._per_token(computed) if len(computed) == len(self._blocks) else None

    @property
    def busy(self) -> Series | None:
        """Mean requests in flight. `None`: not known."""
        if not any(block.slot_ns > 0 for block in self._blocks):
            return None
        return Series([block.busy_slot_ns for block in self._blocks], [float(block.wall_ns) for block in self._blocks])

    @property
    def cores(self) -> Series | None:
        """Share of the engine's threads that really ran in forwards. `None`: not known."""
        if not any(block.thread_ns > 0 for block in self._blocks):
            return None
        return Series([block.cpu_ns for block in self._blocks], [block.thread_ns for block in self._blocks])

    @property
    def is_full_of_requests(self) -> bool:
        """Nearly all slots were busy, as far as that is known."""
        slot_ns = sum(block.slot_ns for block in self._blocks)
        return slot_ns <= 0 or sum(block.busy_slot_ns for block in self._blocks) >= FULL * slot_ns

    @property
    def follows_arrivals(self) -> bool:
        """Requests come at a rate of their own, and the engine keeps up with them."""
        return all(block.concurrency is None for block in self._blocks) and not self.is_full_of_requests

    def prompt_share(self, *, is_computed: bool) -> float:
        """Of all tokens worked on, the part that were a prompt's: those computed, or else those demanded."""
        return _share([prompt_share(block, is_computed=is_computed) for block in self._blocks])

    def _per_token(self, amounts: list[float]) -> Series:
        return Series(amounts, [block.tokens for block in self._blocks])


def prompt_share(block: Block, *, is_computed: bool) -> tuple[float, float]:
    """(tokens of prompts, all tokens) that a block worked on."""
    prompts = block.prefilled if is_computed and block.prefilled is not None else block.prompt_tokens
    return prompts, prompts + block.tokens


def _share(parts: list[tuple[float, float]]) -> float:
    whole = sum(all_tokens for _, all_tokens in parts)
    return sum(prompts for prompts, _ in parts) / whole if whole > 0 else 0.0


def is_starved(block: Block) -> bool:
    """Far fewer requests were in flight than the load offers: the workload was running out."""
    if block.concurrency is None or (block.slot_ns <= 0 and block.tokens > 0):
        return False  # nothing is offered at a time, or nothing is known of slots
    slots = block.slot_ns / block.wall_ns
    return block.busy_slot_ns <= 0.5 * min(block.concurrency, slots) * block.wall_ns


def explains_reuse(changed: AbstractSet[str]) -> bool:
    """Whether such a change is expected to change how much is found in the prefix cache."""
    return not _EXPLAINS_REUSE.isdisjoint(changed)


def difference_in_work(before: Stretch, after: Stretch, changed: AbstractSet[str]) -> str | None:
    """Why the speeds of two stretches say nothing about the change between them. `None`: they are comparable."""
    if LOAD.isdisjoint(changed) and (before.follows_arrivals or after.follows_arrivals):
        return "requests arrive more slowly than slots fall free, so the speed is that of the arrivals"
    if _differ(before.demand, after.demand, TOLERANCE, NEGLIGIBLE_PROMPTS):
        return f"the work differs: {_told(before.demand, after.demand, 'prompt tokens per output token')}"
    told = _prefill_difference(before, after) if _EXPLAINS_REUSE.isdisjoint(changed) else None
    told = told or (_busy_difference(before, after) if _EXPLAINS_BUSY.isdisjoint(changed) else None)
    return told or (_cores_difference(before, after) if _EXPLAINS_CORES.isdisjoint(changed) else None)


def _prefill_difference(before: Stretch, after: Stretch) -> str | None:
    earlier, later = before.prefill, after.prefill
    if earlier is None or later is None or not _differ(earlier, later, TOLERANCE, NEGLIGIBLE_PROMPTS):
        return None
    told = _told(earlier, later, "prompt tokens computed per output token")
    return f"the prefix cache spares another part of the work: {told}"


def _busy_difference(before: Stretch, after: Stretch) -> str | None:
    earlier, later = before.busy, after.busy
    if earlier is None or later is None or not _differ(earlier, later, BUSY_TOLERANCE):
        return None
    return f"the load differs: {_told(earlier, later, 'requests in flight')}"


def _cores_difference(before: Stretch, after: Stretch) -> str | None:
    earlier, later = before.cores, after.cores
    if earlier is None or later is None:
        return None
    is_starved_of_them = min(earlier.rate, later.rate) < LEAST_CORES
    if not is_starved_of_them and not _differ(earlier, later, CORES_TOLERANCE):
        return None
    shares = f"{units.percent(earlier.rate)} of its cores before, {units.percent(later.rate)} after"
    return f"something else ran: the engine had {shares}"


def _differ(before: Series, after: Series, tolerance: float, negligible: float = 0.0) -> bool:
    """By more than the tolerance, and by more than chance."""
    difference = rate_difference(before, after, confidence=CONFIDENCE)
    allowed = max(tolerance * max(before.rate, after.rate), negligible)
    return abs(difference.value) > allowed and not difference.holds(0.0)


def _told(before: Series, after: Series, what: str) -> str:
    return f"{units.number(before.rate)} {what} before, {units.number(after.rate)} after"


def measured(before: Stretch, after: Stretch) -> Ratio:
    """Tokens per second after ÷ before. Both stretches have enough tokens."""
    interval = rate_ratio(before.speed, after.speed, confidence=CONFIDENCE)
    return Ratio(value=interval.value, low=interval.low, high=interval.high)
