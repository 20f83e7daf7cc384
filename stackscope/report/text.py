"""The summary of a run as text: how fast, how evenly, where the time went, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from stackscope import units
from stackscope.analysis.metrics import cost, counts, latency, load, speculation, time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import RenderableType

    from stackscope.analysis.distribution import Spread
    from stackscope.analysis.summary import RunResult, Summary
    from stackscope.records import Header

BAR_WIDTH: Final = 30
LABEL_WIDTH: Final = 13
PERCENTILES: Final = ("p50", "p95", "p99")
LATENCIES: Final = (
    latency.TimeToFirstToken,
    latency.TimePerOutputToken,
    latency.StepGap,
    latency.EndToEnd,
    latency.QueueTime,
)


def print_summary(
    result: RunResult, header: Header | None, workload: str, recording: Path | None, notes: list[str]
) -> None:
    """Print the summary of a run on standard output; `recording` is where it is stored, if anywhere."""
    console = Console(highlight=False)
    console.print(summary(result, header, workload, recording, notes))


def summary(
    result: RunResult, header: Header | None, workload: str, recording: Path | None, notes: list[str]
) -> RenderableType:
    """The same as something to print."""
    parts: list[RenderableType] = [_title(header, workload), Text()]
    if result[counts.Steps] == 0:
        parts.append(Text("Nothing ran."))
    else:
        parts += [_figures(_headline(result)), Text(), _latencies(result), Text(), _figures(_details(result))]
        parts += [Text(), _phases(result), Text(), _figures(_costs(result))]
    parts += [Text(f"note: {note}", style="yellow") for note in notes]
    if recording is not None:
        parts += [Text(), Text.assemble((f"{'recording':{LABEL_WIDTH}}", "bold"), str(recording), overflow="fold")]
    return Group(*parts)


def _title(header: Header | None, workload: str) -> Text:
    text = Text()
    if header is not None and header.model is not None:
        text.append(header.model.name, style="bold")
        if header.draft_model is not None:
            text.append(f" + draft {header.draft_model.name}")
        text.append("  ")
    text.append(workload)
    if header is not None:
        threads = None if header.config is None else header.config.threads
        library = (header.library or "").partition(" | ")[0]
        text.append(f"\n{header.device}, {units.count(threads)} threads, {library}", style="dim")
    return text


def _figures(rows: list[tuple[str, str]]) -> Table:
    """Label and sentence per line; a sentence that is too long wraps under itself."""
    table = Table.grid(padding=(0, 0))
    table.add_column(width=LABEL_WIDTH, style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, sentence in rows:
        table.add_row(label, sentence)
    return table


def _headline(result: Summary) -> list[tuple[str, str]]:
    requests = result[counts.Requests] or {}
    ended = ", ".join(f"{units.count(n)} {reason}" for reason, n in requests.items() if n > 0)
    wall = result[counts.WallTime]
    rows = [
        (
            "throughput",
            f"{units.token_rate(result[load.OutputRate])} out, {units.token_rate(result[load.InputRate])} in, "
            f"{units.request_rate(result[load.RequestRate])}",
        ),
        (
            "ran",
            f"{units.duration(wall)}: {units.count(result[counts.Steps])} steps, "
            f"{units.count(result[counts.OutputTokens])} tokens out, {units.count(result[counts.PrefillTokens])} "
            "tokens prefilled",
        ),
        ("requests", ended or "none finished"),
    ]
    trouble = _counted(
        result,
        (counts.Preemptions, "pre-emptions"),
        (counts.AbortedSteps, "steps cut short"),
        (counts.Rebuilds, "rebuilds"),
        (counts.RefusedChanges, "changes refused"),
    )
    if trouble:
        rows.append(("also", trouble))
    if result[counts.InvalidOutputSteps]:
        rows.append(("note", "acceptance was synthetic: the text is not the model's"))
    return rows


def _counted(result: Summary, *metrics: tuple[type[counts.Count], str]) -> str:
    """The counts that are known and not zero, in words."""
    found = ((result[metric], name) for metric, name in metrics)
    return ", ".join(f"{units.count(n)} {name}" for n, name in found if n is not None and n > 0)


def _latencies(result: Summary) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="bold")
    table.add_column("latency", width=LABEL_WIDTH - 2)
    for name in (*PERCENTILES, "max", "n"):
        table.add_column(name, justify="right", min_width=8)
    is_marked = False
    for metric in LATENCIES:
        spread = result[metric]
        cells = [_percentile(spread, name) for name in PERCENTILES]
        is_marked |= any(cell.endswith("*") for cell in cells)
        largest = None if spread is None else spread.max
        table.add_row(metric.header, *cells, units.duration(largest), units.count(None if spread is None else spread.n))
    if not is_marked:
        return table
    return Group(table, Text("* of so few values, this percentile is no more than the maximum", style="dim"))


def _percentile(spread: Spread | None, name: str) -> str:
    if spread is None:
        return units.duration(None)
    mark = "*" if name in spread.unsupported else ""
    return f"{units.duration(getattr(spread, name))}{mark}"


def _details(result: Summary) -> list[tuple[str, str]]:
    rows = [("speculation", _speculation(result))]
    positions = result[speculation.AcceptanceByPosition]
    if positions:
        shown = "  ".join(f"{j}: {units.percent(rate)}" for j, rate in enumerate(positions, start=1))
        rows.append(("by position", shown))
    rows.append(("prefix cache", _cache(result)))
    rows.append(
        (
            "load",
            f"{units.percent(result[load.Occupancy])} of the slots busy, "
            f"{units.number(_mean(result[load.BatchRows]))} rows per forward, "
            f"{units.number(result[load.QueueDepth])} waiting, "
            f"{units.count(result[load.KvCellsPeak])} KV cells at most",
        )
    )
    return rows


def _speculation(result: Summary) -> str:
    headline = f"A = {units.number(result[speculation.TokensPerForward])} tokens per forward"
    drafted = result[speculation.DraftedTokens]
    if not drafted:
        return f"{headline}; nothing was drafted"
    return (
        f"{headline}, {units.percent(result[speculation.AcceptanceRate])} of {units.count(drafted)} drafted tokens "
        f"accepted, coverage {units.percent(result[speculation.Coverage])}, "
        f"{units.number(result[speculation.WastedRows])} rows wasted per verification"
    )


def _cache(result: Summary) -> str:
    blocks = result[load.CacheBlocks]
    hits = f"{units.percent(result[load.HitRate])} of prompt tokens hit, "
    useful = f"{units.percent(result[load.UsefulHitRate])} usefully"
    if blocks is None:
        return hits + useful
    levels = ", ".join(f"{units.count(n)} {name}" for name, n in blocks.items())
    return f"{hits}{useful}; blocks: {levels}"


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _phases(result: Summary) -> RenderableType:
    """Where the step time went, as bars, largest first."""
    step, host = result[time.StepTime], result[time.HostTime]
    heading = Text.assemble(
        ("step time", "bold"),
        f"    {units.duration(None if step is None else step.p50)} (p50), "
        f"of which host {units.duration(None if host is None else host.p50)}",
    )
    shares = result[time.PhaseShares]
    if shares is None:
        return heading
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=LABEL_WIDTH - 1)
    table.add_column(width=7, justify="right")
    table.add_column(width=BAR_WIDTH)
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share > 0:
            table.add_row(f"  {name}", units.percent(share), Text(bar(share, BAR_WIDTH), style="cyan"))
    idle = result[time.IdleShare]
    rest = [] if idle is None or idle == 0 else [Text(f"  idle between steps: {units.percent(idle)} of the run")]
    return Group(heading, table, *rest)


def bar(share: float, width: int) -> str:
    """A bar of eighths of a cell; anything above zero shows at least one eighth."""
    eighths = max(1, round(max(0.0, min(1.0, share)) * width * 8)) if share > 0 else 0
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _costs(result: Summary) -> list[tuple[str, str]]:
    per_token: Callable[[float | None], str] = units.data_size
    return [
        (
            "per token",
            f"{per_token(result[cost.BytesPerToken])}: weights {per_token(result[cost.WeightBytesPerToken])}, "
            f"KV {per_token(result[cost.KvBytesPerToken])}; {units.flops(result[cost.FlopsPerToken])}",
        ),
        (
            "in forwards",
            f"{units.bandwidth(result[cost.TargetBandwidth])} read and written (modelled), "
            f"{units.flop_rate(result[cost.TargetFlopRate])}, CPU share {units.percent(result[time.CpuShare])}",
        ),
    ]
