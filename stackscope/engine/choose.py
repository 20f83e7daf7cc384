"""From logit rows to tokens: argmax or sampling, and verification of drafts, for every sequence of a forward."""

from __future__ import annotations

from collections.abc import Sequence as Many
from math import isnan
from typing import TYPE_CHECKING, overload

from stackscope.engine.sampling import (
    Distribution,
    NumpyTruncation,
    distribution_from_logits,
    draw,
    greedy_accept,
    request_rng,
    synthetic_accept,
    verify,
)
from stackscope.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from stackscope.engine.batching import Entry
    from stackscope.toggles import Sampling


class LazyRows(Many[Distribution]):
    """The target's distributions of consecutive rows, computed when verification reaches them.

    Truncating a row of a 262k vocabulary costs 0.1 to 3 ms; rows after a rejection are never looked at.
    """

    def __init__(self, logits: NDArray[np.float32], first: int, n: int, sampling: Sampling) -> None:
        self._logits = logits
        self._first = first
        self._n = n
        self._sampling = sampling
        self._truncation = NumpyTruncation.of(sampling)

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Distribution: ...

    @overload
    def __getitem__(self, index: slice) -> Many[Distribution]: ...

    def __getitem__(self, index: int | slice) -> Distribution | Many[Distribution]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._n))]
        ids, kept = self._truncation.candidates(self._logits[self._first + index])
        return distribution_from_logits(ids, kept, self._sampling.temperature)


def argmax(logits: NDArray[np.float32]) -> list[int]:
    """The largest logit of each row `[rows, vocab]`. Raises `EngineError` for a row that is not a number."""
    choices: list[int] = logits.argmax(1).tolist()
    value = logits.item
    for row, choice in enumerate(choices):
        # NaN counts as largest, so looking at what was chosen finds it wherever it stands. One number at a time: after
        # a forward, numpy's code for a whole array of them is no longer in the processor's cache, and takes 15 µs.
        if isnan(value(row, choice)):
            raise EngineError(
                "The model's logits are not numbers.",
                remedy="Check the file, or try another --kv-type or --no-flash-attention.",
            )
    return choices


class Chooser:
    """Chooses each sequence's next tokens; lossless unless acceptance is synthetic."""

    def __init__(self, is_end: Callable[[int], bool], seed: int) -> None:
        self._is_end = is_end
        self._synthetic_rng = request_rng(seed, -1)

    def choose(self, entries: Many[Entry], logits: NDArray[np.float32], synthetic: float | None) -> None:
        """Fill `accepted` and `emitted` of every entry that has output rows."""
        choices: list[int] | None = None
        for entry in entries:
            if entry.outputs == 0:
                continue
            sequence = entry.sequence
            first = entry.first_output
            draft = sequence.draft if entry.phase == "verify" else ()
            is_synthetic = synthetic is not None and len(draft) > 0
            if sequence.rng is None or is_synthetic:
                if choices is None:
                    choices = argmax(logits)
                if not draft:
                    entry.emitted = [choices[first]]
                elif synthetic is None:
                    kept = greedy_accept(choices[first : first + entry.outputs], draft)
                    entry.accepted = kept
                    entry.emitted = choices[first : first + kept + 1]
                else:
                    kept = synthetic_accept(len(draft), synthetic, self._synthetic_rng)
                    sequence.is_invalid = True
                    entry.accepted = kept
                    entry.emitted = [*draft[:kept], choices[first + kept]]
            else:
                self._sample(entry, logits)
            if draft:  # A single token always has room.
                self._clip(entry)

    def _sample(self, entry: Entry, logits: NDArray[np.float32]) -> None:
        sequence = entry.sequence
        rng = sequence.rng
        assert rng is not None
        rows = LazyRows(logits, entry.first_output, entry.outputs, sequence.job.sampling)
        if entry.phase != "verify":
            entry.emitted = [draw(rows[0], rng.random())]
            return
        kept, token = verify(rows, sequence.draft, sequence.draft_q, rng)
        entry.accepted = kept
        entry.emitted = [*sequence.draft[:kept], token]

    def _clip(self, entry: Entry) -> None:
        """Cut what lies past the limit or an end token: it is neither emitted nor counted as accepted."""
        sequence = entry.sequence
        emitted = entry.emitted
        room = sequence.max_n - sequence.n
        if len(emitted) > room:
            del emitted[room:]
        if len(emitted) > 1 and not sequence.job.ignore_eos:
            for index, token in enumerate(emitted):
                if self._is_end(token):
                    del emitted[index + 1 :]
                    break
        if entry.accepted > len(emitted):
            entry.accepted = len(emitted)
