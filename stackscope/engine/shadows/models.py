"""The draft model beside the real decode: what it would have drafted, scored on the tokens that came.

A greedy draft is a chain: while its tokens are those that came, the next one is what the model says after the tokens
that came. So one pass of the draft model over a request's own tokens, which asks for the likeliest token after each,
tells the drafts of every length at every position, and nothing is ever drafted token by token. The pass runs in slices,
as time allows, and may go on after the request has ended. It has a context of its own: what drafting really holds in
the draft model's context is never touched, whether it is on or off.

At a temperature, how likely a draft is accepted depends on the target's distribution, which is gone by then: only
greedy requests are followed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from stackscope.engine.shadows.budget import SAVED_NS
from stackscope.engine.shadows.walks import LONGEST, Tally, Walks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stackscope.engine.sequence import Sequence
    from stackscope.engine.shadows.budget import Clocks, Purse

SLICE_NS: Final = 2_000_000
"""What one forward may take: the engine waits for it."""
MOST_WAITING: Final = 64
"""Requests that wait for their turn."""
FRESH: Final = 16
"""Tokens that a running request gains before they are fed."""
LEAST_ROWS: Final = 4
"""Rows of a forward before any was timed, and of a model that is too slow for a slice: it reads its weights anyway."""


class Guesses(Protocol):
    """The draft model's own opinion of one sequence."""

    n_cells: int
    """Longest request that it can follow."""
    n_rows: int
    """Most tokens that it can be fed at a time."""
    n_outputs: int
    """Most guesses that it can give at a time."""

    def feed(self, tokens: NDArray[np.int32], start: int, n_outputs: int) -> list[int] | None:
        """The likeliest token after each of the last `n_outputs` of these, which stand at `start`.

        `None`: it failed.
        """

    def keep(self, n_tokens: int) -> int:
        """Forget all but the first tokens; how many remain, which may be fewer."""


class ModelShadow:
    """Follows whole greedy requests, one after the other.

    Where time is short, the next is the first that is admitted when the last is done with; where it is not, all of them
    wait for their turn, those first that have ended.
    """

    def __init__(self, guesses: Guesses, purse: Purse, clocks: Clocks) -> None:
        self.tally = Tally()
        self.cpu_ns = 0
        """What it took since the tally was taken."""
        self._guesses = guesses
        self._purse = purse
        self._wall = clocks.wall
        self._cpu = clocks.process
        self._waiting: deque[tuple[Sequence, int]] = deque()
        """Requests whose turn will come, and the tokens that they were admitted with."""
        self._sequence: Sequence | None = None
        self._start = 0
        self._fed = 0
        """Tokens of it that the model has."""
        self._held: NDArray[np.int32] | None = None
        """The last request's tokens, of which the model still has the first `_fed`."""
        self._said: list[int] = []
        """What the model says comes after each token from the one before `_start` on."""
        self._walks: Walks | None = None
        self._at = 0
        """Tokens that were walked over."""
        self._ns_per_row = 0.0

    def __len__(self) -> int:
        """Requests that it follows, those that wait for their turn included."""
        return len(self._waiting) + (self._sequence is not None)

    def offer(self, sequence: Sequence, n: int) -> None:
        """Follow a request that was admitted with `n` tokens, if it can be and its turn will come soon."""
        if sequence.rng is not None or sequence.is_invalid or sequence.max_n > self._guesses.n_cells:
            return
        if self._sequence is None and not self._waiting:
            self._follow(sequence, n)
        elif self._purse.balance_ns >= SAVED_NS / 2 and len(self._waiting) < MOST_WAITING:
            is_known = sequence is self._sequence or any(other is sequence for other, _ in self._waiting)
            if not is_known:  # Else it was put back, and is here again.
                self._waiting.append((sequence, n))

    def _follow(self, sequence: Sequence, n: int) -> None:
        self._sequence = sequence
        # The token that a prefill ends with comes without a round of speculation.
        self._start = n + 1
        common = 0 if self._held is None else _common(self._held[: self._fed], sequence.tokens[:n])
        self._fed = self._guesses.keep(min(common, n - 1))
        self._held = sequence.tokens
        self._said = []
        self._walks = None

    def work(self) -> None:
        """Take the next slice, if there is enough for one and the purse is open."""
        if self._purse.balance_ns < min(SAVED_NS, LEAST_ROWS * self._ns_per_row):
            return
        if self._sequence is None:
            if not self._waiting:
                return
            turn = next((turn for turn in self._waiting if turn[0].is_over), self._waiting[0])
            self._waiting.remove(turn)
            self._follow(*turn)
        sequence = self._sequence
        assert sequence is not None
        if sequence.is_invalid or sequence.max_n > self._guesses.n_cells:
            self._sequence = None
            return
        if sequence.is_over and sequence.n <= self._start:
            self._finish(sequence)
            return
        # What follows the newest token is not known yet, and never will be of the last.
        n_fresh = sequence.n - sequence.is_over - self._fed
        if n_fresh >= FRESH or (n_fresh > 0 and (sequence.is_over or self._fed + n_fresh < self._start)):
            self._feed(sequence, n_fresh)
        elif sequence.is_over:
            self._finish(sequence)

    def _feed(self, sequence: Sequence, n_fresh: int) -> None:
        fed = self._fed
        n_rows = min(n_fresh, self._n_rows)
        first = self._start - 1  # Position of the first token after which a draft begins.
        if fed + n_rows > first:
            n_rows = min(n_rows, max(0, first - fed) + self._guesses.n_outputs)
        n_outputs = max(0, fed + n_rows - max(fed, first))
        wall, cpu = self._wall(), self._cpu()
        said = self._guesses.feed(sequence.tokens[fed : fed + n_rows], fed, n_outputs)
        took, cpu = self._wall() - wall, self._cpu() - cpu
        self.cpu_ns += cpu
        self._purse.spend(max(took, cpu))
        if said is None:
            self._sequence = None
            self._fed = self._guesses.keep(0)
            return
        rate = took / n_rows
        self._ns_per_row = rate if self._ns_per_row == 0.0 else self._ns_per_row + 0.2 * (rate - self._ns_per_row)
        self._fed = fed + n_rows
        self._held = sequence.tokens
        self._said += said
        if sequence.is_over and self._fed >= sequence.n - 1:
            self._finish(sequence)
        elif n_outputs:
            self._walk(sequence, is_over=False)

    @property
    def _n_rows(self) -> int:
        """How many tokens to feed at a time."""
        n_rows = LEAST_ROWS
        if self._ns_per_row > 0.0:
            n_rows = max(n_rows, int(SLICE_NS / self._ns_per_row))
        return min(n_rows, self._guesses.n_rows)

    def _finish(self, sequence: Sequence) -> None:
        if sequence.n > self._start:
            self._walk(sequence, is_over=True)
        self._sequence = None

    def _walk(self, sequence: Sequence, *, is_over: bool) -> None:
        start, tally = self._start, self.tally
        walks = self._walks
        if walks is None:
            walks = self._walks = Walks(start, tally)
            self._at = start
            tally.requests += 1
        before = self._at
        # Tokens of which it is known whether the model expected them.
        n = min(sequence.n, start + len(self._said))
        coming: list[int] = sequence.tokens[start:n].tolist()
        expected = [said == came for said, came in zip(self._said, coming, strict=False)]
        while self._at < n:
            if walks.due == self._at:
                index = self._at - start
                run = 0
                for is_expected in expected[index : index + LONGEST]:
                    if not is_expected:
                        break
                    run += 1
                came = n - self._at
                if run == came and not is_over:
                    break
                walks.settle(run, came, sequence.max_n - self._at - 1)
            self._at += 1
        tally.tokens += self._at - before


def _common(left: NDArray[np.int32], right: NDArray[np.int32]) -> int:
    """Leading tokens that both have in common."""
    n = min(len(left), len(right))
    if n == 0:
        return 0
    differs = left[:n] != right[:n]
    first = int(differs.argmax())
    return first if differs[first] else n
