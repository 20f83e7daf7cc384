"""Chained hashes of prefixes: in pieces or whole, and what is remembered of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine.prefix_hash import Remembered, Trail, chain
from stackscope.engine.shadows import prefixes
from stackscope.engine.shadows.prefixes import Endless

if TYPE_CHECKING:
    import pytest

BLOCK = 4
_tokens = st.lists(st.integers(0, 1), min_size=0, max_size=30)


@given(tokens=_tokens, cut=st.integers(0, 8))
def test_a_chain_goes_on_where_it_was_left(tokens: list[int], cut: int) -> None:
    key = np.array(tokens, np.int32).tobytes()
    whole = list(chain(key, 4 * BLOCK))
    assert len(whole) == len(tokens) // BLOCK
    cut = min(cut, len(whole))
    begun = whole[:cut]
    rest = list(chain(key[cut * 4 * BLOCK :], 4 * BLOCK, *begun[-1:]))
    assert begun + rest == whole
    assert len(set(whole)) == len(whole)


@given(st.lists(st.tuples(_tokens, st.integers(0, 30)), max_size=12))
def test_a_prompt_finds_the_longest_prefix_that_was_offered(prompts: list[tuple[list[int], int]]) -> None:
    endless = Endless(BLOCK)
    offered: set[tuple[int, ...]] = set()
    for prompt, first in prompts:
        tokens = np.array(prompt, np.int32)
        trail: Trail = []
        n_blocks = len(prompt) // BLOCK
        expected = next(n for n in range(n_blocks, -1, -1) if n == 0 or tuple(prompt[: n * BLOCK]) in offered)
        assert endless.look_up(tokens, trail) == expected * BLOCK
        # Some of it is offered while the request runs, the rest when it ends; what was found is there already.
        for stop in sorted((min(first, len(prompt)), len(prompt))):
            endless.offer(tokens[: max(stop, expected * BLOCK)], trail)
        offered |= {tuple(prompt[: n * BLOCK]) for n in range(1, n_blocks + 1)}


def test_what_was_met_lately_is_kept() -> None:
    most = 100
    remembered = Remembered(most)
    for value in range(10 * most):
        remembered.update([value])
        assert value in remembered
        assert remembered.renew(0)  # Met again and again, it stays.
    kept = [value for value in range(10 * most) if value in remembered]
    assert len(kept) <= most + 1
    assert 3 * most not in remembered
    assert not remembered.renew(3 * most)
    assert all(value in remembered for value in range(10 * most - most // 2, 10 * most))


def test_a_prefix_in_use_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_BLOCKS", 20)
    endless = Endless(1)
    prompt = np.arange(6, dtype=np.int32)
    trail: Trail = []
    endless.look_up(prompt, trail)
    endless.offer(prompt, trail)
    for other in range(100, 180, 5):
        endless.offer(np.arange(other, other + 5, dtype=np.int32), [])
        endless.offer(prompt, trail)
    assert endless.look_up(prompt, []) == 6
