"""A sweep as text and as JSON: what ran, the Pareto set, the winner with its command line, and pairs that hurt."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.text import Text

from stackscope import units
from stackscope.experiments.plan import warmup_requests
from stackscope.report.experiment_words import disturbed
from stackscope.report.layout import columns, hang, row
from stackscope.report.run_line import command_line, warmup_told
from stackscope.report.sweep_refused import UNTOLD, Refused, by_reason
from stackscope.report.sweep_words import (
    LEVELLED,
    PARETO,
    ahead,
    brings,
    called,
    few_runs,
    in_blocks,
    left_open,
    no_winner,
    nothing_ran,
    predicted,
    ratio_text,
)
from stackscope.workload.spec import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.search_plan import SweepPlan
    from stackscope.experiments.search_results import HurtingPair, Row, SweepResult
    from stackscope.records import Prediction

MOST_ROWS: Final = 24
"""Configurations that are told; the fastest, and all of the Pareto set."""

LEAST_NAME: Final = 26
"""Columns that are kept for the name of a configuration, which may take several lines."""

FIGURES: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("gap p95", "step_gap_p95_ns", units.duration),
    ("memory", "memory_bytes", units.data_size),
    ("same", "greedy_agreement", units.percent),
    ("KL", "mean_kl", lambda value: units.number(value, places=4)),
    ("TTFT p95", "ttft_p95_ns", units.duration),
)


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """A sweep, finished or not, and what its report says beside the result."""

    plan: SweepPlan
    result: SweepResult
    folder: Path
    predictions: Mapping[int, Prediction] = field(default_factory=dict)
    refusals: Mapping[int, str] = field(default_factory=dict)
    """By cell: why some cannot run, as was known before anything ran."""
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False


def shown(report: SweepReport, width: int) -> Text:
    """The report in lines of at most `width` cells, but for words that are longer."""
    result = report.result
    blocks: list[Sequence[Text]] = [_title(report, width)]
    if not result.rows:
        blocks.append([hang(Text(), [nothing_ran(result)], width)])
    else:
        blocks += [_table(report, width), _winner(report, width), _pairs(result, width)]
    blocks.append([row("cannot run", [one.text], width, style="yellow") for one in refused(report)])
    blocks.append([row("note", [note], width, style="yellow") for note in notes_of(report)])
    files = ["runs of no 0 are run-…-configuration-0"] if report.plan.is_recorded else []
    lines = [row("results", [str(report.folder), *files], width)]
    if report.is_interrupted:
        lines.append(row("go on", [f"stackscope sweep --folder {report.folder}"], width))
    blocks.append(lines)
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def notes_of(report: SweepReport) -> list[str]:
    """What the reader should know before believing a figure."""
    said = (few_runs(report.plan), disturbed(report.result.n_disturbed, report.result.n_measured))
    return [*report.notes, *(note for note in said if note is not None)]


def _title(report: SweepReport, width: int) -> list[Text]:
    return [hang(Text(), line, width) for line in title_phrases(report)]


def title_phrases(report: SweepReport) -> list[list[str]]:
    """What was done, in lines of phrases: traffic, configurations, runs and goals."""
    plan, result = report.plan, report.result
    how = "all in every block, in random order"
    if plan.budget is not None:
        how = f"searched with {units.counted(plan.budget, 'run')} at most"
    warm = units.counted(warmup_requests(plan.workload), "request")
    goals = ", ".join(called(name) for name in plan.goals.objectives)
    n_refused, n_ran = len(refusals(report)), len(result.rows)
    limits = "".join(f", {constraint.text}" for constraint in plan.goals.constraints)
    return [
        describe(plan.workload).split(" · "),
        [
            f"{units.counted(result.n_configurations, 'configuration')}, {how}",
            *([f"{units.count(n_refused)} of them cannot run"] if n_refused else []),
            *([f"{units.count(n_ran)} of them ran"] if 0 < n_ran < result.n_configurations - n_refused else []),
        ],
        [units.counted(result.n_runs, "run"), f"{warm} before each to warm up", f"for {goals}{limits}"],
    ]


def _table(report: SweepReport, width: int) -> list[Text]:
    """The configurations that ran, the fastest first; as many columns as fit beside their names."""
    result = report.result
    rows = [one for index, one in enumerate(result.rows) if index < MOST_ROWS or one.is_best]
    figures = [one for one in FIGURES if any(one[1] in each.figures for each in rows)]
    is_compared = any(one.speed_up is not None for one in rows)
    while True:
        header = [
            "",
            "tok/s",
            *(["÷ the first"] if is_compared else []),
            "runs",
            *(label for label, _, _ in figures),
            "no",
        ]
        made = columns(header, [_cells(one, figures, is_compared=is_compared) for one in rows])
        if not figures or len(made[0]) + LEAST_NAME <= width:
            break
        figures.remove(next((one for one in reversed(figures) if one[1] not in report.plan.goals.figures), figures[-1]))
    lines = [Text(f"{made[0]}  configuration", style="bold")]
    lines += [_named(f"{text}  ", one.label, width) for text, one in zip(made[1:], rows, strict=True)]
    marks = [
        *([LEVELLED] if result.is_levelled else []),
        "gap: between emissions of a request",
        "same: greedy tokens as in the first configuration",
        f"* {PARETO}",
    ]
    if any(not one.keeps for one in rows):
        marks.append("! breaks a constraint")
    if len(result.rows) > len(rows):
        marks.append(f"{units.counted(len(result.rows) - len(rows), 'slower one')} not shown")
    return [*lines, hang(Text(), marks, width, style="dim")]


def _named(figures: str, label: str, width: int) -> Text:
    """A line of the table with its configuration, which breaks between settings: these may end in numbers."""
    pieces = wrap(label, max(width - len(figures), 1), break_long_words=False, break_on_hyphens=False)
    return Text(figures + f"\n{' ' * len(figures)}".join(pieces))


def _cells(one: Row, figures: Sequence[tuple[str, str, Callable[[float], str]]], *, is_compared: bool) -> list[str]:
    return [
        "*" if one.is_best else "" if one.keeps else "!",
        units.number(one.figures["tokens_per_s"].value),
        *(["" if one.cell == 0 else ratio_text(one.speed_up)] if is_compared else []),
        units.count(one.n_runs),
        *(units.UNKNOWN if name not in one.figures else show(one.figures[name].value) for _, name, show in figures),
        str(one.cell),
    ]


def _winner(report: SweepReport, width: int) -> list[Text]:
    winner = report.result.winner
    if winner is None:
        return [row("winner", [no_winner(report.plan, report.result.rows)], width)]
    lines = [row("winner", [Text(winner.label, style="bold")], width), row("why", why(report), width)]
    told = warmup_told(report.plan.workload)
    return [*lines, row("run it", [run_line(report, winner.cell)], width), row("", [told], width, style="dim")]


def why(report: SweepReport) -> list[str]:
    """Why the winner wins, in phrases."""
    result = report.result
    winner = result.winner
    assert winner is not None
    told = [f"{units.token_rate(winner.figures['tokens_per_s'].value)}"]
    if winner.cell != 0 and winner.speed_up is not None:
        told.append(f"{ratio_text(winner.speed_up)} of the first configuration{in_blocks(winner.speed_up)}")
    is_clear = result.over_next is not None and result.over_next.interval() is not None
    if result.over_next is not None and (is_clear or not result.is_levelled):  # Else the table has it, of more runs.
        whose = "" if report.plan.goals.main == "tokens_per_s" else f" in {called(report.plan.goals.main)}"
        told.append(f"{ratio_text(result.over_next)} of the next{whose}{in_blocks(result.over_next)}")
    said = (ahead(result, report.plan.goals), left_open(result), *map(brings, result.why))
    told += [one for one in said if one is not None]
    prediction = report.predictions.get(winner.cell)
    if prediction is not None and prediction.tokens is not None:
        told.append(f"{predicted(prediction.tokens, winner, result.rows)}: {prediction.reason.rstrip('.')}")
    if winner.bottleneck:
        told.append(f"most of its time goes into {winner.bottleneck}")
    return told


def run_line(report: SweepReport, cell: int) -> str:
    """The command that runs a configuration as it was measured."""
    plan = report.plan
    return command_line(plan.configurations[cell].config, plan.workload, plan.limits)


def _pairs(result: SweepResult, width: int) -> list[Text]:
    if not result.pairs:
        return [row("pairs", [no_pairs(result)], width)]
    return [row("hurts" if index == 0 else "", [pair_text(pair)], width) for index, pair in enumerate(result.pairs)]


def no_pairs(result: SweepResult) -> str:
    """Why no pair is told."""
    if result.n_pairs == 0:
        return "no two changes ran alone and together in three blocks, so none can be judged"
    return f"of {units.counted(result.n_pairs, 'pair')}, none helps alone and hurts together, as far as can be told"


def pair_text(pair: HurtingPair) -> str:
    """A pair that hurts, in a sentence."""
    return (
        f"{pair.one} ({ratio_text(pair.first)} alone) and {pair.other} ({ratio_text(pair.second)} alone): together "
        f"{ratio_text(pair.both)}, which is {ratio_text(pair.over_best)} of the better one. Over {pair.context}."
    )


def refusals(report: SweepReport) -> list[tuple[str, str]]:
    """(configuration, why it cannot run): those that were known beforehand, then those that were tried."""
    space = report.plan.configurations
    beforehand = {space[cell].label: report.refusals.get(cell, UNTOLD) for cell in report.plan.refused}
    return list({**beforehand, **dict(report.result.refused)}.items())


def refused(report: SweepReport) -> list[Refused]:
    return by_reason(refusals(report), [one.label for one in report.plan.configurations])


def document(report: SweepReport) -> dict[str, Any]:
    """The same for machines: times in ns, ratios with their ends, unknown is null."""
    result = report.result
    winner = result.winner
    return {
        "plan": msgspec.to_builtins(report.plan),
        "folder": str(report.folder),
        "interrupted": report.is_interrupted,
        "configurations": result.n_configurations,
        "runs": result.n_runs,
        "disturbed_runs": result.n_disturbed,
        "rows": [
            {
                "cell": one.cell,
                "label": one.label,
                "runs": one.n_runs,
                "figures": {name: figure.value for name, figure in one.figures.items()},
                "speed_up": _ratio(one.speed_up),
                "pareto": one.is_best,
                "keeps": one.keeps,
                "bottleneck": one.bottleneck or None,
                "command": run_line(report, one.cell),
            }
            for one in result.rows
        ],
        "winner": None if winner is None else winner.cell,
        "rivals": {"n": result.n_rivals, "open": result.n_open},
        "why": [] if winner is None else why(report),
        "hurting_pairs": [
            {
                "one": pair.one,
                "other": pair.other,
                "context": pair.context,
                "first": _ratio(pair.first),
                "second": _ratio(pair.second),
                "both": _ratio(pair.both),
                "over_best": _ratio(pair.over_best),
            }
            for pair in result.pairs
        ],
        "pairs_judged": result.n_pairs,
        "refused": [list(one) for one in refusals(report)],
        "refused_by_reason": [{"why": one.why, "configurations": list(one.labels)} for one in refused(report)],
        "predictions": {str(cell): msgspec.to_builtins(one) for cell, one in report.predictions.items()},
        "notes": notes_of(report),
    }


def _ratio(contrast: Contrast | None) -> dict[str, float | None] | None:
    if contrast is None:
        return None
    found = contrast.interval()
    ends = (None, None) if found is None else (found.low, found.high)
    return {"value": contrast.ratio, "low": ends[0], "high": ends[1]}
