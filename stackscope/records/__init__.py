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

from stackscope.records.base import Natural, Record
from stackscope.records.ceilings import Ceiling, Ceilings
from stackscope.records.explaining import (
    Cause,
    DraftKind,
    DraftShadow,
    Estimate,
    Finding,
    LengthCounts,
    Prediction,
    PrefixShadow,
    Probe,
)
from stackscope.records.hardware import GpuSample, HardwareSample
from stackscope.records.model import LayerSummary, ModelSummary, TensorClass
from stackscope.records.steps import (
    CacheCounters,
    Delay,
    DelayedPhase,
    DraftForward,
    Phases,
    SlotWork,
    StepRecord,
    Ubatch,
    WorkPhase,
)
from stackscope.toggles import EngineConfig, Setting

__all__ = [
    "COST_MODEL_VERSION",
    "SCHEMA_VERSION",
    "AnyRecord",
    "CacheCounters",
    "Cause",
    "Ceiling",
    "Ceilings",
    "ConfigEvent",
    "Delay",
    "DelayedPhase",
    "DraftForward",
    "DraftKind",
    "DraftShadow",
    "Emission",
    "Estimate",
    "Finding",
    "FinishReason",
    "Footer",
    "GpuSample",
    "HardwareSample",
    "Header",
    "LayerSummary",
    "LengthCounts",
    "Log",
    "Mark",
    "ModelSummary",
    "Phases",
    "Prediction",
    "PrefixShadow",
    "Probe",
    "Record",
    "RequestRecord",
    "SlotWork",
    "StepRecord",
    "TensorClass",
    "TrafficEvent",
    "Ubatch",
    "WorkPhase",
]

SCHEMA_VERSION: Final = 1
COST_MODEL_VERSION: Final = 1

FinishReason: TypeAlias = Literal["eos", "length", "context", "stop", "cancelled", "error"]


class Emission(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens of one request that left the engine together."""

    step: Natural
    at_ns: Natural
    tokens: Natural


class RequestRecord(Record, frozen=True, kw_only=True, omit_defaults=True, tag="request", gc=False):
    """The life of one request, by its events. Latencies are functions of it, in `analysis.metrics`."""

    id: Natural
    arrived_ns: Natural
    admitted_ns: Natural | None = None
    """First admission to a slot. `None`: it never left the queue."""
    finished_ns: Natural
    finish_reason: FinishReason
    prompt_tokens: Natural
    hit_tokens: Natural = 0
    """Prompt tokens found in the prefix cache at the first admission."""
    emissions: tuple[Emission, ...] = ()
    drafted: Natural = 0
    accepted: Natural = 0
    preemptions: Natural = 0
    requeues: Natural = 0
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
    changes: dict[str, tuple[Setting, Setting]] = msgspec.field(default_factory=dict)
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


class Header(Record, frozen=True, kw_only=True, omit_defaults=True, tag="header"):
    """First line of a session."""

    schema: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    """Always written: a default that is a value would be left out, and then read as the reader's own version."""
    stackscope: str
    started: str
    """Wall-clock time of the origin, ISO 8601 with offset."""
    host: str
    device: str
    cores: int | None = None
    """Physical cores that the engine may keep busy. `None`: not known, as in recordings of before it was noted."""
    source: Literal["engine", "attach", "replay"] = "engine"
    library: str | None = None
    """Inference library and build, with the CPU features it uses."""
    model: ModelSummary | None = None
    draft_model: ModelSummary | None = None
    config: EngineConfig | None = None
    workload: dict[str, object] = msgspec.field(default_factory=dict)
    """What was asked of the traffic generator, its seed included."""
    cost_model: int = msgspec.field(default_factory=lambda: COST_MODEL_VERSION)
    """Version of the equations that turn records into bytes and FLOPs. Always written, as `schema` is."""
    capabilities: tuple[str, ...] = ()
    """What this source can know, e.g. `phases`, `cpu`, `prefix_cache`, `acceptance`."""
    records_text: bool = False
    ceilings: Ceilings | None = None
    """What this machine does at most with this target and configuration. `None`: not measured."""
    other_ceilings: tuple[Ceilings, ...] = ()
    """The same under other conditions of this machine and build (other weights, KV types, threads): what predictions of
    such changes start from."""


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
    Header
    | StepRecord
    | RequestRecord
    | ConfigEvent
    | TrafficEvent
    | Mark
    | Log
    | HardwareSample
    | DraftShadow
    | PrefixShadow
    | Probe
    | Prediction
    | Footer
)
