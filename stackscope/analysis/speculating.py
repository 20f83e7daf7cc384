"""How many drafted tokens are accepted here, by draft source and draft length, and how sure that is.

What a length k would bring comes from rounds of length k: real ones while it is in force, else from the engine's
shadows, which replay the drafter over the tokens that came (`records.DraftShadow`). Where they saw too little, from
longer real drafts cut to k: an approximation, for shorter drafts begin elsewhere. No law of acceptance is assumed.

The figures are ratios of sums over blocks of about a second, those of the last minute counting most. Their intervals
hold the truth nine times in ten:

- Tokens of one request are alike, and so are neighbouring blocks. So blocks are pooled into a few batches, and the
  error is that of a ratio estimator over batches (Cochran, *Sampling Techniques*, 1977, ch. 6) with weights, times
  (1 + ρ) ÷ (1 − ρ) for the correlation ρ of neighbours that is left (as in `statistics`).
- Few rounds, or blocks that agree, look surer than they are. A mean of values between 0 and 1 spreads no more than a
  proportion, so the interval of one (Wilson, *JASA* 22, 1927), with rounds as trials, is the least there is.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import hypot, inf, log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope.records import ConfigEvent, DraftKind, DraftShadow, Estimate, Header, LengthCounts, StepRecord
from stackscope.units import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stackscope.records import AnyRecord
    from stackscope.toggles import EngineConfig

HALF_LIFE_NS: Final = 20_000_000_000
"""Age at which a block counts half: what is older than a minute counts an eighth."""
BLOCK_NS: Final = 1_000_000_000
"""Steps that begin within this time make one block."""
MOST_BLOCKS: Final = 240
"""Blocks kept of each length: the oldest count 1/4,000 by then."""
MOST_BATCHES: Final = 12
"""More of them are more alike; fewer tell less of how they spread."""
LEAST_BLOCKS: Final = 4
"""With fewer there is nothing to estimate a spread from."""
ALIKE: Final = 4.0
"""Rounds taken to be worth an independent one where there are too few blocks to see how alike they are."""
CONFIDENCE: Final = 0.90
_Z: Final = 1.6448536269514722
"""Quantile of the normal distribution for that confidence, two-sided."""
_MOST_CORRELATION: Final = 0.8
LEAST_FREEDOM: Final = 3.0
"""Degrees of freedom at least: a dozen batches show a correlation of 0.8 by chance, and with one degree left besides,
everything was possible after thousands of drafts. Simulated: as sure, and eight in ten for three requests a minute."""
CUT_ERROR: Final = 0.04
"""Standard deviation of ln(τ) where longer drafts were cut to a length: on traces 0.2 to 13.5 % (cost-model.md)."""


class Block(NamedTuple):
    """What rounds of one length did in about a second."""

    at_ns: int
    rounds: int = 0
    covered: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    full: int = 0
    whole: int = 0

    def plus(self, other: Block) -> Block:
        """Both together, at the time of this one."""
        return Block(self.at_ns, *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


class Acceptance(msgspec.Struct, frozen=True):
    """How a draft length does. Acceptance is never without its coverage: all of almost nothing is nothing."""

    source: DraftKind
    length: int
    drafted: int
    accepted: int
    acceptance: Estimate | None
    """Share of the drafted tokens that entered the output. `None`: none was drafted."""
    coverage: Estimate
    """Share of the rounds in which there was something to draft."""
    tokens_per_round: Estimate
    """Tokens won per target forward, the target's own included: 1 without speculation."""

    @property
    def described(self) -> str:
        """All of it in one line."""
        tokens = f"{self.tokens_per_round.value:.3g} tokens per forward"
        if self.acceptance is None:
            return f"nothing drafted; {tokens}"
        return (
            f"{percent(self.acceptance.value)} of {self.drafted:,} drafted tokens accepted, with a draft in "
            f"{percent(self.coverage.value)} of the rounds: {tokens}"
        )


class Curve:
    """What one draft source does at every length that is known. Immutable."""

    def __init__(self, source: DraftKind, blocks: dict[int, Sequence[Block]], replayed: frozenset[int]) -> None:
        """`blocks` by draft length, oldest first. `replayed`: the lengths whose rounds were of that length."""
        self.source = source
        self._blocks = blocks
        self._replayed = replayed

    @property
    def lengths(self) -> tuple[int, ...]:
        """Draft lengths of which something is known, in order."""
        return tuple(sorted(self._blocks))

    def is_replayed(self, length: int) -> bool:
        """Its rounds were really of this length. False: longer drafts were cut to it."""
        return length in self._replayed

    def counts(self, length: int) -> LengthCounts | None:
        """What was counted, without weights. `None`: nothing is known of this length."""
        blocks = self._blocks.get(length)
        if not blocks:
            return None
        total = blocks[0]
        for block in blocks[1:]:
            total = total.plus(block)
        return LengthCounts(
            length=length,
            rounds=total.rounds,
            covered=total.covered,
            drafted=total.drafted,
            accepted=total.accepted,
            without_bonus=total.rounds + total.accepted - total.tokens,
            full=total.full,
            whole=total.whole,
        )

    def tokens_per_round(self, length: int) -> Estimate | None:
        """τ: tokens per target forward of a sequence that drafts up to `length` tokens, those without a draft included.

        From 1 to `length` + 1. `None`: nothing is known of this length. Length 0 is no speculation: 1.
        """
        if length == 0:
            return Estimate(1.0, 1.0, 1.0)
        won = self._ratio(length, lambda b: b.tokens - b.rounds, lambda b: length * b.rounds, lambda b: b.rounds)
        if won is None:
            return None
        return Estimate(*(1.0 + length * x for x in (won.value, won.low, won.high)))

    def coverage(self, length: int) -> Estimate | None:
        """Share of the rounds in which something was drafted. `None`: nothing is known of this length."""
        return self._ratio(length, lambda b: b.covered, lambda b: b.rounds, lambda b: b.rounds)

    def acceptance(self, length: int) -> Estimate | None:
        """Share of the drafted tokens that entered the output. `None`: none was drafted. See `standing`."""
        return self._ratio(length, lambda b: b.accepted, lambda b: b.drafted, lambda b: b.covered)

    def survival(self, length: int) -> Estimate | None:
        """S: probability that all of `length` drafted tokens are accepted (eq. 13 of the cost model).

        `None`: no draft was that long.
        """
        return self._ratio(length, lambda b: b.whole, lambda b: b.full, lambda b: b.full)

    def standing(self, length: int) -> Acceptance | None:
        """Acceptance with what it must be read with. `None`: nothing is known of this length."""
        counts, coverage, tokens = self.counts(length), self.coverage(length), self.tokens_per_round(length)
        if counts is None or coverage is None or tokens is None:
            return None
        return Acceptance(
            source=self.source,
            length=length,
            drafted=counts.drafted,
            accepted=counts.accepted,
            acceptance=self.acceptance(length),
            coverage=coverage,
            tokens_per_round=tokens,
        )

    def _ratio(
        self,
        length: int,
        amount: Callable[[Block], float],
        base: Callable[[Block], float],
        trials: Callable[[Block], float],
    ) -> Estimate | None:
        blocks = self._blocks.get(length, ())
        newest = max((b.at_ns for b in blocks), default=0)
        samples = [
            Sample(amount(b), base(b), trials(b), 0.5 ** ((newest - b.at_ns) / HALF_LIFE_NS))
            for b in blocks
            if base(b) > 0
        ]
        return proportion(samples)


class Curves:
    """A sink: takes a session's records in their order, and knows the curve of each draft source at any time."""

    def __init__(self) -> None:
        self._config: EngineConfig | None = None
        self._source: DraftKind | None = None
        """What really drafts, at one length. `None`: nothing does."""
        self._rounds: dict[tuple[int, int, int], int] = {}
        """Real rounds that are in no block yet: how often so many tokens were drafted, accepted and emitted."""
        self._open_ns = 0
        """When the first of them began."""
        self._exact: dict[DraftKind, dict[int, deque[Block]]] = {"ngram": {}, "draft": {}}
        self._cut: dict[DraftKind, dict[int, deque[Block]]] = {"ngram": {}, "draft": {}}

    def begin(self, config: EngineConfig) -> None:
        """State the configuration in force. What another drafter or model made of it is forgotten."""
        before = self._config
        if before is not None:
            self._close_block()
            if (before.ngram_min, before.ngram_max) != (config.ngram_min, config.ngram_max):
                self._forget("ngram")
            if (before.model, before.draft_model) != (config.model, config.draft_model):
                self._forget("draft")
        self._config = config
        # The lengths of adaptive drafts are chosen by how they do: rounds of one length are no fair sample.
        is_plain = config.draft_length > 0 and not config.adaptive_draft
        self._source = _source_of(config) if is_plain else None

    def write(self, record: AnyRecord) -> None:
        if isinstance(record, StepRecord):
            self._take_step(record)
        elif isinstance(record, DraftShadow):
            self._take_shadow(record)
        elif isinstance(record, Header | ConfigEvent) and record.config is not None:
            self.begin(record.config)

    def close(self) -> None:
        """Nothing is held that needs closing."""

    def curve(self, source: DraftKind) -> Curve | None:
        """What is known of a draft source by now. `None`: nothing."""
        exact: dict[int, Sequence[Block]] = {length: tuple(b) for length, b in self._exact[source].items()}
        cut: dict[int, Sequence[Block]] = {length: tuple(b) for length, b in self._cut[source].items()}
        if self._rounds and source == self._source:
            for length, block in self._open_blocks():
                known = exact if length == self._longest else cut
                known[length] = (*known.get(length, ()), block)
        if not (cut or exact):
            return None
        replays, cuts = Curve(source, exact, frozenset(exact)), Curve(source, cut, frozenset())
        for length in exact.keys() & cut.keys():
            # Shadows may have followed few requests by now, where all of them were drafted for.
            if _error(cuts, length) < _error(replays, length):
                del exact[length]
        return Curve(source, cut | exact, frozenset(exact))

    def _forget(self, source: DraftKind) -> None:
        self._exact[source] = {}
        self._cut[source] = {}

    def _take_shadow(self, record: DraftShadow) -> None:
        for counts in record.lengths:
            if counts.rounds > 0:
                block = Block(
                    record.at_ns, counts.rounds, counts.covered, counts.drafted, counts.accepted, counts.tokens,
                    counts.full, counts.whole,
                )  # fmt: skip
                _blocks_of(self._exact[record.source], counts.length).append(block)

    def _take_step(self, step: StepRecord) -> None:
        if self._source is None or step.invalid_output:
            return
        if self._rounds and not 0 <= step.start_ns - self._open_ns < BLOCK_NS:
            self._close_block()
        rounds = self._rounds
        for work in step.work:
            if work.phase != "prefill" and work.emitted > 0:
                if not rounds:
                    self._open_ns = step.start_ns
                # Steps come by the thousand: what they make of each length is worked out once a block.
                key = work.drafted, work.accepted, work.emitted
                rounds[key] = rounds.get(key, 0) + 1

    @property
    def _longest(self) -> int:
        assert self._config is not None
        return self._config.draft_length

    def _open_blocks(self) -> list[tuple[int, Block]]:
        """The rounds that are in no block yet, as blocks of each length up to that in force."""
        return [(k, _counted(self._rounds, self._open_ns, k)) for k in range(1, self._longest + 1)]

    def _close_block(self) -> None:
        if self._rounds and self._source is not None:
            for length, block in self._open_blocks():
                known = self._exact if length == self._longest else self._cut
                _blocks_of(known[self._source], length).append(block)
        self._rounds = {}


def _source_of(config: EngineConfig) -> DraftKind | None:
    return config.speculation if config.speculation in ("ngram", "draft") else None


def _blocks_of(by_length: dict[int, deque[Block]], length: int) -> deque[Block]:
    blocks = by_length.get(length)
    if blocks is None:
        blocks = by_length[length] = deque(maxlen=MOST_BLOCKS)
    return blocks


def _counted(table: Mapping[tuple[int, int, int], int], at_ns: int, length: int) -> Block:
    """Rounds, each (drafted, accepted, emitted), as they were or with their drafts cut to `length`."""
    rounds = covered = drafted = accepted = tokens = full = whole = 0
    for (n_drafted, n_accepted, n_emitted), times in table.items():
        kept = min(n_accepted, n_emitted, length)
        n = min(n_drafted, length)
        has_bonus = n_emitted > kept  # Of a draft that is cut, the next accepted token is the target's own.
        rounds += times
        covered += times * (n > 0)
        drafted += times * n
        accepted += times * kept
        tokens += times * (kept + has_bonus)
        if n == length and (has_bonus or kept == n):  # Else the output ended before all of it was judged.
            full += times
            whole += times * (kept == n)
    return Block(at_ns, rounds, covered, drafted, accepted, tokens, full, whole)


def _error(curve: Curve, length: int) -> float:
    """Standard deviation of ln(τ), what cutting adds included; infinite where nothing is known of this length."""
    tokens = curve.tokens_per_round(length)
    if tokens is None:
        return inf
    return hypot(log_error(tokens), 0.0 if curve.is_replayed(length) else CUT_ERROR)


def log_error(estimate: Estimate) -> float:
    """Standard deviation of the logarithm of a positive estimate with a 90 % interval."""
    low = max(estimate.low, 1e-9)
    return max(log(max(estimate.high, low) / low), 0.0) / (2 * _Z)


class Sample(NamedTuple):
    """One block of a ratio."""

    amount: float
    base: float
    """At least as large as the amount."""
    trials: float
    """Independent trials that it is made of, at most."""
    weight: float = 1.0


def proportion(samples: Sequence[Sample]) -> Estimate | None:
    """Σ weighted amounts ÷ Σ weighted bases, between 0 and 1, with its interval. `None` without a base.

    `samples` are in the order of time. See the module for the two errors of which the greater counts.
    """
    total = sum(s.weight * s.base for s in samples)
    if total <= 0:
        return None
    value = min(1.0, max(0.0, sum(s.weight * s.amount for s in samples) / total))
    weighted = sum(s.weight * s.trials for s in samples)
    trials = weighted**2 / max(sum(s.weight**2 * s.trials for s in samples), 1e-12)
    reach = 0.0
    if len(samples) < LEAST_BLOCKS:
        trials /= ALIKE
    else:
        reach = _reach(samples, value, total)
    low, high = _wilson(value, max(trials, 0.25))
    return Estimate(value, max(0.0, min(low, value - reach)), min(1.0, max(high, value + reach)))


def _reach(samples: Sequence[Sample], value: float, total: float) -> float:
    """Half the width of the interval, from how the blocks stray from the ratio of all."""
    from scipy.special import stdtrit  # half a second, which no start should pay for

    size = -(-len(samples) // MOST_BATCHES)
    batches = [samples[start : start + size] for start in range(0, len(samples), size)]
    strays = [sum(s.weight * (s.amount - value * s.base) for s in batch) for batch in batches]
    power = sum(x * x for x in strays)
    if power <= 0.0:
        return 0.0
    shares = [sum(s.weight * s.base for s in batch) / total for batch in batches]
    n = 1.0 / sum(share * share for share in shares)  # Batches of equal weight that would say as much.
    neighbours = sum(a * b for a, b in pairwise(strays)) / power
    # Freed of its downward bias (Marriott and Pope, Biometrika 41, 1954).
    correlation = min(max((n * neighbours + 1) / max(n - 3, 1.0), 0.0), _MOST_CORRELATION)
    inflation = (1 + correlation) / (1 - correlation)
    freedom = max(LEAST_FREEDOM, n / inflation - 1)
    variance = power / total**2 * inflation * n / max(n - 1, 1.0)
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * sqrt(variance)


def _wilson(share: float, trials: float) -> tuple[float, float]:
    """The interval of a proportion (Wilson, 1927)."""
    square = _Z * _Z
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    reach = _Z / (1 + square / trials) * sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    return min(share, centre - reach), max(share, centre + reach)
