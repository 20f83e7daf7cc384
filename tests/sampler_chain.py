"""llama.cpp's own sampler chain, as the reference that NumpyTruncation is compared with."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import llama_cpp as low
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stackscope.engine.sampling import NumpyTruncation


class ChainTruncation:
    """Top-k, top-p and min-p as the library applies them."""

    def __init__(self, truncation: NumpyTruncation) -> None:
        self._chain = low.llama_sampler_chain_init(low.llama_sampler_chain_default_params())
        for sampler in (
            low.llama_sampler_init_top_k(truncation.top_k),
            low.llama_sampler_init_top_p(truncation.top_p, truncation.min_keep),
            low.llama_sampler_init_min_p(truncation.min_p, truncation.min_keep),
        ):
            low.llama_sampler_chain_add(self._chain, sampler)

    def candidates(self, row: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        data = np.zeros(len(row), [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        data["id"], data["logit"] = np.arange(len(row)), row
        array = low.llama_token_data_array(
            data=ctypes.cast(data.ctypes.data, low.llama_token_data_p), size=len(row), selected=-1, sorted=False
        )
        low.llama_sampler_apply(self._chain, ctypes.byref(array))
        return data["id"][: array.size].copy(), data["logit"][: array.size].copy()

    def close(self) -> None:
        low.llama_sampler_free(self._chain)


def check_against_chain(setting: NumpyTruncation, row: NDArray[np.float32]) -> None:
    chain = ChainTruncation(setting)
    theirs_ids, theirs = chain.candidates(row)
    chain.close()
    ids, logits = setting.candidates(row)
    assert ids.dtype == np.int32
    assert logits.dtype == np.float32
    assert np.array_equal(logits, row[ids])
    if len(ids) != len(theirs_ids):  # the last bits of an exponential decided a token at the edge of top-p
        assert is_edge_of_top_p(setting, row, len(ids), len(theirs_ids)), (setting, len(ids), len(theirs_ids))
    n_common = min(len(ids), len(theirs_ids))
    assert np.array_equal(logits[:n_common], theirs[:n_common]), setting
    values, counts = np.unique(row, return_counts=True)
    is_single = np.isin(theirs[:n_common], values[counts == 1])  # equal logits come in any order, and any at an edge
    assert np.array_equal(ids[:n_common][is_single], theirs_ids[:n_common][is_single]), setting


def is_edge_of_top_p(setting: NumpyTruncation, row: NDArray[np.float32], ours: int, theirs: int) -> bool:
    ordered = np.sort(row.astype(np.float64))[::-1]
    if setting.top_k > 0:
        ordered = ordered[: setting.top_k]
    cumulative = np.cumsum(np.exp(ordered - ordered[0]))
    cumulative /= cumulative[-1]
    return bool(np.ptp(cumulative[[min(ours, theirs) - 1, max(ours, theirs) - 1]]) < 1e-5)
