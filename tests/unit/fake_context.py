"""A context that computes nothing: it keeps positions as the library does, and time passes by a formula."""

from __future__ import annotations

from bisect import bisect_left
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from stackscope.engine.llama import DecodeStatus
from stackscope.engine.sizing import ContextSize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SAVING = 6.0
LOADING = 3.0
"""Bytes per nanosecond that a state is moved at."""
BYTES_PER_TOKEN = 8


class Clock:
    """Time that passes only while something runs, in nanoseconds."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class FakeContext:
    """As `engine.llama.Context`, for what a calibration asks of it."""

    def __init__(
        self, clock: Clock, cost_ns: Callable[[int, int, int], float], *, n_ctx: int = 16_384, n_batch: int = 512,
        n_seq_max: int = 4, is_unified: bool = True, can_shift: bool = True,
    ) -> None:  # fmt: skip
        """`cost_ns` is what a forward takes by (cached tokens of its sequence, rows, cells of other sequences)."""
        self._clock = clock
        self._cost_ns = cost_ns
        self.cells: dict[int, list[int]] = {sequence: [] for sequence in range(n_seq_max)}
        """Positions that each sequence holds, in order."""
        self.n_ctx = n_ctx
        self.can_shift = can_shift
        self.model: Any = SimpleNamespace(n_vocab=512)
        self.batch: Any = SimpleNamespace(
            **{name: np.zeros(n_batch, np.int32) for name in ("token", "position", "sequence", "output")}
        )
        self.size = ContextSize(
            n_ctx=n_ctx, n_ctx_seq=n_ctx, n_batch=n_batch, n_ubatch=n_batch, n_seq_max=n_seq_max, n_outputs_max=64,
            slots_max=n_seq_max, draft_length_max=0, threads=2, is_unified=is_unified, n_paths=0, has_guards=False,
        )  # fmt: skip

    def decode(self, rows: int) -> int:
        """Takes its time; the rows have to follow what their sequence holds, and that has to be without gaps."""
        [sequence] = set(self.batch.sequence[:rows].tolist())
        held = self.cells[sequence]
        assert held == list(range(len(held)))
        assert self.batch.position[:rows].tolist() == list(range(len(held), len(held) + rows))
        others = sum(len(cells) for cells in self.cells.values()) - len(held)
        if len(held) + others + rows > self.n_ctx:
            return DecodeStatus.NO_ROOM
        self._clock.ns += round(self._cost_ns(len(held), rows, others))
        held.extend(range(len(held), len(held) + rows))
        return DecodeStatus.OK

    def clear(self) -> None:
        for held in self.cells.values():
            held.clear()

    def remove(self, sequence: int, start: int) -> bool:
        held = self.cells[sequence]
        del held[bisect_left(held, start) :]
        return True

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        assert self.size.is_unified
        self.cells[target] += [position for position in self.cells[source] if start <= position < stop]

    def shift(self, sequence: int, by: int) -> None:
        assert self.can_shift
        self.cells[sequence] = [position + by for position in self.cells[sequence]]

    def state_bytes(self, sequence: int) -> int:
        return BYTES_PER_TOKEN * len(self.cells[sequence])

    def save_state(self, sequence: int, into: NDArray[np.uint8]) -> int:
        into.view(np.int64)[:] = self.cells[sequence]
        self._clock.ns += round(into.nbytes / SAVING)
        return into.nbytes

    def load_state(self, sequence: int, state: NDArray[np.uint8]) -> None:
        self.cells[sequence] = state.view(np.int64).tolist()
        self._clock.ns += round(state.nbytes / LOADING)
