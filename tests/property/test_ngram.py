"""The index agrees with a naive search of the history, however the history came about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stackscope.engine.ngram import NgramDrafter

tokens = st.lists(st.integers(0, 2), max_size=40)


def naive(history: list[int], n_min: int, n_max: int, k: int) -> list[int]:
    """Scan backwards for each n; then continue token by token, each a copy of the one a period before."""
    for n in range(n_max, n_min - 1, -1):
        for end in range(len(history) - 1, n - 1, -1):
            if history[end - n : end] == history[len(history) - n :]:
                longer = list(history)
                period = len(history) - end
                for _ in range(k):
                    longer.append(longer[-period])
                return longer[len(history) :]
    return []


def test_the_naive_search_by_hand() -> None:
    assert naive([1, 2, 3, 1, 2], 2, 4, 5) == [3, 1, 2, 3, 1]
    assert naive([1, 2, 3], 2, 4, 5) == []


@given(tokens, st.integers(1, 4), st.integers(0, 4), st.integers(0, 9))
def test_proposals_equal_a_naive_search(history: list[int], n_min: int, more: int, k: int) -> None:
    drafter = NgramDrafter(n_min, n_min + more)
    drafter.extend(history)
    assert drafter.propose(k) == naive(history, n_min, n_min + more, k)


class Growing(RuleBasedStateMachine):
    """Extended in pieces of any size, shortened now and then."""

    @initialize(n_min=st.integers(1, 3), more=st.integers(0, 3))
    def begin(self, n_min: int, more: int) -> None:
        self.n_min, self.n_max = n_min, n_min + more
        self.drafter = NgramDrafter(self.n_min, self.n_max)
        self.history: list[int] = []

    @rule(more=tokens)
    def extend(self, more: list[int]) -> None:
        self.drafter.extend(more)
        self.history += more

    @rule(share=st.floats(0.0, 1.2))
    def truncate(self, share: float) -> None:
        length = int(share * len(self.history))
        self.drafter.truncate(length)
        del self.history[length:]

    @rule()
    def reset(self) -> None:
        self.drafter.reset()
        self.history.clear()

    @invariant()
    def agrees(self) -> None:
        assert len(self.drafter) == len(self.history)
        for k in (1, 6):
            assert self.drafter.propose(k) == naive(self.history, self.n_min, self.n_max, k)


TestGrowing = Growing.TestCase
