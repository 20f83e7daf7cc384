"""What the prefix cache decides, operation by operation. Blocks of 4 tokens; ids 10 and up are the cache's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from stackscope.engine.prefix_cache import Copy, CopyWhole, Divergence, PrefixCache, Trim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

A, B, C, D = ([letter] * 4 for letter in (1, 2, 3, 4))
"""Blocks."""


def cache(n_ids: int = 3, *, capacity: int | None = None, shared: bool = True) -> PrefixCache:
    return PrefixCache(range(10, 10 + n_ids), block_tokens=4, capacity_tokens=capacity, shared=shared)


def keep(cache: PrefixCache, tokens: list[int], slot: int = 0) -> None:
    """A request whose tokens are kept and that ends."""
    cache.insert(tokens, slot)
    cache.release(slot)


def paths(cache: PrefixCache) -> dict[int, list[int]]:
    return {i: held.tolist() for i in range(10, 20) if len(held := cache.path(i))}


def test_an_empty_cache_finds_nothing_and_says_why() -> None:
    found = cache().match([1, 2, 3, 4, 5])
    assert (found.tokens, found.sequence) == (0, None)
    assert found.divergence == Divergence(0, "uncached")


def test_only_whole_blocks_are_kept() -> None:
    kept = cache()
    # 10 tokens are 2 blocks and 2 tokens over.
    assert kept.insert([*A, *B, 9, 9], 0) == [Copy(0, 10, 0, 8)]
    assert paths(kept) == {10: [*A, *B]}
    assert kept.insert([7, 7, 7], 1) == []
    assert kept.declined == 0


def test_of_a_prefix_the_idle_part_is_what_no_slot_pins() -> None:
    kept = cache()
    keep(kept, [*A, *B, *C])
    assert (kept.idle_part([*A, *B]), kept.cells_exclusive()) == (8, 12)
    kept.attach(kept.match([*A, *D]), 1)
    assert (kept.idle_part([*A, *B]), kept.cells_exclusive()) == (4, 8)
    assert (kept.idle_part([*A, *D]), kept.idle_part(D)) == (0, 0)


@pytest.mark.parametrize("kind", ["list", "tuple", "int32", "int64", "strided"])
def test_tokens_may_come_in_any_integer_sequence(kind: str) -> None:
    tokens = [*A, *B, *C]
    strided = np.zeros(24, np.int32)
    strided[::2] = tokens
    forms: dict[str, Sequence[int] | NDArray[Any]] = {
        "list": tokens, "tuple": tuple(tokens), "int32": np.array(tokens, np.int32),
        "int64": np.array(tokens, np.int64), "strided": strided[::2],
    }  # fmt: skip
    form = forms[kind]
    kept = cache()
    kept.insert(form, 0)
    assert kept.peek(form) == kept.peek(tokens) == 12


def test_the_callers_array_is_copied() -> None:
    kept, history = cache(), np.array([*A, *B], np.int32)
    kept.insert(history, 0)
    history[:] = 9
    assert paths(kept) == {10: [*A, *B]}


def test_a_hit_is_attached_by_sharing_cells() -> None:
    kept = cache()
    keep(kept, [*A, *B, *C])
    found = kept.match([*A, *B, *D], limit=11)
    assert (found.tokens, found.sequence) == (8, 10)
    assert kept.attach(found, 1) == [Copy(10, 1, 0, 8)]
    assert kept.shared_tokens(1) == 8
    # 12 cells in the tree of which the slot uses 8; it has no others yet.
    assert kept.cells_exclusive() == 4
    assert kept.used_cells(8) == 12


def test_the_limit_leaves_a_token_to_compute() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    assert kept.match([*A, *B], limit=7).tokens == 4
    assert kept.last_divergence is None
    assert kept.match([*A, *B]).tokens == 8
    assert kept.match([*A, *B], limit=-3).tokens == 0


def test_a_branch_shares_the_common_cells_and_takes_its_own_for_the_rest() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    kept.attach(kept.match([*A, *C]), 1)
    assert kept.insert([*A, *C], 1) == [Copy(10, 11, 0, 4), Copy(1, 11, 4, 8)]
    assert paths(kept) == {10: [*A, *B], 11: [*A, *C]}
    # A is held once for both paths.
    assert kept.resident_tokens == 12
    assert kept.resident_blocks == 3


def test_a_path_is_lengthened_in_place() -> None:
    kept = cache()
    keep(kept, [*A])
    kept.attach(kept.match([*A, *B]), 1)
    assert kept.insert([*A, *B], 1) == [Copy(1, 10, 4, 8)]
    assert kept.insert([*A, *B, *C], 1) == [Copy(1, 10, 8, 12)]
    assert paths(kept) == {10: [*A, *B, *C]}
    assert kept.free_ids == 2


def test_what_is_there_already_costs_nothing() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    assert kept.insert([*A, *B], 1) == []
    assert kept.insert([*A], 1) == []
    # The second slot computed its own copy: its 8 tokens are private.
    assert kept.shared_tokens(1) == 0
    assert kept.used_cells(8) == 16
    assert kept.blocks_written == 2


def test_two_slots_with_one_prompt_keep_one_copy() -> None:
    kept = cache()
    kept.insert([*A, *B], 0)
    assert kept.insert([*A, *B, *C], 1) == [Copy(1, 10, 8, 12)]
    # Slot 0 has 8 cells, slot 1 has 12 of its own of which the last 4 serve the tree: 20 in all.
    assert (kept.shared_tokens(0), kept.shared_tokens(1)) == (8, 4)
    assert kept.used_cells(8 + 12) == 20
    kept.check_integrity()


def test_the_least_recently_used_leaf_goes_first_from_its_tail() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    keep(kept, [*C, *D])
    kept.match([*A, *B])
    # 5 cells are two blocks.
    assert kept.evict(5) == ([Trim(11, 0)], 8)
    assert kept.evict(1) == ([Trim(10, 4)], 4)
    assert paths(kept) == {10: [*A]}
    assert kept.evict(100) == ([Trim(10, 0)], 4)
    assert kept.evict(1) == ([], 0)
    assert (kept.paths, kept.free_ids, kept.blocks_evicted) == (0, 3, 4)


def test_a_used_prefix_outlives_its_unused_continuation() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    keep(kept, [*C])
    kept.match([*A, *D])
    ops, freed = kept.evict(8)
    # B is the oldest, then C; A was found again last.
    assert (ops, freed) == ([Trim(10, 4), Trim(11, 0)], 8)
    assert paths(kept) == {10: [*A]}


def test_an_id_comes_back_when_other_paths_cover_what_remains() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    keep(kept, [*A, *C])
    assert kept.evict(4) == ([Trim(10, 0)], 4)
    assert paths(kept) == {11: [*A, *C]}
    assert kept.free_ids == 2


def test_without_a_free_id_the_path_of_least_recent_use_gives_its_own() -> None:
    kept = cache(2)
    keep(kept, [*A])
    keep(kept, [*B])
    kept.match([*A])
    assert kept.insert([*C], 0) == [Trim(11, 0), Copy(0, 11, 0, 4)]
    assert paths(kept) == {10: [*A], 11: [*C]}


def test_an_old_tail_on_a_fresh_prefix_does_not_cost_the_prefix() -> None:
    kept = cache(2)
    keep(kept, [*A, *B])
    keep(kept, [*C])
    kept.match([*A])
    # B is older than C, but giving up 10 would lose A too.
    assert kept.insert([*D], 0) == [Trim(11, 0), Copy(0, 11, 0, 4)]


def test_the_only_id_is_taken_over_where_the_new_prompt_leaves_its_path() -> None:
    kept = cache(1)
    keep(kept, [*A, *B])
    assert kept.insert([*A, *C], 0) == [Trim(10, 4), Copy(0, 10, 4, 8)]
    assert paths(kept) == {10: [*A, *C]}


def test_pinned_paths_keep_their_ids_and_cells() -> None:
    kept = cache(1)
    kept.insert([*A, *B], 0)
    assert kept.insert([*C], 1) == []
    assert kept.declined == 1
    assert kept.evict(8) == ([], 0)
    kept.release(0)
    assert kept.insert([*C], 1) == [Trim(10, 0), Copy(1, 10, 0, 4)]


def test_no_ids_at_all_decline_everything() -> None:
    kept = cache(0)
    assert kept.insert([*A], 0) == []
    assert (kept.declined, kept.paths, kept.match([*A]).tokens) == (1, 0, 0)
    kept.check_integrity()


def test_capacity_makes_room_and_cuts_what_is_too_long() -> None:
    kept = cache(capacity=10)
    keep(kept, [*A])
    keep(kept, [*B])
    # 8 of 10 tokens are resident; A, the older, makes room for the one block.
    assert kept.insert([*C], 0) == [Trim(10, 0), Copy(0, 10, 0, 4)]
    kept.release(0)
    # 16 tokens do not fit in 10: two blocks do.
    assert kept.insert([*D, *D, *D, *D], 0) == [Trim(11, 0), Trim(10, 0), Copy(0, 10, 0, 8)]
    assert kept.resident_tokens == 8
    assert kept.insert([*A], 1) == []
    assert kept.declined == 1


def test_a_lowered_capacity_takes_pinned_prefixes_last_and_counts_their_cells_on() -> None:
    kept = cache()
    keep(kept, [*C])
    kept.insert([*A, *B], 0)
    kept.attach(kept.match([*A, *B]), 1)
    assert kept.used_cells(8 + 8) == 12
    assert kept.set_capacity(8) == [Trim(10, 0)]
    assert kept.set_capacity(4) == [Trim(11, 4)]
    # B is out of the tree, but slots 0 and 1 go on sharing its 4 cells.
    assert (kept.resident_tokens, kept.cells_held) == (4, 8)
    assert kept.used_cells(8 + 8) == 8
    # With no owner, those cells cannot be handed in again.
    assert kept.insert([*A, *B], 0) == []
    assert kept.declined == 1
    kept.release(0)
    # Now they are slot 1's own.
    assert kept.used_cells(8) == 8
    assert (kept.cells_held, kept.shared_tokens(1)) == (4, 4)
    kept.check_integrity()


def test_clearing_empties_every_path_and_leaves_the_slots_alone() -> None:
    kept = cache()
    kept.insert([*A, *B], 0)
    keep(kept, [*C], 1)
    assert sorted(kept.clear()) == [Trim(10, 0), Trim(11, 0)]
    assert (kept.paths, kept.free_ids, kept.resident_tokens) == (0, 3, 0)
    assert kept.used_cells(8) == 8
    assert kept.match([*C]).divergence == Divergence(0, "uncached")
    kept.release(0)
    kept.check_integrity()


def test_a_path_whose_kv_is_incomplete_is_dropped_alone() -> None:
    kept = cache()
    keep(kept, [*A, *B, *C])
    keep(kept, [*A, *D])
    assert kept.forget(10) == [Trim(10, 0)]
    assert paths(kept) == {11: [*A, *D]}
    assert kept.forget(11) == [Trim(11, 0)]
    assert kept.forget(11) == []
    kept.check_integrity()


def test_split_kv_copies_whole_sequences() -> None:
    kept = cache(shared=False)
    assert kept.insert([*A, *B], 0) == [CopyWhole(0, 10, 8)]
    kept.release(0)
    assert kept.attach(kept.match([*A, *C]), 1) == [CopyWhole(10, 1, 4)]
    assert kept.insert([*A, *C], 1) == [CopyWhole(1, 11, 8)]
    assert kept.insert([*A, *C, *D], 1) == [CopyWhole(1, 11, 12)]
    # Each path pays for all of its tokens: 8 + 12; slots share nothing.
    assert kept.resident_tokens == kept.cells_exclusive() == kept.cells_held == 20
    assert kept.shared_tokens(1) == 0
    # Emptying the second path frees its copy of A as well.
    kept.match([*A, *B])
    assert kept.evict(8) == ([Trim(11, 0)], 12)


def test_a_guard_does_what_its_path_does() -> None:
    kept = PrefixCache([10, 11], block_tokens=4, guard_ids=[20, 21])
    assert kept.insert([*A, *B], 0) == [Copy(0, 10, 0, 8), Copy(0, 20, 0, 8)]
    kept.release(0)
    # Slots are given the path's cells only.
    assert kept.attach(kept.match([*A, *C]), 1) == [Copy(10, 1, 0, 4)]
    assert kept.insert([*A, *C], 1) == [Copy(10, 11, 0, 4), Copy(10, 21, 0, 4), Copy(1, 11, 4, 8), Copy(1, 21, 4, 8)]
    assert kept.evict(4) == ([Trim(10, 0), Trim(20, 0)], 4)
    with pytest.raises(ValueError, match="belongs to the cache"):
        kept.insert([*A], 20)
    for guards, shared in (([20], True), ([10, 21], True), ([20, 21], False)):
        with pytest.raises(ValueError, match=r"one for each|distinct"):
            PrefixCache([10, 11], guard_ids=guards, shared=shared)


def test_contracts_are_checked_before_any_operation_is_made() -> None:
    kept = cache()
    keep(kept, [*A, *B])
    found = kept.match([*A, *B])
    with pytest.raises(ValueError, match="belongs to the cache"):
        kept.attach(found, 10)
    with pytest.raises(ValueError, match="belongs to the cache"):
        kept.insert([*A], 11)
    kept.attach(found, 0)
    with pytest.raises(ValueError, match="not released"):
        kept.attach(found, 0)
    kept.release(0)
    kept.evict(4)
    with pytest.raises(ValueError, match="4 tokens of the match were evicted"):
        kept.attach(found, 0)
    with pytest.raises(ValueError, match="at least one token"):
        PrefixCache([1], block_tokens=0)
    with pytest.raises(ValueError, match="negative"):
        PrefixCache([1], capacity_tokens=-1)
    with pytest.raises(ValueError, match="distinct"):
        PrefixCache([1, 1])
    with pytest.raises(ValueError, match="negative"):
        kept.set_capacity(-1)
    kept.release(7)
    kept.check_integrity()


def test_a_match_may_be_attached_after_the_tree_changed_around_it() -> None:
    kept = cache()
    keep(kept, [*A, *B, *C])
    found = kept.match([*A, *B])
    kept.match([*A])
    keep(kept, [*A, *B, *D])
    assert kept.attach(found, 0) == [Copy(10, 0, 0, 8)]


def test_splits_that_no_longer_matter_are_mended() -> None:
    kept = cache()
    prompt = [*A, *B, *C, *D]
    for _ in range(3):
        kept.attach(kept.match(prompt, limit=15), 0)
        kept.insert(prompt, 0)
        kept.release(0)
        assert len(list(kept._tree.nodes())) == 1
    kept.check_integrity()


def test_a_broken_law_is_noticed() -> None:
    kept = cache()
    kept.insert([*A, *B], 0)
    kept._tree.n_idle_tokens += 1
    with pytest.raises(AssertionError, match="idle tokens"):
        kept.check_integrity()
