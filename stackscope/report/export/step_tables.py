"""The tables of what the engine did: steps, and what each sequence did in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope.analysis.totals import PHASES
from stackscope.report.export.columns import Column, Table, field

if TYPE_CHECKING:
    from stackscope.analysis.account import Account
    from stackscope.records import SlotWork, StepRecord


class StepRow(NamedTuple):
    """What a row of `steps` is made from."""

    step: StepRecord
    idle_ns: int | None
    """Since the step before. `None`: that is not in the recording."""
    target: Account | None
    """What the target's forward cost. `None`: not known."""
    draft: Account | None


class WorkRow(NamedTuple):
    """What a row of `work` is made from."""

    n: int
    work: SlotWork


def _rows(row: StepRow, *, is_prefill: bool) -> int:
    return sum([work.new for work in row.step.work if (work.phase == "prefill") is is_prefill])


_PHASE_MEANINGS: Final = {
    "admit": "Commands, arrivals, the queue, prefix look-ups and the KV copies they need.",
    "draft": "Everything done to obtain drafts.",
    "build": "Deciding the batch and filling its arrays.",
    "decode": "The target's forward, until the backend has synchronised.",
    "sample": "Logits to tokens, and verification of drafts.",
    "commit": "Trimming rejected rows, extending histories, handing prefixes to the cache.",
    "emit": "Detokenising, stop strings, finishing requests.",
    "shadow": "Tracking what an optimisation that is off would have done.",
    "other": "The rest of the loop.",
}

_CACHE: Final = (
    ("lookups", "lookups", "Requests looked up in the prefix cache."),
    ("lookup_tokens", "tokens", "Prompt tokens that could have hit."),
    ("hit_tokens", "tokens", "Prompt tokens that did."),
    ("useful_hit_tokens", "tokens", "Of them, those that spared work never done before for that request."),
    ("blocks_read", "blocks", "Blocks of the prefix cache that hits read."),
    ("blocks_written", "blocks", "Blocks written."),
    ("blocks_evicted", "blocks", "Blocks evicted."),
    ("resident_blocks", "blocks", "Blocks held at the end of the step."),
    ("resident_paths", "paths", "Cached paths held at the end of the step."),
    ("shared_blocks", "blocks", "Of the blocks held, those that more than one path runs through."),
    ("missed_at", "tokens", "Prompt token at which the step's last look-up left what is cached; unknown: none missed."),
    ("copied_bytes", "B", "KV bytes really copied (split KV only)."),
)


def _account(name: str, unit: str, meaning: str, model: str, part: str) -> Column:
    """A part of what the forwards of one of the models cost. An expectation over experts makes bytes a fraction."""

    def cell(row: StepRow) -> float | None:
        account: Account | None = getattr(row, model)
        if account is None:
            return None
        return float(account.flops.total if part == "flops" else getattr(account, part))

    return Column(name, "float", unit, meaning, cell)


STEPS: Final = Table(
    "steps",
    "One turn of the engine loop: at most one forward of the target, and the draft forwards that fed it.",
    (
        field("n", "int", "", "Number of the step; counts from 0 within the session.", of="step.n"),
        field("epoch", "int", "", "Which configuration ran: changes applied before.", of="step.epoch"),
        field("start_ns", "int", "ns", "When it began, on the session's clock.", of="step.start_ns"),
        field("duration_ns", "int", "ns", "Wall time: the sum of the phases that follow.", of="step.duration_ns"),
        Column("idle_before_ns", "int", "ns", "Since the step before ended; unknown where that is not recorded.",
               lambda row: row.idle_ns),
        *(
            Column(f"{name}_ns", "int", "ns", f"Phase: {_PHASE_MEANINGS[name][0].lower()}{_PHASE_MEANINGS[name][1:]}",
                   lambda row, name=name: getattr(row.step.phases, name), "phases")  # type: ignore[misc]
            for name in PHASES
        ),
        field("cpu_ns", "int", "ns", "CPU time of the process during the decode phase; spinning counts.",
              of="step.cpu_ns", need="cpu"),
        Column("sequences", "int", "sequences", "Sequences in the target's forward.", lambda row: len(row.step.work)),
        Column("prefill_rows", "int", "rows", "Rows of prompt tokens.", lambda row: _rows(row, is_prefill=True)),
        Column("decode_rows", "int", "rows", "Rows of sequences that were decoding or verifying.",
               lambda row: _rows(row, is_prefill=False)),
        field("outputs", "int", "rows", "Rows for which logits were computed.", of="step.outputs"),
        Column("passes", "int", "passes", "Passes over the target's weights.", lambda row: len(row.step.passes)),
        field("emitted", "int", "tokens", "Tokens that entered outputs.", of="step.emitted"),
        Column("drafted", "int", "tokens", "Tokens that were drafted and verified.",
               lambda row: sum([work.drafted for work in row.step.work]), "acceptance"),
        Column("accepted", "int", "tokens", "Of them, those that verification kept; the bonus token is not among them.",
               lambda row: sum([work.accepted for work in row.step.work]), "acceptance"),
        Column("draft_forwards", "int", "forwards", "Forwards of the draft model.", lambda row: len(row.step.draft)),
        Column("draft_rows", "int", "rows", "Rows of those forwards.",
               lambda row: sum([new for forward in row.step.draft for _, new in forward.spans])),
        field("queue", "int", "requests", "Requests waiting when the forward began.", of="step.queue", need="slots"),
        field("slots_busy", "int", "slots", "Slots that held a request.", of="step.slots_busy", need="slots"),
        field("slots", "int", "slots", "Slots that there were.", of="step.slots", need="slots"),
        field("kv_cells", "int", "tokens", "Occupied cells of the KV cache after the step, cached prefixes included.",
              of="step.kv_cells"),
        *(
            Column(name, "int", unit, meaning, lambda row, name=name: getattr(row.step.cache, name),  # type: ignore[misc]
                   "prefix_cache")
            for name, unit, meaning in _CACHE
        ),
        field("preempted", "int", "requests", "Requests that lost their slot because the KV cache was full.",
              of="step.preempted"),
        field("aborted", "bool", "", "The forward was cut short; its rows were redone, and nothing was emitted.",
              of="step.aborted"),
        field("settling", "bool", "", "The after-effects of a change were still being paid.", of="step.settling"),
        field("invalid_output", "bool", "", "Acceptance was synthetic: times are meaningful, text is not.",
              of="step.invalid_output"),
        Column("delayed_phase", "text", "", "The phase that a causal probe delayed; unknown: the step was left alone.",
               lambda row: None if row.step.delay is None else row.step.delay.phase),
        Column("delay_ns", "int", "ns", "By how much; part of that phase's time.",
               lambda row: None if row.step.delay is None else row.step.delay.ns),
        _account("target_weight_bytes", "B", "Weights that the target's forward read, by the ledger; like all that"
                 " follows unknown for a forward that was cut short, or a model of unknown geometry.", "target",
                 "weight_bytes"),
        _account("target_kv_bytes", "B", "KV cache that it read and wrote.", "target", "kv_bytes"),
        _account("target_bytes", "B", "All bytes of its ledger, activations left out.", "target", "total_bytes"),
        _account("target_flops", "FLOP", "Operations that it executed.", "target", "flops"),
        _account("draft_bytes", "B", "All bytes of the draft model's forwards.", "draft", "total_bytes"),
        _account("draft_flops", "FLOP", "Their operations.", "draft", "flops"),
    ),
)  # fmt: skip

WORK: Final = Table(
    "work",
    "What one sequence did in one forward of the target.",
    (
        field("step", "int", "", "The step: `n` of `steps`.", of="n"),
        field("request", "int", "", "The request: `id` of `requests`.", of="work.request"),
        field("slot", "int", "", "The slot that held it.", of="work.slot"),
        field("phase", "text", "", "`prefill`, `decode` or `verify` (a decode with a draft).", of="work.phase"),
        field("new", "int", "rows", "Rows fed: prompt tokens, or 1 + drafted.", of="work.new"),
        field("cached", "int", "tokens", "Tokens of it in the KV cache before.", of="work.cached"),
        field("drafted", "int", "tokens", "Tokens drafted for it.", of="work.drafted", need="acceptance"),
        field("accepted", "int", "tokens", "Of them, those that verification kept.", of="work.accepted",
              need="acceptance"),
        field("emitted", "int", "tokens", "Tokens that entered its output.", of="work.emitted"),
        field("outputs", "int", "rows", "Rows for which logits were computed.", of="work.outputs"),
    ),
)  # fmt: skip
