"""How many tokens to draft for a sequence next, from what was recently accepted and what rows cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

PROBE_EVERY: Final = 32
"""Rounds without the information sought after which one round probes for it: at most 3 % of the rounds."""
_START: Final = 2
"""First length without a cost curve: what is lost if nothing is accepted is small, and 2 acceptances grow it."""
_DECAY: Final = 0.97
"""Weight that an observation keeps per later round: some 30 rounds count, less than most answers last."""
_PRIOR_RATE: Final = 0.6
"""Acceptance assumed of the first drafted token before any was seen: high enough to try."""
_PRIOR_WEIGHT: Final = 2.0
"""Observations that the assumption counts for."""


class AdaptiveLength(Protocol):
    """The adaptive draft length of one sequence. Deterministic, and never stuck at 0: it probes now and then."""

    def choose(self, cap: int, sequences: int = 1) -> int:
        """Tokens to draft next, 0 to `cap`; called once per round.

        The batch is taken to hold `sequences` that all draft alike.
        """

    def observe(self, drafted: int, accepted: int) -> None:
        """What verification made of the round; one without drafts may be left out."""


def adaptive_length(cost: CostCurve | None = None) -> AdaptiveLength:
    """The rule for one sequence: by expected tokens per nanosecond where the costs are known, else by trial."""
    return SteppedLength() if cost is None else CostedLength(cost)


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Measured nanoseconds of a round of speculation. The steps of a real curve are kept: nothing is smoothed."""

    forward_ns: tuple[float, ...]
    """Of a target forward of 1, 2, 3 … rows. Beyond the last, a row costs as much as the measured ones on average."""
    draft_ns: float = 0.0
    """Of drafting one more token for every sequence of the batch; 0 for n-gram look-up."""

    def __post_init__(self) -> None:
        if not self.forward_ns or not min(self.forward_ns) > 0.0 or not self.draft_ns >= 0.0:
            raise ValueError("a cost curve needs forwards of more than 0 ns and drafts of 0 ns or more")

    def round_ns(self, draft_length: int, sequences: int = 1) -> float:
        """Cost of drafting and verifying this many tokens for each sequence of a batch (eq. 15 of the cost model)."""
        rows = sequences * (draft_length + 1)
        n_measured = len(self.forward_ns)
        forward = self.forward_ns[min(rows, n_measured) - 1]
        if rows > n_measured:
            forward *= rows / n_measured
        return forward + draft_length * self.draft_ns


class SteppedLength:
    """Grows by 1 on full acceptance and halves when less than half was accepted, without any knowledge of costs.

    At 0 it rests, the longer the more often a probe of one token failed: 1, 2, 4 … `PROBE_EVERY` rounds.
    """

    def __init__(self) -> None:
        self._length = _START
        self._pause = 1
        """Rounds of the next rest."""
        self._rested = 0

    def choose(self, cap: int, sequences: int = 1) -> int:  # noqa: ARG002
        """Tokens to draft next, 0 to `cap`; called once per round."""
        if self._length > 0 or cap <= 0:
            return min(self._length, max(cap, 0))
        self._rested += 1
        if self._rested <= self._pause:
            return 0
        self._rested = 0
        self._pause = min(2 * self._pause, PROBE_EVERY - 1)
        return 1

    def observe(self, drafted: int, accepted: int) -> None:
        """What verification made of the round; one without drafts says nothing."""
        _check(drafted, accepted)
        if accepted > 0:
            self._pause = 1
        if 0 < drafted == accepted:
            # A drafter that found less than it was asked for says nothing about longer drafts.
            self._length = max(self._length, drafted + 1)
        elif 2 * accepted < drafted:
            self._length = max(min(self._length, drafted) // 2, accepted)


class CostedLength:
    """The length with the most expected tokens per nanosecond on a measured cost curve.

    Acceptance is kept per position, each leaning on the one before until it was reached often enough itself: drafts of
    an n-gram look-up that start well go on well, and a single rate would misjudge both. Estimates fade to the initial
    assumption, and a probe of full length shows what the later positions have become.
    """

    def __init__(self, cost: CostCurve) -> None:
        self._cost = cost
        self._reached: list[float] = []
        """Faded count of drafts verified at each position, those before them accepted."""
        self._kept: list[float] = []
        """Faded count of those accepted."""
        self._rounds_short = 0
        """Rounds since one drafted up to the cap."""
        self._priced = (-1, 0)
        self._prices: list[float] = []
        """Cost of a round by draft length, for the cap and number of sequences in `_priced`: they seldom change, and
        the costs take 3 of 5 µs when computed anew."""

    def choose(self, cap: int, sequences: int = 1) -> int:
        """Tokens to draft next, 0 to `cap`; called once per round.

        The batch is taken to hold `sequences` that all draft alike.
        """
        self._reached = [_DECAY * count for count in self._reached]
        self._kept = [_DECAY * count for count in self._kept]
        length = self._best(cap, sequences)
        self._rounds_short += 1
        if length >= cap or self._rounds_short >= PROBE_EVERY:
            self._rounds_short = 0
            return max(cap, 0)
        return length

    def observe(self, drafted: int, accepted: int) -> None:
        """What verification made of the round; one without drafts says nothing."""
        _check(drafted, accepted)
        n_new = drafted - len(self._reached)
        self._reached.extend([0.0] * n_new)
        self._kept.extend([0.0] * n_new)
        for position in range(min(accepted + 1, drafted)):
            self._reached[position] += 1.0
        for position in range(accepted):
            self._kept[position] += 1.0

    def acceptance(self, positions: int) -> list[float]:
        """Estimated probability that each draft is accepted when those before it were, for the first positions."""
        rates = []
        rate = _PRIOR_RATE
        for position in range(positions):
            if position < len(self._reached):
                rate = (self._kept[position] + _PRIOR_WEIGHT * rate) / (self._reached[position] + _PRIOR_WEIGHT)
            rates.append(rate)
        return rates

    def _best(self, cap: int, sequences: int) -> int:
        """argmax over k ≤ cap of τ(k) / t(k), τ(k) = 1 + Σ_{j ≤ k} Π_{i ≤ j} a_i; the shortest of equals."""
        if self._priced != (cap, sequences):
            self._priced = (cap, sequences)
            self._prices = [self._cost.round_ns(length, sequences) for length in range(max(cap, 0) + 1)]
        best, best_rate = 0, 1.0 / self._prices[0]
        tokens = survival = 1.0
        for length, rate in enumerate(self.acceptance(cap), start=1):
            survival *= rate
            tokens += survival
            per_ns = tokens / self._prices[length]
            if per_ns > best_rate:
                best, best_rate = length, per_ns
        return best


def _check(drafted: int, accepted: int) -> None:
    if not 0 <= accepted <= drafted:
        raise ValueError(f"{accepted} of {drafted} drafted tokens cannot have been accepted")
