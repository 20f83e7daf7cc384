"""The truncation in numpy keeps what llama.cpp's sampler chain keeps."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from stackscope.engine.sampling import NumpyTruncation, Truncation, distribution_from_logits
from stackscope.errors import EngineError
from stackscope.toggles import Sampling
from tests.sampler_chain import check_against_chain

SETTINGS = [
    NumpyTruncation(*setting)
    for setting in [
        *product((0, 1, 5, 40, 300, 10**6), (1.0, 0.95, 0.4, 1e-6), (0.0, 0.05, 0.6), (1,)),
        (40, 0.1, 0.9, 3), (0, 0.1, 0.9, 3), (0, 1.0, 0.9, 3), (0, 1.0, 2.0, 1), (5, 0.95, 0.05, 50), (0, 1.0, 1.0, 1),
        (-1, 0.0, -1.0, 1), (0, 0.1, 0.0, 300), (0, 0.999_999_99, 1e-50, 1),
    ]
]  # fmt: skip


@pytest.mark.parametrize("n_vocab", [1, 7, 1_024, 1_500, 50_000])
def test_numpy_truncation_keeps_what_the_chain_keeps(n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    for scale in (0.3, 3.0):
        row = (scale * rng.standard_normal(n_vocab)).astype(np.float32)
        assert len(np.unique(row)) >= 0.99 * n_vocab
        for setting in SETTINGS:
            check_against_chain(setting, row)


def test_truncation_by_hand() -> None:
    # Probabilities 0.5, 0.25, 0.125, 0.125: top-p 0.7 needs two; min-p 0.3 keeps what has 0.15 or more: two.
    row = np.log(np.array([0.125, 0.5, 0.125, 0.25], np.float32))
    assert NumpyTruncation(0, 0.7, 0.0).candidates(row)[0].tolist() == [1, 3]
    assert NumpyTruncation(0, 1.0, 0.3).candidates(row)[0].tolist() == [1, 3]
    assert NumpyTruncation(3, 1.0, 0.0).candidates(row)[0].tolist() == [1, 3, 0]
    # After top-k the rest counts as everything: 0.5 and 0.25 become 2/3 and 1/3, and 0.65 is reached by the first.
    assert NumpyTruncation(2, 0.65, 0.0).candidates(row)[0].tolist() == [1]


def test_equal_logits_at_the_edge_keep_the_smallest_ids() -> None:
    row = np.array([1.0, 2.0, 2.0, 2.0, 0.0, 2.0], np.float32)
    assert NumpyTruncation(3, 1.0, 0.0).candidates(row)[0].tolist() == [1, 2, 3]
    many = np.random.default_rng(0).integers(0, 9, 5_000).astype(np.float32)
    by_logit_then_id = np.lexsort((np.arange(5_000), -many))
    assert NumpyTruncation(1_000, 1.0, 0.0).candidates(many)[0].tolist() == by_logit_then_id[:1_000].tolist()


@pytest.mark.parametrize("top_k", [0, 3])
def test_min_p_keeps_what_is_exactly_at_its_edge(top_k: int) -> None:
    row = np.array([1.0, 2.0, 2.0, 0.0], np.float32)
    assert NumpyTruncation(top_k, 1.0, 1.0).candidates(row)[0].tolist() == [1, 2]


def test_a_vocabulary_of_equal_logits_is_kept_in_order() -> None:
    ids, _ = NumpyTruncation(40, 1.0, 0.05).candidates(np.zeros(262_144, np.float32))
    assert ids.tolist() == list(range(40))


def test_excluded_tokens_are_never_candidates_of_positive_probability() -> None:
    row = np.full(50_000, -np.inf, np.float32)
    row[[4, 40_000]] = [1.0, 2.0]
    for setting in (NumpyTruncation(), NumpyTruncation(0), NumpyTruncation(0, 1.0), NumpyTruncation(40, 1.0, 0.0)):
        d = distribution_from_logits(*setting.candidates(row), 1.0)
        assert d.ids[d.probs > 0.0].tolist() in ([40_000, 4], [4, 40_000])


@pytest.mark.parametrize("n_vocab", [10, 100_003])
@pytest.mark.parametrize("setting", [NumpyTruncation(), NumpyTruncation(0), NumpyTruncation(0, 1.0)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_row_is_an_error(n_vocab: int, setting: NumpyTruncation, bad: float) -> None:
    for place in (0, n_vocab // 2, n_vocab - 1):
        row = np.zeros(n_vocab, np.float32)
        row[place] = bad
        with pytest.raises(EngineError, match="not finite"):
            setting.candidates(row)


def test_candidates_survive_the_row() -> None:
    for setting in (NumpyTruncation(), NumpyTruncation(0), NumpyTruncation(0, 1.0), NumpyTruncation(0, 1.0, 0.0)):
        row = np.arange(10, dtype=np.float32)
        _, logits = setting.candidates(row)
        before = logits.copy()
        row[:] = 0.0
        assert np.array_equal(logits, before)


def test_a_truncation_comes_from_sampling_settings() -> None:
    truncation: Truncation = NumpyTruncation.of(Sampling(temperature=0.7, top_k=3, top_p=0.5, min_p=0.1))
    assert truncation == NumpyTruncation(3, 0.5, 0.1)
