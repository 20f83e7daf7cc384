"""What a prefix cache would have found: looked up in trees that hold tokens and no KV.

While the cache is off, a cache as it would be: with its paths, its capacity, the cells that running requests leave it,
and least recently used prefixes going first. While it is on, one that forgets nothing, to tell what the real one lost
by being too small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.engine.prefix_cache import PrefixCache
from stackscope.engine.prefix_hash import START, Remembered, Trail, chain
from stackscope.engine.prefix_tree import TOKEN_BYTES
from stackscope.engine.residents import EVICTED_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    import numpy as np
    from numpy.typing import NDArray

    from stackscope.engine.sequence import Sequence
    from stackscope.engine.shadows.budget import Clocks, Purse
    from stackscope.engine.sizing import ContextSize
    from stackscope.toggles import EngineConfig

MOST_BLOCKS: Final = 200_000
"""Blocks that the tree without a limit remembers (at least half as many): some 100 bytes each."""


class Admission(NamedTuple):
    """A request at the moment of its admission."""

    sequence: Sequence
    slot: int
    n: int
    """Tokens that it had."""
    prefilled: int
    """Of those, the ones that were prefilled once before: finding them again spares only work that was thrown away."""


class Endless:
    """Every block of tokens that was ever offered, known by a hash of all tokens up to its end.

    No prefix needs a path or an id. Each sequence has a trail, so that none of its blocks is hashed twice.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._block_bytes = block_tokens * TOKEN_BYTES
        self._known = Remembered(MOST_BLOCKS)

    def look_up(self, tokens: NDArray[np.int32], trail: Trail) -> int:
        """Length of the longest prefix, in whole blocks, that was offered before. `trail`, empty yet, is led there."""
        for value in chain(tokens.tobytes(), self._block_bytes):
            if not self._known.renew(value):
                break
            trail.append(value)
        return len(trail) * self._block_tokens

    def offer(self, tokens: NDArray[np.int32], trail: Trail) -> None:
        """Remember the whole blocks of these tokens, which begin with those of the trail."""
        rest = tokens[len(trail) * self._block_tokens :].tobytes()
        trail += chain(rest, self._block_bytes, trail[-1] if trail else START)
        self._known.update(trail)


class Held(NamedTuple):
    """A request that was looked up."""

    slot: int
    """That it had then."""
    trail: Trail


class PrefixShadow:
    """Looks up what is admitted, and is offered what the real cache is or would be offered.

    It sees every request, for what one finds depends on those before. When its purse is empty it sees none until that
    is filled again: what it missed meanwhile it cannot find, so it errs on the side of too little.
    """

    def __init__(self, purse: Purse, clocks: Clocks, config: EngineConfig, size: ContextSize) -> None:
        self.requests = 0
        self.lookup_tokens = 0
        self.hit_tokens = 0
        self.useful_hit_tokens = 0
        self.cpu_ns = 0
        self._purse = purse
        self._clock = clocks.thread
        self._size = size
        self._block_tokens = config.block_tokens
        self._held: dict[Sequence, Held] = {}
        self._evicted_seen = 0
        self._begin(config)

    def _begin(self, config: EngineConfig) -> None:
        size = self._size
        self._is_real = config.prefix_cache
        self._held.clear()
        self._evicted_seen = 0
        self._endless = Endless(self._block_tokens) if self._is_real else None
        self._cache: PrefixCache | None = None
        self.capacity_tokens: int | None = None
        """What idle prefixes may hold. `None`: no limit."""
        if not self._is_real:
            self.capacity_tokens = size.n_ctx if config.cache_tokens is None else config.cache_tokens
            self._cache = PrefixCache(
                list(size.path_ids),
                block_tokens=self._block_tokens,
                capacity_tokens=config.cache_tokens,
                shared=size.is_unified,
            )

    def reconfigure(self, config: EngineConfig) -> None:
        """Follow the live settings: switched, the real cache begins empty, and so does this."""
        if config.prefix_cache != self._is_real:
            self._begin(config)
        elif self._cache is not None:
            self._cache.set_capacity(config.cache_tokens)
            self.capacity_tokens = self._size.n_ctx if config.cache_tokens is None else config.cache_tokens

    def observe(self, admitted: Many[Admission], prefilled: Many[Sequence], running: Many[Sequence]) -> None:
        """What happened in a step, in this order: admissions, prompts that were done with, and what left its slot."""
        before = self._clock()
        for admission in admitted:
            for sequence, held in list(self._held.items()):
                if sequence is admission.sequence:
                    self._let_go(sequence, is_over=False)  # It was put back, whatever became of it since.
                elif held.slot == admission.slot:
                    self._let_go(sequence, is_over=sequence.is_over)
            if self._purse.is_open:
                self._admit(admission)
        for sequence in prefilled:
            if sequence in self._held and self._size.is_unified:
                self._offer(sequence, running)
        for sequence, held in list(self._held.items()):
            if sequence.slot != held.slot:
                self._let_go(sequence, is_over=sequence.is_over)
        took = self._clock() - before
        self.cpu_ns += took
        self._purse.spend(took)

    @property
    def has_counted(self) -> bool:
        """Whether there is something to record: a request that ends may evict after its look-up was told."""
        return self.requests > 0 or (self._cache is not None and self._cache.blocks_evicted > self._evicted_seen)

    def take_evicted(self) -> int:
        """Blocks that the cache gave up since the last call."""
        if self._cache is None:
            return 0
        evicted = self._cache.blocks_evicted - self._evicted_seen
        self._evicted_seen += evicted
        return evicted

    def _admit(self, admission: Admission) -> None:
        sequence, slot, n, prefilled = admission
        limit = n - 1  # The last token is always computed: its logits are needed.
        trail: Trail = []
        if self._endless is not None:
            found = self._endless.look_up(sequence.tokens[:limit], trail)
        else:
            cache = self._cache
            assert cache is not None
            match = cache.match(sequence.tokens[:limit])
            found = match.tokens
            cache.attach(match, slot)
        self.requests += 1
        self.lookup_tokens += limit // self._block_tokens * self._block_tokens
        self.hit_tokens += found
        self.useful_hit_tokens += max(0, found - prefilled)
        self._held[sequence] = Held(slot, trail)

    def _offer(self, sequence: Sequence, running: Many[Sequence]) -> None:
        tokens, held = sequence.tokens[: sequence.kv], self._held[sequence]
        if self._endless is not None:
            self._endless.offer(tokens, held.trail)
            return
        cache = self._cache
        assert cache is not None
        cache.insert(tokens, held.slot)
        if self._size.is_unified:
            over = cache.used_cells(sum([s.kv for s in running])) - self._size.n_ctx
            if over > 0:
                cache.evict(max(over, self._size.n_ctx // EVICTED_SHARE))

    def _let_go(self, sequence: Sequence, *, is_over: bool) -> None:
        """A request has left its slot: one that has ended leaves what it held to the cache."""
        if is_over:
            self._offer(sequence, ())
        held = self._held.pop(sequence)
        if self._cache is not None:
            self._cache.release(held.slot)
