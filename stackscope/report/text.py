"""The summary of a run as text: how fast, how evenly, where the time went, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.analysis.metrics import cost, counts, latency, load, speculation, time
from stackscope.analysis.totals import SPELLED
from stackscope.report import explained
from stackscope.report.epochs import epochs
from stackscope.report.layout import LABEL_WIDTH, aligned, bar, columns, hang, row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.analysis.distribution import Spread
    from stackscope.analysis.explainer import Explanation
    from stackscope.analysis.summary import RunResult, Summary
    from stackscope.records import FinishReason, Header
    from stackscope.toggles import EngineConfig

BAR_WIDTH: Final = 40
LATENCIES: Final = (
    latency.TimeToFirstToken,
    latency.TimePerOutputToken,
    latency.StepGap,
    latency.EndToEnd,
    latency.QueueTime,
)
PERCENTILES: Final = (("p50", "p95", "p99", "max", "n"), ("p50", "p99", "max", "n"), ("p50", "p99", "n"), ("p50",))
"""Columns of the table of latencies: the first choice that is narrow enough."""

ENDS: Final[dict[FinishReason, tuple[str, str]]] = {
    "eos": ("ended by itself", "ended by themselves"),
    "stop": ("met a stop string", "met a stop string"),
    "length": ("reached its limit", "reached their limit"),
    "context": ("filled the context", "filled the context"),
    "cancelled": ("was cancelled", "were cancelled"),
    "error": ("failed", "failed"),
}
"""How requests finish, in words, for one and for several."""

ENDINGS: Final = {
    "interrupted": "interrupted after ",
    "engine-died": "until the engine died after ",
    "error": "until the engine failed after ",
}
"""How a run ended that did not come to its end."""


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A finished run, and what its summary says beside the figures."""

    result: RunResult
    header: Header | None
    workload: str
    """The traffic on one line."""
    recording: Path | None
    """Where the run is stored. `None`: nowhere."""
    notes: tuple[str, ...] = ()
    explanation: Explanation | None = None
    """`None`: nobody explained."""
    score: str | None = None
    """How the predictions of its changes did, as a sentence. `None`: none was made."""


def summary(report: RunReport, width: int) -> Text:
    """The summary in lines of at most `width` cells, but for words (a path, say) that are longer."""
    result = report.result
    blocks = [_title(report, width)]
    if result[counts.Forwards] == 0:
        blocks.append(_nothing(result, width))
    else:
        blocks.append(_headline(result, width))
        blocks += [_latencies(result, width), epochs(result, width), _details(result, width)]
        blocks += [_phases(result, width), _costs(result, width)]
        blocks.append([] if report.explanation is None else explained.lines(report.explanation, width))
        blocks.append([] if report.score is None else [row("predictions", [report.score], width)])
    blocks.append([row("note", [note], width, style="yellow") for note in _notes(report)])
    if report.recording is not None:
        blocks.append([row("recording", [str(report.recording)], width)])
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def _title(report: RunReport, width: int) -> list[Text]:
    header = report.header
    lines = []
    if header is not None and header.model is not None:
        names: list[str | Text] = [Text(header.model.name, style="bold")]
        if header.draft_model is not None:
            names.append(f"draft {header.draft_model.name}")
        lines.append(hang(Text(), names, width))
    lines.append(hang(Text(), report.workload.split(" · "), width))
    if header is not None:
        if header.config is not None:
            lines.append(hang(Text(), _settings(header.config), width))
        threads = None if header.config is None else header.config.threads
        machine = [header.device, *([] if threads is None else [units.counted(threads, "thread")])]
        library = (header.library or "").partition(" | ")[0]
        lines.append(hang(Text(), [*machine, *([library] if library else [])], width, style="dim"))
    return lines


def _settings(config: EngineConfig) -> list[str]:
    """The configuration at the start: what is always of interest, and what differs from the usual."""
    drafts = f", {units.counted(config.draft_length, 'token')} at most"
    how = " by length that adapts" if config.adaptive_draft else ""
    speculation = "off" if config.speculation == "off" else f"{config.speculation}{drafts}{how}"
    kv = config.kv_type_k if config.kv_type_k == config.kv_type_v else f"{config.kv_type_k}/{config.kv_type_v}"
    told = [
        units.counted(config.slots, "slot"),
        f"{units.counted(config.token_budget, 'row')} per forward",
        f"speculation {speculation}",
        f"prefix cache {'on' if config.prefix_cache else 'off'}",
        f"KV {kv}",
    ]
    if not config.unified_kv:
        told.append("unified KV off")
    if not config.flash_attention:
        told.append("no flash attention")
    if not config.swa_full:
        told.append("windows only")
    return told


def _nothing(result: RunResult, width: int) -> list[Text]:
    """In place of figures where no forward ran to its end."""
    what = {
        "interrupted": "Interrupted before anything ran.",
        "engine-died": "The engine died before anything was recorded.",
    }
    lines = [hang(Text(), [what.get(result.ended or "", "Nothing ran.")], width)]
    requests = _requests(result)
    return [*lines, Text(), row("requests", requests, width)] if requests else lines


def _headline(result: RunResult, width: int) -> list[Text]:
    emitted, prefilled = result[counts.OutputTokens], result[counts.PrefillTokens]
    lines = [
        row(
            "throughput",
            [
                Text(f"{units.token_rate(result[load.OutputRate])} out", style="bold"),
                f"{units.token_rate(result[load.InputRate])} in",
                units.request_rate(result[load.RequestRate]),
            ],
            width,
        ),
        row(
            "ran",
            [
                f"{ENDINGS.get(result.ended or '', '')}{units.duration(result[counts.WallTime])}",
                units.counted(result[counts.Steps], "step"),
                f"{units.counted(emitted, 'token')} out",
                f"{units.counted(prefilled, 'token')} prefilled",
            ],
            width,
        ),
        row("requests", _requests(result) or ["none finished"], width),
    ]
    if result.limits.is_given:
        lines.append(row("in time", _in_time(result), width))
    trouble = _counted(
        result,
        (counts.Preemptions, ("pre-emption",)),
        (counts.AbortedSteps, ("step cut short", "steps cut short")),
        (counts.Rebuilds, ("rebuild",)),
        (counts.RefusedChanges, ("change refused", "changes refused")),
    )
    if trouble:
        lines.append(row("also", trouble, width))
    return lines


def _requests(result: Summary) -> list[str]:
    """Finished requests by how they finished."""
    by_reason = result[counts.Requests] or {}
    return [
        f"{units.count(by_reason[reason])} {words[0 if by_reason[reason] == 1 else 1]}"
        for reason, words in ENDS.items()
        if by_reason.get(reason, 0) > 0
    ]


def _in_time(result: RunResult) -> list[str]:
    """How many requests kept the limits that were set."""
    limits = result.limits
    told = [
        f"{name} of {units.duration(limit)}"
        for name, limit in (("TTFT", limits.ttft_ns), ("TPOT", limits.tpot_ns))
        if limit is not None
    ]
    share = units.percent(result[latency.GoodShare])
    return [f"{share} within a {' and a '.join(told)}", units.request_rate(result[latency.Goodput])]


def _counted(result: Summary, *metrics: tuple[type[counts.Count], tuple[str, ...]]) -> list[str]:
    """The counts that are known and not zero, in words."""
    found = ((result[metric], words) for metric, words in metrics)
    return [units.counted(n, *words) for n, words in found if n is not None and n > 0]


def _latencies(result: Summary, width: int) -> list[Text]:
    known = {metric.header: spread for metric in LATENCIES if (spread := result[metric]) is not None}
    if not known:
        return []
    for names in PERCENTILES:
        made = [aligned([_cell(spread, name) for spread in known.values()]) for name in names]
        lines = columns(["latency", *names], list(zip(known, *made, strict=True)), first_width=LABEL_WIDTH - 2)
        if len(lines[0]) <= width:
            break
    texts = [Text(line.rstrip(), style="bold" if index == 0 else "") for index, line in enumerate(lines)]
    if any("*" in line for line in lines):
        texts.append(
            hang(Text(), ["* of so few values, this percentile is no more than the maximum"], width, style="dim")
        )
    return texts


def _cell(spread: Spread, name: str) -> str:
    if name == "n":
        return units.count(spread.n)
    mark = "*" if name in spread.unsupported else ""
    return f"{units.duration(getattr(spread, name))}{mark}"


def _details(result: Summary, width: int) -> list[Text]:
    rows, waiting, cells = _mean(result[load.BatchRows]), result[load.QueueDepth], result[load.KvCellsPeak]
    lines = [row("speculation", _speculation(result), width)]
    positions = _by_position(result[speculation.AcceptanceByPosition] or ())
    if positions:
        lines.append(row("  by position", positions, width))
    lines.append(row("prefix cache", _cache(result), width))
    return [
        *lines,
        row(
            "load",
            [
                f"{units.percent(result[load.Occupancy])} of the slots busy",
                f"{units.number(rows)} rows per forward",
                f"{units.number(waiting)} waiting",
                f"{units.counted(cells, 'KV cell')} at most",
            ],
            width,
        ),
    ]


def _speculation(result: Summary) -> list[str]:
    headline = f"A = {units.number(result[speculation.TokensPerForward])} tokens per forward"
    drafted = result[speculation.DraftedTokens]
    if drafted is None:
        return [headline]
    if drafted == 0:
        return [headline, "nothing was drafted"]
    told = [
        headline,
        f"{units.percent(result[speculation.AcceptanceRate])} of {units.counted(drafted, 'drafted token')} accepted",
        f"{units.percent(result[speculation.Coverage])} of forwards covered",
        f"{units.number(result[speculation.WastedRows])} rows wasted per verification",
    ]
    if result[counts.InvalidOutputSteps]:
        told.append("acceptance is synthetic")
    return told


def _by_position(rates: Sequence[float]) -> list[str]:
    """Acceptance of each position of a draft; positions at the end that none reached are one."""
    n_reached = max((j for j, rate in enumerate(rates, start=1) if rate > 0), default=0)
    told = [f"{units.count(j)}: {units.percent(rate)}" for j, rate in enumerate(rates[:n_reached], start=1)]
    if n_reached < len(rates):
        told.append(f"from {units.count(n_reached + 1)}: {units.percent(0)}")
    return told


def _cache(result: Summary) -> list[str]:
    hits, useful = result[load.HitRate], result[load.UsefulHitRate]
    if hits is None:
        return ["nothing was looked up"]
    told = [f"{units.percent(hits)} of prompt tokens hit"]
    if useful is not None and useful != hits:
        told.append(f"{units.percent(useful)} usefully")
    blocks = result[load.CacheBlocks]
    if blocks is not None:
        told += [
            f"{units.counted(blocks['read'], 'block')} read",
            *(f"{units.count(blocks[name])} {name}" for name in ("written", "evicted", "resident")),
        ]
    copied = result[load.CopiedBytes]
    if copied is not None and copied > 0:
        told.append(f"{units.data_size(copied)} copied")
    return told


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _phases(result: Summary, width: int) -> list[Text]:
    """Where the step time went, as bars, largest first."""
    step, host = result[time.StepTime], result[time.HostTime]
    medians = [f"{units.duration(None if step is None else step.p50)} at the median"]
    if host is not None:
        medians.append(f"{units.duration(host.p50)} of it outside the models")
    lines = [row("step time", medians, width)]
    found = {name: share for name, share in (result[time.PhaseShares] or {}).items() if share > 0}
    shares = sorted(found.items(), key=lambda item: -item[1])
    percents = [units.percent(share) for _, share in shares]
    for (name, share), percent in zip(shares, percents, strict=True):
        text = Text(f"  {SPELLED.get(name, name):{LABEL_WIDTH - 2}}{percent:>{max(map(len, percents))}}  ")
        text.append(bar(share, min(BAR_WIDTH, max(1, width - text.cell_len))), style="cyan")
        lines.append(text)
    idle = result[time.IdleShare]
    if idle is not None and idle > 0:
        lines.append(row("  idle", [f"{units.percent(idle)} of the run lay between steps"], width))
    return lines


def _costs(result: Summary, width: int) -> list[Text]:
    size, cpu = units.data_size, result[time.CpuShare]
    moved = result[cost.BytesPerToken]
    if moved is None:
        return []
    rates = [
        f"{units.bandwidth(result[cost.TargetBandwidth])} moved, by the model's geometry",
        units.flop_rate(result[cost.TargetFlopRate]),
    ]
    if cpu is not None:
        rates.append(f"{units.percent(cpu)} of the threads running")
    return [
        row(
            "per token",
            [
                f"{size(moved)} moved",
                f"{size(result[cost.WeightBytesPerToken])} of it weights",
                f"{size(result[cost.KvBytesPerToken])} KV",
                units.flops(result[cost.FlopsPerToken]),
            ],
            width,
        ),
        row("in forwards", rates, width),
    ]


def _notes(report: RunReport) -> list[str]:
    """What else the reader should know: first what concerns the figures."""
    result = report.result
    notes = []
    if result[counts.InvalidOutputSteps]:
        notes.append("Acceptance was synthetic: times are real, the text is not the model's.")
    if result.spanning_requests > 0:
        what = units.counted(result.spanning_requests, "request")
        notes.append(f"{what} ran under more than one configuration: counted in the run, and in no epoch.")
    if result.not_modelled:
        notes.append(f"The cost leaves out: {', '.join(result.not_modelled)}.")
    return [*notes, *report.notes]
