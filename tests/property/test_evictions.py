"""What the memory of evictions holds, in whatever order paths are cut and whenever somebody asks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine.prefix_paths import MOST_WAITING, EvictionMemory

BLOCK = 2
BLOCK_BYTES = 4 * BLOCK

_blocks = st.lists(st.integers(0, 2), min_size=1, max_size=5)
_events = st.lists(st.tuples(_blocks, st.integers(0, 4), st.booleans()), min_size=1, max_size=3 * MOST_WAITING)


def key(blocks: list[int]) -> bytes:
    return np.repeat(np.array(blocks, np.int32), BLOCK).tobytes()


@given(_events)
def test_it_knows_exactly_the_blocks_that_went(events: list[tuple[list[int], int, bool]]) -> None:
    memory = EvictionMemory(BLOCK_BYTES)
    gone: set[bytes] = set()
    asked: set[bytes] = set()
    for blocks, cut, is_asked in events:
        start = min(cut, len(blocks) - 1)
        # A path is cut from its end, a piece at a time, as a cache that is full does it.
        for at in range(len(blocks) - 1, start - 1, -1):
            memory.remember(key(blocks[: at + 1]), at * BLOCK_BYTES)
            gone.add(key(blocks[: at + 1]))
        asked |= {key(blocks[:n]) for n in range(1, len(blocks) + 1)}
        if is_asked:
            assert all((one in memory) == (one in gone) for one in asked)
    assert all((one in memory) == (one in gone) for one in asked)


def test_what_is_forgotten_is_not_hashed_afterwards() -> None:
    memory = EvictionMemory(BLOCK_BYTES)
    memory.remember(key([1, 2]), 0)
    memory.clear()
    assert key([1, 2]) not in memory
