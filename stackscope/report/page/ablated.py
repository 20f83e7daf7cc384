"""An ablation as a report: every speed-up with its interval, the product beside the combination, what limits each cell,
and whether the answers are still the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.experiments.effects import PARTS
from stackscope.experiments.quality import AGREEMENT, DIVERGENCE
from stackscope.report.ablation import RATIO_NAMES, interval_text, named_cells, notes_of, title_phrases
from stackscope.report.ablation_cells import ALWAYS, ROWS, note_of, shown_figure
from stackscope.report.ablation_words import limited_by, remark, verdict
from stackscope.report.page.document import Document, Section
from stackscope.report.page.intervals import Ratio, Ratios, Shares, ratios, shares
from stackscope.report.page.tables import Table
from stackscope.report.page.wording import UNKNOWN, dashed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.effects import Ablation, Cell
    from stackscope.report.ablation import AblationReport

MEASURED, PRODUCT, PREDICTED = "measured", "product of the single speed-ups", "predicted from the baseline alone"
SHARES: Final = {"decode": "decode", "draft": "draft", "host": "schedule"}
"""Colours of the parts of the step time: those of the anatomy."""


def document(report: AblationReport) -> Document:
    """The whole report."""
    lines = title_phrases(report)
    return Document(
        subject=f"Ablation of {', '.join(factor.name.replace('_', ' ') for factor in report.plan.factors)}",
        about=tuple([" · ".join(line) for line in lines]),
        notes=tuple(notes_of(report)),
        sections=tuple(_sections(report)),
    )


def _sections(report: AblationReport) -> Iterator[Section]:
    result = report.result
    if result is None:
        yield Section(name="verdict", title="Verdict", told=("No block is whole yet, so there is nothing to compare.",))
        return
    yield Section(name="verdict", title="Verdict", told=tuple(verdict(result, report.plan)))
    yield _speed_ups(result)
    if result.interactions:
        yield _together(result)
    yield _limits(result)
    yield Section(name="ratios", title="Latency and memory against the baseline", tables=(_ratios(result),))
    if any(AGREEMENT in cell.figures for cell in result.cells):
        yield _quality(result)
    yield Section(name="figures", title="Every figure of every cell", tables=(_figures(result),))


def _names(result: Ablation) -> dict[int, str]:
    """Cells with their numbers, by which combinations are named."""
    return {cell: name.replace("  ", ": ", 1) for cell, name in named_cells(result).items()}


def _mark(result: Ablation, contrast: Contrast, style: str, what: str) -> Ratio:
    found = result.interval(contrast)
    return Ratio(
        style=style,
        what=what,
        value=contrast.ratio,
        low=None if found is None else found.low,
        high=None if found is None else found.high,
    )


def _confidence(result: Ablation) -> str:
    return f"{result.confidence * 100:.0f} %"


def _speed_ups(result: Ablation) -> Section:
    names = _names(result)
    rows = []
    for cell in result.cells:
        if cell.speed_up is None:
            continue
        marks = [_mark(result, cell.speed_up, "c0", MEASURED)]
        if cell.predicted is not None:
            told = cell.predicted
            marks.append(
                Ratio(style="c1", what=PREDICTED, value=told.value, low=told.low, high=told.high, is_ring=True)
            )
        rows.append(Ratios(name=names[cell.cell], marks=tuple(marks)))
    lines = f"lines are {_confidence(result)} intervals"
    if any(cell.predicted is not None for cell in result.cells):
        lines = f"lines are intervals, {_confidence(result)} of what was measured and 90 % of predictions"
    chart = ratios(
        "Speed-ups",
        f"Tokens per second ÷ the baseline's; {lines}. 1 is no difference.",
        rows,
        missing="There is only the baseline.",
    )
    table = Table(
        title="Speed-ups",
        head=("cell", "tok/s", f"speed-up [{_confidence(result)}]", "predicted", "limited by"),
        rows=tuple([_speed_up(result, cell, names[cell.cell]) for cell in result.cells]),
    )
    return Section(name="speed-ups", title="Speed-ups", charts=(chart,), tables=(table,))


def _speed_up(result: Ablation, cell: Cell, name: str) -> tuple[str, ...]:
    return (
        name,
        units.number(cell.figures["tokens_per_s"].value),
        "1, by definition" if cell.speed_up is None else interval_text(cell.speed_up, result.nominal),
        UNKNOWN if cell.predicted is None else units.ratio(cell.predicted.value),
        limited_by(cell) or UNKNOWN,
    )


def _together(result: Ablation) -> Section:
    """Combinations beside the products of their single speed-ups, and the ratio of the two: the interaction."""
    beside, interactions, rows = [], [], []
    has_average = any(one.averaged is not None for one in result.interactions)
    average = ["averaged over the others"] if has_average else []
    for one in result.interactions:
        pair = (_mark(result, one.measured, "c0", MEASURED), _mark(result, one.product, "c1", PRODUCT))
        beside.append(Ratios(name=one.names, marks=pair))
        marks = [_mark(result, one.ratio, "c3", "measured ÷ product")]
        if one.predicted is not None:
            marks.append(Ratio(style="c1", what=PREDICTED, value=one.predicted, is_ring=True))
        interactions.append(Ratios(name=f"{one.names}: {remark(one)}", marks=tuple(marks)))
        told = [interval_text(contrast, result.nominal) for contrast in (one.measured, one.product, one.ratio)]
        if has_average:
            told.append(UNKNOWN if one.averaged is None else interval_text(one.averaged, result.nominal))
        rows.append((one.names, *told, dashed(units.ratio(one.predicted)), remark(one)))
    return Section(
        name="together",
        title="Together: product and measured combination",
        charts=(
            ratios(
                "What the combination does, and what one would expect",
                "The speed-up measured with all of these on, and the product of those measured one by one.",
                beside,
                missing="",
            ),
            ratios(
                "Interactions",
                "The first ÷ the second: below 1 they stand in each other's way, above it they help each other.",
                interactions,
                missing="",
            ),
        ),
        tables=(
            Table(
                title="Product and combination",
                head=(
                    "together",
                    "measured",
                    "product of singles",
                    "measured ÷ product",
                    *average,
                    "predicted",
                    "remark",
                ),
                rows=tuple(rows),
            ),
        ),
    )


def _limits(result: Ablation) -> Section:
    names = _names(result)
    rows = []
    for cell in result.cells:
        known = {name: cell.figures.get(figure) for name, figure in _figures_of_parts().items()}
        parts = [(SHARES[name], PARTS[name], figure.value) for name, figure in known.items() if figure is not None]
        rows.append(Shares(name=names[cell.cell], parts=tuple(parts), remark=limited_by(cell)))
    chart = shares(
        "What the step time of each cell goes to",
        "Medians over the blocks. Behind each name: what limits the cell most of the time, with its share.",
        rows,
        missing="Where the time of a step goes is not known.",
    )
    return Section(name="limits", title="What limits each cell", charts=(chart,))


def _figures_of_parts() -> dict[str, str]:
    return {name: "host_share" if name == "host" else f"share.{name}" for name in SHARES}


def _ratios(result: Ablation) -> Table:
    names = _names(result)
    cells = [cell for cell in result.cells if cell.cell != 0]
    known = [name for name in RATIO_NAMES if any(name in cell.ratios for cell in cells)]
    return Table(
        title="Latency and memory ÷ the baseline's",
        head=("cell", *(RATIO_NAMES[name] for name in known)),
        rows=tuple(
            [
                (
                    names[cell.cell],
                    *(interval_text(cell.ratios[n], result.nominal) if n in cell.ratios else UNKNOWN for n in known),
                )
                for cell in cells
            ]
        ),
        note="Below 1 is less than in the baseline.",
    )


def _quality(result: Ablation) -> Section:
    """How far each cell's answers are from the baseline's, beside its speed."""
    names = _names(result)
    judged = [cell for cell in result.cells if AGREEMENT in cell.figures]
    chart = shares(
        "The same next token as the baseline",
        "Share of the positions of a fixed text at which both would say the same next, greedily.",
        [Shares(name=names[cell.cell], parts=(("c2", "the same", cell.figures[AGREEMENT].value),)) for cell in judged],
        missing="",
    )
    rows = []
    for cell in judged:
        divergence = cell.figures.get(DIVERGENCE)
        rows.append(
            (
                names[cell.cell],
                "1, by definition" if cell.speed_up is None else interval_text(cell.speed_up, result.nominal),
                units.percent(cell.figures[AGREEMENT].value),
                UNKNOWN if divergence is None else f"{units.number(divergence.value, places=4)} nats",
            )
        )
    table = Table(
        title="Answers",
        head=("cell", "speed-up", "same next token", "mean KL divergence"),
        rows=tuple(rows),
        note="Of each cell's next-token distributions from the baseline's, over the same text.",
    )
    return Section(name="quality", title="Whether the answers are the same", charts=(chart,), tables=(table,))


def _figures(result: Ablation) -> Table:
    rows = [
        (label, *(dashed(shown_figure(cell, name, show)) for cell in result.cells))
        for label, name, show in ROWS
        if name in ALWAYS or any(name in cell.figures for cell in result.cells)
    ]
    return Table(
        title="Figures by cell", head=("figure", *_names(result).values()), rows=tuple(rows), note=note_of(result)
    )
