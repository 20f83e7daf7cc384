"""Where a prompt left the prefix cache, and why. Blocks of 4 tokens."""

from __future__ import annotations

import numpy as np

from stackscope.engine.prefix_cache import Divergence, PrefixCache
from stackscope.engine.prefix_paths import REMEMBERED_BLOCKS, EvictionMemory

A, B, C, D = ([letter] * 4 for letter in (1, 2, 3, 4))


def cache() -> PrefixCache:
    return PrefixCache(range(10, 13), block_tokens=4)


def keep(cache: PrefixCache, tokens: list[int]) -> None:
    """A request whose tokens are kept and that ends."""
    cache.insert(tokens, 0)
    cache.release(0)


def test_the_place_where_a_prompt_parts_is_exact() -> None:
    kept = cache()
    keep(kept, [*A, 2, 2, 2, 2, *C])
    keep(kept, [*A, 2, 2, 9, 9])
    # The first path shares 4 + 3 tokens with the prompt, the second 4 + 2.
    assert kept.match([*A, 2, 2, 2, 8, *D]).divergence == Divergence(7, "differs")
    assert kept.match([1, 1, 7, 7]).divergence == Divergence(2, "differs")
    assert kept.match([*A, *B, *C, *D]).divergence == Divergence(12, "uncached")
    assert kept.match([*A, *B, 5, 5, 5, 5]).divergence == Divergence(8, "differs")
    # Two tokens beyond the last block are no block that could have hit.
    assert kept.match([*A, *B, 5]).divergence is None


def test_an_evicted_block_is_not_taken_for_a_different_prompt() -> None:
    kept = cache()
    keep(kept, [*A, *B, *C])
    keep(kept, [*A, *D])
    kept.evict(8)
    assert kept.match([*A, *B, *C]).divergence == Divergence(4, "evicted")
    kept.evict(100)
    assert kept.match([*A, *D]).divergence == Divergence(0, "evicted")
    # The prefix is back, what followed it is not.
    keep(kept, [*A, *A])
    assert kept.match([*A, *B, *C]).divergence == Divergence(4, "evicted")
    assert kept.match([*A, *C]).divergence == Divergence(4, "differs")


def test_the_memory_of_evictions_is_bounded_and_keeps_the_latest() -> None:
    memory = EvictionMemory(4)
    n = 3 * REMEMBERED_BLOCKS // 2
    keys = [np.array([i, -i], np.int32).tobytes() for i in range(n)]
    for key in keys:
        memory.remember(key, 4)
    remembered = [key in memory for key in keys]
    assert REMEMBERED_BLOCKS // 2 <= sum(remembered) <= REMEMBERED_BLOCKS
    assert all(remembered[-REMEMBERED_BLOCKS // 2 :])


def test_case_15_prompts_that_share_only_their_tail_hit_nothing_and_say_where_they_part() -> None:
    """KV is reused from the first token on or not at all: chunks are never shifted, so none is counted as a hit."""
    kept = cache()
    keep(kept, [*A, *B, *C])
    match = kept.match([*D, *B, *C])
    assert (match.tokens, match.sequence, match.divergence) == (0, None, Divergence(0, "differs"))
    counters = kept.take_counters()
    assert (counters.lookup_tokens, counters.hit_tokens, counters.missed_at) == (12, 0, 0)
