"""What the engine has been doing lately: the work that predictions are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.shapes import Shape
from stackscope.analysis.whatif.contracts import AcceptanceCurve, Rules, StepTimes
from stackscope.records import DraftKind, ModelSummary, PrefixShadow
from stackscope.toggles import EngineConfig

FULL: Final = 0.9
"""Share of slots that must be busy for the engine, rather than the arrivals, to decide the rate."""


class Decoding(msgspec.Struct, frozen=True, gc=False):
    """One sequence that decoded in a step."""

    cached: int
    """Tokens that it had in the cache."""
    drafted: int = 0
    slot: int = 0


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Prompt rows of one sequence in a step, and what its request has of them altogether."""

    cached: int
    new: int
    computed: int
    """Prompt tokens of the request that are computed, in all its chunks."""
    found: int = 0
    """Prompt tokens of the request that the prefix cache had."""
    slot: int = 0


class Round(msgspec.Struct, frozen=True):
    """A recorded step that stands for those that resemble it."""

    shape: Shape
    decoding: tuple[Decoding, ...]
    chunks: tuple[Chunk, ...] = ()
    chunk_outputs: int = 0
    """Logit rows of the chunks."""
    weight: float = 1.0
    """How many recorded steps it stands for."""
    chunk_weight: float = 1.0
    """The same for its chunks: so that the sample has as many prompt rows as the recording."""

    @property
    def requests(self) -> int:
        return len(self.decoding) + len(self.chunks)


class WorkingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A bounded sample of recent work, all of it under one configuration, with what is known of machine and drafts."""

    config: EngineConfig
    pricing: Pricing
    times: StepTimes | None = None
    """`None`: nothing was timed yet."""
    rounds: tuple[Round, ...] = ()
    tokens_per_round: float | None = None
    """A: tokens of a decoding sequence per forward that it is in. `None`: nothing decoded."""
    drafted_per_round: float | None = None
    """Tokens drafted for such a sequence, of the same steps."""
    full_share: float = 0.0
    """Of the drafts that were verified, those accepted whole."""
    n_steps: int = 0
    """Steps that the sample was drawn from."""
    wall_ns: int = 0
    """Time that they cover, idle stretches between them included."""
    idle_share: float = 0.0
    """Of that time."""
    tokens_per_s: float | None = None
    slots_busy: float | None = None
    """Mean over step time."""
    queue: float | None = None
    """Mean requests that waited."""
    computed_per_token: float | None = None
    """Prompt tokens computed per output token."""
    demanded_per_token: float | None = None
    """The same, those found in the prefix cache included."""
    useful_hit_rate: float | None = None
    """Of the prompt tokens looked up in the last minute under this configuration. `None`: there was no look-up."""
    minute_hit_rate: float | None = None
    """The same whatever was changed in that minute, as the live view has it."""
    most_resident: int | None = None
    """Most tokens that cached prefixes held. `None`: there is no prefix cache."""
    concurrency: int | None = None
    """Requests offered at a time. `None`: they arrive at a rate of their own, or it is not known."""
    rate: float | None = None
    """Requests per second of an open loop."""
    wait_ns: float | None = None
    """Mean time in the queue. `None`: no request ended that arrived under this configuration; likewise the next."""
    ttft_ns: float | None = None
    tokens_per_request: float | None = None
    gap_ns: float | None = None
    """Mean time between emissions of a request."""
    curves: Mapping[DraftKind, AcceptanceCurve] = {}
    prefix_shadows: tuple[PrefixShadow, ...] = ()
    """One for each capacity that was simulated, summed."""
    remembered: int | None = None
    """Tokens that the simulated cache without limit holds by now, at most. `None`: none is simulated."""
    model: ModelSummary | None = None
    draft_model: ModelSummary | None = None
    variants: Mapping[str, ModelSummary] = {}
    """Other files of the same model, by path."""
    rules: Rules | None = None
    """`None`: what the engine would allow, and what memory it would take, is not known."""
    memory_bytes: int | None = None
    """Of target, draft model and their contexts."""

    @property
    def follows_arrivals(self) -> bool:
        """An open loop that the engine keeps up with: arrivals decide how many tokens come."""
        if self.concurrency is not None or self.slots_busy is None:
            return False
        return self.slots_busy < FULL * self.config.slots

    @property
    def computed_share(self) -> float | None:
        """Of the prompt tokens demanded, those computed. `None`: there were none."""
        if not self.demanded_per_token or self.computed_per_token is None:
            return None
        return self.computed_per_token / self.demanded_per_token
