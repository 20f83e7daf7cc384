"""What a machine does at most for one model, as `stackscope calibrate` measured it with the engine's own kernels."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from stackscope.toggles import KvType

if TYPE_CHECKING:
    from stackscope.toggles import EngineConfig

Place: TypeAlias = Literal["memory", "cache"]
"""Where what is read lies: beyond the last cache, or small enough to stay in it."""

CURVE_ROWS: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 512)
"""Rows of the curve of forward times. On a CPU it is a saw-tooth: kernels take rows by four, and what is left over one
by one."""


class Measured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A quantity that was measured repeatedly."""

    value: float
    """Median of the samples of a duration or a cost; of reading and products, which are what the machine does at most,
    the median of the best three."""
    spread: float | None = None
    """How stable it was: interquartile range ÷ median, or range of the best three ÷ their median. `None`: there was one
    sample."""
    n: int = 1
    """Samples that there were."""


class ReadRate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Bytes per second of reading and doing hardly anything else: a lower bound of what the hardware can."""

    place: Place
    set_bytes: int
    """What was read over and over."""
    bytes_per_s: Measured


class TypeRate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How fast matrices of one storage type are multiplied, with the model's own matrices."""

    type: str
    place: Place
    """Where the matrices lay when they were multiplied by one row."""
    vector_bytes_per_s: Measured | None = None
    """Weights read per second, at one row (GEMV)."""
    vector_flops_per_s: Measured | None = None
    matrix_flops_per_s: Measured | None = None
    """At `matrix_rows` rows (GEMM)."""
    matrix_rows: int = 0


class ForwardTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How long one forward takes: rows spread evenly over sequences that have `cached` tokens each."""

    rows: int
    sequences: int
    outputs: int
    cached: int = 0
    others: int = 0
    """Cells that other sequences occupied."""
    ns: Measured

    @property
    def cells(self) -> int:
        """Occupied cells of the cache at the end."""
        return self.sequences * self.cached + self.rows + self.others

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """(cached, new) tokens of each sequence, as the ledger takes them."""
        return ((self.cached, self.rows // self.sequences),) * self.sequences


class CacheKind(msgspec.Struct, frozen=True, kw_only=True):
    """How keys and values are kept, and gone through."""

    kv_type_k: KvType
    kv_type_v: KvType
    flash_attention: bool

    @property
    def described(self) -> str:
        """In words."""
        types = self.kv_type_k if self.kv_type_k == self.kv_type_v else f"{self.kv_type_k}/{self.kv_type_v}"
        return f"KV in {types}" if self.flash_attention else f"KV in {types}, attention not fused"


class OtherCache(msgspec.Struct, frozen=True, kw_only=True):
    """Forwards of the same model with another kind of cache."""

    kind: CacheKind
    contexts: tuple[ForwardTime, ...]
    """Of few rows, by cached tokens."""


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Moving the KV of one sequence out of a context and into one, in memory, without any link between."""

    tokens: int
    state_bytes: int
    save_bytes_per_s: Measured
    load_bytes_per_s: Measured

    @property
    def bytes_per_s(self) -> float:
        """Of both, one after the other."""
        return 1.0 / (1.0 / self.save_bytes_per_s.value + 1.0 / self.load_bytes_per_s.value)


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The most that was measured of something, and by what."""

    value: float
    """Per second."""
    kind: Literal["forward", "memory", "cache"]
    """`forward`: whole forwards of the model. Else reading alone, from there."""
    rows: int | None = None
    """Of those forwards."""
    spread: float | None = None
    measured: str | None = None
    """When an earlier calibration of the same conditions reached it, ISO 8601. `None`: it is of this one."""


class Limits(NamedTuple):
    """What a session can be held against."""

    compute: Ceiling | None
    bandwidth: Ceiling | None


class Conditions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ceilings depend on: those of other conditions are not comparable."""

    machine: str
    """Name, processor and usable cores."""
    library: str
    """Inference library and build, with the CPU features it uses."""
    model: str
    """Name of the target's file."""
    model_bytes: int
    model_mtime_ns: int
    """When the file was last changed, in nanoseconds since 1970."""
    threads: int
    kv_type_k: str
    kv_type_v: str
    flash_attention: bool
    unified_kv: bool
    swa_full: bool
    placement: str
    """What of the model goes to which GPU, as far as the build can."""
    waiting: str
    """How the engine's threads wait for each other and where they are bound."""

    def hold_for(self, config: EngineConfig) -> bool:
        """Whether a configuration on the same machine, with the same library and files, is the one measured."""
        return (
            self.names_model(config)
            and self.has_cores(config)
            and all(getattr(config, name) == getattr(self, name) for name in _SETTINGS)
        )

    def names_model(self, config: EngineConfig) -> bool:
        """The target is the one measured, as far as its name says."""
        return PurePath(config.model).name == self.model

    def has_cores(self, config: EngineConfig) -> bool:
        """It computes in the same place, with as many threads."""
        return config.threads in (self.threads, None) and placement(config) == self.placement


_SETTINGS = ("kv_type_k", "kv_type_v", "flash_attention", "unified_kv", "swa_full")


def placement(config: EngineConfig) -> str:
    """What of the model goes to which GPU, as far as the build can."""
    split = ",".join(f"{share:g}" for share in config.tensor_split)
    return f"layers {config.gpu_layers}, gpu {config.main_gpu}, split {config.split_mode} {split}".rstrip()


class Ceilings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that was measured. What is missing has its reason in `unknown`."""

    conditions: Conditions
    measured: str
    """Wall-clock time, ISO 8601 with offset."""
    stackscope: str
    is_full: bool = False
    duration_ns: int = 0
    foreign_share: float | None = None
    """Share of one CPU that others took meanwhile. `None`: this system does not say."""
    is_quiet: bool = False
    """Others left the machine alone, and that is known."""
    cache_bytes: int | None = None
    """Last level of the processor's caches. `None`: not told, or the model is on a GPU."""
    fits_cache: bool | None = None
    """What a forward of one row reads of the target stays in that cache."""
    draft_fits_cache: bool | None = None
    reads: tuple[ReadRate, ...] = ()
    types: tuple[TypeRate, ...] = ()
    forwards: tuple[ForwardTime, ...] = ()
    """At empty contexts, by rows. Up to the rows that a batch of decodes can have, every row has an output; those with
    one output are prefills."""
    contexts: tuple[ForwardTime, ...] = ()
    """Of few rows, by cached tokens; those of an empty sequence with `others` passed over cells of another one."""
    other_caches: tuple[OtherCache, ...] = ()
    context_ns_per_token: Measured | None = None
    """What each cached token of full attention adds to the forward of one row."""
    kv_read_bytes_per_s: Measured | None = None
    """Rate at which cached keys and values are gone through: what the ledger counts ÷ the time it adds."""
    fixed_ns: float | None = None
    """What a forward of one row takes beside its matrices at the rates of `types`."""
    draft: str | None = None
    """Name of the draft model's file. `None`: there was none."""
    draft_forwards: tuple[ForwardTime, ...] = ()
    rebuild_ns: Measured | None = None
    """Making the contexts anew, the models staying loaded."""
    load_ns: Measured | None = None
    """Loading the target again, its file being in memory."""
    handoff: Handoff | None = None
    compute: Ceiling | None = None
    """FLOP/s."""
    bandwidth: Ceiling | None = None
    """Bytes per second."""
    unknown: dict[str, str] = {}
    """Why something is missing, by what it is."""

    @property
    def is_busy(self) -> bool:
        """Others are known to have disturbed the measurement."""
        return self.foreign_share is not None and not self.is_quiet

    def limits(self, config: EngineConfig) -> Limits:
        """The ceilings that still hold under a configuration of the same machine.

        Types of the KV cache and the way of attention leave them as they are; another target has its own, but for what
        reading memory alone reached; another number of threads has none. What a busy machine reached is no ceiling.
        """
        if self.is_busy or not self.conditions.has_cores(config):
            return Limits(None, None)
        if self.conditions.names_model(config):
            return Limits(self.compute, self.bandwidth)
        memory = next((read.bytes_per_s for read in self.reads if read.place == "memory"), None)
        if memory is None:
            return Limits(None, None)
        return Limits(None, Ceiling(value=memory.value, kind="memory", spread=memory.spread))

    def why_no_limits(self, config: EngineConfig) -> str | None:
        """Why what was measured does not count under a configuration, with the remedy. `None`: it does."""
        if self.is_busy:
            return (
                "the ceiling was measured on a busy machine and does not count: stackscope calibrate, when it is quiet"
            )
        if not self.conditions.has_cores(config):
            return "the ceiling was measured with other threads or another placement: stackscope calibrate"
        if not self.conditions.names_model(config):
            return "the ceiling was measured with another model: stackscope calibrate"
        return None
