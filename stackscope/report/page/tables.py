"""The tables of a report as plain text, the same for HTML and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stackscope import units
from stackscope.analysis.comparing import wording
from stackscope.analysis.comparing.differences import workload_of
from stackscope.analysis.distribution import Spread
from stackscope.analysis.metrics import cost, counts, latency, load, speculation, time
from stackscope.analysis.metrics.catalogue import SECTIONS
from stackscope.analysis.totals import SPELLED
from stackscope.report.compare import plain
from stackscope.report.epochs import changes, named, spelled
from stackscope.report.explained import told
from stackscope.report.page.wording import UNKNOWN, dashed, percentile, quantity, worded
from stackscope.report.text import ENDS, LATENCIES
from stackscope.toggles import idle_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from stackscope.analysis.live.snapshot import Effect, Event, Ratio
    from stackscope.analysis.metrics.base import Metric
    from stackscope.analysis.summary import Summary
    from stackscope.records import Header
    from stackscope.report.page.gather import SessionFigures
    from stackscope.toggles import EngineConfig

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORDS: Final = ("change", "remark", "changed", "formula", "limited by", "stands")
"""Heads of columns that hold words among figures."""
MOST_SESSIONS: Final = 8
"""Side by side: more colours cannot be told apart, and more columns cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table: its first column names the rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    is_text: bool = False
    """The cells are words, not figures."""


FIGURES: Final[tuple[tuple[type[Metric[Any]], str, str], ...]] = (
    (load.OutputRate, "", ""),
    (load.InputRate, "", ""),
    (load.RequestRate, "", ""),
    (latency.Goodput, "", ""),
    (latency.TimeToFirstToken, "p50", ""),
    (latency.TimeToFirstToken, "p95", ""),
    (latency.TimePerOutputToken, "p50", ""),
    (latency.TimePerOutputToken, "p95", ""),
    (latency.StepGap, "p95", ""),
    (latency.EndToEnd, "p50", ""),
    (time.StepTime, "p50", ""),
    (speculation.TokensPerForward, "", "tokens per forward"),
    (speculation.AcceptanceRate, "", "drafted tokens accepted"),
    (speculation.Coverage, "", "forwards with a draft"),
    (load.UsefulHitRate, "", "prompt tokens spared"),
    (load.Occupancy, "", "slots busy"),
    (load.BatchRows, "p50", "rows per forward"),
    (load.KvCellsPeak, "", ""),
    (cost.BytesPerToken, "", "bytes per token, modelled"),
    (cost.TargetBandwidth, "", "bytes/s in forwards, modelled"),
    (cost.TargetFlopRate, "", "FLOP/s in forwards, modelled"),
    (time.CpuShare, "", "threads running in forwards"),
    (time.IdleShare, "", "idle, of wall time"),
    (counts.WallTime, "", ""),
    (counts.OutputTokens, "", ""),
    (counts.Preemptions, "", ""),
)
"""Metrics that are told first: of distributions which percentile, and a name where theirs says too little here."""


def letters(sessions: Sequence[SessionFigures]) -> tuple[str, ...]:
    """Heads of the columns of values."""
    return tuple(LETTERS[: len(sessions)]) if len(sessions) > 1 else ("value",)


def ran(sessions: Sequence[SessionFigures]) -> Table:
    """What ran, where and how."""
    facts = [_facts(session) for session in sessions]
    rows = [(name, *(fact[name] for fact in facts)) for name in facts[0]]
    return Table(title="What ran", head=("", *letters(sessions)), rows=tuple(rows), is_text=True)


def _facts(session: SessionFigures) -> dict[str, str]:
    header, result = session.header, session.result
    reasons = result[counts.Requests] or {}
    requests = [f"{units.count(n)} {ENDS[reason][0 if n == 1 else 1]}" for reason, n in reasons.items() if n > 0]  # type: ignore[index]
    config = header.config
    return {
        "recording": session.path.name,
        "started": header.started,
        "model": UNKNOWN if header.model is None else header.model.name,
        "draft model": "none" if header.draft_model is None else header.draft_model.name,
        "workload": str(header.workload.get("text") or UNKNOWN),
        "configuration at the start": UNKNOWN if config is None else " · ".join(_settings(config)),
        "machine": f"{header.host} · {header.device}",
        "library": (header.library or "").partition(" | ")[0] or UNKNOWN,
        "recorded by": f"Stackscope {header.stackscope}",
        "requests": " · ".join(requests) or "none finished",
        "ended": session.truncated or result.ended or UNKNOWN,
    }


def _settings(config: EngineConfig) -> list[str]:
    """What is not as it is by default, and what one always wants to know."""
    always = ("speculation", "prefix_cache", "slots", "kv_type_k", "kv_type_v", "threads")
    usual = type(config)()
    names = [
        name
        for name in type(config).__struct_fields__
        if name not in ("model", "draft_model") and (name in always or getattr(config, name) != getattr(usual, name))
    ]
    return [f"{named(name)} {spelled(getattr(config, name))}" for name in names]


def headline(sessions: Sequence[SessionFigures]) -> Table:
    """The figures that are asked for first."""
    rows = []
    for metric, which, clearer in FIGURES:
        values = [session.result[metric] for session in sessions]
        if metric is latency.Goodput and all(value is None for value in values):
            continue  # No limits were set: there is nothing that it could be.
        name = f"{clearer or metric.header} {which}".strip()
        rows.append((name, *(_figure(value, which, metric.unit) for value in values)))
    note = "n is the number of values behind a percentile. A dash is not known, or not defined."
    title = "Figures" if len(sessions) == 1 else "Figures of each session"
    return Table(title=title, head=("metric", *letters(sessions)), rows=tuple(rows), note=f"{note}{_starred(rows)}")


def verdict(session: SessionFigures) -> Table | None:
    """What limited a session, and what would have helped, as its summary says it. `None`: nothing is known."""
    rows = tuple([(one.label, one.plain) for one in told(session.explanation)])
    return Table(title="What limited it", head=("", ""), rows=rows, is_text=True) if rows else None


def _figure(value: object, which: str, unit: str) -> str:
    if isinstance(value, Spread):
        return f"{percentile(value, which, unit)} (n {units.count(value.n)})"
    return worded(value, unit)


def _starred(rows: Sequence[tuple[str, ...]]) -> str:
    """What a star means, where there is one."""
    has_star = any("*" in cell for row in rows for cell in row[1:])
    return " * Of so few values, this percentile is no more than the maximum." if has_star else ""


def latencies(sessions: Sequence[SessionFigures]) -> Table:
    """Latencies by percentile, with the number of values."""
    rows = []
    for metric in LATENCIES:
        for place, session in enumerate(sessions):
            spread = session.result[metric]
            name = f"{metric.header}, {LETTERS[place]}" if len(sessions) > 1 else metric.header
            shown = [percentile(spread, which, metric.unit) for which in ("p50", "p90", "p95", "p99", "max", "mean")]
            rows.append((name, *shown, UNKNOWN if spread is None else units.count(spread.n)))
    return Table(
        title="Latency",
        head=("of completed requests", "p50", "p90", "p95", "p99", "max", "mean", "n"),
        rows=tuple(rows),
        note=_starred(rows).strip(),
    )


def phases(sessions: Sequence[SessionFigures]) -> Table:
    """Where the time of steps went, by phase."""
    shares: list[Mapping[str, float]] = [session.result[time.PhaseShares] or {} for session in sessions]
    names = dict.fromkeys(name for found in shares for name, share in found.items() if share > 0)
    ranked = sorted(names, key=lambda name: -max(found.get(name, 0.0) for found in shares))
    rows = [(SPELLED.get(name, name), *(dashed(units.percent(found.get(name))) for found in shares)) for name in ranked]
    return Table(
        title="Time by phase",
        head=("phase", *letters(sessions)),
        rows=tuple(rows),
        note="Share of the time inside steps; the phases are disjoint and sum to it.",
    )


def happened(session: SessionFigures) -> Table | None:
    """Changes and what they did. `None`: there was none."""
    events = [event for event in session.events if event.kind != "mark"]
    if not events:
        return None
    head = ["at", "change", "tok/s before", "after", "ratio [95 %]", "compared", "remark"]
    rows = [_happened(event) for event in events]
    note = (
        "Ratios are of tokens per second, from comparable stretches before and after. An interval without 1 in it tells"
        " a change from none. The last 50 events are kept."
    )
    if session.score is not None:
        note = f"{note} {session.score}"
    if any(event.predicted is not None for event in events):
        head.insert(4, "predicted [90 %]")
        for row, event in zip(rows, events, strict=True):
            row.insert(4, UNKNOWN if event.predicted is None else _ratio(event.predicted))
    return Table(title="Changes and what they did", head=tuple(head), rows=tuple(map(tuple, rows)), note=note)


def _happened(event: Event) -> list[str]:
    effect = event.effect
    changed = ", ".join(f"{named(name)} {spelled(a)} → {spelled(b)}" for name, (a, b) in event.changes.items())
    what = f"refused{f': {changed}' if changed else ''}" if event.kind == "refused" else changed or event.kind
    if event.duration_ns is not None:
        what += f" ({units.duration(event.duration_ns)} of rebuild)"
    return [
        units.duration(event.at_ns),
        what,
        dashed(units.token_rate(None if effect is None else effect.before)),
        dashed(units.token_rate(None if effect is None else effect.after)),
        UNKNOWN if effect is None or effect.tokens is None else _ratio(effect.tokens),
        _compared(effect),
        _remark(event, effect),
    ]


def _ratio(found: Ratio) -> str:
    return units.ratio(found.value, found.low, found.high)


def _compared(effect: Effect | None) -> str:
    if effect is None or effect.before is None:
        return UNKNOWN
    return f"{units.duration(round(effect.before_s * 1e9))} with {units.duration(round(effect.after_s * 1e9))}"


def _remark(event: Event, effect: Effect | None) -> str:
    if event.kind == "refused":
        return event.label or UNKNOWN
    if effect is None:
        return UNKNOWN
    return effect.state if effect.why is None else f"{effect.state}: {effect.why}"


def configurations(session: SessionFigures) -> Table | None:
    """One row for each configuration that ran. `None`: there was only one."""
    rows = []
    before: EngineConfig | None = None
    for epoch in session.result.epochs:
        rows.append((units.count(epoch.number), *_epoch(epoch), ", ".join(changes(before, epoch.config))))
        before = epoch.config
    if not rows:
        return None
    return Table(
        title="By configuration",
        head=(
            "epoch",
            "ran",
            "out",
            "TTFT p50",
            "TPOT p50",
            "step p50",
            "tokens/forward",
            "acceptance",
            "useful hits",
            "changed",
        ),
        rows=tuple(rows),
        note="Each configuration with all that it was offered: where the load changed as well, the figures mix it.",
    )


def _epoch(epoch: Summary) -> tuple[str, ...]:
    return (
        quantity(epoch[counts.WallTime], "ns"),
        quantity(epoch[load.OutputRate], "tokens/s"),
        *(
            percentile(epoch[metric], "p50", "ns")
            for metric in (latency.TimeToFirstToken, latency.TimePerOutputToken, time.StepTime)
        ),
        quantity(epoch[speculation.TokensPerForward], "tokens"),
        quantity(epoch[speculation.AcceptanceRate], "1"),
        quantity(epoch[load.UsefulHitRate], "1"),
    )


def differences(sessions: Sequence[SessionFigures]) -> Table | None:
    """What is not the same in all sessions. `None`: there is one session, or nothing differs."""
    configs = [session.header.config for session in sessions if session.header.config is not None]
    idle = frozenset.intersection(*map(idle_settings, configs)) if configs else frozenset()
    columns = [dict(_conditions(session.header, idle)) for session in sessions]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [
        (name, *(column.get(name, UNKNOWN) for column in columns))
        for name in names
        if len({column.get(name) for column in columns}) > 1
    ]
    if len(sessions) < 2 or not rows:
        return None
    return Table(
        title="What differs",
        head=("", *letters(sessions)),
        rows=tuple(rows),
        note="Settings are those at the start.",
        is_text=True,
    )


def _conditions(header: Header, idle: Collection[str]) -> Iterator[tuple[str, str]]:
    """What a session ran under, by name, but for the settings that are idle."""
    if header.config is not None:
        for field in type(header.config).__struct_fields__:
            if field not in idle:
                yield named(field), spelled(getattr(header.config, field))
    for name, value in workload_of(header).items():
        called, told = wording.quantity(name, value) or (name.replace("_", " "), plain(value))
        yield f"workload: {called}", told
    yield "host", header.host
    yield "device", header.device
    yield "library", header.library or UNKNOWN
    yield "Stackscope", header.stackscope
    if header.model is not None:
        yield "weights", units.data_size(header.model.tensor_bytes)


def every(sessions: Sequence[SessionFigures]) -> tuple[Table, ...]:
    """Every metric there is, by section, with its formula."""
    return tuple(
        [
            Table(
                title=section,
                head=("metric", *letters(sessions), "formula"),
                rows=tuple([_row(metric, sessions) for metric in metrics]),
            )
            for section, metrics in SECTIONS.items()
        ]
    )


def _row(metric: Metric[object], sessions: Sequence[SessionFigures]) -> tuple[str, ...]:
    values = [worded(session.result.values[metric.tag], metric.unit) for session in sessions]
    return (metric.header, *values, metric.formula)


def notes(sessions: Sequence[SessionFigures]) -> tuple[str, ...]:
    """What the reader should know before believing a figure."""
    found = []
    for place, session in enumerate(sessions):
        result = session.result
        who = f"{LETTERS[place]}: " if len(sessions) > 1 else ""
        if session.truncated is not None:
            found.append(f"{who}{session.truncated}")
        if session.left_out is not None:
            found.append(f"{who}{session.left_out}")
        if result[counts.InvalidOutputSteps]:
            found.append(f"{who}Acceptance was synthetic: times are real, the text is not the model's.")
        if result.epochs:
            n = units.counted(len(result.epochs), "configuration")
            found.append(f"{who}It ran under {n}: figures of the whole session mix them.")
        if result.spanning_requests > 0:
            n = units.counted(result.spanning_requests, "request")
            found.append(f"{who}{n} ran under more than one configuration: counted in the session, in no epoch.")
        if result.not_modelled:
            found.append(f"{who}The cost leaves out: {', '.join(result.not_modelled)}.")
    return tuple(found)
