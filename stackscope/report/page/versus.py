"""Sessions held against the first, as sections of a report: the verdict, every change with its interval, and where the
time of a step moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.comparing import wording
from stackscope.report.compare import difference
from stackscope.report.page.document import Section
from stackscope.report.page.intervals import Ratio, Ratios, ratios
from stackscope.report.page.tables import Table
from stackscope.report.page.wording import dashed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.analysis.comparing.comparison import Compared, Comparison, Standing, Versus
    from stackscope.report.page.frame import Chart

STYLES: Final[dict[Standing, str]] = {
    "better": "c2", "worse": "c1", "more": "c0", "less": "c0", "not distinguishable": "c7", "unknown": "c7",
}  # fmt: skip
"""Colours of figures by how they stand; the key says the same in words."""
WHATS: Final[dict[Standing, str]] = {
    "more": "more or less, neither good nor bad",
    "less": "more or less, neither good nor bad",
}


def sections(comparison: Comparison | None) -> tuple[Section, ...]:
    """One for each session but the first. `None`: there is nothing to compare."""
    return () if comparison is None else tuple(map(_section, comparison.versus))


def _section(versus: Versus) -> Section:
    a, b = versus.letters
    return Section(
        name=f"versus-{b.lower()}",
        title=f"{b} against {a}",
        told=tuple(_told(versus)),
        charts=(_changes(versus),),
        tables=tuple(_tables(versus)),
    )


def _told(versus: Versus) -> Iterator[str]:
    yield versus.sentence
    yield from (concern.text for concern in versus.untold)
    if versus.moved is not None:
        yield f"Where the time of a step moved: {wording.sentence(versus.moved)}."


def _changes(versus: Versus) -> Chart:
    a, b = versus.letters
    rows = [Ratios(name=one.header, marks=(_mark(one),)) for one in versus.figures if one.ratio is not None]
    return ratios(
        f"Change of each figure, {b} ÷ {a}",
        "Dots are ratios, lines their 95 % intervals, each by itself; one that crosses 1 tells no difference.",
        rows,
        missing="No figure has an interval.",
    )


def _mark(one: Compared) -> Ratio:
    assert one.ratio is not None
    standing = one.standing
    return Ratio(
        style=STYLES[standing],
        what=WHATS.get(standing, standing),
        value=one.ratio.value,
        low=one.ratio.low,
        high=one.ratio.high,
    )


def _tables(versus: Versus) -> Iterator[Table]:
    a, b = versus.letters
    known = wording.known_figures(versus)
    told = "; ".join([*wording.numbers(known), *wording.hows(known)])
    stars = f" {wording.FEW_VALUES}." if any(any(one.is_maximum) for one in known) else ""
    few = wording.too_few(known)
    why = f" Too few: {'; '.join(few)}." if few else ""
    yield Table(
        title="Figures with intervals",
        head=("figure", a, b, "difference [95 %]", "stands"),
        rows=tuple([_dashes(wording.cells(one)) for one in known]),
        note=f"{told}.{stars}{why} {wording.ONE_RUN}",
    )
    if versus.moved is not None:
        yield Table(
            title="Where the time of a step moved",
            head=("per step", a, b, f"{b} − {a}", "per token"),
            rows=tuple([(f"{'– ' * one.depth}{one.name}", *_dashes(one[2:])) for one in wording.rows(versus.moved)]),
            note=versus.moved.split,
        )
    if versus.differences:
        yield Table(
            title="What differs",
            head=("", f"{a} → {b}"),
            rows=tuple([(one.area, difference(one, versus.letters)) for one in versus.differences]),
            is_text=True,
        )


def _dashes(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple([dashed(cell) if cell == units.UNKNOWN else cell for cell in cells])
