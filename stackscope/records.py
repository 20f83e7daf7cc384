"""The vocabulary of the whole program: frozen records, with no I/O.

All `_ns` fields are integer nanoseconds. `at_ns`, `start_ns` and the like count from the session's origin on one
monotonic clock; wall-clock time stands once, in the header. `None` is unknown, `0` is zero. What can be derived from
a record is a property or a function elsewhere, never a stored field. Records that hold only numbers, names and each
other are kept out of the cyclic garbage collector (`gc=False`): they cannot form a cycle, and a large session loads
twice as fast.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from stackscope.toggles import EngineConfig, Setting

SCHEMA_VERSION: Final = 1
COST_MODEL_VERSION: Final = 1

WorkPhase: TypeAlias = Literal["prefill", "decode", "verify"]
FinishReason: TypeAlias = Literal["eos", "length", "context", "stop", "cancelled", "error"]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of everything that stands on a line of its own in a session file.

    Defaults are left out of the file, so changing one changes the meaning of files that exist: it takes a new schema.
    """


class Phases(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the wall time of one step went, in nanoseconds. The parts are disjoint and sum to the step."""

    admit: int = 0
    """Commands, arrivals, the queue, prefix look-ups and the KV copies they need."""
    draft: int = 0
    """Everything done to obtain drafts: n-gram look-ups, draft model forwards, its prefill and catch-up."""
    build: int = 0
    """Deciding the batch and filling its arrays."""
    decode: int = 0
    """The target's forward, until the backend has synchronised."""
    sample: int = 0
    """Logits to tokens: argmax or sampling, and verification of drafts."""
    commit: int = 0
    """Trimming rejected rows, extending histories, handing prefixes to the cache."""
    emit: int = 0
    """Detokenising, stop strings, finishing requests."""
    shadow: int = 0
    """Tracking what an optimisation that is off would have done."""
    other: int = 0
    """The rest of the loop: making records, handing them over, waiting on nothing in particular."""

    @property
    def total(self) -> int:
        return (
            self.admit + self.draft + self.build + self.decode + self.sample
            + self.commit + self.emit + self.shadow + self.other
        )  # fmt: skip


class SlotWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one sequence did in one target forward."""

    request: int
    slot: int
    phase: WorkPhase
    new: int
    """Rows fed to the forward (q): prompt tokens of a prefill chunk, or 1 + drafted."""
    cached: int
    """Tokens of the sequence already in the KV cache before the forward (c)."""
    drafted: int = 0
    accepted: int = 0
    """Drafted tokens that verification kept. The bonus token is not among them."""
    emitted: int = 0
    """Tokens committed to the output: never past a stop, a limit or an end-of-sequence token."""
    outputs: int = 0
    """Rows for which logits were computed."""


class Ubatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pass over the weights inside a forward."""

    rows: int
    outputs: int


class DraftForward(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One forward of the draft model."""

    spans: tuple[tuple[int, int], ...]
    """(cached, new) tokens of each sequence in it."""
    outputs: int
    ubatches: tuple[Ubatch, ...] = ()
    """Empty: one ubatch that held every row."""

    @property
    def passes(self) -> tuple[Ubatch, ...]:
        """The ubatches, the implied single one included."""
        if self.ubatches or not self.spans:
            return self.ubatches
        return (Ubatch(sum(new for _, new in self.spans), self.outputs),)


class CacheCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the prefix cache did in one step; `resident_*` are levels at its end, the rest are counts."""

    lookups: int = 0
    lookup_tokens: int = 0
    """Prompt tokens that could have hit."""
    hit_tokens: int = 0
    useful_hit_tokens: int = 0
    """Hits that spared work never done before for that request: re-admission after a pre-emption is not useful."""
    blocks_read: int = 0
    blocks_written: int = 0
    blocks_evicted: int = 0
    resident_blocks: int = 0
    resident_paths: int = 0
    shared_blocks: int = 0
    """Of the resident blocks, those that more than one cached path runs through."""
    missed_at: int | None = None
    """Prompt token at which the step's last look-up left what is cached. `None`: nothing missed."""
    copied_bytes: int = 0
    """KV bytes really copied (split KV only; a unified cache shares cells without copying)."""


class StepRecord(Record, frozen=True, kw_only=True, omit_defaults=True, tag="step", gc=False):
    """One turn of the engine loop: at most one target forward and the draft forwards that fed it."""

    n: int
    """Counts from 0 within the session, without gaps."""
    start_ns: int
    phases: Phases
    work: tuple[SlotWork, ...] = ()
    ubatches: tuple[Ubatch, ...] = ()
    """Empty with work present: one ubatch that held every row."""
    draft: tuple[DraftForward, ...] = ()
    queue: int = 0
    """Requests waiting when the forward began."""
    slots_busy: int = 0
    slots: int = 0
    cache: CacheCounters = CacheCounters()
    kv_cells: int = 0
    """Occupied cells of the KV cache after the step, idle cached prefixes included."""
    cpu_ns: int | None = None
    """CPU time of the process during the decode phase: spinning counts."""
    preempted: int = 0
    aborted: bool = False
    """The forward was cut short by a command; its rows are redone and nothing was emitted."""
    settling: bool = False
    """A toggle's after-effects (a draft model catching up) are still being paid."""
    invalid_output: bool = False
    """Acceptance was synthetic: timing is meaningful, text is not."""
    epoch: int = 0
    """Which configuration ran: the number of ConfigEvents applied before."""

    @property
    def duration_ns(self) -> int:
        return self.phases.total

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.phases.total

    @property
    def rows(self) -> int:
        return sum(w.new for w in self.work)

    @property
    def outputs(self) -> int:
        return sum(w.outputs for w in self.work)

    @property
    def emitted(self) -> int:
        return sum(w.emitted for w in self.work)

    @property
    def passes(self) -> tuple[Ubatch, ...]:
        """The ubatches of the forward, the implied single one included."""
        if self.ubatches or not self.work:
            return self.ubatches
        return (Ubatch(self.rows, self.outputs),)


class Emission(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens of one request that left the engine together."""

    step: int
    at_ns: int
    tokens: int


class RequestRecord(Record, frozen=True, kw_only=True, omit_defaults=True, tag="request", gc=False):
    """The life of one request, by its events. Latencies are functions of it, in `analysis.metrics`."""

    id: int
    arrived_ns: int
    admitted_ns: int | None = None
    """First admission to a slot. `None`: it never left the queue."""
    finished_ns: int
    finish_reason: FinishReason
    prompt_tokens: int
    hit_tokens: int = 0
    """Prompt tokens found in the prefix cache at the first admission."""
    emissions: tuple[Emission, ...] = ()
    drafted: int = 0
    accepted: int = 0
    preemptions: int = 0
    requeues: int = 0
    """Times a change of the configuration put it back."""
    invalid_output: bool = False
    error: str | None = None
    prompt: str | None = None
    """Stored only when asked (`--record-text`)."""
    output: str | None = None

    @property
    def output_tokens(self) -> int:
        return sum(e.tokens for e in self.emissions)

    @property
    def first_token_ns(self) -> int | None:
        return self.emissions[0].at_ns if self.emissions else None


class ConfigEvent(Record, frozen=True, kw_only=True, omit_defaults=True, tag="config"):
    """A change of the configuration, or the refusal of one."""

    at_ns: int
    epoch: int
    """The epoch that begins with it (unchanged when refused)."""
    kind: Literal["live", "rebuild", "refused"]
    by: Literal["user", "plan", "engine"] = "user"
    changes: dict[str, tuple[Setting, Setting]] = {}
    """Each setting that was (or would have been) changed: its value before and after."""
    reason: str | None = None
    """Why it was refused, or why a live change needed a rebuild."""
    duration_ns: int | None = None
    """How long the rebuild took, without the prefill of what it put back. `None` for the other kinds."""
    requeued: int = 0
    config: EngineConfig | None = None
    """The whole configuration in force afterwards. `None` when refused."""
    model: ModelSummary | None = None
    """The target's ledger figures, when the weights changed."""
    draft_model: ModelSummary | None = None
    """The same of the draft model, when that changed. `None` also when there is none any more."""


class TrafficEvent(Record, frozen=True, kw_only=True, omit_defaults=True, tag="traffic", gc=False):
    """A change of the load offered to the engine."""

    at_ns: int
    concurrency: int | None = None
    rate: float | None = None


class Mark(Record, frozen=True, kw_only=True, omit_defaults=True, tag="mark", gc=False):
    """A named instant."""

    at_ns: int
    label: str


class Log(Record, frozen=True, kw_only=True, omit_defaults=True, tag="log", gc=False):
    """A line that the engine process or the native library wrote."""

    at_ns: int
    text: str


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reading of one GPU. `None` is not known; `unknown` says why, where a reason is known."""

    uuid: str
    name: str
    index: int | None = None
    """As the driver counts."""
    is_used: bool = False
    """The engine runs on it."""
    is_lost: bool = False
    """It fell off the bus; the readings are those of nobody."""
    utilisation: float | None = None
    """Share of the time in which at least one kernel ran. It says nothing about how much of the GPU that used."""
    memory_busy: float | None = None
    """Share of the time in which memory was read or written. No bandwidth can be derived from it."""
    sm_active: float | None = None
    tensor_active: float | None = None
    occupancy: float | None = None
    dram_share: float | None = None
    """Of the theoretical DRAM bandwidth, by the GPU's own counters (GPM)."""
    peak_bytes_per_s: float | None = None
    """Theoretical DRAM bandwidth, from clock and bus width."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    is_memory_shared: bool = False
    """Memory is the machine's own, shared with the processor."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    """Reasons in force, in words; empty: none."""
    pcie_read_bytes_per_s: float | None = None
    pcie_write_bytes_per_s: float | None = None
    unknown: dict[str, str] = {}
    """Why a reading is missing, by field."""

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Measured DRAM traffic."""
        if self.dram_share is None or self.peak_bytes_per_s is None:
            return None
        return self.dram_share * self.peak_bytes_per_s


class HardwareSample(Record, frozen=True, kw_only=True, omit_defaults=True, tag="hardware"):
    """One reading of the machine. Every reading is optional; `late_ns` is the sampler's own error."""

    at_ns: int
    late_ns: int = 0
    cost_ns: int | None = None
    """CPU time that taking this sample took."""
    cpu_percent: float | None = None
    """Of all the machine's logical cores together, since the sample before."""
    cores: int | None = None
    """Logical cores that this stands for."""
    frequency_mhz: float | None = None
    rss_bytes: int | None = None
    """Of the engine process."""
    memory_available_bytes: int | None = None
    memory_total_bytes: int | None = None
    engine_cpu_ns: int | None = None
    """CPU time of the engine process, all threads, since it began."""
    own_cpu_ns: int | None = None
    """CPU time of Stackscope's own process since it began."""
    recorder_cpu_ns: int | None = None
    cpu_pressure: float | None = None
    """Share of the last ten seconds in which something runnable waited for a core (PSI)."""
    throttled_share: float | None = None
    """Share of control-group periods since the sample before in which the quota held it up."""
    gpus: tuple[GpuSample, ...] | None = None
    """`None`: nobody looked. Empty: there are none."""
    unknown: dict[str, str] = {}
    """Why a reading is missing, by field."""


class TensorClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tensors of one role and type, summed: what a forward reads of the weights."""

    role: Literal["embedding", "head", "attention", "ffn", "expert", "norm", "recurrent", "other"]
    type: str
    layer: int | None = None
    """`None` for tensors outside the blocks."""
    elements: int
    bytes: int
    is_matrix: bool = True
    """Multiplied by activations (counts FLOPs); biases and norms are not."""


class LayerSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attention geometry of one block."""

    heads: int
    kv_heads: int
    """0: no attention KV in this layer (a recurrent one)."""
    key_length: int
    value_length: int
    window: int | None = None
    """Sliding window in tokens. `None`: full attention."""
    shares_kv: bool = False
    """Reads an earlier layer's KV and stores none."""
    recurrent_state: int = 0
    """f32 elements of recurrent state per sequence (n_embd_r + n_embd_s)."""
    mla_rank: int | None = None
    """Compressed KV width (kv_lora_rank + rope dims) when the layer is MLA; K only is stored then."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the ledger needs to know of a model: small enough for a session header."""

    name: str
    path: str
    architecture: str
    file_bytes: int
    tensor_bytes: int
    parameters: int
    vocabulary: int
    context: int
    embedding: int
    layers: tuple[LayerSummary, ...]
    tensors: tuple[TensorClass, ...]
    tied_head: bool = False
    """The head is the embedding matrix read whole."""
    experts: int = 0
    experts_used: int = 0
    sha256: str | None = None


class Header(Record, frozen=True, kw_only=True, omit_defaults=True, tag="header"):
    """First line of a session."""

    schema: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    """Always written: a default that is a value would be left out, and then read as the reader's own version."""
    stackscope: str
    started: str
    """Wall-clock time of the origin, ISO 8601 with offset."""
    host: str
    device: str
    source: Literal["engine", "attach", "replay"] = "engine"
    library: str | None = None
    """Inference library and build, with the CPU features it uses."""
    model: ModelSummary | None = None
    draft_model: ModelSummary | None = None
    config: EngineConfig | None = None
    workload: dict[str, object] = {}
    """What was asked of the traffic generator, its seed included."""
    cost_model: int = msgspec.field(default_factory=lambda: COST_MODEL_VERSION)
    """Version of the equations that turn records into bytes and FLOPs. Always written, as `schema` is."""
    capabilities: tuple[str, ...] = ()
    """What this source can know, e.g. `phases`, `cpu`, `prefix_cache`, `acceptance`."""
    records_text: bool = False


class Footer(Record, frozen=True, kw_only=True, omit_defaults=True, tag="footer", gc=False):
    """Last line of a session that ended in order; its absence means that the writer was killed."""

    at_ns: int
    reason: Literal["done", "interrupted", "engine-died", "error"]
    steps: int
    requests: int
    dropped_display: int = 0
    """Display items (never records) dropped because the reader was slow."""
    recorder_cpu_ns: int | None = None


AnyRecord: TypeAlias = (
    Header | StepRecord | RequestRecord | ConfigEvent | TrafficEvent | Mark | Log | HardwareSample | Footer
)
