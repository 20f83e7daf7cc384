"""How many drafted tokens are accepted here, by draft source and draft length, and how sure that is.

What a length k would bring comes from rounds of length k: real ones while it is in force, else from the engine's
shadows, which replay the drafter over the tokens that came (`records.DraftShadow`). Where they saw too little, from
longer real drafts cut to k: an approximation, for shorter drafts begin elsewhere. No law of acceptance is assumed.

The figures are ratios of sums over blocks of about a second, those of the last minute counting most, with intervals of
nine in ten (`proportions`).
"""

from __future__ import annotations

from collections import deque
from math import hypot, inf
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from stackscope.analysis.proportions import Sample, log_error, proportion
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
MOST_REQUESTS: Final = 64
"""Requests told apart at each length, the newest: of more, blocks tell enough."""
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


class Faded(NamedTuple):
    """What rounds of one length did for one request, each counting half for every `HALF_LIFE_NS` before `at_ns`."""

    at_ns: int
    rounds: float = 0.0
    covered: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    tokens: float = 0.0
    full: float = 0.0
    whole: float = 0.0

    def plus(self, block: Block) -> Faded:
        """With a later block, at the time of that."""
        weight = _weight(block.at_ns - self.at_ns)
        return Faded(block.at_ns, *(weight * a + b for a, b in zip(self[1:], block[1:], strict=True)))


class Seen:
    """Rounds of one source by length: in blocks of time, and by request where it is known whose they were."""

    def __init__(self) -> None:
        self.blocks: dict[int, deque[Block]] = {}
        self.requests: dict[int, dict[int, Faded]] = {}

    def add(self, length: int, block: Block) -> None:
        """Take the next block of a length."""
        blocks = self.blocks.get(length)
        if blocks is None:
            blocks = self.blocks[length] = deque(maxlen=MOST_BLOCKS)
        blocks.append(block)

    def add_to(self, request: int, length: int, block: Block) -> None:
        """Say what of it was one request's."""
        requests = self.requests.setdefault(length, {})
        before = requests.pop(request, None)
        requests[request] = (Faded(block.at_ns) if before is None else before).plus(block)
        if len(requests) > MOST_REQUESTS:
            del requests[next(iter(requests))]


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

    def __init__(
        self,
        source: DraftKind,
        blocks: Mapping[int, Sequence[Block]],
        requests: Mapping[int, Sequence[Faded]],
        replayed: frozenset[int],
    ) -> None:
        """By draft length, blocks with the oldest first. `replayed`: the lengths whose rounds were of that length."""
        self.source = source
        self._blocks = blocks
        self._requests = requests
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
        amount: Callable[[Block | Faded], float],
        base: Callable[[Block | Faded], float],
        trials: Callable[[Block | Faded], float],
    ) -> Estimate | None:
        def samples(seen: Sequence[Block | Faded]) -> list[Sample]:
            return [Sample(amount(b), base(b), trials(b), _weight(newest - b.at_ns)) for b in seen if base(b) > 0]

        blocks = self._blocks.get(length, ())
        newest = max((b.at_ns for b in blocks), default=0)
        return proportion(samples(blocks), samples(self._requests.get(length, ())))


class Curves:
    """A sink: takes a session's records in their order, and knows the curve of each draft source at any time."""

    def __init__(self) -> None:
        self._config: EngineConfig | None = None
        self._source: DraftKind | None = None
        """What really drafts, at one length. `None`: nothing does."""
        self._rounds: dict[int, dict[tuple[int, int, int], int]] = {}
        """Real rounds that are in no block yet, by request: how often so many tokens were drafted, accepted, won."""
        self._open_ns = 0
        """When the first of them began."""
        self._exact: dict[DraftKind, Seen] = {"ngram": Seen(), "draft": Seen()}
        self._cut: dict[DraftKind, Seen] = {"ngram": Seen(), "draft": Seen()}

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
        exact, cut = self._exact[source], self._cut[source]
        blocks: dict[int, Sequence[Block]] = {length: tuple(b) for length, b in exact.blocks.items()}
        cuts: dict[int, Sequence[Block]] = {length: tuple(b) for length, b in cut.blocks.items()}
        if self._rounds and source == self._source:
            for length, block in self._open_blocks():
                known = blocks if length == self._longest else cuts
                known[length] = (*known.get(length, ()), block)
        if not (cuts or blocks):
            return None
        requests = {length: tuple(known.values()) for length, known in exact.requests.items()}
        requests_cut = {length: tuple(known.values()) for length, known in cut.requests.items()}
        replayed = Curve(source, blocks, requests, frozenset(blocks))
        shortened = Curve(source, cuts, requests_cut, frozenset())
        for length in blocks.keys() & cuts.keys():
            # Shadows may have followed few requests by now, where all of them were drafted for.
            if _error(shortened, length) < _error(replayed, length):
                del blocks[length]
        of_requests = requests_cut | {length: known for length, known in requests.items() if length in blocks}
        return Curve(source, cuts | blocks, of_requests, frozenset(blocks))

    def _forget(self, source: DraftKind) -> None:
        self._exact[source] = Seen()
        self._cut[source] = Seen()

    def _take_shadow(self, record: DraftShadow) -> None:
        for counts in record.lengths:
            if counts.rounds > 0:
                block = Block(
                    record.at_ns, counts.rounds, counts.covered, counts.drafted, counts.accepted, counts.tokens,
                    counts.full, counts.whole,
                )  # fmt: skip
                self._exact[record.source].add(counts.length, block)

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
                mine = rounds.get(work.request)
                if mine is None:
                    mine = rounds[work.request] = {}
                key = work.drafted, work.accepted, work.emitted
                mine[key] = mine.get(key, 0) + 1

    @property
    def _longest(self) -> int:
        assert self._config is not None
        return self._config.draft_length

    def _open_blocks(self) -> list[tuple[int, Block]]:
        """The rounds that are in no block yet, as blocks of each length up to that in force."""
        rounds: dict[tuple[int, int, int], int] = {}
        for mine in self._rounds.values():
            for key, times in mine.items():
                rounds[key] = rounds.get(key, 0) + times
        return [(k, _counted(rounds, self._open_ns, k)) for k in range(1, self._longest + 1)]

    def _close_block(self) -> None:
        if self._rounds and self._source is not None:
            for length, block in self._open_blocks():
                seen = (self._exact if length == self._longest else self._cut)[self._source]
                seen.add(length, block)
                for request, mine in self._rounds.items():
                    seen.add_to(request, length, _counted(mine, self._open_ns, length))
        self._rounds = {}


def _source_of(config: EngineConfig) -> DraftKind | None:
    return config.speculation if config.speculation in ("ngram", "draft") else None


def _weight(age_ns: int) -> float:
    """What counts so long afterwards."""
    return float(0.5 ** (age_ns / HALF_LIFE_NS))


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
