"""How the library cuts one batch into ubatches: each is a pass over the weights, so the ledger must know.

Follows llama.cpp's `llama_batch_allocr`: `split_simple` for a unified cache, sequential `split_equal` for split KV.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.records import Ubatch

if TYPE_CHECKING:
    from collections.abc import Sequence


def split_simple(rows: Sequence[bool], n_ubatch: int) -> tuple[Ubatch, ...]:
    """Consecutive chunks of at most `n_ubatch` rows. `rows` says of each whether it has an output."""
    return tuple(
        Ubatch(len(chunk), sum(chunk)) for chunk in (rows[i : i + n_ubatch] for i in range(0, len(rows), n_ubatch))
    )


def split_equal(spans: Sequence[tuple[int, int, int]], n_ubatch: int) -> tuple[Ubatch, ...]:
    """Chunks that hold equally many rows of each sequence, and only sequences with consecutive ids.

    `spans` is, in batch order, (sequence id, rows, outputs) of each sequence, its outputs being its last rows.
    """
    remaining = {sequence: rows for sequence, rows, _ in spans}
    outputs = {sequence: n for sequence, _, n in spans}
    order = [sequence for sequence, _, _ in spans]
    result: list[Ubatch] = []
    while any(remaining.values()):
        chosen: list[int] = []
        for sequence in order:
            if remaining[sequence] > 0 and (not chosen or sequence == chosen[-1] + 1):
                chosen.append(sequence)
                if len(chosen) > n_ubatch:
                    break
        width = min(remaining[s] for s in chosen)
        # The library adds a row per sequence, then stops when another round would pass the limit.
        width = max(1, min(width, n_ubatch // len(chosen)))
        n_outputs = 0
        for sequence in chosen:
            left = remaining[sequence] - width
            n_outputs += max(0, min(width, outputs[sequence] - left))
            remaining[sequence] = left
        result.append(Ubatch(width * len(chosen), n_outputs))
    return tuple(result)
