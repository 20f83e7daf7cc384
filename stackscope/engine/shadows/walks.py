"""Replaying drafts of every length over tokens that came: where each length's rounds begin, and what they count.

A round of length k begins with a history of `at` tokens. It drafts up to k tokens, of which the leading ones that came
are accepted, and the next round begins behind them and one more, the target's own. So each length walks over the same
tokens with steps of its own, and what it meets is counted, never extrapolated from another length.
"""

from __future__ import annotations

from typing import Final

from stackscope.records import LengthCounts

LONGEST: Final = 8
"""Lengths from 1 to this are replayed."""


class Tally:
    """What the rounds of each length did since it was last taken."""

    __slots__ = (
        "accepted",
        "covered",
        "drafted",
        "full",
        "n_plain",
        "requests",
        "rounds",
        "tokens",
        "unended",
        "whole",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.requests = 0
        """Requests of which the first token was scored."""
        self.tokens = 0
        """Tokens that were scored."""
        self.n_plain = 0
        """Rounds that all lengths had in common, and in which there was nothing to draft."""
        self.rounds, self.covered, self.drafted, self.accepted, self.unended, self.full, self.whole = (
            [0] * LONGEST for _ in range(7)
        )

    def counts(self, *, but: int | None = None) -> tuple[LengthCounts, ...]:
        """The counts of each length, `but` one, which somebody else counts."""
        return tuple(
            LengthCounts(
                length=k + 1,
                rounds=self.rounds[k] + self.n_plain,
                covered=self.covered[k],
                drafted=self.drafted[k],
                accepted=self.accepted[k],
                without_bonus=self.unended[k],
                full=self.full[k],
                whole=self.whole[k],
            )
            for k in range(LONGEST)
            if k + 1 != but
        )


class Walks:
    """Where the next round of each length begins in one request. Rounds are settled in the order of their beginning."""

    __slots__ = ("_is_together", "_next", "_tally", "due")

    def __init__(self, at: int, tally: Tally) -> None:
        """Every length's first round begins with a history of `at` tokens."""
        self._next = [at] * LONGEST
        self._tally = tally
        self._is_together = True
        self.due = at
        """Where the next round begins, of whatever length."""

    def settle_plain(self) -> None:
        """There was nothing to draft in the rounds that begin at `due`: one token comes in each."""
        at = self.due
        if self._is_together:
            self._tally.n_plain += 1
            self.due = at + 1
            return
        rounds, ends = self._tally.rounds, self._next
        for k in range(LONGEST):
            if ends[k] == at:
                rounds[k] += 1
                ends[k] = at + 1
        self._look()

    def settle(self, run: int, came: int, room: int) -> None:
        """Count the rounds that begin at `due`, where a draft was found.

        `run`: its leading tokens that came, at most `LONGEST`. `came`: tokens that are known to have come; no more than
        `run` only when the output ended there. `room`: tokens that may be drafted before the request's limit.
        """
        if room <= 0:
            self.settle_plain()
            return
        at, tally, ends = self.due, self._tally, self._next
        if self._is_together:
            ends[:] = [at] * LONGEST
        for k in range(LONGEST):
            if ends[k] != at:
                continue
            length = k + 1
            drafted = min(length, room)
            kept = min(run, drafted)
            has_bonus = came > kept
            tally.rounds[k] += 1
            tally.covered[k] += 1
            tally.drafted[k] += drafted
            tally.accepted[k] += kept
            tally.unended[k] += not has_bonus
            if drafted == length and (has_bonus or kept == length):
                tally.full[k] += 1
                tally.whole[k] += kept == length
            ends[k] = at + kept + 1
        self._look()

    def _look(self) -> None:
        self.due = min(self._next)
        self._is_together = self.due == max(self._next)
