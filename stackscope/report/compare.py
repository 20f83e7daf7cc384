"""A comparison of sessions as text: the verdict, every figure with its interval, what differs, where the time moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.analysis.comparing.comparison import spelled
from stackscope.analysis.comparing.figures import DISTRIBUTIONS, name_of
from stackscope.analysis.comparing.judging import value_text
from stackscope.options import OPTIONS
from stackscope.report import epochs
from stackscope.report.layout import aligned, columns, hang, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.comparison import Compared, Comparison, SessionFacts, Verdict, Versus
    from stackscope.analysis.comparing.differences import Difference
    from stackscope.analysis.comparing.judging import Judged
    from stackscope.analysis.comparing.moved import Moved, Part

STYLES: Final[dict[Verdict, str]] = {
    "faster": "bold green", "slower": "bold red", "not distinguishable": "bold", "not comparable": "bold yellow",
    "unknown": "bold yellow",
}  # fmt: skip

STANDINGS: Final = {
    "better": "better", "worse": "worse", "more": "more", "less": "less", "not distinguishable": "unclear",
    "unknown": "",
}  # fmt: skip
"""How a figure stands, in a column."""

HOWS: Final = {
    "paired": "portions of the same work paired",
    "unpaired": "blocks of time",
    "resampled": "requests resampled",
    "by shares": "shares of values below",
}

ONE_RUN: Final = (
    "Intervals are of the spread inside each session. What differs from one run to the next, such as where memory came"
    " to lie, is not in them: it takes repeated runs."
)


def shown(comparison: Comparison, judged: Sequence[Judged], width: int) -> Text:
    """All of it in lines of at most `width` cells, but for words (a file, say) that are longer."""
    blocks = [[_session(facts, width) for facts in comparison.sessions]]
    for versus in comparison.versus:
        blocks += [
            [_verdict(versus, width)],
            *([_concerns(versus, width)] if versus.concerns else []),
            _figures(versus, width),
            _differences(versus, width),
            _moved(versus, width),
        ]
    if judged:
        blocks.append([_judgement(one, width) for one in judged])
    blocks.append([row("note", [ONE_RUN], width, style="dim")])
    return Text("\n\n").join(Text("\n").join(lines) for lines in blocks if lines)


def _session(facts: SessionFacts, width: int) -> Text:
    left_out = f"{units.counted(facts.warmup_steps, 'step')} of warm-up left out"
    told: list[str | Text] = [
        facts.name,
        *([] if facts.model is None else [facts.model]),
        *([] if facts.workload is None else facts.workload.split(" · ")),
        units.counted(facts.steps, "step"),
        f"{units.counted(facts.requests, 'request')} completed",
        units.duration(facts.wall_ns),
        *([left_out] if facts.warmup_ns > 0 else []),
    ]
    return hang(Text(f"{facts.letter}  ", style="bold"), told, width)


def _verdict(versus: Versus, width: int) -> Text:
    return hang(Text(), [Text(versus.sentence, style=STYLES[versus.verdict])], width)


def _concerns(versus: Versus, width: int) -> list[Text]:
    lines = []
    for concern in versus.concerns:
        label, style = ("barrier", "bold yellow") if concern.is_barrier else ("note", "yellow")
        lines.append(row(label, [concern.text], width, style=style))
    return lines


# The table of figures


def _figures(versus: Versus, width: int) -> list[Text]:
    a, b = versus.letters
    known = [one for one in versus.figures if one.a or one.b]
    header = ["", a, b, f"{b} against {a}", ""]
    rows = list(
        zip(
            [one.header for one in known],
            aligned([_value(one, 0) for one in known]),
            aligned([_value(one, 1) for one in known]),
            [_change(one) for one in known],
            [_standing(one) for one in known],
            strict=True,
        )
    )
    lines = [
        Text(line.rstrip(), style="bold" if index == 0 else _style(known[index - 1]))
        for index, line in enumerate(_table(header, rows))
    ]
    if any(any(one.is_maximum) for one in known):
        told = "* of so few values, this percentile is no more than the maximum"
        lines.append(hang(Text(), [told], width, style="dim"))
    lines.append(row("values", _numbers(known), width, style="dim"))
    lines.append(row("intervals", _how(known), width, style="dim"))
    return lines


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns with figures to the right, and the last, which are words, to the left."""
    lines = columns(header[:-1], [cells[:-1] for cells in rows])
    return [f"{line}  {cells[-1]}" for line, cells in zip(lines, [header, *rows], strict=True)]


def _value(one: Compared, index: int) -> str:
    value = (one.a, one.b)[index]
    if value is None:
        return units.UNKNOWN
    return f"{value_text(one.unit, value)}{'*' if one.is_maximum[index] else ''}"


def _change(one: Compared) -> str:
    if one.ratio is not None:
        return spelled(one.ratio)
    is_alike = one.why is None or not one.why.startswith("not")
    return units.change(one.b / one.a - 1) if is_alike and one.a and one.b is not None else units.UNKNOWN


def _standing(one: Compared) -> str:
    if one.ratio is not None:
        return "same" if one.ratio.low == one.ratio.high == 1.0 else STANDINGS[one.standing]
    return "too few" if one.why is not None and one.why.startswith("too few") else ""


def _style(one: Compared) -> str:
    return {"better": "green", "worse": "red"}.get(one.standing, "")


def _numbers(figures: Sequence[Compared]) -> list[str]:
    """How many values each distribution is of."""
    told = {}
    for metric in DISTRIBUTIONS:
        for one in figures:
            if one.n is not None and one.name.startswith(f"{name_of(metric)}_p"):
                told[metric.header] = f"{metric.header} {units.count(one.n[0])} and {units.count(one.n[1])}"
    return list(told.values()) or ["no request completed in either"]


def _how(figures: Sequence[Compared]) -> list[str]:
    used = {one.how: one for one in figures if one.how is not None}
    rates = [HOWS[how] for how in ("paired", "unpaired") if how in used]
    percentiles = [HOWS[how] for how in ("resampled", "by shares") if how in used]
    told = ["95 %, each by itself"]
    if rates:
        told.append(f"rates: {', else '.join(rates)}")
    if percentiles:
        told.append(f"percentiles: {', else '.join(percentiles)}")
    return told


# What differs


def _differences(versus: Versus, width: int) -> list[Text]:
    """A line for every area; those without a difference together on one."""
    lines, same = [], []
    for area in ("configuration", "workload", "model", "machine"):
        found = [one for one in versus.differences if one.area == area]
        if found:
            lines.append(row(area, [_difference(one, versus.letters) for one in found], width))
        else:
            same.append(area)
    rest = [one for one in versus.differences if one.area == "recording"]
    if rest:
        lines.append(row("recording", [_difference(one, versus.letters) for one in rest], width))
    return [*lines, row("the same", same, width)] if same else lines


def _difference(one: Difference, letters: tuple[str, str]) -> str:
    settings = {target for option in OPTIONS for target in option.targets}
    if one.name.startswith("with "):
        return f"{one.name}: {letters[0 if one.a else 1]} only"
    name = epochs.named(one.name) if f"engine.{one.name}" in settings else one.name.replace("_", " ")
    return f"{name} {_plain(one.a)} → {_plain(one.b)}"


def _plain(value: object) -> str:
    if isinstance(value, bool | int | float | str | tuple):
        return epochs.spelled(value)
    if isinstance(value, dict):
        return " ".join(f"{name} {_plain(part)}" for name, part in value.items()) or "none"
    return "none" if value is None else str(value)


# Where the time moved


def _moved(versus: Versus, width: int) -> list[Text]:
    found = versus.moved
    if found is None:
        return []
    a, b = versus.letters
    rows = [_part(found.step, "")]
    for phase in sorted(found.phases, key=lambda one: -abs(one.change_ns)):
        rows.append(_part(phase, "  "))
        if phase.name == "decode":
            rows += [_part(one, "    ") for one in sorted(found.decode, key=lambda one: -abs(one.change_ns))]
    names, *figures = zip(*rows, strict=True)
    padded = [aligned(list(column)) for column in figures]
    header = ["per step", a, b, f"{b} - {a}", "per token"]
    lines = columns(header, list(zip(names, *padded, strict=True)))
    return [
        row("moved", [sentence(found)], width),
        *[Text(line.rstrip(), style="bold" if index == 0 else "") for index, line in enumerate(lines)],
        hang(Text(), [Text(found.split, style="dim")], width),
    ]


def _part(part: Part, indent: str) -> tuple[str, str, str, str, str]:
    return (
        f"{indent}{part.name}",
        units.duration(part.a_ns),
        units.duration(part.b_ns),
        signed(part.change_ns),
        signed(part.token_change_ns),
    )


def sentence(found: Moved) -> str:
    """Where the step time moved, the largest parts first: `step -3.1 ms: decode -3.4 ms (weights -4.4 ms, …), …`."""
    phases = sorted(found.phases, key=lambda one: -abs(one.change_ns))
    told = []
    for phase in _telling(phases, found.step):
        inner = sorted(found.decode, key=lambda one: -abs(one.change_ns)) if phase.name == "decode" else []
        parts = ", ".join(f"{one.name} {signed(one.change_ns)}" for one in _telling(inner, found.step))
        told.append(f"{phase.name} {signed(phase.change_ns)}{f', of which {parts}' if parts else ''}")
    return f"step {signed(found.step.change_ns)}: {'; '.join(told) or 'no part of it by 1 %'}"


def _telling(parts: Sequence[Part], step: Part) -> list[Part]:
    """Those that moved by 1 % of the step at least."""
    return [one for one in parts if abs(one.change_ns) >= 0.01 * max(step.a_ns, step.b_ns)]


def signed(duration_ns: float | None) -> str:
    """A change of a duration with its sign."""
    return f"{'+' if duration_ns is not None and duration_ns > 0 else ''}{units.duration(duration_ns)}"


def _judgement(one: Judged, width: int) -> Text:
    style = {"broken": "bold red", "kept": "green", "not judged": "bold yellow"}[one.outcome]
    return row({"broken": "fails", "kept": "passes", "not judged": "not judged"}[one.outcome], [one.sentence], width,
               style=style)  # fmt: skip
