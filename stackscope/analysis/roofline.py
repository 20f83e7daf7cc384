"""The cost model without a run: what a forward takes at best, from bytes, FLOPs and two ceilings.

A forward takes as long as the slower of reading its bytes and doing its arithmetic (the roofline: equation 9 of the
cost model with p → ∞ and all efficiencies 1), so that every time here is a lower bound. What is not known stays `None`,
and so does all that follows from it.
"""

from __future__ import annotations

from itertools import accumulate, chain, islice, repeat
from operator import mul
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec

from stackscope.analysis.ledger import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stackscope.analysis.ledger import Ledger

MOST_BATCH: Final = 4096
"""Sequences up to which batches are searched."""
MOST_CONTEXT: Final = 2**27
"""Tokens up to which contexts are searched."""
EQUAL: Final = 1e-9
"""Relative difference of two times that is only rounding."""

Bound = Literal["memory", "compute", "both"]


class Demand(NamedTuple):
    """What one forward asks of the hardware."""

    weights: float
    """Bytes of weights, embedding rows among them."""
    kv: float | None
    """Bytes of KV cache read and written, recurrent state among them."""
    flops: float


class Model(Protocol):
    """Anything that can say what a forward of it costs."""

    def demand(self, sequences: int, cached: int | None, new: int) -> Demand:
        """Of a forward that feeds every sequence `new` tokens behind `cached` ones; all of them are output rows."""
        ...


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A dense model of which no more is known than its size: every parameter is read once and multiplies once a row."""

    parameters: float
    bits: float
    """Per parameter."""
    kv_bytes_per_token: float | None = None

    def demand(self, sequences: int, cached: int | None, new: int) -> Demand:
        """As `Model.demand`. Without a context the KV cache is left out; scores against the context are not counted."""
        kv = 0.0 if cached is None else None
        if cached is not None and self.kv_bytes_per_token is not None:
            kv = sequences * (cached + 2 * new) * self.kv_bytes_per_token  # its own tokens are written and read
        return Demand(self.parameters * self.bits / 8, kv, 2 * self.parameters * sequences * new)


class Exact(NamedTuple):
    """A model with its whole tensor table: counted by the ledger, in one pass over the weights."""

    ledger: Ledger

    def demand(self, sequences: int, cached: int | None, new: int) -> Demand:
        """As `Model.demand`; no context is an empty one."""
        one = self.ledger.count_spans([(cached or 0, new)], new, new, ())
        rows = sequences * new
        experts = self.ledger.distinct_experts(rows) if self.ledger.is_sparse else 0.0
        work = Work(
            passes=1,
            output_passes=1,
            rows=rows,
            outputs=rows,
            sequences=sequences,
            tokens_read=tuple(tokens * sequences for tokens in one.tokens_read),
            pairs=tuple(pairs * sequences for pairs in one.pairs),
            experts=experts,
            output_experts=experts,
        )
        account = self.ledger.price(work)
        weights = account.weight_bytes + account.exact.embedding_rows
        return Demand(weights, account.kv_bytes + account.exact.recurrent_state, account.flops.total)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Two ceilings. `None`: not known."""

    bandwidth: float | None = None
    """Bytes per second."""
    flops: float | None = None
    """FLOP per second."""


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """What a forward takes at best. Times in ns."""

    rows: int
    weight_bytes: float
    kv_bytes: float | None
    flops: float
    weights_ns: float | None
    kv_ns: float | None
    compute_ns: float | None

    @property
    def memory_ns(self) -> float | None:
        return None if self.weights_ns is None or self.kv_ns is None else self.weights_ns + self.kv_ns

    @property
    def ns(self) -> float | None:
        """The whole forward: the longer of reading and computing."""
        memory, compute = self.memory_ns, self.compute_ns
        return None if memory is None or compute is None else max(memory, compute)

    @property
    def bound(self) -> Bound | None:
        """Which of the two takes longer."""
        memory, compute = self.memory_ns, self.compute_ns
        if memory is None or compute is None:
            return None
        if abs(memory - compute) <= EQUAL * max(memory, compute):
            return "both"
        return "memory" if memory > compute else "compute"

    @property
    def intensity(self) -> float | None:
        """FLOP per byte: the abscissa of the roofline."""
        return None if self.kv_bytes is None else self.flops / (self.weight_bytes + self.kv_bytes)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about: a model, a machine, and how it is used."""

    model: Model
    machine: Machine
    batch: int = 1
    """Sequences that decode together."""
    context: int | None = None
    """Cached tokens of each. `None`: the KV cache is left out."""
    draft: Model | None = None
    """The draft model. `None`: drafting takes no time, as good as true of n-grams."""
    draft_length: int | None = None
    acceptance: tuple[float, ...] = ()
    """Of drafted tokens by their place in the draft, those before them having been accepted; the last value goes on."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts of one length cost and would have to bring (equations 13 to 16). Times in ns."""

    length: int
    draft_ns: float
    """All draft forwards of a round."""
    verify: Forward
    plain_ns: float
    """A forward without drafts."""
    round_ns: float
    break_even_tokens: float
    """Tokens per target forward and sequence at which it is as fast as without."""
    break_even_acceptance: float | None
    """The same as the acceptance of every token, alike and independent. `None`: not even all accepted would do."""
    tokens: float | None = None
    """Tokens per target forward with the acceptance given."""
    loses_from: int | None = None
    """The smallest batch at which that acceptance gains nothing. `None`: none up to `MOST_BATCH`."""

    @property
    def speed_up(self) -> float | None:
        return None if self.tokens is None else self.tokens / self.break_even_tokens

    @property
    def draft_share(self) -> float:
        """Of the round."""
        return self.draft_ns / self.round_ns


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """All that the model says of a case."""

    forward: Forward
    ridge: float | None
    """FLOP per byte above which arithmetic takes longer than reading."""
    crossover_batch: int | None
    """The smallest batch whose arithmetic takes as long as its reading. `None`: not known, or none."""
    crossover_context: int | None
    """Context per sequence from which on the KV cache outweighs the weights. `None`: not known, or none."""
    free_drafts: int | None
    """Tokens that each sequence could verify beside its own while reading still takes as long as computing."""
    speculation: Speculation | None


def explain(case: Case) -> Explained:
    """Apply the model. Raises `ValueError` for a draft length below 1 or an acceptance beyond 0 to 1."""
    speeds = case.machine
    known = speeds.bandwidth is not None and speeds.flops is not None
    return Explained(
        forward=forward(case.model, speeds, case.batch, case.context),
        ridge=speeds.flops / speeds.bandwidth if speeds.flops is not None and speeds.bandwidth is not None else None,
        crossover_batch=crossover_batch(case.model, speeds, case.context) if known else None,
        crossover_context=crossover_context(case.model, case.batch),
        free_drafts=free_drafts(case) if known else None,
        speculation=None if case.draft_length is None else speculation(case, case.draft_length),
    )


BITS: Final[dict[str, float]] = {"f16": 16.0, "q8_0": 8.5, "q4_K": 4.5, "4 bits": 4.0}
"""What weights may take per parameter: storage types with the scales of their blocks, and four bits bare."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The same model with other weights."""

    name: str
    bits: float
    forward: Forward
    crossover_batch: int | None


def variants(case: Case) -> tuple[Variant, ...]:
    """The case with other weights, where the model is known by its size alone; else nothing."""
    model, speeds = case.model, case.machine
    if not isinstance(model, Sized):
        return ()
    named = BITS if model.bits in BITS.values() else {"given": model.bits} | BITS
    made = []
    for name, bits in sorted(named.items(), key=lambda item: -item[1]):
        other = msgspec.structs.replace(model, bits=bits)
        made.append(
            Variant(
                name=name,
                bits=bits,
                forward=forward(other, speeds, case.batch, case.context),
                crossover_batch=crossover_batch(other, speeds, case.context),
            )
        )
    return tuple(made)


def ladder(case: Case) -> tuple[Forward, ...]:
    """Plain forwards of growing batches: powers of four, the one that is asked about and the crossover."""
    crossover = crossover_batch(case.model, case.machine, case.context)
    batches = {4**power for power in range(5)} | {case.batch} | ({crossover} if crossover is not None else set())
    return tuple(forward(case.model, case.machine, batch, case.context) for batch in sorted(batches))


def forward(model: Model, machine: Machine, sequences: int, cached: int | None, new: int = 1) -> Forward:
    """What one forward takes at best."""
    demand = model.demand(sequences, cached, new)
    return Forward(
        rows=sequences * new,
        weight_bytes=demand.weights,
        kv_bytes=demand.kv,
        flops=demand.flops,
        weights_ns=_ns(demand.weights, machine.bandwidth),
        # Nothing to read takes no time, whatever the bandwidth.
        kv_ns=0.0 if demand.kv == 0 else _ns(demand.kv, machine.bandwidth),
        compute_ns=_ns(demand.flops, machine.flops),
    )


def crossover_batch(model: Model, machine: Machine, context: int | None) -> int | None:
    """The smallest batch whose arithmetic takes as long as its reading. `None`: not known, or none to `MOST_BATCH`."""
    return _first(lambda batch: _is_computing(forward(model, machine, batch, context)), MOST_BATCH)


def crossover_context(model: Model, batch: int) -> int | None:
    """The shortest context at which a forward reads more KV cache than weights. `None`: not known, or none."""

    def is_outweighed(context: int) -> bool:
        demand = model.demand(batch, context, 1)
        return demand.kv is not None and demand.kv >= demand.weights

    return _first(is_outweighed, MOST_CONTEXT)


def free_drafts(case: Case) -> int | None:
    """Drafted tokens per sequence that fit into the time in which memory is read anyway. `None`: not known."""
    if forward(case.model, case.machine, case.batch, case.context).ns is None:
        return None

    def is_too_long(length: int) -> bool:
        one = forward(case.model, case.machine, case.batch, case.context, 1 + length)
        memory, compute = one.memory_ns, one.compute_ns
        return memory is not None and compute is not None and compute > memory * (1 + EQUAL)

    first = _first(is_too_long, MOST_BATCH)
    return MOST_BATCH if first is None else first - 1


def speculation(case: Case, length: int) -> Speculation | None:
    """What drafts of a length cost and would have to bring. `None`: a time is not known. Raises as `explain`."""
    if length < 1 or not all(0.0 <= chance <= 1.0 for chance in case.acceptance):
        raise ValueError("drafts have at least one token, and acceptance lies between 0 and 1")
    costs = _round(case, case.batch, length)
    if costs is None:
        return None
    plain, drafting, verify = costs
    assert verify.ns is not None
    needed = (drafting + verify.ns) / plain
    tokens = tokens_per_forward(case.acceptance, length) if case.acceptance else None
    return Speculation(
        length=length,
        draft_ns=drafting,
        verify=verify,
        plain_ns=plain,
        round_ns=drafting + verify.ns,
        break_even_tokens=needed,
        break_even_acceptance=acceptance_for(needed, length),
        tokens=tokens,
        loses_from=None if tokens is None else _loses_from(case, length, tokens),
    )


def _round(case: Case, batch: int, length: int) -> tuple[float, float, Forward] | None:
    """(ns of a plain forward, ns of drafting, the verifying forward)."""
    plain = forward(case.model, case.machine, batch, case.context).ns
    verify = forward(case.model, case.machine, batch, case.context, 1 + length)
    drafting: float | None = 0.0
    if case.draft is not None:
        one = forward(case.draft, case.machine, batch, case.context).ns
        drafting = None if one is None else one * length
    return None if plain is None or verify.ns is None or drafting is None else (plain, drafting, verify)


def _loses_from(case: Case, length: int, tokens: float) -> int | None:
    # One by one: at a long context speculation may lose in between and gain again.
    for batch in range(1, MOST_BATCH + 1):
        costs = _round(case, batch, length)
        if costs is not None and costs[2].ns is not None and tokens * costs[0] <= (costs[1] + costs[2].ns):
            return batch
    return None


def tokens_per_forward(acceptance: Sequence[float], length: int) -> float:
    """Tokens that a round brings: its own and those accepted up to the first that is not (equation 13).

    `acceptance` is conditional, by place in the draft; the last value goes on. Where there is only one this is the
    geometric law of Leviathan et al. (arXiv 2211.17192, eq. 1), which real drafts follow badly.
    """
    places: Iterator[float] = chain(acceptance, repeat(acceptance[-1]))
    kept: Iterator[float] = accumulate(islice(places, length), mul)
    return 1.0 + sum(kept)


def acceptance_for(tokens: float, length: int) -> float | None:
    """The acceptance, alike at every place, that brings so many tokens per forward. `None`: more than drafts have."""
    if tokens <= 1.0:
        return 0.0
    if tokens > (length + 1) * (1 + EQUAL):
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_forward((middle,), length) < tokens else (low, middle)
    return high


def _ns(amount: float | None, per_second: float | None) -> float | None:
    return None if amount is None or per_second is None else amount / per_second * 1e9


def _is_computing(one: Forward) -> bool:
    """Arithmetic takes at least as long as reading."""
    return one.bound in ("compute", "both")


def _first(is_so: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 to `most` of which it is so, where it stays so once it is. `None`: of none."""
    if not is_so(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_so(middle) else (middle, high)
    return high
