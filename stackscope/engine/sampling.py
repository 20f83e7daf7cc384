"""Logits to tokens: truncation, drawing, and verification of drafted tokens that leaves the output as it was.

Greedy verification is a comparison of argmaxes. At a temperature it is speculative sampling by rejection (Leviathan,
Kalman and Matias, arXiv 2211.17192, appendix A.1): the output follows the target's distribution, whatever was drafted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stackscope.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.toggles import Sampling

Ids: TypeAlias = npt.NDArray[np.int32]
Logits: TypeAlias = npt.NDArray[np.float32]
Probs: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.integer]

_FIRST_NUCLEUS: Final = 256
"""Candidates that top-p sorts first when it is given the whole vocabulary; more only when their mass is short of p."""
_BLOCKS_PER_K: Final = 4
"""Blocks per kept token in the search for the k-th largest logit (k = 40 of 262,144: 88 µs; np.partition: 290 µs)."""
_BLOCK_MIN: Final = 256
"""Shorter blocks make their maxima dearer than np.partition of the row (45 against 39 µs for 32,768 logits)."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A distribution over tokens, with probability 0 for every token not listed."""

    ids: Ids
    """Distinct token ids, in any order."""
    probs: Probs
    """Their probabilities, which sum to 1 up to rounding."""


class Truncation(Protocol):
    """Chooses the tokens that may be drawn, before any temperature."""

    def candidates(self, row: Logits) -> tuple[Ids, Logits]:
        """Ids and untouched logits of the kept tokens, in any order; copies, which survive the row."""


def greedy_accept(choices: Sequence[int] | Ints, drafts: Sequence[int] | Ints) -> int:
    """Number of drafted tokens that the target would have chosen itself, up to the first that it would not.

    `choices` holds the argmax of the k + 1 rows of one sequence, `drafts` the k drafted tokens. The tokens to emit are
    `choices[: accepted + 1]`: the accepted drafts and the target's own next token.
    """
    if len(choices) != len(drafts) + 1:
        raise ValueError(f"{len(drafts)} drafted tokens need one row more, not {len(choices)}")
    for position, draft in enumerate(drafts):
        if choices[position] != draft:
            return position
    return len(drafts)


def greedy_accept_batch(choices: Ints, fed: Ints, starts: Ints) -> npt.NDArray[np.intp]:
    """`greedy_accept` for every sequence of a batch at once.

    `choices[r]` is the argmax of row r and `fed[r]` the token that the forward was given there: for each sequence its
    last committed token, then its drafts. Sequence i owns the rows `starts[i]` up to `starts[i + 1]`, at least one;
    `starts` begins with 0 and ends with the number of rows.
    """
    n_rows = len(choices)
    if len(fed) != n_rows or starts[-1] != n_rows:
        raise ValueError(f"{n_rows} choices, {len(fed)} fed tokens and an end at row {starts[-1]} do not match")
    missed = np.ones(n_rows, np.bool_)
    np.not_equal(choices[:-1], fed[1:], out=missed[:-1])
    # The next sequence's first token is no draft of this one: each sequence's last row counts as a miss.
    missed[starts[1:] - 1] = True
    misses = missed.nonzero()[0]
    firsts = starts[:-1]
    accepted: npt.NDArray[np.intp] = misses[misses.searchsorted(firsts)] - firsts
    return accepted


def distribution_from_logits(ids: Ids, logits: Logits, temperature: float) -> Distribution:
    """softmax(logits / temperature) over the candidates, in double precision.

    Raises ValueError unless the temperature is above 0, EngineError when the logits are not finite numbers.
    """
    if not temperature > 0.0:
        raise ValueError(f"a distribution needs a temperature above 0, not {temperature}")
    scaled = logits.astype(np.float64)
    scaled -= _finite_top(scaled.max(initial=-math.inf))
    with np.errstate(over="ignore"):  # a tiny temperature may push a difference to -inf, whose exponential is 0
        scaled /= temperature
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum()
    return Distribution(ids, scaled)


def draw(dist: Distribution, u: float) -> int:
    """The token at quantile u, 0 ≤ u < 1, of the distribution in its own order; never one of probability 0."""
    cumulative = dist.probs.cumsum()
    # Even for the largest double below 1, u·total rounds to less than the total, so the index is always one of a token.
    return int(dist.ids[cumulative.searchsorted(u * cumulative[-1], side="right")])


def probability(dist: Distribution, token: int) -> float:
    """Probability of one token, 0 when it is not listed."""
    found = (dist.ids == token).nonzero()[0]
    return float(dist.probs[found[0]]) if len(found) else 0.0


def residual(p: Distribution, q: Distribution) -> Distribution:
    """norm(max(p − q, 0)): what p still lacks after accepting drafts from q with probability min(1, p / q).

    Where rounding leaves nothing (p and q equal but for their last bits, which a rejection meets with a probability of
    that size), it is p itself.
    """
    order = q.ids.argsort()
    places = order[q.ids.searchsorted(p.ids, sorter=order).clip(max=len(order) - 1)]
    shared = np.where(q.ids[places] == p.ids, q.probs[places], 0.0)
    lacking = np.maximum(p.probs - shared, 0.0)
    total = lacking.sum()
    return Distribution(p.ids, lacking / total) if total > 0.0 else p


def verify(
    p_rows: Sequence[Distribution],
    drafts: Sequence[int],
    q_rows: Sequence[Distribution | None],
    rng: np.random.Generator,
) -> tuple[int, int]:
    """Accepted drafts and the token that follows them, distributed exactly as plain sampling from the target.

    `p_rows` are the target's k + 1 distributions, `drafts` the k drafted tokens, `q_rows` the distributions they were
    drawn from; `None` says that the drafter was deterministic. Rows are read in order and only up to the first
    rejection, so a lazy sequence computes no more of them than needed. No drafts is plain sampling.

    A deterministic draft x is accepted with probability p(x), else the token comes from p without x: that is to draw
    from p and compare. It takes one random number per token, so under the same generator the tokens themselves, not
    only their distribution, are those of plain sampling.
    """
    for position, (token, q) in enumerate(zip(drafts, q_rows, strict=True)):
        p = p_rows[position]
        if q is None:
            chosen = draw(p, rng.random())
            if chosen != token:
                return position, chosen
            continue
        drafted_with = probability(q, token)
        if drafted_with <= 0.0:
            raise ValueError(f"token {token} cannot have been drafted: its draft distribution gives it no probability")
        if rng.random() * drafted_with >= probability(p, token):
            return position, draw(residual(p, q), rng.random())
    return len(drafts), draw(p_rows[len(drafts)], rng.random())


def synthetic_accept(n_drafted: int, rate: float, rng: np.random.Generator) -> int:
    """Number of drafts kept when each is kept with probability `rate` up to the first failure, whatever it says."""
    for kept in range(n_drafted):
        if rng.random() >= rate:
            return kept
    return n_drafted


def request_rng(seed: int, request_id: int) -> np.random.Generator:
    """The request's own reproducible stream: distinct (seed, request) pairs, modulo 2⁶⁴ each, never share one."""
    key = np.array([seed % 2**64, request_id % 2**64], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


@dataclass(frozen=True, slots=True)
class NumpyTruncation:
    """Top-k, top-p, min-p in llama.cpp's order and single-precision arithmetic (src/llama-sampler.cpp).

    The kept set is that of llama.cpp's sampler chain but for two things. Of equal logits at the edge, the smallest
    ids are kept here, arbitrary ones there. Its top-p edge is decided by sums of exponentials whose last bits depend
    on the exponential function: a token whose cumulative probability meets p within 1e-6 may fall on the other side.
    """

    top_k: int = 40
    """Keep the k largest; 0 or less keeps all."""
    top_p: float = 0.95
    """Keep the fewest of the most probable whose probabilities reach p; 1 or more keeps all."""
    min_p: float = 0.05
    """Keep tokens at least p times as probable as the best; 0 or less keeps all."""
    min_keep: int = 1
    """Tokens that top-p and min-p leave at least."""

    @classmethod
    def of(cls, sampling: Sampling) -> NumpyTruncation:
        return cls(sampling.top_k, sampling.top_p, sampling.min_p)

    def candidates(self, row: Logits) -> tuple[Ids, Logits]:
        """Kept ids and logits: by descending logit, or by id when neither top-k nor top-p is on.

        Raises EngineError when the logits are not finite numbers.
        """
        top_p = np.float32(self.top_p)
        if self.top_k > 0:
            ids, logits = _largest(row, min(self.top_k, len(row)))
            if top_p < 1.0:
                weights = np.exp(logits - logits[0])
                n_kept = self._n_nucleus(weights / _running_sum(weights), top_p)
                ids, logits = ids[:n_kept], logits[:n_kept]
            return self._above_min_p(ids, logits)
        if top_p < 1.0:
            return self._above_min_p(*self._nucleus(row, top_p))
        return self._above_min_p_unsorted(row)

    def _n_nucleus(self, probs: Logits, top_p: np.float32) -> int:
        """How many of the probabilities, largest first, reach p."""
        n_reaching = int(probs.cumsum().searchsorted(top_p)) + 1
        return min(max(n_reaching, self.min_keep), len(probs))

    def _nucleus(self, row: Logits, top_p: np.float32) -> tuple[Ids, Logits]:
        """Top-p of a whole vocabulary, or the part of it that min-p will leave, which is known without sorting."""
        top = _finite_top(row.max(initial=-math.inf))
        weights = np.exp(row - np.float32(top))
        total = _running_sum(weights)
        n_wanted = len(row)
        if self._min_p_offset is not None:
            n_above = np.count_nonzero(row >= np.float32(top) + self._min_p_offset)
            n_wanted = min(max(int(n_above), self.min_keep, 1), len(row))
        n_sorted = min(max(_FIRST_NUCLEUS, self.min_keep), n_wanted)
        while True:
            ids, logits = _largest(row, n_sorted)
            probs = weights[ids] / total
            if n_sorted == n_wanted or _running_sum(probs) >= top_p:
                n_kept = self._n_nucleus(probs, top_p)
                return ids[:n_kept], logits[:n_kept]
            n_sorted = min(16 * n_sorted, n_wanted)

    @property
    def _min_p_offset(self) -> np.float32 | None:
        """How far below the best logit min-p lets a candidate be (negative). `None`: min-p is off."""
        min_p = np.float32(self.min_p)
        return np.float32(math.log(min_p)) if min_p > 0.0 else None

    def _above_min_p(self, ids: Ids, logits: Logits) -> tuple[Ids, Logits]:
        """Min-p of candidates in descending order."""
        offset = self._min_p_offset
        if offset is None:
            return ids, logits
        n_kept = max(np.count_nonzero(logits >= logits[0] + offset), self.min_keep, 1)
        return ids[:n_kept], logits[:n_kept]

    def _above_min_p_unsorted(self, row: Logits) -> tuple[Ids, Logits]:
        offset = self._min_p_offset
        top = _finite_top(row.max(initial=-math.inf))
        if offset is None:
            return np.arange(len(row), dtype=np.int32), row.copy()
        ids = (row >= np.float32(top) + offset).nonzero()[0]
        n_least = max(self.min_keep, 1)
        if len(ids) < n_least:
            return _largest(row, min(n_least, len(row)))
        return ids.astype(np.int32), row[ids]


def _finite_top(top: np.floating) -> float:
    """The largest logit as a float; EngineError when it is NaN (as any NaN makes it) or infinite."""
    if not math.isfinite(top):
        raise EngineError(
            "The model computed logits that are not finite numbers.",
            remedy="Check the model file, and try another KV cache type or flash attention off.",
        )
    return float(top)


def _running_sum(values: Logits) -> np.float32:
    """Sum from left to right in single precision, as a C loop adds; np.sum adds in pairs."""
    total: np.float32 = values.cumsum()[-1]
    return total


def _largest(row: Logits, k: int) -> tuple[Ids, Logits]:
    """Ids and logits of the k largest, descending; equal logits by ascending id."""
    ids = (row >= _at_most_kth_largest(row, k)).nonzero()[0]
    logits = row[ids]
    order = np.argsort(-logits, kind="stable")[:k]
    return ids[order].astype(np.int32), logits[order]


def _at_most_kth_largest(row: Logits, k: int) -> np.float32:
    """A bound that at least k logits reach, and seldom many more.

    Of the maxima of disjoint blocks the k-th largest is one: k blocks hold at least one logit as large. Short rows
    take the k-th largest logit itself.
    """
    block = len(row) // (_BLOCKS_PER_K * k)
    if block < _BLOCK_MIN:
        _finite_top(row.max(initial=-math.inf))
        found: np.float32 = np.partition(row, len(row) - k)[len(row) - k]
        return found
    n_blocks = len(row) // block
    maxima = row[: n_blocks * block].reshape(n_blocks, block).max(axis=1)
    _finite_top(np.maximum(maxima.max(), row[n_blocks * block :].max(initial=-math.inf)))
    bound: np.float32 = np.partition(maxima, n_blocks - k)[n_blocks - k]
    return bound
