"""The tables of requests, and of what they emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.analysis.metrics.latency import EndToEnd, QueueTime, TimePerOutputToken, TimeToFirstToken
from stackscope.report.export.columns import Column, Table, field

if TYPE_CHECKING:
    from stackscope.analysis.metrics.base import RequestMetric
    from stackscope.records import Emission, RequestRecord


class EmissionRow(NamedTuple):
    """What a row of `emissions` is made from."""

    request: int
    emission: Emission


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
