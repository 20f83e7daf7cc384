"""The tables of what was predicted and probed, and of what optimisations that were off would have done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.report.export.columns import Column, Table, as_json, field

if TYPE_CHECKING:
    from stackscope.records import DraftShadow, Estimate, LengthCounts, Prediction


class ShadowRow(NamedTuple):
    """What a row of `draft_shadows` is made from."""

    shadow: DraftShadow
    counts: LengthCounts


def _bound(quantity: str, end: str) -> Column:
    what = {"tokens": "tokens per second", "ttft": "time to the first token", "step_gap": "time between emissions"}
    told = {"value": "Predicted ratio (after ÷ before) of the {}.", "low": "Low end of its 90 % interval.",
            "high": "High end of it."}  # fmt: skip

    def cell(row: Prediction) -> float | None:
        estimate: Estimate | None = getattr(row, quantity)
        return None if estimate is None else float(getattr(estimate, end))

    return Column(f"{quantity}_{end}", "float", "1", told[end].format(what[quantity]), cell)


PREDICTIONS: Final = Table(
    "predictions",
    "What a change was predicted to do, made before it.",
    (
        field("at_ns", "int", "ns", "When it was predicted."),
        Column("changes", "text", "", "Each setting with its value before and after, as JSON.",
               lambda row: as_json(row.changes)),
        *(_bound(quantity, end) for quantity in ("tokens", "ttft", "step_gap") for end in ("value", "low", "high")),
        field("memory_bytes", "int", "B", "Predicted change of what models and contexts take."),
        field("bottleneck", "text", "", "What was expected to limit afterwards."),
        field("reason", "text", "", "Why, in a sentence."),
        field("cost_model", "int", "", "Version of the equations."),
    ),
)  # fmt: skip

PROBES: Final = Table(
    "probes",
    "A small fixed piece of work timed between two steps: what the machine could do just then.",
    (
        field("at_ns", "int", "ns", "When it ran."),
        field("read_bytes_per_s", "float", "B/s", "Reading memory beyond the caches with one thread."),
        field("compute_per_s", "float", "1/s", "Repetitions of a fixed computation inside the cache."),
        field("cpu_share", "float", "1", "CPU time ÷ wall time while it ran."),
    ),
)

DRAFT_SHADOWS: Final = Table(
    "draft_shadows",
    "What drafts of one source and length would have had accepted, scored on the tokens that came.",
    (
        field("at_ns", "int", "ns", "When it was counted; since the row before of that source and length.",
              of="shadow.at_ns"),
        field("epoch", "int", "", "Which configuration ran.", of="shadow.epoch"),
        field("source", "text", "", "`ngram` or `draft`.", of="shadow.source"),
        field("requests", "int", "requests", "Requests that were followed.", of="shadow.requests"),
        field("tokens", "int", "tokens", "Generated tokens that were scored.", of="shadow.tokens"),
        field("cpu_ns", "int", "ns", "What it cost, over all lengths.", of="shadow.cpu_ns"),
        field("length", "int", "tokens", "Tokens drafted at most per round.", of="counts.length"),
        field("rounds", "int", "rounds", "Target forwards that those tokens would have taken.", of="counts.rounds"),
        field("covered", "int", "rounds", "Rounds in which there was something to draft.", of="counts.covered"),
        field("drafted", "int", "tokens", "Tokens that would have been drafted.", of="counts.drafted"),
        field("accepted", "int", "tokens", "Of them, those that are in the output.", of="counts.accepted"),
        field("without_bonus", "int", "rounds", "Rounds without a bonus token: an output ended with their drafts.",
              of="counts.without_bonus"),
        field("full", "int", "rounds", "Rounds whose draft was as long as it may be, and judged.", of="counts.full"),
        field("whole", "int", "rounds", "Of them, those whose every token was accepted.", of="counts.whole"),
    ),
)  # fmt: skip

PREFIX_SHADOWS: Final = Table(
    "prefix_shadows",
    "What a prefix cache would have found for the requests that were admitted, since the row before.",
    (
        field("at_ns", "int", "ns", "When it was counted."),
        field("epoch", "int", "", "Which configuration ran."),
        field("capacity_tokens", "int", "tokens", "Tokens that it might have held; unknown: without limit."),
        field("requests", "int", "requests", "Requests that were admitted."),
        field("lookup_tokens", "int", "tokens", "Prompt tokens that could have hit."),
        field("hit_tokens", "int", "tokens", "Of them, those that would have."),
        field("useful_hit_tokens", "int", "tokens", "Of them, those that would have spared work never done before."),
        field("evicted_blocks", "int", "blocks", "Blocks that would have been evicted."),
        field("cpu_ns", "int", "ns", "What it cost."),
    ),
)
