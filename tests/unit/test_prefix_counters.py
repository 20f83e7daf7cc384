"""What the prefix cache counts for the record of a step. Blocks of 4 tokens; ids 10 and up are the cache's."""

from __future__ import annotations

import pytest

from stackscope.engine.prefix_cache import PrefixCache
from stackscope.records import CacheCounters
from tests.unit.test_prefix_cache import A, B, C, D, cache, keep


def test_counters_are_differences_and_levels() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    kept.attach(kept.match([*A, *C, 9]), 1)
    assert kept.take_counters(useful_hit_tokens=4) == CacheCounters(
        lookups=1,
        lookup_tokens=8,
        hit_tokens=4,
        useful_hit_tokens=4,
        blocks_read=1,
        blocks_written=2,
        resident_blocks=2,
        resident_paths=1,
        missed_at=4,
    )
    quiet = CacheCounters(resident_blocks=2, resident_paths=1)
    assert kept.take_counters() == quiet
    assert kept.take_counters(copied_bytes=64) == CacheCounters(resident_blocks=2, resident_paths=1, copied_bytes=64)
    assert kept.take_counters() == quiet
    kept.release(1)
    kept.evict(4)
    assert kept.take_counters() == CacheCounters(blocks_evicted=1, resident_blocks=1, resident_paths=1)


@pytest.mark.parametrize("shared", [True, False])
def test_blocks_that_several_paths_run_through_are_counted_while_there_are_several(shared: bool) -> None:
    kept = PrefixCache(range(10, 14), block_tokens=4, shared=shared)

    def shared_blocks() -> int:
        return kept.take_counters().shared_blocks

    keep(kept, [*A, *B, *C])
    assert shared_blocks() == 0
    keep(kept, [*A, *B, *D])
    assert shared_blocks() == (2 if shared else 0)  # with split KV each path has its own copy
    keep(kept, [*A, *D])
    assert shared_blocks() == (2 if shared else 0)
    kept.forget(10)
    assert shared_blocks() == (1 if shared else 0)
    kept.forget(11)
    assert shared_blocks() == 0


def test_only_the_last_look_up_of_a_step_says_where_it_missed() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    kept.match([*A, *C, *C])
    kept.match([*A, *B])
    assert kept.take_counters().missed_at is None
    kept.match([*A, *B])
    kept.match([*A, 2, 2, 9, 9])
    assert kept.take_counters().missed_at == 6
    assert kept.take_counters(copied_bytes=1).missed_at is None
