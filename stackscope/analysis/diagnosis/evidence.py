"""Everything that a cause may look at, for a few seconds of steps. Plain values: `None` is not known, 0 is zero.

Durations are nanoseconds, summed over the window unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.diagnosis.responses import Response
from stackscope.analysis.offload import computes_on_gpu
from stackscope.analysis.timing.terms import Terms
from stackscope.records import DelayedPhase, Estimate, ModelSummary
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wall time went, as measured. The parts are disjoint and sum to it."""

    idle: float = 0.0
    """Between two steps, with nothing to do."""
    admit: float = 0.0
    build: float = 0.0
    commit: float = 0.0
    emit: float = 0.0
    shadow: float = 0.0
    sample: float = 0.0
    draft: float = 0.0
    forward: float = 0.0
    """The target's forwards that ran to their end."""
    other: float = 0.0
    """The phase `other`, forwards that were cut short, and steps that stalled: nothing explains them."""

    @property
    def busy(self) -> float:
        return self.wall - self.idle

    @property
    def wall(self) -> float:
        return float(sum(msgspec.structs.astuple(self)))


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine did meanwhile, by its own readings and by the probes between steps."""

    cpu_share: float | None = None
    """σ: CPU time of the forwards ÷ (threads × their wall time)."""
    cpu_share_calm: float | None = None
    """The same when nothing disturbed it: threads that wait for each other sleep now and then."""
    foreign_cores: float | None = None
    """Cores that processes other than the engine and Stackscope used."""
    cpu_pressure: float | None = None
    """Share of the time in which something runnable waited for a core; likewise for a disk and for memory."""
    io_pressure: float | None = None
    memory_pressure: float | None = None
    throttled: float | None = None
    """Share of control-group periods in which the quota held it up."""
    faults_per_s: float | None = None
    """Pages of the engine that had to come from a disk."""
    swap_bytes_per_s: float | None = None
    switches_per_s: float | None = None
    """Times that a thread of the engine lost its core though it had more to do."""
    read: float | None = None
    """Reading memory, now ÷ as it was when undisturbed."""
    read_bytes_per_s: float | None = None
    compute: float | None = None
    """A fixed computation inside the cache, now ÷ as it was when undisturbed."""
    read_felt: float | None = None
    """Forwards ÷ what the model predicts of them, lately while memory was read slowly ÷ in the last minute while it was
    not. `None`: it is not read slowly, or not both were seen."""
    compute_felt: float | None = None
    """The same of the computation."""
    probe_cpu_share: float | None = None
    """CPU time ÷ wall time of the probes."""
    clocks_held: tuple[tuple[str, float], ...] = ()
    """(reason, share of the time) that held down the clocks of a GPU that the engine computes on."""
    gpus: int | None = None
    """GPUs that were seen. `None`: nobody looked."""
    gpus_used: int | None = None
    """Of those, the ones that the engine computes on. `None`: nobody can tell."""
    gpu_busy: float | None = None
    """The most that any of them was busy."""

    @property
    def cpu_share_rest(self) -> float | None:
        """σ ÷ what it is undisturbed."""
        if self.cpu_share is None or not self.cpu_share_calm:
            return self.cpu_share
        return self.cpu_share / self.cpu_share_calm

    @property
    def is_calm(self) -> bool:
        """Nothing that is known disturbs it: what a step takes now is what it takes on this machine."""
        probed = [share for share in (self.read, self.compute) if share is not None]
        held = (self.throttled or 0.0) + (self.io_pressure or 0.0)
        sigma = self.cpu_share_rest
        return (sigma is None or sigma >= CALM) and all(share >= QUIET for share in probed) and held < 1.0 - CALM


CALM: Final = 0.95
"""Threads that get at least this much of what they get undisturbed count as calm."""
QUIET: Final = 0.8
"""The same of probes, which stray more: the undisturbed level is the best of many."""
SLOWER: Final = 0.9
"""A probe below this share of its undisturbed level says that the machine is slower. On two Zen 3 cores, work inside
the caches on the other one leaves 0.85 to 1 of both levels, and reading memory there 0.3 to 0.6 of reading."""


class Shorter(msgspec.Struct, frozen=True):
    """What drafts of a length below that in force would do, approximately."""

    length: int
    tokens_per_forward: float
    gain: float
    """Tokens per second ÷ those without drafts."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What drafting cost and won. Of steps without prefill rows, save the counts."""

    tokens_per_forward: float | None = None
    """A."""
    coverage: float | None = None
    acceptance: float | None = None
    drafted: int = 0
    wasted_rows: float | None = None
    """Rows per verification that committed nothing."""
    length: float | None = None
    """Tokens drafted per verification."""
    break_even: float | None = None
    """A*: the time of a round ÷ that of a plain step, both by the model. Below it drafting loses."""
    break_even_low: float | None = None
    break_even_high: float | None = None
    """Where A* lies nine times in ten, by what the model knows. `None`: it does not tell."""
    break_even_if_free: float | None = None
    """The same if drafts cost nothing: verification alone."""
    round_ns: float | None = None
    plain_ns: float | None = None
    """Mean step with drafts, and the same step without, by the model."""
    wall_ns: float = 0.0
    """Measured time of the steps in question."""
    survival: tuple[float, ...] = ()
    """Share of the drafts of which at least 1, 2, … tokens were accepted."""
    shorter: Shorter | None = None
    """The best length below that in force. `None`: drafting does not lose, or that is not known."""


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """How rows fell into forwards and passes."""

    rows: float = 0.0
    outputs: float = 0.0
    prefill_rows: float = 0.0
    decode_rows: float = 0.0
    passes: float = 0.0
    least_passes: float = 0.0
    """Passes that as many rows need when they are cut only where a pass is full."""
    fragmented_ns: float | None = None
    """What the further passes cost by the model."""
    mixed_steps: float = 0.0
    """Steps that computed prompts while other requests were decoding."""
    mixed_ns: float = 0.0
    pure_steps: float = 0.0
    """Steps in which all were decoding."""
    pure_ns: float = 0.0
    prefill_ns: float = 0.0
    """Steps in which none was."""
    per_output_ns: float | None = None
    """What one more output row adds to the sampling of a step, from how both vary."""
    cached: float = 0.0
    """Cached tokens, summed over sequences and forwards."""
    idle_cells: float = 0.0
    """Occupied cells of no sequence in the forward, mean over forwards."""
    cells: float = 0.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Requests: those that wait and those that run. Means are over the time of steps."""

    queue: float | None = None
    slots_busy: float | None = None
    slots: float | None = None
    waiting: float | None = None
    """Share of the time in which something waited."""
    wait_share: float | None = None
    """Requests waiting ÷ requests in the system: by Little's law, the share of their time that they wait."""
    full: float | None = None
    """Of the time in which something waited, the share in which every slot was taken."""
    wait_of_finished: float | None = None
    """Wait ÷ end-to-end time of the requests that ended lately."""
    finished: int = 0


class CacheUse(msgspec.Struct, frozen=True, kw_only=True):
    """What prefixes were found."""

    lookup_tokens: float = 0.0
    hit_tokens: float = 0.0
    useful_hit_tokens: float = 0.0
    evicted_blocks: float = 0.0
    preempted: float = 0.0
    spared: float | None = None
    """What useful hits spared, at what a computed prompt token took, ÷ wall time. `None`: not known."""
    unlimited_tokens: float | None = None
    """Tokens that a cache without limit would have found usefully, of as many as were looked up. `None`: no shadow
    ran."""

    @property
    def hit_rate(self) -> float | None:
        """Cached ÷ (cached + processed) prompt tokens. `None`: nothing was looked up."""
        return self.hit_tokens / self.lookup_tokens if self.lookup_tokens > 0 else None

    @property
    def lost_tokens(self) -> float | None:
        """Tokens computed again because the cache had dropped them."""
        if self.unlimited_tokens is None:
            return None
        return max(0.0, self.unlimited_tokens - self.useful_hit_tokens)


class Roofs(msgspec.Struct, frozen=True, kw_only=True):
    """What moved, and what this machine was measured to do at most."""

    bytes: float | None = None
    """Moved by the target's forwards, by the ledger."""
    weight_bytes: float | None = None
    head_bytes: float | None = None
    kv_bytes: float | None = None
    flops: float | None = None
    bandwidth: float | None = None
    """Measured ceiling, bytes per second. `None`: not measured."""
    compute: float | None = None
    """Measured ceiling, FLOP/s."""
    why_none: str = "no ceiling was measured"
    """Why a ceiling is not known, where one is not."""
    fits_cache: bool | None = None
    """What a forward of one row reads stays in the processor's cache."""


class Stall(msgspec.Struct, frozen=True):
    """A single step that took many times what such a step takes: whatever stopped it is no part of a step."""

    n: int
    """Of the step."""
    duration_ns: int
    usual_ns: float
    """What it would have taken at the pace of the other steps."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A window of steps and what is known of it."""

    at_ns: int = 0
    steps: int = 0
    """Likewise `forwards` and every count: without those that stalled."""
    forwards: int = 0
    times: Times = Times()
    stalls: tuple[Stall, ...] = ()
    """Their time is in `times.other`."""
    terms: Terms | None = None
    """Predicted time of all its steps in parts, on a calm machine. `None`: no time model is there."""
    prompt_terms: Terms | None = None
    """Of those, what prompt rows take: steps of their own, and what they add to those of others."""
    idle_resident_ns: float = 0.0
    """Of the term `resident`, what cells of no sequence in the forward add."""
    is_reference_calm: bool = False
    """The model was learned, or calibrated, when nothing disturbed the machine."""
    model_error: float | None = None
    """By how much of it the predicted time of a typical step may be too low: its interval holds nine times in ten."""
    unknown: dict[str, str] = {}
    """Terms that the data cannot separate, with the reason."""
    attention_share: Estimate | None = None
    """Of a typical step, what its cached tokens add; drawn from what is possible."""
    rows_share: Estimate | None = None
    """The same of its rows beyond the first."""
    machine: Machine = Machine()
    speculation: Speculation | None = None
    """`None`: nothing was drafted."""
    batching: Batching = Batching()
    load: Load = Load()
    cache: CacheUse = CacheUse()
    roofs: Roofs = Roofs()
    config: EngineConfig | None = None
    model: ModelSummary | None = None
    draft_model: ModelSummary | None = None
    library: str | None = None
    responses: Mapping[DelayedPhase, Response] = {}
    """What causal probes found, by the phase that they delayed."""
    settling: float = 0.0
    """Share of the steps that were paying for a change."""

    @property
    def is_on_gpu(self) -> bool:
        """The forwards run on a GPU, of which probes and CPU time say nothing."""
        return self.config is not None and computes_on_gpu(self.library, self.config)

    @property
    def step_ns(self) -> float:
        """Mean time of a step that did not stall; 0 without one."""
        return max(0.0, self.times.busy - self.stalled_ns) / self.steps if self.steps else 0.0

    @property
    def stalled_ns(self) -> float:
        """Of the wall time, what steps that stalled took."""
        return float(sum([stall.duration_ns for stall in self.stalls]))

    @property
    def slowdown(self) -> float | None:
        """Measured time of the forwards ÷ what the model predicts of a calm machine. `None`: no model."""
        if self.terms is None or self.terms.forward <= 0.0 or self.times.forward <= 0.0:
            return None
        return self.times.forward / self.terms.forward


def summed(many: Sequence[Terms]) -> Terms:
    """Terms of several steps, added."""
    return Terms(*map(sum, zip(*many, strict=True))) if many else Terms()


def scaled(terms: Terms, factor: float) -> Terms:
    """Terms, each times a factor."""
    return Terms(*[factor * term for term in terms])
