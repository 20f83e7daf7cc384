"""What explains a session: what an optimisation that is off would have done, what a change was predicted to buy, and
what limits."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from stackscope.records.base import Record
from stackscope.toggles import Setting

DraftKind: TypeAlias = Literal["ngram", "draft"]

Cause: TypeAlias = Literal[
    "weight bandwidth", "KV and attention", "compute", "LM head", "draft overhead", "low acceptance",
    "prefill interference", "host scheduling", "sampling", "CPU starvation", "external bandwidth contention",
    "queueing",
    "cache thrash", "batch fragmentation", "resident-prefix tax", "paging", "throttle", "co-limited",
]  # fmt: skip
"""What may limit; the taxonomy is explained in docs/cost-model.md. An unknown cause is no cause: `None`."""


class Estimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A quantity that is not known exactly, and the interval that holds it nine times in ten."""

    value: float
    low: float
    high: float

    @property
    def is_from_one(self) -> bool:
        """Of a ratio: the interval leaves out 1, so that it can be told from no change."""
        return self.low > 1.0 or self.high < 1.0

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class LengthCounts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What drafts of one length would have done over tokens that really came."""

    length: int
    """Tokens drafted at most per round."""
    rounds: int
    """Target forwards that those tokens would have taken, one round each."""
    covered: int
    """Rounds in which there was something to draft."""
    drafted: int
    accepted: int
    """Drafted tokens that are in the output. The bonus token, of which every round has one, is not among them."""
    without_bonus: int = 0
    """Rounds that have none, because an output ended with their drafts."""
    full: int = 0
    """Rounds that drafted `length` tokens, and in which each was judged or one before it rejected."""
    whole: int = 0
    """Of those, the ones whose every token was accepted."""

    @property
    def tokens(self) -> int:
        """Tokens that came in these rounds."""
        return self.rounds + self.accepted - self.without_bonus


class DraftShadow(Record, frozen=True, kw_only=True, omit_defaults=True, tag="draft-shadow", gc=False):
    """What a draft source would have had accepted, scored on the tokens that came; counts since the one before.

    Per length the drafter was replayed over the same tokens: nothing is extrapolated from another length.
    """

    at_ns: int
    epoch: int
    source: DraftKind
    requests: int
    """Requests that were followed."""
    tokens: int
    """Generated tokens that were scored."""
    lengths: tuple[LengthCounts, ...] = ()
    cpu_ns: int = 0
    """What it cost."""


class PrefixShadow(Record, frozen=True, kw_only=True, omit_defaults=True, tag="prefix-shadow", gc=False):
    """What a prefix cache would have found for the requests that were admitted; counts since the one before."""

    at_ns: int
    epoch: int
    capacity_tokens: int | None = None
    """Tokens that idle prefixes might have held. `None`: without limit."""
    requests: int
    lookup_tokens: int
    hit_tokens: int
    useful_hit_tokens: int
    """Without what a pre-empted or requeued request would have found of its own work."""
    evicted_blocks: int = 0
    """Requests that end may evict after their look-up was told: a record may count these alone, with no requests."""
    cpu_ns: int = 0


class Probe(Record, frozen=True, kw_only=True, omit_defaults=True, tag="probe", gc=False):
    """A small fixed piece of work timed between two steps: what the machine can do just now."""

    at_ns: int
    read_bytes_per_s: float | None = None
    """Reading memory that lies beyond the processor's caches, with one thread."""
    compute_per_s: float | None = None
    """Repetitions per second of a fixed computation inside the cache, with one thread."""
    cpu_share: float | None = None
    """CPU time ÷ wall time while it ran: less than 1 means that it waited for a core."""


class Prediction(Record, frozen=True, kw_only=True, omit_defaults=True, tag="prediction"):
    """What a change was predicted to do, made before it. Ratios are after ÷ before; `None` is not predicted."""

    at_ns: int
    changes: dict[str, tuple[Setting, Setting]]
    """Each setting: its value before and after."""
    tokens: Estimate | None = None
    """Ratio of tokens per second."""
    ttft: Estimate | None = None
    """Ratio of the time to the first token."""
    step_gap: Estimate | None = None
    """Ratio of the mean time between emissions of a request."""
    memory_bytes: int | None = None
    """Change of what target, draft model and their contexts take."""
    bottleneck: Cause | None = None
    """What is expected to limit afterwards."""
    reason: str = ""
    """One sentence; where nothing is predicted, why."""
    cost_model: int = 0
    """Version of the equations it was made with."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A named cause with what speaks for it, or why it is not the cause."""

    cause: Cause
    share: float | None = None
    """Of wall time, 0 to 1: what would be gained if it cost nothing. `None`: not known, or counted under others, as
    `against` says."""
    is_confirmed: bool = False
    """A probe or a counterfactual speaks for it; without, it is not named."""
    claim: str = ""
    """One sentence with its number."""
    evidence: tuple[str, ...] = ()
    against: str | None = None
    """Why it does not apply, or is not confirmed."""
    counterfactual: str = ""
    """What would happen without it: the bound."""
    falsifier: str = ""
    """What observation would prove it wrong."""
