"""How a batch is cut into passes over the weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine.ubatches import split_equal, split_simple
from stackscope.records import Ubatch


def test_a_unified_cache_cuts_consecutive_chunks() -> None:
    rows = [False] * 599 + [True]
    assert split_simple(rows, 512) == (Ubatch(512, 0), Ubatch(88, 1))


def test_three_decodes_and_a_prefill_take_two_passes_with_split_kv() -> None:
    # One row of each of the four sequences first, then the 199 rows that only the prefill has left.
    spans = [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 200, 1)]
    assert split_equal(spans, 512) == (Ubatch(4, 3), Ubatch(199, 1))


def test_a_gap_in_the_sequence_ids_costs_a_pass() -> None:
    assert split_equal([(0, 1, 1), (2, 1, 1), (3, 1, 1)], 512) == (Ubatch(1, 1), Ubatch(2, 2))


def test_ragged_drafts_cost_passes() -> None:
    assert split_equal([(0, 4, 4), (1, 2, 2)], 512) == (Ubatch(4, 4), Ubatch(2, 2))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=12),
    st.integers(12, 64),
)
def test_every_row_and_output_is_in_exactly_one_pass(shape: list[tuple[int, int]], n_ubatch: int) -> None:
    spans = [(i, rows, min(rows, outputs)) for i, (rows, outputs) in enumerate(shape)]
    passes = split_equal(spans, n_ubatch)
    assert sum(p.rows for p in passes) == sum(rows for _, rows, _ in spans)
    assert sum(p.outputs for p in passes) == sum(outputs for _, _, outputs in spans)
    assert all(p.rows <= n_ubatch and 0 <= p.outputs <= p.rows for p in passes)
