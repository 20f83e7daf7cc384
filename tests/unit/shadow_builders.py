"""What tests of shadows are made of: clocks that stand still, requests that grow by hand, a simple draft model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.engine.sequence import Sequence
from stackscope.engine.shadows.budget import Clocks, Purse
from stackscope.toggles import Sampling
from stackscope.workload.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Many

    import numpy as np
    from numpy.typing import NDArray


class Time:
    """A clock that moves when told to, and by `each_ns` whenever it is read."""

    def __init__(self, each_ns: int = 0) -> None:
        self.now_ns = 0
        self.each_ns = each_ns

    def __call__(self) -> int:
        self.now_ns += self.each_ns
        return self.now_ns

    @property
    def clocks(self) -> Clocks:
        return Clocks(wall=self, thread=self, process=self)


def rich() -> Purse:
    """A purse that is never empty."""
    purse = Purse(1.0)
    purse.balance_ns = 1e18
    return purse


def request(
    prompt: Many[int], max_tokens: int, *, number: int = 0, temperature: float = 0.0, max_context: int = 10_000
) -> Sequence:
    job = Job(
        id=number,
        tokens=tuple(prompt),
        max_tokens=max_tokens,
        arrived_ns=0,
        sampling=Sampling(temperature=temperature),
    )
    return Sequence(job, max_context=max_context, piece=lambda _: b"", keep_text=False)


def gain(sequence: Sequence, tokens: Many[int]) -> None:
    """Let a request have more tokens."""
    sequence.tokens[sequence.n : sequence.n + len(tokens)] = tokens
    sequence.n += len(tokens)


class FakeGuesses:
    """A draft model whose next token is a function of the tokens before. Checks what it is fed, and when it is."""

    def __init__(
        self,
        next_token: Callable[[list[int]], int],
        *,
        n_cells: int = 10_000,
        n_rows: int = 64,
        n_outputs: int = 5,
        time: Time | None = None,
        ns_per_row: int = 0,
    ) -> None:
        self.n_cells, self.n_rows, self.n_outputs = n_cells, n_rows, n_outputs
        self.held: list[int] = []
        self.fails = False
        self.n_fed = 0
        self.n_calls = 0
        self._next_token = next_token
        self._time = time
        self._ns_per_row = ns_per_row

    def feed(self, tokens: NDArray[np.int32], start: int, n_outputs: int) -> list[int] | None:
        assert start == len(self.held)
        assert 0 < len(tokens) <= self.n_rows
        assert 0 <= n_outputs <= min(self.n_outputs, len(tokens))
        self.n_calls += 1
        self.n_fed += len(tokens)
        if self._time is not None:
            self._time.now_ns += self._ns_per_row * len(tokens)
        if self.fails:
            return None
        said = []
        for token in tokens.tolist():
            self.held.append(token)
            said.append(self._next_token(self.held))
        return said[len(said) - n_outputs :]

    def keep(self, n_tokens: int) -> int:
        assert n_tokens <= len(self.held)
        del self.held[n_tokens:]
        return len(self.held)
