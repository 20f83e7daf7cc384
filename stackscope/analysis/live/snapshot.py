"""What the screen shows at one instant, as plain values: everything a pane needs, and no widget in sight.

A snapshot is made from records alone, so that a live engine, a replayed file and an attached server look the same.
`None` is not known; 0 is zero. Times are nanoseconds on the session's clock, durations nanoseconds, rates per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope.analysis.distribution import Spread
from stackscope.records import FinishReason, HardwareSample, Header, WorkPhase
from stackscope.toggles import EngineConfig, Setting

if TYPE_CHECKING:
    # They take numpy, for which no first picture waits. A struct's annotations are read when one is encoded.
    from stackscope.analysis.explainer import Explanation  # noqa: TC004
    from stackscope.analysis.scorecard import Score  # noqa: TC004

PARTS: Final = (
    "prefill", "decode", "verify", "draft", "sample", "schedule", "emit", "shadow", "idle", "unexplained",
)  # fmt: skip
"""Parts of wall time, in the order of the anatomy. They are disjoint and sum to it.

The target's forward is divided by rows: `prefill` are prompt rows, `decode` one row for each sequence that decodes,
`verify` the rows beyond that one. `schedule` is admit, build and commit; `unexplained` is the phase `other`.
"""

State: TypeAlias = Literal["starting", "waiting", "running", "settling", "finished", "dead"]
"""`starting`: no step yet. `waiting`: nothing in flight. `settling`: a change's after-effects are being paid."""

Comparison: TypeAlias = Literal["settling", "measuring", "measured", "not distinguishable", "not comparable"]


class Part(msgspec.Struct, frozen=True):
    """One part of wall time in a window."""

    name: str
    """One of `PARTS`."""
    ns: float
    share: float
    """Of the window's wall time, 0 to 1."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Sums and rates over a stretch of the session that ends at the snapshot. Everything is `None` before any step."""

    wall_ns: int = 0
    """Time that steps and the idle stretches between them cover."""
    steps: int = 0
    forwards: int = 0
    step_ns: float | None = None
    """Mean wall time of a step."""
    parts: tuple[Part, ...] = ()
    """In the order of `PARTS`, all of them once there is a step."""
    tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    requests_per_s: float | None = None

    tokens_per_forward: float | None = None
    """A. See `metrics.speculation.TokensPerForward`; likewise the next five."""
    coverage: float | None = None
    acceptance: float | None = None
    by_position: tuple[float, ...] = ()
    """Share of drafts whose j-th token entered the output. Empty: nothing was drafted."""
    drafted: int | None = None
    wasted_rows: float | None = None
    """Rows per verification that committed nothing."""
    wasted_share: float | None = None

    lookup_tokens: int | None = None
    useful_hit_tokens: int | None = None
    """Prompt tokens whose computation was spared."""
    useful_hit_rate: float | None = None
    hit_rate: float | None = None
    blocks_read: int | None = None
    blocks_written: int | None = None
    blocks_evicted: int | None = None

    bytes_per_s: float | None = None
    """Modelled by the ledger, target and draft model, over wall time."""
    weight_bytes_per_s: float | None = None
    kv_read_bytes_per_s: float | None = None
    kv_write_bytes_per_s: float | None = None
    bytes_per_step: float | None = None
    forward_bytes_per_s: float | None = None
    """The target's bytes over the time of its forwards: what bandwidth they ran at."""
    flops_per_s: float | None = None
    """Of target and draft model over wall time."""
    forward_flops_per_s: float | None = None
    """The target's FLOPs over the time of its forwards."""

    occupancy: float | None = None
    slots_busy: float | None = None
    """Mean over step time."""
    queue: float | None = None
    batch_rows: float | None = None
    """Mean rows of a target forward."""
    useful_row_share: float | None = None
    """Emitted tokens ÷ rows of sequences that decode."""
    cpu_share: float | None = None
    """σ: CPU time of the forwards ÷ (threads × their wall time)."""


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at the last step, rather than having passed in a window."""

    queue: int | None = None
    slots_busy: int | None = None
    slots: int | None = None
    kv_cells: int | None = None
    resident_blocks: int | None = None
    resident_paths: int | None = None
    shared_blocks: int | None = None
    """Blocks that more than one cached path runs through."""
    held_bytes: int | None = None
    """KV that the resident blocks take in the target's cache."""
    missed_at: int | None = None
    """Prompt token at which the last look-up left what is cached. `None`: not known, or it missed nothing."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Distributions in nanoseconds. Requests are those that completed in the last minute; gaps of the last seconds."""

    ttft: Spread | None = None
    step_gap: Spread | None = None
    tpot: Spread | None = None
    e2e: Spread | None = None
    ttft_limit_ns: int | None = None
    tpot_limit_ns: int | None = None
    good_share: float | None = None
    """Share of those requests that kept the limits. `None`: there are none, or no limit is set."""
    is_complete: bool = True
    """False: some of what is asked was not recorded by this source."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One bin of every series. A field is `None` where nothing is known: a gap in the chart, never a zero."""

    at_ns: int
    """End of the bin."""
    shares: tuple[float, ...] | None = None
    """Of `PARTS`."""
    tokens_per_s: float | None = None
    tokens_per_forward: float | None = None
    acceptance: float | None = None
    useful_hit_rate: float | None = None
    bytes_per_s: float | None = None
    forward_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    step_ns: float | None = None
    queue: float | None = None
    slots_busy: float | None = None
    cpu_percent: float | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The last minutes as bins of equal width, oldest first, without gaps in time: what is unknown is in the points."""

    bin_ns: int
    points: tuple[Point, ...] = ()
    """Complete bins only."""
    changes: tuple[tuple[int, str], ...] = ()
    """(at_ns, short label) of changes and marks inside the history: vertical marks on every chart."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request in flight, or one that has just finished."""

    id: int
    slot: int
    phase: WorkPhase
    prompt_tokens: int | None
    """`None`: not known before its prefill is done."""
    prefilled: int
    """Prompt tokens in the cache so far, hits included."""
    hit_tokens: int | None
    """`None`: not known, because it was prefilled before the first record."""
    output_tokens: int
    drafted: int
    accepted: int
    age_ns: int
    """Since it was first seen in a slot."""
    is_partial: bool = False
    """It was in flight before the first record: its tokens and drafts are counted since then."""
    finished: FinishReason | None = None


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as much of something, after ÷ before, with its interval (`live.effects` says of what level)."""

    value: float
    low: float
    high: float

    @property
    def is_distinguishable(self) -> bool:
        """The interval leaves out 1."""
        return self.low > 1.0 or self.high < 1.0


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a change did, from comparable stretches before and after it."""

    state: Comparison
    tokens: Ratio | None = None
    """Of tokens per second. `None`: not (yet) measured."""
    before: float | None = None
    after: float | None = None
    """Tokens per second of the two stretches."""
    before_s: float = 0.0
    after_s: float = 0.0
    """How much of each was used, in seconds."""
    why: str | None = None
    """Why it is not comparable, or what is still awaited, in words."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change of configuration or load, a refusal, or a mark, as one line."""

    at_ns: int
    kind: Literal["live", "rebuild", "refused", "traffic", "mark", "verdict"]
    by: Literal["user", "plan", "engine"] = "user"
    changes: dict[str, tuple[Setting, Setting]] = {}
    label: str = ""
    """The mark's name, the refusal's reason, or what is named from here on."""
    duration_ns: int | None = None
    requeued: int = 0
    predicted: Ratio | None = None
    """Of tokens per second, made before the change, with its 90 % interval. `None`: nothing was predicted."""
    unpredicted: str | None = None
    """Why a prediction that was made has no number. `None`: it has, or none was made."""
    effect: Effect | None = None
    """`None`: nothing to measure (a mark, a refusal)."""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is predicted to help most."""

    changes: dict[str, Setting]
    predicted: Ratio
    """Of `figure`, after ÷ before, with its 90 % interval."""
    figure: Literal["tokens_per_s", "step_gap"] = "tokens_per_s"
    """The gap between a request's steps where arrivals decide the tokens per second, which then stay as they are."""
    label: str = ""
    """The change in a few words; empty: as the settings are called."""
    price: Ratio | None = None
    """How much longer the first token takes, where that is beyond doubt and more than a tenth. `None`: it is not."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What dominates, in words."""

    basis: Literal["none", "phases", "explainer"] = "none"
    """`phases`: the measured phase shares alone."""
    name: str | None = None
    """`None`: nothing can be named, and `sentence` says why."""
    share: float | None = None
    sentence: str = ""
    """One number behind the name."""
    ahead: tuple[str, ...] = ()
    """Causes that lead by now, with their shares: the name stands until they have for a while."""
    beside: tuple[str, ...] = ()
    """What takes more than what is named, and is not denied: a loss, or a wait, is named before what the work needs."""
    unconfirmed: tuple[str, ...] = ()
    """What takes more than what is named, if it is the cause: nothing confirms it."""
    rejected: tuple[str, ...] = ()
    next: tuple[Suggestion, ...] = ()
    since_ns: int | None = None
    previous: str | None = None
    """What other name was there before."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on the screen, at one instant of the session."""

    at_ns: int = 0
    state: State = "starting"
    header: Header | None = None
    config: EngineConfig | None = None
    """In force now."""
    model_name: str | None = None
    """Target in force now, with its weights' type as the file names it."""
    epoch: int = 0
    concurrency: int | None = None
    rate: float | None = None
    n_steps: int = 0
    n_requests: int = 0
    """Finished so far."""
    n_tokens: int = 0
    """Emitted so far."""
    now: Window = Window()
    """The last two seconds."""
    minute: Window = Window()
    levels: Levels = Levels()
    latency: Latency = Latency()
    history: History = History(bin_ns=500_000_000)
    requests: tuple[RequestView, ...] = ()
    """By slot."""
    events: tuple[Event, ...] = ()
    """Newest first, a bounded number."""
    hardware: HardwareSample | None = None
    """The last sample. `None`: nobody samples."""
    verdict: Verdict = Verdict()
    explanation: Explanation | None = None
    """What the verdict and the predictions rest on. `None`: nobody explains."""
    score: Score | None = None
    """How well the predictions of this session's changes did. `None`: nothing was changed."""
    compute_ceiling: float | None = None
    """FLOP/s measured on this machine. `None`: not measured."""
    bandwidth_ceiling: float | None = None
    """Bytes per second measured on this machine. `None`: not measured."""
    not_modelled: tuple[str, ...] = ()
    """What bytes and FLOPs leave out of the models so far, in words."""
    ended: str | None = None
    """How the session ended, as its footer says."""
    log: tuple[str, ...] = ()
    """The last lines that the engine wrote."""
