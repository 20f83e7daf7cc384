"""Truncation by llama.cpp's own sampler chain: one chain per distinct setting, shared by its requests."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
from llama_cpp import llama_cpp as low

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stackscope.toggles import Sampling


class Truncation:
    """llama.cpp's own sampler chain, truncation before temperature: which tokens may be drawn, and their logits."""

    def __init__(self, n_vocab: int, sampling: Sampling) -> None:
        self._chain = low.llama_sampler_chain_init(low.llama_sampler_chain_default_params())
        if sampling.top_k > 0:
            low.llama_sampler_chain_add(self._chain, low.llama_sampler_init_top_k(sampling.top_k))
        if sampling.top_p < 1.0:
            low.llama_sampler_chain_add(self._chain, low.llama_sampler_init_top_p(sampling.top_p, 1))
        if sampling.min_p > 0.0:
            low.llama_sampler_chain_add(self._chain, low.llama_sampler_init_min_p(sampling.min_p, 1))
        self._data = np.zeros(n_vocab, np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)]))
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._array = low.llama_token_data_array(
            data=ctypes.cast(self._data.ctypes.data, ctypes.POINTER(low.llama_token_data)),
            size=n_vocab,
            selected=-1,
            sorted=False,
        )

    def candidates(self, row: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Ids and logits that survive truncation of one logit row `[n_vocab]`; copies, in the chain's order."""
        self._data["id"] = self._ids
        self._data["logit"] = row
        self._array.size, self._array.selected, self._array.sorted = len(row), -1, False
        low.llama_sampler_apply(self._chain, ctypes.byref(self._array))
        kept = self._data[: self._array.size]
        return kept["id"].copy(), kept["logit"].copy()

    def close(self) -> None:
        if self._chain is not None:
            low.llama_sampler_free(self._chain)
            self._chain = None


class Samplers:
    """Makes each truncation chain once; `close` frees them."""

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._chains: dict[tuple[int, float, float], Truncation] = {}

    def truncation(self, sampling: Sampling) -> Truncation:
        key = (sampling.top_k, sampling.top_p, sampling.min_p)
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = Truncation(self._n_vocab, sampling)
        return chain

    def close(self) -> None:
        for chain in self._chains.values():
            chain.close()
        self._chains.clear()
