"""The report as one HTML page: it needs no other file, no network and no script.

It is written so that an XML parser reads it as well, which is the strictest check there is of its form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import __version__
from stackscope.analysis.metrics import cost, latency, load, speculation
from stackscope.report.page import versus
from stackscope.report.page.charts import groups
from stackscope.report.page.frame import figure
from stackscope.report.page.legend import legend
from stackscope.report.page.style import sheet
from stackscope.report.page.svg import element, escaped
from stackscope.report.page.tables import (
    LETTERS,
    WORDS,
    configurations,
    differences,
    every,
    happened,
    headline,
    latencies,
    notes,
    phases,
    ran,
    verdict,
)
from stackscope.report.page.wording import percentile, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.analysis.comparing.comparison import Comparison
    from stackscope.report.page.charts import Group
    from stackscope.report.page.document import Document, Section
    from stackscope.report.page.gather import SessionFigures
    from stackscope.report.page.tables import Table

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What a browser may load for the page: nothing, beside the styles in it."""
MOST_COLUMNS: Final = 7
"""Of a table at full size: what has more is set closer, so that a page of 1,080 pixels holds it."""
MOST_CHARACTERS: Final = 130
"""Of all columns at full size, each as wide as it must be, with what stands between them."""
BETWEEN, LEAST_WORDS = 4, 24
"""Characters that the space between two columns takes, and the least that a column of words does."""
MOST_FIGURES: Final = 60
"""Characters of a cell that stay on one line: percentiles of a latency with their number."""


def page(sessions: Sequence[SessionFigures], comparison: Comparison | None = None) -> str:
    """The whole page of recordings. `comparison` holds them against the first; `None`: there is none."""
    drawn = groups(sessions)
    held = versus.sections(comparison)
    links = [
        *[(one.name, one.title) for one in held], ("figures", _figures_title(sessions)),
        *[(group.name, group.title) for group in drawn], ("every", "Every metric"), ("terms", "Terms"),
    ]  # fmt: skip
    content = [*_warnings(notes(sessions)), *_sections(sessions, drawn, held)]
    return _whole(_subject(sessions), list(_about(sessions)), links, content)


def document_page(document: Document) -> str:
    """The whole page of anything else."""
    links = [(one.name, one.title) for one in document.sections]
    content = [*_warnings(document.notes), *[part for one in document.sections for part in _section(one)]]
    return _whole(document.subject, document.about, links, content)


def _whole(subject: str, about: Sequence[str], links: Sequence[tuple[str, str]], content: Sequence[str]) -> str:
    """A page around its content. `links` are (name, title) of its sections."""
    body = [
        element(
            "header",
            element("p", "Stackscope report", class_="muted"),
            element("h1", escaped(subject)),
            *[element("p", escaped(line), class_="muted") for line in about],
            element(
                "nav", *[element("a", escaped(title), href=f"#{name}") for name, title in links], aria_label="Sections"
            ),
            class_="top",
        ),
        element("main", *content),
        element("footer", escaped(f"Made by Stackscope {__version__}. This page holds everything that it shows.")),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", escaped(f"Stackscope report: {subject}")),
        element("style", sheet()),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *body), lang='en')}\n"


def _section(section: Section) -> Iterator[str]:
    yield element("h2", escaped(section.title), id=section.name)
    for told in section.told:
        yield element("p", escaped(told))
    if section.charts:
        charts = [figure(chart, f"{section.name}-{place}") for place, chart in enumerate(section.charts)]
        yield element("div", *charts, class_="charts")
    for table in section.tables:
        # One alone is what the heading says; behind charts it needs to be told from their titles.
        has_title = len(section.tables) > 1 or (section.charts and table.title != section.title)
        yield (element("h3", escaped(table.title)) if has_title else "") + _table(table)


def _subject(sessions: Sequence[SessionFigures]) -> str:
    if len(sessions) > 1:
        return " · ".join(f"{LETTERS[place]} {session.path.name}" for place, session in enumerate(sessions))
    return sessions[0].path.name


def _about(sessions: Sequence[SessionFigures]) -> Iterator[str]:
    if len(sessions) > 1:
        return
    header = sessions[0].header
    models = [] if header.model is None else [header.model.name]
    if header.draft_model is not None:
        models.append(f"draft {header.draft_model.name}")
    yield " · ".join([*models, header.device])
    workload = header.workload.get("text")
    if workload:
        yield str(workload)


def _warnings(found: Sequence[str]) -> Iterator[str]:
    if found:
        yield element("ul", *[element("li", escaped(note)) for note in found], class_="warnings")


def _sections(sessions: Sequence[SessionFigures], drawn: Sequence[Group], held: Sequence[Section]) -> Iterator[str]:
    for section in held:
        yield from _section(section)
    yield element("h2", escaped(_figures_title(sessions)), id="figures")
    if len(sessions) == 1:
        yield _cards(sessions[0])
        yield from _verdicts(sessions)
        beside = _table(ran(sessions)), *_phases(sessions)
        yield element("div", element("div", _table(headline(sessions))), element("div", *beside), class_="pair")
    else:
        yield _table(headline(sessions))
        found = None if held else differences(sessions)  # A comparison has said it.
        if found is not None:
            yield element("h3", escaped(found.title)) + _table(found)
        yield from _verdicts(sessions)
        yield element("h3", "What ran") + _table(ran(sessions))
    for group in drawn:
        yield element("h2", escaped(group.title), id=group.name)
        charts = [figure(chart, f"{group.name}-{place}") for place, chart in enumerate(group.charts)]
        yield element("div", *charts, class_="charts")
        yield from _beside(group.name, sessions)
    tables = [element("h3", escaped(table.title)) + _table(table) for table in every(sessions)]
    yield element("h2", "Every metric", id="every")
    yield element("details", element("summary", "Every metric with its formula"), element("div", *tables))
    terms = [element("dt", escaped(term)) + element("dd", escaped(meaning)) for term, meaning in legend()]
    yield element("h2", "Terms", id="terms")
    yield element("details", element("summary", "What the words mean"), element("div", element("dl", *terms)))


def _figures_title(sessions: Sequence[SessionFigures]) -> str:
    return headline(sessions).title


def _verdicts(sessions: Sequence[SessionFigures]) -> Iterator[str]:
    for place, session in enumerate(sessions):
        table = verdict(session)
        if table is not None:
            who = f", {LETTERS[place]}" if len(sessions) > 1 else ""
            yield element("h3", escaped(table.title + who)) + _table(table)


def _beside(name: str, sessions: Sequence[SessionFigures]) -> Iterator[str]:
    """Tables that belong to a group of charts."""
    if name == "throughput":
        for place, session in enumerate(sessions):
            who = f", {LETTERS[place]}" if len(sessions) > 1 else ""
            for table in (happened(session), configurations(session)):
                if table is not None:
                    yield element("h3", escaped(table.title + who)) + _table(table)
    elif name == "anatomy" and len(sessions) > 1:
        yield from _phases(sessions)
    elif name == "latency":
        yield element("h3", "By percentile") + _table(latencies(sessions))


def _phases(sessions: Sequence[SessionFigures]) -> Iterator[str]:
    table = phases(sessions)
    if table.rows:
        yield element("h3", escaped(table.title)) + _table(table)


def _cards(session: SessionFigures) -> str:
    result = session.result
    ttft, tpot = result[latency.TimeToFirstToken], result[latency.TimePerOutputToken]
    told = (
        ("tokens out per second", quantity(result[load.OutputRate], "tokens/s")),
        ("time to first token, p95", percentile(ttft, "p95", "ns")),
        ("per output token, p50", percentile(tpot, "p50", "ns")),
        ("tokens per forward", quantity(result[speculation.TokensPerForward], "tokens")),
        ("drafted tokens accepted", quantity(result[speculation.AcceptanceRate], "1")),
        ("prompt tokens spared", quantity(result[load.UsefulHitRate], "1")),
        ("slots busy", quantity(result[load.Occupancy], "1")),
        ("in forwards, modelled", quantity(result[cost.TargetBandwidth], "B/s")),
    )
    cards = [element("li", element("b", escaped(value)), element("span", escaped(name))) for name, value in told]
    return element("ul", *cards, class_="cards")


def _kind(head: str, cell: str) -> str | None:
    """How a cell may be broken: words anywhere, one with many figures between them, a figure nowhere."""
    if head in WORDS:
        return "words"
    return "many" if len(cell) > MOST_FIGURES else None


def _is_dense(table: Table) -> bool:
    """It is set closer: at full size a page would not hold its columns beside each other."""
    columns = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=False)]
    must = [
        LEAST_WORDS if name in WORDS else 0 if place and width > MOST_FIGURES else width
        for place, (name, width) in enumerate(zip(table.head, columns, strict=False))
    ]
    return len(table.head) > MOST_COLUMNS or sum(must) + BETWEEN * len(must) > MOST_CHARACTERS


def _table(table: Table) -> str:
    head = [
        element("th", escaped(name) or " ", scope="col", class_="words" if name in WORDS else None)
        for name in table.head
    ]
    rows = []
    for first, *cells in table.rows:
        shown = [
            element("td", escaped(cell), class_=_kind(table.head[place + 1], cell)) for place, cell in enumerate(cells)
        ]
        rows.append(element("tr", element("th", escaped(first), scope="row"), *shown))
    made = element(
        "table",
        element("thead", element("tr", *head)) if any(table.head) else "",
        element("tbody", *rows),
        class_="text" if table.is_text else "dense" if _is_dense(table) else None,
    )
    note = element("p", escaped(table.note), class_="note") if table.note else ""
    # Reachable by keyboard, since it may be wider than the window.
    return (
        element(
            "div",
            made,
            class_=f"scroll{' narrow' if len(table.head) == 2 and not table.is_text else ''}",
            role="region",
            aria_label=table.title,
            tabindex="0",
        )
        + note
    )
