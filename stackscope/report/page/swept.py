"""A sweep as a report: what ran, the best of it, the winner with its command line, and pairs that hurt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope import units
from stackscope.report.page.document import Document, Section
from stackscope.report.page.intervals import Ratio, Ratios, Spot, ratios, scatter
from stackscope.report.page.tables import Table
from stackscope.report.page.wording import UNKNOWN, dashed
from stackscope.report.run_line import warmup_told
from stackscope.report.sweep import (
    FIGURES,
    MOST_ROWS,
    no_pairs,
    notes_of,
    pair_text,
    refused,
    run_line,
    title_phrases,
    why,
)
from stackscope.report.sweep_words import LEVELLED, PARETO, no_winner, nothing_ran, ratio_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.experiments.search_results import Row
    from stackscope.report.page.frame import Chart
    from stackscope.report.sweep import SweepReport

BEST, OTHER, BROKEN = ("c0", "in the Pareto set"), ("c7", "another is better"), ("c1", "breaks a constraint")


def document(report: SweepReport) -> Document:
    """The whole report."""
    return Document(
        subject=f"Sweep over {', '.join(axis.name.replace('_', ' ') for axis in report.plan.axes)}",
        about=tuple([" · ".join(line) for line in title_phrases(report)]),
        notes=tuple(notes_of(report)),
        sections=tuple(_sections(report)),
    )


def _sections(report: SweepReport) -> Iterator[Section]:
    result = report.result
    if not result.rows:
        yield Section(name="winner", title="Winner", told=(nothing_ran(result),))
        yield from _refused(report)
        return
    yield Section(name="winner", title="Winner", told=tuple(_winner(report)))
    rows = [one for index, one in enumerate(result.rows) if index < MOST_ROWS or one.is_best]
    yield Section(
        name="configurations",
        title="Configurations",
        charts=(_plane(rows), _speed_ups(rows)),
        tables=(_table(rows, len(result.rows), is_levelled=result.is_levelled),),
    )
    told = [pair_text(pair) for pair in result.pairs] or [f"{no_pairs(result).capitalize()}."]
    yield Section(name="pairs", title="Pairs that hurt", told=tuple(told))
    yield from _refused(report)


def _refused(report: SweepReport) -> Iterator[Section]:
    groups = refused(report)
    if groups:
        n = sum(len(one.labels) for one in groups)
        told = f"{units.count(n)} of {units.counted(report.result.n_configurations, 'configuration')}."
        rows = tuple([(one.named, one.why) for one in groups])
        table = Table(title="Refused", head=("configurations", "why"), rows=rows, is_text=True)
        yield Section(name="refused", title="What cannot run", told=(told,), tables=(table,))


def _winner(report: SweepReport) -> Iterator[str]:
    winner = report.result.winner
    if winner is None:
        yield no_winner(report.plan, report.result.rows)
        return
    yield winner.label
    yield f"Why: {'; '.join(why(report))}."
    yield run_line(report, winner.cell)
    yield f"{warmup_told(report.plan.workload).capitalize()}."


def _plane(rows: Sequence[Row]) -> Chart:
    spots = []
    for one in rows:
        gap = one.figures.get("step_gap_p95_ns")
        rate = one.figures["tokens_per_s"].value
        if gap is not None and gap.value > 0:
            style, what = _kind(one)
            spots.append(Spot(number=one.cell, name=one.label, style=style, what=what, x=gap.value / 1e6, y=rate))
    return scatter(
        "Throughput and step gap",
        "One dot for each configuration, by its number in the table; what is up and left is better in both.",
        spots,
        across_told="step gap p95",
        up_told="tok/s",
        missing="No configuration has a step gap.",
    )


def _kind(one: Row) -> tuple[str, str]:
    if not one.keeps:
        return BROKEN
    return BEST if one.is_best else OTHER


def _speed_ups(rows: Sequence[Row]) -> Chart:
    drawn = []
    for one in rows:
        if one.cell == 0 or one.speed_up is None:
            continue
        found = one.speed_up.interval()
        style, what = _kind(one)
        mark = Ratio(
            style=style,
            what=what,
            value=one.speed_up.ratio,
            low=None if found is None else found.low,
            high=None if found is None else found.high,
        )
        drawn.append(Ratios(name=one.label, marks=(mark,)))
    return ratios(
        "Speed-ups over the first configuration",
        "Tokens per second ÷ the first's, over blocks that have both; lines are 95 % intervals.",
        drawn,
        missing="Nothing ran in the same blocks as the first configuration.",
    )


def _table(rows: Sequence[Row], n_rows: int, *, is_levelled: bool) -> Table:
    figures = [one for one in FIGURES if any(one[1] in each.figures for each in rows)]
    cells = [
        (
            f"{one.cell}: {one.label}",
            units.number(one.figures["tokens_per_s"].value),
            "the first" if one.cell == 0 else dashed(ratio_text(one.speed_up)),
            *(UNKNOWN if name not in one.figures else show(one.figures[name].value) for _, name, show in figures),
            units.count(one.n_runs),
            _kind(one)[1],
        )
        for one in rows
    ]
    footing = f"{LEVELLED[0].upper()}{LEVELLED[1:]}. " if is_levelled else ""
    rest = f" {units.counted(n_rows - len(rows), 'slower one')} not shown." if n_rows > len(rows) else ""
    return Table(
        title="What ran, the fastest first",
        head=("configuration", "tok/s", "÷ the first [95 %]", *(label for label, _, _ in figures), "runs", "remark"),
        rows=tuple(cells),
        note=f"{footing}{PARETO[0].upper()}{PARETO[1:]}. Same: greedy tokens as in the first configuration.{rest}",
    )
