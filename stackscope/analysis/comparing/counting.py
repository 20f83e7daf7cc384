"""The ledger's counts over arrays of steps: the same integers as `Ledger.count_steps`, a fifth of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from stackscope.analysis.ledger import Work

if TYPE_CHECKING:
    from stackscope.analysis.account import Account
    from stackscope.analysis.ledger import AttentionGroup, Ledger

Ints: TypeAlias = npt.NDArray[np.int64]
ShortInts: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]


class Spans(NamedTuple):
    """The sequences of several forwards, one after the other. All arrays have one element per sequence but `first`."""

    cached: Ints
    new: Ints
    first: Ints
    """Index of the first sequence of each forward; every forward has at least one."""


class Passes(NamedTuple):
    """The passes over the weights of several forwards; one element per pass but `first`."""

    rows: Ints
    outputs: Ints
    first: Ints
    """Index of the first pass of each forward."""


class Counted(NamedTuple):
    """Work of each forward. One element, or column, per forward."""

    passes: Ints
    output_passes: Ints
    rows: Ints
    outputs: Ints
    sequences: Ints
    tokens_read: Ints
    """(attention groups, forwards)."""
    pairs: Ints
    """Likewise."""
    experts: Floats
    output_experts: Floats

    @property
    def total(self) -> Work:
        """The sum over all forwards."""
        return Work(
            int(self.passes.sum()),
            int(self.output_passes.sum()),
            int(self.rows.sum()),
            int(self.outputs.sum()),
            int(self.sequences.sum()),
            tuple(map(int, self.tokens_read.sum(axis=1))),
            tuple(map(int, self.pairs.sum(axis=1))),
            float(self.experts.sum()),
            float(self.output_experts.sum()),
        )


def count(ledger: Ledger, spans: Spans, passes: Passes) -> Counted:
    """The work of every forward, as the ledger counts it one by one."""
    groups = [_attended(group, spans.cached, spans.new) for group in ledger.groups]
    empty = np.zeros((0, len(spans.first)), dtype=np.int64)
    sizes = np.diff(np.append(passes.first, len(passes.rows)))
    return Counted(
        passes=sizes,
        output_passes=np.add.reduceat((passes.outputs > 0).astype(np.int64), passes.first),
        rows=np.add.reduceat(passes.rows, passes.first),
        outputs=np.add.reduceat(passes.outputs, passes.first),
        sequences=np.diff(np.append(spans.first, len(spans.new))),
        tokens_read=np.stack([np.add.reduceat(tokens, spans.first) for tokens, _ in groups]) if groups else empty,
        pairs=np.stack([np.add.reduceat(pairs, spans.first) for _, pairs in groups]) if groups else empty,
        experts=np.add.reduceat(_experts(ledger, passes.rows), passes.first),
        output_experts=np.add.reduceat(_experts(ledger, passes.outputs), passes.first),
    )


def _attended(group: AttentionGroup, cached: Ints, new: Ints) -> tuple[Ints, Ints]:
    """(cached tokens read, query–key pairs) of each sequence: `AttentionGroup.count` over arrays."""
    window = group.window
    if window is None:
        return cached + new, new * cached + new * (new + 1) // 2
    if group.is_chunked:
        pairs = _chunked(cached + new, window) - _chunked(cached, window)
        return cached + new - cached // window * window, pairs
    is_full = cached >= window
    growing = np.where(is_full, 0, np.minimum(window - cached, new))
    pairs = growing * cached + growing * (growing + 1) // 2 + (new - growing) * window
    return np.where(is_full, window + new - 1, cached + new), pairs


def _chunked(positions: Ints, window: int) -> Ints:
    chunks, rest = np.divmod(positions, window)
    counted: Ints = chunks * (window * (window + 1) // 2) + rest * (rest + 1) // 2
    return counted


def _experts(ledger: Ledger, tokens: Ints) -> Floats:
    if not ledger.is_sparse:
        return np.zeros(len(tokens))
    numbers, places = np.unique(tokens, return_inverse=True)
    found: Floats = np.array([ledger.distinct_experts(int(n)) for n in numbers])[places]
    return found


PARTS = ("weight_bytes", "head_bytes", "kv_bytes", "other_bytes")
"""Parts of the bytes that a forward moves: weights but the head, the head, the KV cache read and written, and the rest
(embedding rows, recurrent state)."""


def price(ledger: Ledger, counted: Counted) -> Floats:
    """Bytes that each forward moved: (parts, forwards), in the order of `PARTS`.

    The ledger's prices are linear in counts, so that one pass's price and what each count adds to it say all of it.
    """
    groups = len(ledger.groups)
    one = Work(passes=1, tokens_read=(0,) * groups, pairs=(0,) * groups)
    base = _priced(ledger.price(one))
    units: list[tuple[Ints | Floats, Floats]] = [(counted.passes, base)]
    for name in ("output_passes", "rows", "sequences", "experts", "output_experts"):
        more = msgspec.structs.replace(one, **{name: 1})
        units.append((getattr(counted, name), _priced(ledger.price(more)) - base))
    for group in range(groups):
        more = msgspec.structs.replace(one, tokens_read=tuple(int(index == group) for index in range(groups)))
        units.append((counted.tokens_read[group], _priced(ledger.price(more)) - base))
    made: Floats = np.zeros((len(PARTS), len(counted.passes)))
    for amounts, each in units:
        made += np.outer(each, amounts)
    return made


def _priced(account: Account) -> Floats:
    exact = account.exact
    weights = float(account.weight_bytes) - exact.head_weights
    other = exact.embedding_rows + exact.recurrent_state
    return np.array((weights, exact.head_weights, account.kv_bytes, other), dtype=np.float64)
