"""An ablation as text and as JSON: cells, speed-ups, their product beside the combination, and a verdict in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.text import Text

from stackscope import units
from stackscope.analysis.factorial import bits
from stackscope.experiments.plan import DEFAULT_BLOCKS, warmup_requests
from stackscope.report.ablation_cells import figure_table
from stackscope.report.ablation_words import limited_by, remark, verdict
from stackscope.report.experiment_words import disturbed
from stackscope.report.layout import columns, hang, row
from stackscope.workload.spec import describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.effects import Ablation, Cell, Interaction
    from stackscope.experiments.plan import Plan
    from stackscope.records import Prediction

RATIO_NAMES: Final = {
    "ttft_p50_ns": "TTFT p50",
    "tpot_p50_ns": "TPOT p50",
    "step_gap_p95_ns": "step gap p95",
    "e2e_p50_ns": "E2E p50",
    "memory_bytes": "memory",
}
LABEL, COLUMN = 24, 22
"""Width of a cell's name, and of a ratio with its interval."""
QUICK_WIDER: Final = 3.0
"""How much wider intervals of three blocks are than of eight: t(2) ÷ √3 against t(7) ÷ √8."""


@dataclass(frozen=True, kw_only=True)
class AblationReport:
    """An ablation, finished or not, and what its report says beside the result."""

    plan: Plan
    result: Ablation | None
    """`None`: not one block is whole."""
    n_runs: int
    """That are stored."""
    folder: Path
    predictions: Mapping[int, Prediction] = field(default_factory=dict)
    """By cell, from the baseline alone."""
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False


def shown(report: AblationReport, width: int) -> Text:
    """The report in lines of at most `width` cells, but for words that are longer."""
    result = report.result
    blocks: list[Sequence[Text]] = [_title(report, width)]
    if result is None:
        blocks.append([hang(Text(), ["No block is whole yet, so there is nothing to compare."], width)])
    else:
        blocks.append(_speed_ups(result, width))
        if result.interactions:
            blocks.append(_interactions(result, width))
        blocks.append(_ratios(result, width))
        blocks += figure_table(result, width)
        blocks.append(_verdict(result, report.plan, width))
    blocks.append([row("note", [note], width, style="yellow") for note in notes_of(report)])
    blocks.append(_where(report, width))
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def _title(report: AblationReport, width: int) -> list[Text]:
    (model, *rest), *lines = title_phrases(report)
    return [hang(Text(), [Text(model, style="bold"), *rest], width), *[hang(Text(), line, width) for line in lines]]


def title_phrases(report: AblationReport) -> list[list[str]]:
    """What was done, in lines of phrases: models, traffic, blocks."""
    plan, result = report.plan, report.result
    n_cells = len(plan.cells)
    done = "no whole block" if result is None else units.counted(result.n_blocks, "block")
    warm = units.counted(warmup_requests(plan.workload), "request")
    drafts = [] if plan.base.draft_model is None else [f"draft {_stem(plan.base.draft_model)}"]
    return [
        [_stem(plan.base.model), *drafts],
        describe(plan.workload).split(" · "),
        [
            f"{done} of {units.counted(n_cells, 'cell')}, each in every block once, in random order",
            units.counted(report.n_runs, "run"),
            f"{warm} before each to warm up",
        ],
    ]


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".gguf")


def interval_text(contrast: Contrast, nominal: float) -> str:
    """A ratio with its interval: `1.53× [1.50, 1.57]`."""
    found = contrast.interval(nominal)
    return units.ratio(contrast.ratio) if found is None else units.ratio(found.value, found.low, found.high)


def named_cells(result: Ablation) -> dict[int, str]:
    """Cells with the numbers that their recordings have: a single setting by its label, a combination by the numbers of
    its settings, of which its own is the sum."""
    known = {cell.cell for cell in result.cells}
    found = {}
    for cell in result.cells:
        together = [str(one) for one in bits(cell.cell) if one in known]
        found[cell.cell] = f"{cell.cell}  {' + '.join(together) if len(together) > 1 else cell.label}"
    return found


def _speed_ups(result: Ablation, width: int) -> list[Text]:
    names = named_cells(result)
    header = ["cell", "tok/s", f"speed-up [{result.confidence * 100:.0f} %]", "predicted", "limited by"]
    rows = [
        [
            names[cell.cell],
            units.number(cell.figures["tokens_per_s"].value),
            "" if cell.speed_up is None else interval_text(cell.speed_up, result.nominal),
            "" if cell.cell == 0 else units.ratio(None if cell.predicted is None else cell.predicted.value),
            limited_by(cell),
        ]
        for cell in result.cells
    ]
    limits: list[Text] = []
    if len(columns(header, rows)[0]) > width:
        header, rows = header[:-1], [cells[:-1] for cells in rows]
        told = [f"{cell.cell} {why}" for cell in result.cells if (why := limited_by(cell))]
        limits = [row("limited by", told, width)] if told else []
    return [*_table(header, rows), *limits]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Text]:
    made = columns(header, rows)
    return [Text(line.rstrip(), style="bold" if index == 0 else "") for index, line in enumerate(made)]


def _interactions(result: Ablation, width: int) -> list[Text]:
    """Each combination beside the product of its settings' speed-ups."""
    rows = [
        [
            one.names,
            *(interval_text(contrast, result.nominal) for contrast in (one.measured, one.product, one.ratio)),
            units.ratio(one.predicted),
            remark(one),
        ]
        for one in result.interactions
    ]
    header = ["together", "measured", "product of singles", "measured ÷ product", "predicted", ""]
    if len(columns(header, rows)[0]) > width or any(one.averaged is not None for one in result.interactions):
        return _interactions_narrow(result, width)
    return _table(header, rows)


def _interactions_narrow(result: Ablation, width: int) -> list[Text]:
    lines = [Text("together", style="bold")]
    for one in result.interactions:
        told = [
            f"measured {interval_text(one.measured, result.nominal)}",
            f"product of singles {interval_text(one.product, result.nominal)}",
            f"{interval_text(one.ratio, result.nominal)} of the product",
            f"predicted {units.ratio(one.predicted)}",
            remark(one),
        ]
        if one.averaged is not None:
            told.insert(3, f"{interval_text(one.averaged, result.nominal)} averaged over the others")
        lines += [Text(f"  {one.names}"), hang(Text("    "), told, width)]
    return lines


def _ratios(result: Ablation, width: int) -> list[Text]:
    """Latencies and memory relative to the baseline: below 1 is less."""
    names = named_cells(result)
    cells = [cell for cell in result.cells if cell.cell != 0 and cell.ratios]
    known = [name for name in RATIO_NAMES if any(name in cell.ratios for cell in cells)]

    def table(some: Sequence[str]) -> list[Text]:
        rows = [
            [
                names[cell.cell],
                *(interval_text(cell.ratios[n], result.nominal) if n in cell.ratios else units.UNKNOWN for n in some),
            ]
            for cell in cells
        ]
        return _table(["÷ the baseline's", *(RATIO_NAMES[name] for name in some)], rows)

    lines: list[Text] = []
    while known:
        # Of few blocks in noise, an interval alone may take half a line.
        at_once = max(1, min(len(known), (width - LABEL) // COLUMN))
        while at_once > 1 and max(line.cell_len for line in table(known[:at_once])) > width:
            at_once -= 1
        lines += table(known[:at_once])
        known = known[at_once:]
    return lines


def _verdict(result: Ablation, plan: Plan, width: int) -> list[Text]:
    return [row("verdict" if index == 0 else "", [line], width) for index, line in enumerate(verdict(result, plan))]


def notes_of(report: AblationReport) -> list[str]:
    """What the reader should know before believing a figure."""
    notes = list(report.notes)
    result, plan = report.result, report.plan
    whys = dict.fromkeys(one.reason for one in report.predictions.values() if one.tokens is None and one.reason)
    notes += [f"Not everything was predicted: {why}" for why in whys]
    if plan.is_quick:
        notes.append(
            f"Quick: {plan.blocks.first} blocks instead of {DEFAULT_BLOCKS}, and fewer requests. Intervals are about "
            f"{QUICK_WIDER:.0f} times as wide, and no block is added where that is too wide: what pairs are called is "
            "a hint at most, a difference of a few per cent stays unseen, and percentiles rest on few values."
        )
    busy = None if result is None else disturbed(result.n_disturbed, result.n_runs)
    return [*notes, *([] if busy is None else [busy])]


def _where(report: AblationReport, width: int) -> list[Text]:
    files = ["cell 1 of block 1 is block-01-cell-1"] if report.plan.is_recorded else []
    lines = [row("results", [str(report.folder), *files], width)]
    if report.is_interrupted:
        lines.append(row("go on", [f"stackscope ablate --folder {report.folder}"], width))
    return lines


def document(report: AblationReport) -> dict[str, Any]:
    """The same for machines: times in ns, ratios with their ends, unknown is null."""
    result = report.result
    return {
        "plan": msgspec.to_builtins(report.plan),
        "folder": str(report.folder),
        "runs": report.n_runs,
        "interrupted": report.is_interrupted,
        "notes": notes_of(report),
        "blocks": 0 if result is None else result.n_blocks,
        "confidence": None if result is None else result.confidence,
        "disturbed_runs": None if result is None else result.n_disturbed,
        "cells": [] if result is None else [_cell_document(cell, result) for cell in result.cells],
        "predictions": {str(cell): msgspec.to_builtins(one) for cell, one in report.predictions.items()},
        "interactions": [] if result is None else [_interaction_document(one, result) for one in result.interactions],
        "verdict": [] if result is None else verdict(result, report.plan),
    }


def _cell_document(cell: Cell, result: Ablation) -> dict[str, Any]:
    return {
        "cell": cell.cell,
        "label": cell.label,
        "figures": {name: figure.value for name, figure in cell.figures.items()},
        "speed_up": ratio_document(cell.speed_up, result),
        "ratios": {name: ratio_document(one, result) for name, one in cell.ratios.items()},
        "bottleneck": cell.bottleneck or None,
        "largest_part": cell.largest_part or None,
        "predicted": msgspec.to_builtins(cell.predicted),
    }


def _interaction_document(one: Interaction, result: Ablation) -> dict[str, Any]:
    return {
        "cell": one.cell,
        "names": one.names,
        "kind": one.kind,
        "is_settled": one.is_settled,
        "measured": ratio_document(one.measured, result),
        "product": ratio_document(one.product, result),
        "ratio": ratio_document(one.ratio, result),
        "over_best_single": ratio_document(one.best_single, result),
        "best_single": one.best,
        "averaged": ratio_document(one.averaged, result),
        "predicted": one.predicted,
    }


def ratio_document(contrast: Contrast | None, result: Ablation) -> dict[str, float | None] | None:
    """A ratio with the ends of its interval. `None`: there is none."""
    if contrast is None:
        return None
    found = result.interval(contrast)
    ends = (None, None) if found is None else (found.low, found.high)
    return {"value": contrast.ratio, "low": ends[0], "high": ends[1]}
