"""Verification keeps the target's distribution whatever was drafted, and the check would notice if it did not."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from stackscope.engine.sampling import Distribution, draw, probability, request_rng, residual, verify
from tests.chi_square import MIN_P, p_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rule = Callable[
        [Sequence[Distribution], Sequence[int], Sequence[Distribution | None], np.random.Generator], tuple[int, int]
    ]

N_DRAWS = 6_000


def dist(probs: dict[int, float]) -> Distribution:
    return Distribution(np.array(list(probs), np.int32), np.array(list(probs.values()), np.float64))


def certain(token: int) -> Distribution:
    return dist({token: 1.0})


SHAPES: dict[str, tuple[dict[int, float], dict[int, float]]] = {
    "equal": ({1: 0.2, 2: 0.5, 3: 0.3}, {1: 0.2, 2: 0.5, 3: 0.3}),
    "equal, other order": ({1: 0.2, 2: 0.5, 3: 0.3}, {3: 0.3, 1: 0.2, 2: 0.5}),
    "close": ({1: 0.2, 2: 0.5, 3: 0.3}, {2: 0.4, 3: 0.35, 1: 0.25}),
    "opposed": ({1: 0.9, 2: 0.1}, {1: 0.1, 2: 0.9}),
    "disjoint": ({1: 0.6, 2: 0.4}, {3: 0.7, 4: 0.3}),
    "overlapping at one": ({1: 0.6, 2: 0.4}, {2: 0.7, 4: 0.3}),
    "draft wider": ({1: 0.7, 2: 0.3}, {0: 0.3, 1: 0.2, 2: 0.3, 3: 0.2}),
    "target wider": ({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}, {2: 0.5, 3: 0.5}),
    "target certain": ({5: 1.0}, {5: 0.3, 6: 0.7}),
    "draft certain": ({5: 0.25, 6: 0.75}, {5: 1.0}),
    "draft certain and wrong": ({5: 0.25, 6: 0.75}, {7: 1.0}),
    "zero listed": ({1: 0.0, 2: 0.4, 3: 0.6}, {1: 0.5, 2: 0.5}),
    "long tails": (
        {i: 0.5**i / (1 - 0.5**12) for i in range(1, 13)},
        {i: 0.5 ** (13 - i) / (1 - 0.5**12) for i in range(1, 13)},
    ),
}


def first_tokens(rule: Rule, p: dict[int, float], q: dict[int, float], *, seed: int, is_one_hot: bool) -> list[int]:
    """First emitted token of many rounds with one draft from q; `is_one_hot` hides q from the rule."""
    rng = np.random.default_rng(seed)
    p_row, q_row, unused = dist(p), dist(q), dist({99: 1.0})
    tokens = []
    for _ in range(N_DRAWS):
        token = draw(q_row, rng.random())
        accepted, following = rule([p_row, unused], [token], [None if is_one_hot else q_row], rng)
        tokens.append(token if accepted else following)
    return tokens


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_one_hot", [False, True])
def test_one_draft_keeps_the_target_distribution(shape: str, is_one_hot: bool) -> None:
    p, q = SHAPES[shape]
    tokens = first_tokens(verify, p, q, seed=17, is_one_hot=is_one_hot)
    assert p_value(tokens, {t: x for t, x in p.items() if x > 0.0}) >= MIN_P


def test_acceptance_is_the_overlap_of_target_and_draft() -> None:
    # Σ min(p, q) = 0.2 + 0.4 + 0.3 = 0.9; ±4σ of 6,000 draws is ±0.0155
    p, q = dist({1: 0.2, 2: 0.5, 3: 0.3}), dist({1: 0.25, 2: 0.4, 3: 0.35})
    rng = np.random.default_rng(3)
    accepted = [verify([p, p], [draw(q, rng.random())], [q], rng)[0] for _ in range(N_DRAWS)]
    assert sum(accepted) / N_DRAWS == pytest.approx(0.9, abs=0.0155)


def test_equal_distributions_accept_everything() -> None:
    p, q = dist({1: 0.2, 2: 0.5, 3: 0.3}), dist({3: 0.3, 1: 0.2, 2: 0.5})
    rng = np.random.default_rng(4)
    for _ in range(500):
        drafts = [draw(q, rng.random()) for _ in range(4)]
        assert verify([p] * 5, drafts, [q] * 4, rng)[0] == 4


# A small Markov target: the next token depends on the one before.
TARGET = {
    0: {0: 0.1, 1: 0.6, 2: 0.3},
    1: {0: 0.5, 2: 0.5},
    2: {0: 0.05, 1: 0.05, 2: 0.2, 3: 0.7},
    3: {1: 0.8, 3: 0.2},
    7: {0: 1.0},
}
DRAFTERS: dict[str, dict[int, dict[int, float]]] = {
    "itself": TARGET,
    "flatter": dict.fromkeys(TARGET, dict.fromkeys(range(4), 0.25)),
    "one behind": {0: TARGET[1], 1: TARGET[2], 2: TARGET[3], 3: TARGET[0]},
    "certain": {0: {1: 1.0}, 1: {2: 1.0}, 2: {3: 1.0}, 3: {1: 1.0}},
    "useless": {t: {7: 1.0} for t in TARGET},
}
TARGET_ROWS = {token: dist(row) for token, row in TARGET.items()}
DRAFT_ROWS = {name: {token: dist(row) for token, row in table.items()} for name, table in DRAFTERS.items()}


def chain_probabilities(n: int) -> dict[tuple[int, ...], float]:
    """Exact probability of each run of n tokens after token 0."""
    runs: dict[tuple[int, ...], float] = {(0,): 1.0}
    for _ in range(n):
        runs = {(*run, token): weight * p for run, weight in runs.items() for token, p in TARGET[run[-1]].items()}
    return {run[1:]: weight for run, weight in runs.items()}


def run_of_rounds(
    rule: Rule, name: str, k: int, n: int, rng: np.random.Generator, *, is_one_hot: bool
) -> tuple[int, ...]:
    """The first n tokens that rounds of k drafts emit after token 0."""
    out = [0]
    while len(out) <= n:
        drafts: list[int] = []
        q_rows: list[Distribution | None] = []
        for _ in range(k):
            q = DRAFT_ROWS[name][drafts[-1] if drafts else out[-1]]
            drafts.append(draw(q, rng.random()))
            q_rows.append(None if is_one_hot else q)
        p_rows = [TARGET_ROWS[token] for token in (out[-1], *drafts)]
        accepted, following = rule(p_rows, drafts, q_rows, rng)
        out += [*drafts[:accepted], following]
    return tuple(out[1 : n + 1])


def runs_of_rounds(rule: Rule, name: str, k: int, *, n: int, is_one_hot: bool = False) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(1000 + k)
    return [run_of_rounds(rule, name, k, n, rng, is_one_hot=is_one_hot) for _ in range(5_000)]


@pytest.mark.parametrize(
    ("name", "k"),
    [*product(["one behind"], range(1, 9)), *product(("flatter", "itself", "certain", "useless"), (1, 4))],
)
def test_the_first_two_tokens_of_rounds_follow_the_target(name: str, k: int) -> None:
    assert p_value(runs_of_rounds(verify, name, k, n=2), chain_probabilities(2)) >= MIN_P


@pytest.mark.parametrize("k", [2, 4])
def test_the_first_two_tokens_follow_the_target_when_the_draft_distribution_is_unknown(k: int) -> None:
    # Whatever made the drafts, to the rule they are given tokens: "one behind" draws them at random.
    assert p_value(runs_of_rounds(verify, "one behind", k, n=2, is_one_hot=True), chain_probabilities(2)) >= MIN_P


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_first_four_tokens_of_rounds_follow_the_target(k: int) -> None:
    assert p_value(runs_of_rounds(verify, "flatter", k, n=4), chain_probabilities(4)) >= MIN_P


def test_plain_sampling_is_a_round_without_drafts() -> None:
    assert p_value(runs_of_rounds(verify, "flatter", 0, n=2), chain_probabilities(2)) >= MIN_P


# Wrong rules, which the same checks must find.


def no_residual(
    p_rows: Sequence[Distribution],
    drafts: Sequence[int],
    q_rows: Sequence[Distribution | None],
    rng: np.random.Generator,
) -> tuple[int, int]:
    """On rejection draws from the target instead of what it lacks."""
    for i, (token, q) in enumerate(zip(drafts, q_rows, strict=True)):
        of_draft = 1.0 if q is None else probability(q, token)
        if rng.random() * of_draft >= probability(p_rows[i], token):
            return i, draw(p_rows[i], rng.random())
    return len(drafts), draw(p_rows[-1], rng.random())


def blind_to_draft(
    p_rows: Sequence[Distribution],
    drafts: Sequence[int],
    q_rows: Sequence[Distribution | None],
    rng: np.random.Generator,
) -> tuple[int, int]:
    """Accepts with the target's probability alone, however often the draft comes up."""
    for i, (token, q) in enumerate(zip(drafts, q_rows, strict=True)):
        if rng.random() >= probability(p_rows[i], token):
            return i, draw(residual(p_rows[i], q) if q is not None else p_rows[i], rng.random())
    return len(drafts), draw(p_rows[-1], rng.random())


def bonus_from_the_row_before(
    p_rows: Sequence[Distribution],
    drafts: Sequence[int],
    q_rows: Sequence[Distribution | None],
    rng: np.random.Generator,
) -> tuple[int, int]:
    accepted, following = verify(p_rows, drafts, q_rows, rng)
    if accepted == len(drafts) > 0:
        following = draw(p_rows[-2], rng.random())
    return accepted, following


def takes_everything(
    p_rows: Sequence[Distribution],
    drafts: Sequence[int],
    q_rows: Sequence[Distribution | None],
    rng: np.random.Generator,
) -> tuple[int, int]:
    """Whatever is drafted."""
    del q_rows
    return len(drafts), draw(p_rows[-1], rng.random())


@pytest.mark.parametrize("rule", [no_residual, blind_to_draft, takes_everything])
def test_a_wrong_rule_fails_on_one_draft(rule: Rule) -> None:
    p, q = SHAPES["close"]
    assert p_value(first_tokens(verify, p, q, seed=5, is_one_hot=False), p) >= MIN_P
    assert p_value(first_tokens(rule, p, q, seed=5, is_one_hot=False), p) < MIN_P


def test_a_rejection_that_may_draw_the_draft_again_fails_without_a_draft_distribution() -> None:
    p, q = SHAPES["draft certain"]
    # Token 5 comes with p + (1 − p)·p = 0.25 + 0.75·0.25 = 0.4375 instead of 0.25.
    tokens = first_tokens(no_residual, p, q, seed=5, is_one_hot=True)
    assert tokens.count(5) / N_DRAWS == pytest.approx(0.4375, abs=0.03)
    assert p_value(tokens, p) < MIN_P


@pytest.mark.parametrize("rule", [no_residual, blind_to_draft, bonus_from_the_row_before, takes_everything])
def test_a_wrong_rule_fails_on_rounds(rule: Rule) -> None:
    assert p_value(runs_of_rounds(rule, "flatter", 1, n=2), chain_probabilities(2)) < MIN_P


def test_without_draft_distributions_the_tokens_are_those_of_plain_sampling() -> None:
    def plain(seed: int, n: int) -> list[int]:
        rng = request_rng(seed, 1)
        out = [0]
        while len(out) <= n:
            out.append(draw(TARGET_ROWS[out[-1]], rng.random()))
        return out[1:]

    def by_rounds(seed: int, n: int) -> list[int]:
        rng = request_rng(seed, 1)
        guesses = np.random.default_rng(seed)
        out = [0]
        while len(out) <= n:
            drafts = guesses.integers(0, 4, 3).tolist()
            rows = [TARGET_ROWS[token] for token in (out[-1], *drafts)]
            accepted, following = verify(rows, drafts, [None] * 3, rng)
            out += [*drafts[:accepted], following]
        return out[1 : n + 1]

    assert all(by_rounds(seed, 40) == plain(seed, 40) for seed in range(20))


def test_rows_after_a_rejection_are_not_looked_at() -> None:
    class Rows(list[Distribution]):
        looked_at: list[int]

        def __getitem__(self, index: Any) -> Any:
            self.looked_at.append(index)
            return super().__getitem__(index)

    rows = Rows([certain(1), certain(2), certain(3), certain(4)])
    rows.looked_at = []
    assert verify(rows, [1, 9, 3], [None, certain(9), None], np.random.default_rng(0)) == (1, 2)
    assert rows.looked_at == [0, 1]


def test_a_draft_that_its_own_distribution_excludes_is_refused() -> None:
    p = dist({1: 1.0})
    with pytest.raises(ValueError, match="token 1 cannot have been drafted"):
        verify([p, p], [1], [dist({2: 1.0})], np.random.default_rng(0))
    with pytest.raises(ValueError, match="shorter"):
        verify([p, p], [1], [], np.random.default_rng(0))
