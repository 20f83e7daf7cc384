"""The tables of requests, of the machine, of events, and of the session itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stackscope.analysis.metrics.latency import EndToEnd, QueueTime, TimePerOutputToken, TimeToFirstToken
from stackscope.report.export.columns import Column, Kind, Table, as_json, field, json_or_unknown

if TYPE_CHECKING:
    from stackscope.analysis.metrics.base import RequestMetric
    from stackscope.records import Emission, GpuSample, Header, RequestRecord


class EmissionRow(NamedTuple):
    """What a row of `emissions` is made from."""

    request: int
    emission: Emission


class GpuRow(NamedTuple):
    """What a row of `gpus` is made from."""

    at_ns: int
    gpu: GpuSample


class SessionRow(NamedTuple):
    """What the row of `session` is made from."""

    header: Header
    ended: str | None
    truncated: str | None


def _latency(name: str, metric: RequestMetric, meaning: str) -> Column:
    def cell(request: RequestRecord) -> float | None:
        values = metric.values(request)
        return float(values[0]) if values else None

    return Column(name, "float", metric.unit, meaning, cell)


REQUESTS: Final = Table(
    "requests",
    "One finished request.",
    (
        field("id", "int", "", "Its number within the session."),
        field("arrived_ns", "int", "ns", "When it arrived."),
        field("admitted_ns", "int", "ns", "When it first had a slot; unknown: it never left the queue."),
        field("first_token_ns", "int", "ns", "When its first token left; unknown: none did."),
        field("finished_ns", "int", "ns", "When it ended."),
        field("finish_reason", "text", "", "`eos`, `length`, `context`, `stop`, `cancelled` or `error`."),
        _latency("queue_ns", QueueTime(), "First admission − arrival."),
        _latency("ttft_ns", TimeToFirstToken(), "First emission − arrival."),
        _latency("tpot_ns", TimePerOutputToken(), "(Last − first emission) ÷ (output tokens − 1); unknown below two."),
        _latency("e2e_ns", EndToEnd(), "End − arrival."),
        field("prompt_tokens", "int", "tokens", "Tokens of its prompt."),
        field("hit_tokens", "int", "tokens", "Of them, those found in the prefix cache.", need="prefix_cache"),
        field("output_tokens", "int", "tokens", "Tokens of its output."),
        field("drafted", "int", "tokens", "Tokens drafted for it.", need="acceptance"),
        field("accepted", "int", "tokens", "Of them, those that verification kept.", need="acceptance"),
        field("preemptions", "int", "times", "Times that it lost its slot because the KV cache was full."),
        field("requeues", "int", "times", "Times that a change of the configuration put it back."),
        field("invalid_output", "bool", "", "Acceptance was synthetic: its text is not the model's."),
        field("error", "text", "", "Why it failed."),
        field("prompt", "text", "", "Its text, where that was recorded."),
        field("output", "text", "", "What it answered, where that was recorded."),
    ),
)

EMISSIONS: Final = Table(
    "emissions",
    "Tokens of one request that left the engine together; their gaps are the step gaps.",
    (
        field("request", "int", "", "The request: `id` of `requests`."),
        field("step", "int", "", "The step that made them: `n` of `steps`.", of="emission.step"),
        field("at_ns", "int", "ns", "When they left.", of="emission.at_ns"),
        field("tokens", "int", "tokens", "How many.", of="emission.tokens"),
    ),
)

_Plain = tuple[str, Kind, str, str]

_HARDWARE: Final[tuple[_Plain, ...]] = (
    ("at_ns", "int", "ns", "When it was taken."),
    ("late_ns", "int", "ns", "How much later than planned."),
    ("cost_ns", "int", "ns", "CPU time that taking it took."),
    ("cpu_percent", "float", "%", "Of all logical cores together, since the sample before."),
    ("cores", "int", "cores", "Logical cores that this stands for."),
    ("frequency_mhz", "float", "MHz", "Clock of the processor."),
    ("rss_bytes", "int", "B", "Resident memory of the engine process."),
    ("memory_available_bytes", "int", "B", "Memory that could still be had."),
    ("memory_total_bytes", "int", "B", "Memory of the machine."),
    ("engine_cpu_ns", "int", "ns", "CPU time of the engine process since it began."),
    ("own_cpu_ns", "int", "ns", "CPU time of Stackscope's own process since it began."),
    ("recorder_cpu_ns", "int", "ns", "CPU time of recording."),
    ("cpu_pressure", "float", "1", "Share of the last ten seconds in which something waited for a core (PSI)."),
    ("throttled_share", "float", "1", "Share of control-group periods in which the quota held it up."),
    ("io_pressure", "float", "1", "Share of the last ten seconds in which something waited for a disk (PSI)."),
    ("memory_pressure", "float", "1", "The same for memory."),
    ("swap_used_bytes", "int", "B", "Of the machine's swap space."),
    ("swap_bytes_per_s", "float", "B/s", "In and out, since the sample before."),
    ("major_faults_per_s", "float", "1/s", "Pages of the engine that had to come from a disk."),
    ("involuntary_switches_per_s", "float", "1/s", "Times that a thread of the engine lost its core."),
    ("package_power_w", "float", "W", "Of all processor packages (RAPL)."),
    ("dram_bytes_per_s", "float", "B/s", "Between memory and processors, measured."),
)

_GPU: Final[tuple[_Plain, ...]] = (
    ("uuid", "text", "", "Which GPU; empty: the driver does not tell."),
    ("name", "text", "", "Its model."),
    ("index", "int", "", "As the driver counts."),
    ("pci_id", "text", "", "Its place on the bus."),
    ("instance_of", "text", "", "UUID of the GPU that this is a MIG instance of."),
    ("is_used", "bool", "", "The engine runs on it."),
    ("is_lost", "bool", "", "It fell off the bus."),
    ("age_ns", "int", "ns", "How long ago the driver had been asked."),
    ("took_ns", "int", "ns", "How long the driver took to answer."),
    ("utilisation", "float", "1", "Share of the time in which any kernel ran."),
    ("memory_busy", "float", "1", "Share of the time in which memory was used. No bandwidth."),
    ("is_gpm_live", "bool", "", "Its own performance counters answer."),
    ("sm_active", "float", "1", "Share of SM cycles with work."),
    ("tensor_active", "float", "1", "Share of cycles in which tensor cores worked."),
    ("occupancy", "float", "1", "Warps ÷ the most that would fit."),
    ("dram_share", "float", "1", "Of the theoretical DRAM bandwidth, measured."),
    ("dram_bytes_per_s", "float", "B/s", "DRAM traffic, measured: share × peak."),
    ("peak_bytes_per_s", "float", "B/s", "Theoretical DRAM bandwidth."),
    ("peak_from", "text", "", "Where the peak comes from."),
    ("memory_used_bytes", "int", "B", "Memory in use."),
    ("memory_total_bytes", "int", "B", "Memory that it has."),
    ("is_memory_shared", "bool", "", "Its memory is the machine's own."),
    ("engine_memory_bytes", "int", "B", "Held by the engine process."),
    ("process_memory_bytes", "int", "B", "Held by all processes that compute."),
    ("processes", "int", "processes", "Processes that compute on it."),
    ("processes_outside", "int", "processes", "Of them, those outside this process's namespace."),
    ("sm_clock_mhz", "float", "MHz", "Clock of its processors."),
    ("memory_clock_mhz", "float", "MHz", "Clock of its memory."),
    ("power_w", "float", "W", "Power drawn."),
    ("power_limit_w", "float", "W", "Power allowed."),
    ("energy_j", "float", "J", "Since the driver was loaded."),
    ("temperature_c", "float", "°C", "Of the chip."),
    ("memory_temperature_c", "float", "°C", "Of its memory."),
    ("fan_share", "float", "1", "Of the fan's full speed."),
    ("pcie_read_bytes_per_s", "float", "B/s", "Into the GPU."),
    ("pcie_write_bytes_per_s", "float", "B/s", "Out of it."),
    ("nvlink_read_bytes_per_s", "float", "B/s", "The same over NVLink."),
    ("nvlink_write_bytes_per_s", "float", "B/s", "The same over NVLink."),
)


_WHY: Final = Column("unknown", "text", "", "Why readings are missing, by column, as JSON.",
                     lambda row: as_json(getattr(row, "gpu", row).unknown))  # fmt: skip

HARDWARE: Final = Table("hardware", "One reading of the machine.", (*(field(*plain) for plain in _HARDWARE), _WHY))

GPUS: Final = Table(
    "gpus",
    "One reading of one GPU.",
    (
        field("at_ns", "int", "ns", "When the sample was taken: `at_ns` of `hardware`."),
        *(field(*plain, of=f"gpu.{plain[0]}") for plain in _GPU),
        Column("throttle", "text", "", "Why its clocks are held down, as a JSON list.",
               lambda row: json_or_unknown(row.gpu.throttle)),
        Column("throttled", "text", "", "Share of the last second in which each reason did, as JSON.",
               lambda row: json_or_unknown(row.gpu.throttled)),
        _WHY,
    ),
)  # fmt: skip


def _maybe(name: str, kind: Kind, unit: str, meaning: str) -> Column:
    """A column that only some of the records of a table have."""
    return Column(name, kind, unit, meaning, lambda row: getattr(row, name, None))


def _event_kind(event: Any) -> str:
    tag = str(type(event).__struct_config__.tag)
    return str(event.kind) if tag == "config" else tag


def _event_text(event: Any) -> str | None:
    found = next((getattr(event, name) for name in ("label", "text", "reason") if hasattr(event, name)), None)
    return None if found is None else str(found)


EVENTS: Final = Table(
    "events",
    "A change of the configuration or of the load, the refusal of one, a mark, or a line that the engine wrote.",
    (
        field("at_ns", "int", "ns", "When it happened."),
        Column("kind", "text", "", "`live`, `rebuild`, `refused` (configuration), `traffic`, `mark` or `log`.",
               _event_kind),
        _maybe("epoch", "int", "", "The epoch that begins with it."),
        _maybe("by", "text", "", "`user`, `plan` or `engine`."),
        Column("changes", "text", "", "Each setting with its value before and after, as JSON.",
               lambda row: json_or_unknown(getattr(row, "changes", None))),
        Column("text", "text", "", "A mark's name, the line that was written, why it was refused or took a rebuild.",
               _event_text),
        _maybe("duration_ns", "int", "ns", "How long the rebuild took."),
        _maybe("requeued", "int", "requests", "Requests that the rebuild put back."),
        _maybe("concurrency", "int", "requests", "Requests offered at a time from then on."),
        _maybe("rate", "float", "1/s", "Requests offered per second from then on."),
        Column("config", "text", "", "The whole configuration in force afterwards, as JSON.",
               lambda row: json_or_unknown(getattr(row, "config", None))),
    ),
)  # fmt: skip


SESSION: Final = Table(
    "session",
    "The session itself: one row.",
    (
        field("started", "text", "", "Wall-clock time of the origin of the session's clock.", of="header.started"),
        field("stackscope", "text", "", "Version that recorded it.", of="header.stackscope"),
        field("schema", "int", "", "Version of the recording's format.", of="header.schema"),
        field("cost_model", "int", "", "Version of the equations of the ledger.", of="header.cost_model"),
        field("source", "text", "", "`engine`, `attach` or `replay`.", of="header.source"),
        field("host", "text", "", "Name of the machine.", of="header.host"),
        field("device", "text", "", "What computed.", of="header.device"),
        field("library", "text", "", "Inference library and build.", of="header.library"),
        Column("model", "text", "", "The target.", lambda row: _name_of(row.header.model)),
        Column("draft_model", "text", "", "The draft model.", lambda row: _name_of(row.header.draft_model)),
        Column("workload", "text", "", "What was asked of the traffic generator, as JSON.",
               lambda row: as_json(row.header.workload)),
        Column("config", "text", "", "The configuration at the start, as JSON.",
               lambda row: json_or_unknown(row.header.config)),
        Column("capabilities", "text", "", "What the source can know, as a JSON list.",
               lambda row: as_json(row.header.capabilities)),
        field("ended", "text", "", "How it ended; unknown: it was killed, or goes on."),
        field("truncated", "text", "", "Why reading it ended early; unknown: it did not."),
    ),
)  # fmt: skip


def _name_of(model: Any) -> str | None:
    return None if model is None else str(model.name)
