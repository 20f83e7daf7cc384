"""The n-gram drafter beside the real decode: what it would have drafted, scored on the tokens that came.

What it drafts depends on the tokens alone. So it need not run in step with the engine: it reads what a request has
gained, some tokens at a time and the rest when it ends, and finds exactly what it would have found then. One drafter
serves all lengths: a shorter draft is the beginning of the longest one. It holds at a temperature too, where n-gram
drafts are verified by drawing from the target and comparing (`sampling.verify`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.engine.ngram import NgramDrafter
from stackscope.engine.shadows.walks import LONGEST, Tally, Walks

if TYPE_CHECKING:
    from stackscope.engine.sequence import Sequence
    from stackscope.engine.shadows.budget import Clocks, Purse

SWEEP: Final = 64
"""Tokens that a request gains before they are read. Few at a time cost up to twice as much each: the processor's caches
are cold after a forward."""
PROMPT_SHARE: Final = 6
"""A prompt's token, which is only indexed, costs this part of a generated one."""
_FIRST_GUESS_NS: Final = 4_000.0
"""Per generated token, before anything was measured."""


class _Followed:
    """One request, and how far it was read."""

    __slots__ = ("at", "drafter", "put_by_ns", "sequence", "spent_ns", "start", "walks")

    def __init__(self, sequence: Sequence, start: int, drafter: NgramDrafter, put_by_ns: float) -> None:
        self.sequence = sequence
        self.start = start
        """Tokens before the first round."""
        self.drafter = drafter
        self.walks: Walks | None = None
        """`None`: nothing was read yet."""
        self.at = 0
        """Tokens that the drafter has read."""
        self.put_by_ns = put_by_ns
        self.spent_ns = 0


class NgramShadow:
    """Follows whole requests, as many as the purse allows."""

    def __init__(self, purse: Purse, clocks: Clocks, n_min: int, n_max: int) -> None:
        self.tally = Tally()
        self.cpu_ns = 0
        """What it took since the tally was taken."""
        self._purse = purse
        self._clock = clocks.thread
        self._n = (n_min, n_max)
        self._followed: dict[Sequence, _Followed] = {}
        self._turns: list[_Followed] = []
        self._ns_per_token = _FIRST_GUESS_NS

    def __len__(self) -> int:
        """Requests that it follows."""
        return len(self._followed)

    def offer(self, sequence: Sequence, n: int) -> None:
        """Follow a request that was admitted with `n` tokens, unless the purse is closed."""
        if sequence in self._followed or not self._purse.is_open or sequence.is_invalid:
            return
        n_tokens = n / PROMPT_SHARE + (sequence.max_n - n)
        put_by = n_tokens * self._ns_per_token
        self._purse.spend(put_by)
        # The token that a prefill ends with comes without a round of speculation.
        followed = _Followed(sequence, n + 1, NgramDrafter(*self._n), put_by)
        self._followed[sequence] = followed

    def work(self) -> None:
        """Read one of the requests, if it has gained enough by its turn."""
        if not self._turns:
            if not self._followed:
                return
            self._turns = list(self._followed.values())
        followed = self._turns.pop()
        sequence = followed.sequence
        if sequence.is_over:
            if sequence in self._followed:
                self._finish(followed)
        elif sequence.n - max(followed.at, followed.start) >= SWEEP:
            self._read(followed)

    def end(self) -> None:
        """Read the rest of the requests that have ended."""
        for followed in [f for f in self._followed.values() if f.sequence.is_over]:
            self._finish(followed)

    def catch_up(self) -> None:
        """Read all that there is."""
        self.end()
        for followed in list(self._followed.values()):
            if followed.sequence.n > max(followed.at, followed.start):
                self._read(followed)

    def look_up(self, n_min: int, n_max: int) -> None:
        """Look up other n-grams from here on. What came before is to be read first."""
        if self._n == (n_min, n_max):
            return
        self._n = (n_min, n_max)
        for followed in self._followed.values():
            drafter = NgramDrafter(n_min, n_max)
            drafter.extend(followed.sequence.tokens[: followed.at].tolist())
            followed.drafter = drafter

    def _finish(self, followed: _Followed) -> None:
        self._read(followed)
        sequence = followed.sequence
        self._let_go(followed)
        n_tokens = min(followed.start, sequence.n) / PROMPT_SHARE + max(0, sequence.n - followed.start)
        self._ns_per_token += 0.1 * (followed.spent_ns / n_tokens - self._ns_per_token)

    def _read(self, followed: _Followed) -> None:
        before = self._clock()
        sequence = followed.sequence
        if sequence.is_invalid:
            self._let_go(followed)  # Some of its tokens are drafts that were accepted whatever they were.
        elif sequence.n > followed.start:
            self._walk(followed, is_over=sequence.is_over)
        took = self._clock() - before
        self.cpu_ns += took
        followed.spent_ns += took
        # What was put by for it is spent already.
        self._purse.spend(max(0.0, min(took, followed.spent_ns - followed.put_by_ns)))

    def _let_go(self, followed: _Followed) -> None:
        if self._followed.pop(followed.sequence, None) is not None:
            self._purse.spend(min(0.0, followed.spent_ns - followed.put_by_ns))

    def _walk(self, followed: _Followed, *, is_over: bool) -> None:
        sequence, drafter, tally = followed.sequence, followed.drafter, self.tally
        walks = followed.walks
        if walks is None:
            walks = followed.walks = Walks(followed.start, tally)
            drafter.extend(sequence.tokens[: followed.start].tolist())
            followed.at = followed.start
            tally.requests += 1
        at, n = followed.at, sequence.n
        coming: list[int] = sequence.tokens[at:n].tolist()
        index = 0
        for index, token in enumerate(coming):
            if walks.due == at + index:
                draft = drafter.propose(LONGEST)
                if not draft:
                    walks.settle_plain()
                else:
                    run, came = matching(draft, coming, index), n - at - index
                    if run == came and not is_over:
                        break  # How far it goes on is not known yet.
                    walks.settle(run, came, sequence.max_n - at - index - 1)
            drafter.append(token)
        else:
            index = len(coming)
        followed.at = at + index
        tally.tokens += index


def matching(draft: list[int], coming: list[int], index: int) -> int:
    """How many leading tokens of a draft are those that came, from `index` on."""
    run = 0
    for drafted, came in zip(draft, coming[index : index + len(draft)], strict=False):
        if drafted != came:
            break
        run += 1
    return run
