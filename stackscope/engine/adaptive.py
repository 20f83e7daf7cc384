"""How many tokens to draft for a sequence next, from what was recently accepted and what rows cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

LONGEST_REST: Final = 31
"""Rounds at 0 at most before the rule without costs tries one token again: 3 % of the rounds."""
PROBE_SHARE: Final = 0.02
"""Share of the time that the rule with costs spends beyond what it thinks best, to see whether that still holds."""
_START: Final = 2
"""First length without a cost curve: little is lost if nothing is accepted, and one full acceptance makes it grow."""
_DECAY: Final = 0.95
"""Weight that an observation of a position keeps per later one: the last 20 count."""
_PRIOR_RATE: Final = 0.6
"""Acceptance assumed of the first drafted token before any was seen: high enough to try."""
_PRIOR_WEIGHT: Final = 1.0
"""Observations that the assumption counts for."""


class AdaptiveLength(Protocol):
    """The adaptive draft length of one sequence. Deterministic; never stuck at 0 where a draft could pay."""

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

    At 0 it rests, the longer the more often a probe of one token failed: 1, 2, 4 … `LONGEST_REST` rounds.
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
        self._pause = min(2 * self._pause, LONGEST_REST)
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
            self._length = min(self._length, drafted) // 2


class CostedLength:
    """The length with the most expected tokens per nanosecond on a measured cost curve.

    Acceptance is kept per position, each leaning on the one before until it was reached often enough itself: drafts of
    an n-gram look-up that start well go on well, and a single rate would misjudge both. Now and then a round probes
    the next length that would pay if everything were accepted; while everything is, the following rounds go on with
    twice as much. Where no longer draft could pay, there is nothing to find and no probe.
    """

    def __init__(self, cost: CostCurve) -> None:
        self._cost = cost
        self._reached: list[float] = []
        """Faded count of drafts verified at each position, those before them accepted."""
        self._kept: list[float] = []
        """Faded count of those accepted."""
        self._credit_ns = 0.0
        """Time earned for the next probe."""
        self._probe = 0
        """Length of the probe just made; 0 when the round was none."""
        self._passed = 0
        """Length of the last round's probe if all of it was accepted, else 0."""
        self._priced = (-1, 0)
        self._prices: list[float] = []
        """Cost of a round by draft length, for the cap and number of sequences in `_priced`: they seldom change, and
        the costs take 2 of 4 µs when computed anew."""

    def choose(self, cap: int, sequences: int = 1) -> int:
        """Tokens to draft next, 0 to `cap`; called once per round.

        The batch is taken to hold `sequences` that all draft alike.
        """
        if self._priced != (cap, sequences):
            self._priced = (cap, sequences)
            self._prices = [self._cost.round_ns(length, sequences) for length in range(max(cap, 0) + 1)]
        length, rate = self._best(cap)
        passed, self._passed, self._probe = self._passed, 0, 0
        could_pay = [k for k in range(length + 1, cap + 1) if k + 1 > rate * self._prices[k]]
        if not could_pay:
            return length
        if passed > 0:
            self._probe = next((k for k in could_pay if k >= 2 * passed), could_pay[-1])
            return self._probe
        self._credit_ns += PROBE_SHARE * self._prices[length]
        if self._credit_ns < self._prices[could_pay[0]] - self._prices[length]:
            return length
        self._credit_ns = 0.0
        self._probe = could_pay[0]
        return self._probe

    def observe(self, drafted: int, accepted: int) -> None:
        """What verification made of the round; one without drafts says nothing."""
        _check(drafted, accepted)
        n_new = drafted - len(self._reached)
        self._reached.extend([0.0] * n_new)
        self._kept.extend([0.0] * n_new)
        for position in range(min(accepted + 1, drafted)):
            self._reached[position] = _DECAY * self._reached[position] + 1.0
            self._kept[position] = _DECAY * self._kept[position] + (position < accepted)
        self._passed = self._probe if drafted == accepted == self._probe else 0

    def acceptance(self, positions: int) -> list[float]:
        """Estimated probability that each draft is accepted when those before it were, for the first positions."""
        rates = []
        rate = _PRIOR_RATE
        for position in range(positions):
            if position < len(self._reached):
                rate = (self._kept[position] + _PRIOR_WEIGHT * rate) / (self._reached[position] + _PRIOR_WEIGHT)
            rates.append(rate)
        return rates

    def _best(self, cap: int) -> tuple[int, float]:
        """Length and rate of the most tokens per nanosecond, the shortest of equals.

        The rate of length k is τ(k) / t(k), with τ(k) = 1 + Σ_{j ≤ k} Π_{i ≤ j} a_i tokens expected (eq. 13).
        """
        best, best_rate = 0, 1.0 / self._prices[0]
        tokens = survival = 1.0
        for length, rate in enumerate(self.acceptance(cap), start=1):
            survival *= rate
            tokens += survival
            per_ns = tokens / self._prices[length]
            if per_ns > best_rate:
                best, best_rate = length, per_ns
        return best, best_rate


def _check(drafted: int, accepted: int) -> None:
    if not 0 <= accepted <= drafted:
        raise ValueError(f"{accepted} of {drafted} drafted tokens cannot have been accepted")
