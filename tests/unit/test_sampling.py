"""Greedy verification keeps argmaxes, drawing inverts the distribution, and each request has a stream of its own."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest

from stackscope.engine.sampling import (
    Distribution,
    distribution_from_logits,
    draw,
    greedy_accept,
    greedy_accept_batch,
    probability,
    request_rng,
    residual,
    synthetic_accept,
)
from stackscope.errors import EngineError
from tests.chi_square import MIN_P, p_value

N_DRAWS = 6_000


def dist(probs: dict[int, float]) -> Distribution:
    return Distribution(np.array(list(probs), np.int32), np.array(list(probs.values()), np.float64))


def as_dict(d: Distribution) -> dict[int, float]:
    return dict(zip(d.ids.tolist(), d.probs.tolist(), strict=True))


def test_greedy_accepts_up_to_the_first_difference() -> None:
    assert greedy_accept([7, 8, 9, 4], [7, 8, 9]) == 3  # all: 4 is the bonus
    assert greedy_accept([7, 8, 9, 4], [7, 5, 9]) == 1  # 9 agrees again, behind a difference
    assert greedy_accept([7, 8], [6]) == 0
    assert greedy_accept([7], []) == 0
    assert greedy_accept(np.array([7, 8, 9]), np.array([7, 8], np.int32)) == 2


def test_greedy_refuses_rows_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="2 drafted tokens need one row more, not 2"):
        greedy_accept([1, 2], [1, 2])
    with pytest.raises(ValueError, match="do not match"):
        greedy_accept_batch(np.array([1, 2]), np.array([1]), np.array([0, 2]))
    with pytest.raises(ValueError, match="do not match"):
        greedy_accept_batch(np.array([1, 2]), np.array([1, 2]), np.array([0, 1]))


def test_greedy_batch_by_hand() -> None:
    # Three sequences: last token 1 with drafts 7, 8; last token 7 alone; last token 3 with drafts 5, 6.
    fed = np.array([1, 7, 8, 7, 3, 5, 6], np.int32)
    starts = np.array([0, 3, 4, 7])
    # Row 2 chooses 7, which is what the next sequence was fed: no acceptance across the border.
    choices = np.array([7, 8, 7, 3, 5, 9, 1])
    assert greedy_accept_batch(choices, fed, starts).tolist() == [2, 0, 1]


def test_greedy_batch_of_nothing() -> None:
    empty = np.array([], np.int64)
    assert greedy_accept_batch(empty, empty, np.array([0])).tolist() == []


def test_softmax_by_hand() -> None:
    # temperature 0.5 doubles the logits: e^(2·ln 3) : e^0 = 9 : 1
    d = distribution_from_logits(np.array([5, 2], np.int32), np.array([math.log(3.0), 0.0], np.float32), 0.5)
    assert d.ids.tolist() == [5, 2]
    assert d.probs == pytest.approx([0.9, 0.1], rel=1e-6)


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-3])
def test_softmax_at_a_tiny_temperature_is_the_argmax(temperature: float) -> None:
    d = distribution_from_logits(np.array([5, 2, 9], np.int32), np.array([-3e38, 3e38, 1.0], np.float32), temperature)
    assert d.probs.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_softmax_needs_a_temperature(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature above 0"):
        distribution_from_logits(np.array([1], np.int32), np.array([1.0], np.float32), temperature)


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [math.inf, 1.0], [-math.inf, -math.inf], []])
def test_logits_that_are_no_numbers_are_an_error(bad: list[float]) -> None:
    logits = np.array(bad, np.float32)
    with pytest.raises(EngineError, match="not finite"):
        distribution_from_logits(np.arange(len(bad), dtype=np.int32), logits, 1.0)


def test_draw_is_the_inverse_of_the_cumulative_distribution() -> None:
    d = dist({4: 0.25, 1: 0.0, 9: 0.5, 2: 0.25, 3: 0.0})
    drawn = [draw(d, u) for u in (0.0, 0.24, 0.25, 0.74, 0.75, 1.0 - 2.0**-53)]
    assert drawn == [4, 4, 9, 9, 2, 2]


def test_draw_never_falls_on_a_token_without_probability() -> None:
    largest_u = 1.0 - 2.0**-53
    assert draw(dist({1: 0.1, 2: 0.1, 3: 0.1, 4: 0.0}), largest_u) == 3
    assert draw(dist({7: 0.0, 8: 1.0}), 0.0) == 8


def test_residual_by_hand() -> None:
    p = dist({1: 0.5, 2: 0.3, 3: 0.2})
    q = dist({3: 0.6, 1: 0.1, 7: 0.3})
    # max(p − q, 0) = 0.4, 0.3, 0 → 4/7, 3/7, 0
    assert as_dict(residual(p, q)) == pytest.approx({1: 4 / 7, 2: 3 / 7, 3: 0.0})


def test_residual_of_disjoint_supports_is_the_target() -> None:
    p = dist({1: 0.5, 2: 0.5})
    assert as_dict(residual(p, dist({3: 0.4, 0: 0.6}))) == pytest.approx(as_dict(p))


def test_residual_emptied_by_rounding_falls_back_to_the_target() -> None:
    p = dist({1: 0.5, 2: 0.5})
    q = dist({1: np.nextafter(0.5, 1.0), 2: 0.5})
    assert residual(p, q) is p


def test_probability_of_a_token_that_is_not_listed_is_zero() -> None:
    assert probability(dist({4: 0.25, 1: 0.75}), 1) == 0.75
    assert probability(dist({4: 1.0}), 2) == 0.0


def test_synthetic_acceptance_is_geometric() -> None:
    # P(kept = j) = 0.7^j · 0.3 for j < 4, 0.7^4 for 4
    rng = np.random.default_rng(11)
    kept = [synthetic_accept(4, 0.7, rng) for _ in range(N_DRAWS)]
    assert p_value(kept, {**{j: 0.7**j * 0.3 for j in range(4)}, 4: 0.7**4}) >= MIN_P


def test_synthetic_acceptance_at_its_ends() -> None:
    rng = np.random.default_rng(11)
    assert {synthetic_accept(8, 0.0, rng) for _ in range(200)} == {0}
    assert {synthetic_accept(8, 1.0, rng) for _ in range(200)} == {8}
    assert synthetic_accept(0, 1.0, rng) == 0


def test_each_request_has_its_own_reproducible_stream() -> None:
    def start(seed: int, request: int) -> tuple[float, ...]:
        return tuple(request_rng(seed, request).random(4))

    assert start(1, 2) == start(1, 2)
    pairs = [*product((0, 1, 2, -1, 2**63), (0, 1, 2, 3, -1)), (2**32, 0), (0, 2**32)]
    assert len({start(*pair) for pair in pairs}) == len(pairs)


def test_streams_of_neighbouring_requests_are_independent() -> None:
    cells = [int(4 * request_rng(7, request).random()) for request in range(N_DRAWS)]
    assert p_value(cells, dict.fromkeys(range(4), 0.25)) >= MIN_P
    pairs = pairwise(cells)
    assert p_value(pairs, dict.fromkeys(product(range(4), repeat=2), 1 / 16)) >= MIN_P
