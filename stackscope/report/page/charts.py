"""Which charts a report has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.analysis.metrics import latency, speculation
from stackscope.report.epochs import changes
from stackscope.report.page import compared, over_time
from stackscope.report.page.frame import Chart
from stackscope.report.page.over_time import HALF, WIDE, highest, line_of
from stackscope.report.page.tables import LETTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.metrics.base import RequestMetric
    from stackscope.analysis.summary import Summary
    from stackscope.report.page.frame import Frame
    from stackscope.report.page.gather import SessionFigures
    from stackscope.report.page.over_time import Line
    from stackscope.toggles import EngineConfig

COLOURS: Final = tuple(f"c{place}" for place in range(8))
"""Classes of the colours of sessions and configurations."""
_LATENCIES: Final[tuple[tuple[type[RequestMetric], str], ...]] = (
    (latency.TimeToFirstToken, "From arrival to the first token."),
    (latency.StepGap, "From one emission of a request to its next."),
    (latency.TimePerOutputToken, "Mean time per token after the first."),
    (latency.EndToEnd, "From arrival to the end."),
)


class Group(NamedTuple):
    """Charts that stand beside each other under one heading."""

    name: str
    """Of the section, for links."""
    title: str
    charts: tuple[Chart, ...]


def groups(sessions: Sequence[SessionFigures]) -> tuple[Group, ...]:
    """Every chart of the page, in its order."""
    return (
        Group("throughput", "Throughput over time", _throughput(sessions)),
        Group("anatomy", "Where the time goes", (_steps(sessions), *_anatomies(sessions))),
        Group("latency", "Latency", _latencies(sessions)),
        Group("speculation", "Speculation", (_acceptance(sessions), *_tokens_per_forward(sessions))),
        Group("bandwidth", "Bandwidth", _bandwidth(sessions)),
        Group("load", "Load", _load(sessions)),
    )


def _titled(what: str, place: int, sessions: Sequence[SessionFigures]) -> str:
    return f"{what}, {LETTERS[place]}" if len(sessions) > 1 else what


def _frame(sessions: Sequence[SessionFigures], *, is_half: bool = False) -> Frame:
    """Of charts over time: beside each other where there are several, with room for names where there are marks."""
    frame = HALF if is_half or len(sessions) > 1 else WIDE
    return frame if any(session.marks for session in sessions) else frame.without_marks()


def _panels(
    sessions: Sequence[SessionFigures],
    lines: Sequence[Sequence[Line]],
    *,
    what: str,
    lead: str,
    told: str,
    limits: Sequence[float | None] | None = None,
    is_half: bool = False,
) -> tuple[Chart, ...]:
    """A chart over time for each session, all with the same vertical axis. `told` names a function of `units`."""
    limits = [None] * len(sessions) if limits is None else limits
    known = [high for high in (*map(highest, lines), *limits) if high is not None]
    charts = []
    for place, (session, drawn, limit) in enumerate(zip(sessions, lines, limits, strict=True)):
        title = _titled(what, place, sessions)
        if highest(drawn) is None:
            charts.append(Chart(title=title, lead="Nothing is known of it.", description="", content=""))
            continue
        charts.append(
            over_time.rates(
                session, drawn, title=title, lead=lead, told=getattr(units, told), high=max(*known, 1e-9),
                limit=None if limit is None else (limit, "measured at most on this machine"),
                frame=_frame(sessions, is_half=is_half),
            )
        )  # fmt: skip
    return tuple(charts)


def _throughput(sessions: Sequence[SessionFigures]) -> tuple[Chart, ...]:
    lines = [
        [line_of(session, "tokens_per_s", "tokens out", COLOURS[place], is_filled=True)]
        for place, session in enumerate(sessions)
    ]
    lead = "Tokens that entered outputs, per second. Lines across are changes and marks."
    return _panels(sessions, lines, what="Tokens per second", lead=lead, told="number")


def _anatomies(sessions: Sequence[SessionFigures]) -> list[Chart]:
    frame = _frame(sessions)
    return [
        over_time.anatomy(session, title=_titled("Parts of the time", place, sessions), frame=frame)
        for place, session in enumerate(sessions)
    ]


def _steps(sessions: Sequence[SessionFigures]) -> Chart:
    rows = []
    for place, session in enumerate(sessions):
        told = _configurations(session)
        for one in session.anatomy:
            names = [LETTERS[place]] if len(sessions) > 1 else []
            if len(session.anatomy) > 1:
                names.append(f"epoch {units.count(one.epoch)} ({told.get(one.epoch, units.UNKNOWN)})")
            rows.append(compared.Steps(name=", ".join(names) or "all steps", n=one.steps, parts_ns=one.parts_ns))
    return compared.steps(rows)


def _configurations(session: SessionFigures) -> dict[int, str]:
    """What each epoch changed against the one before."""
    told = {}
    before: EngineConfig | None = None
    for epoch in session.result.epochs:
        told[epoch.number] = ", ".join(changes(before, epoch.config))
        before = epoch.config
    return told


def _latencies(sessions: Sequence[SessionFigures]) -> tuple[Chart, ...]:
    charts = []
    for metric, meaning in _LATENCIES:
        rows = []
        for place, session in enumerate(sessions):
            spread = session.result[metric]
            if spread is not None:
                name = LETTERS[place] if len(sessions) > 1 else metric.header
                curve = session.curves[metric.tag]
                rows.append(compared.Spreads(name=name, style=COLOURS[place], curve=curve, spread=spread))
        charts.append(compared.latencies(metric.header, meaning, rows))
    return tuple(charts)


def _acceptance(sessions: Sequence[SessionFigures]) -> Chart:
    """By session; of a single one by configuration, where several drafted."""
    rows: list[tuple[str, Summary]] = [(LETTERS[place], session.result) for place, session in enumerate(sessions)]
    if len(sessions) == 1:
        session = sessions[0]
        told = _configurations(session)
        by_epoch: list[tuple[str, Summary]] = [
            (f"epoch {units.count(epoch.number)} ({told[epoch.number]})", epoch)
            for epoch in session.result.epochs
            if epoch[speculation.AcceptanceByPosition]
        ]
        rows = by_epoch if len(by_epoch) > 1 else [("", session.result)]
    drafts = [
        compared.Drafts(
            name=name,
            style=COLOURS[place % len(COLOURS)],
            by_position=found[speculation.AcceptanceByPosition] or (),
            survival=found[speculation.Survival] or (),
        )
        for place, (name, found) in enumerate(rows[: len(COLOURS)])
    ]
    return compared.acceptance(drafts, is_wide=len(sessions) > 1)


def _tokens_per_forward(sessions: Sequence[SessionFigures]) -> tuple[Chart, ...]:
    lines = [
        [line_of(session, "tokens_per_forward", "tokens per forward", COLOURS[place])]
        for place, session in enumerate(sessions)
    ]
    lead = "What a sequence wins per forward of the target it takes part in while decoding; 1 without drafts."
    return _panels(sessions, lines, what="Tokens per forward", lead=lead, told="number", is_half=True)


def _bandwidth(sessions: Sequence[SessionFigures]) -> tuple[Chart, ...]:
    lines = []
    for session in sessions:
        drawn = [
            line_of(session, "forward_bytes_per_s", "in forwards, modelled", "c0"),
            line_of(session, "bytes_per_s", "over all the time, modelled", "c1", is_dashed=True),
        ]
        if session.measured:
            values = tuple([(max(over_time.seconds(session, at_ns), 0.0), rate) for at_ns, rate in session.measured])
            drawn.append(over_time.Line(name=f"measured by {session.measured_by}", style="c2", values=values))
        lines.append(drawn)
    lead = (
        "Bytes that the ledger counts, per second: of the target inside its forwards, and of both models over all time."
    )
    ceilings = [session.bandwidth_ceiling for session in sessions]
    return _panels(sessions, lines, what="Bytes per second", lead=lead, told="bandwidth", limits=ceilings)


def _load(sessions: Sequence[SessionFigures]) -> tuple[Chart, ...]:
    lines = [
        [line_of(session, "slots_busy", "slots busy", "c0", is_filled=True), line_of(session, "queue", "waiting", "c1")]
        for session in sessions
    ]
    lead = "Requests that held a slot, and requests that waited for one."
    return _panels(sessions, lines, what="Requests in flight", lead=lead, told="number")
