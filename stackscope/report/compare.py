"""A comparison of sessions as text: the verdict, every figure with its interval, what differs, where the time moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.analysis.comparing import wording
from stackscope.options import OPTIONS
from stackscope.report import epochs
from stackscope.report.layout import aligned, columns, hang, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.comparison import Compared, Comparison, SessionFacts, Verdict, Versus
    from stackscope.analysis.comparing.differences import Difference
    from stackscope.analysis.comparing.judging import Judged

STYLES: Final[dict[Verdict, str]] = {
    "faster": "bold green", "slower": "bold red", "not distinguishable": "bold", "not comparable": "bold yellow",
    "unknown": "bold yellow",
}  # fmt: skip


def shown(comparison: Comparison, judged: Sequence[Judged], width: int) -> Text:
    """All of it in lines of at most `width` cells, but for words (a file, say) that are longer."""
    blocks = [[_session(facts, width) for facts in comparison.sessions]]
    for versus in comparison.versus:
        blocks += [
            [_verdict(versus, width)],
            *([_concerns(versus, width)] if versus.untold else []),
            _figures(versus, width),
            _differences(versus, width),
            _moved(versus, width),
        ]
    if judged:
        blocks.append([_judgement(one, width) for one in judged])
    blocks.append([row("note", [wording.ONE_RUN], width, style="dim")])
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
    for concern in versus.untold:
        label, style = ("barrier", "bold yellow") if concern.is_barrier else ("note", "yellow")
        lines.append(row(label, [concern.text], width, style=style))
    return lines


# The table of figures


def _figures(versus: Versus, width: int) -> list[Text]:
    a, b = versus.letters
    known = wording.known_figures(versus)
    header = ["", a, b, f"{b} against {a}", ""]
    told = [wording.cells(one) for one in known]
    a_values, b_values = aligned([one.a for one in told]), aligned([one.b for one in told])
    rows = [
        (one.name, a_value, b_value, one.change, one.standing)
        for one, a_value, b_value in zip(told, a_values, b_values, strict=True)
    ]
    lines = [
        Text(line.rstrip(), style="bold" if index == 0 else _style(known[index - 1]))
        for index, line in enumerate(_table(header, rows))
    ]
    if any(any(one.is_maximum) for one in known):
        lines.append(hang(Text(), [wording.FEW_VALUES], width, style="dim"))
    lines.append(row("values", wording.numbers(known), width, style="dim"))
    lines.append(row("intervals", wording.hows(known), width, style="dim"))
    few = wording.too_few(known)
    if few:
        lines.append(row("too few", few, width, style="dim"))
    return lines


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns with figures to the right, and the last, which are words, to the left."""
    lines = columns(header[:-1], [cells[:-1] for cells in rows])
    return [f"{line}  {cells[-1]}" for line, cells in zip(lines, [header, *rows], strict=True)]


def _style(one: Compared) -> str:
    return {"better": "green", "worse": "red"}.get(one.standing, "")


# What differs


def _differences(versus: Versus, width: int) -> list[Text]:
    """A line for every area; those without a difference together on one."""
    lines, same = [], []
    for area in ("configuration", "workload", "model", "machine"):
        found = [one for one in versus.differences if one.area == area]
        if found:
            lines.append(row(area, [difference(one, versus.letters) for one in found], width))
        else:
            same.append(area)
    rest = [one for one in versus.differences if one.area == "recording"]
    if rest:
        lines.append(row("recording", [difference(one, versus.letters) for one in rest], width))
    return [*lines, row("the same", same, width)] if same else lines


def difference(one: Difference, letters: tuple[str, str]) -> str:
    """Something that is not the same, by its name as on the command line."""
    settings = {target for option in OPTIONS for target in option.targets}
    if one.name.startswith("with "):
        return f"{one.name}: {letters[0 if one.a else 1]} only"
    if one.area == "workload" and one.name == "load":  # In words already, whose slash is no path's.
        return f"load {one.a} → {one.b}"
    if f"engine.{one.name}" in settings and one.area == "configuration":
        return f"{epochs.named(one.name)} {_setting(one.a)} → {_setting(one.b)}"
    a, b = (wording.quantity(one.name, value) for value in (one.a, one.b))
    if a is not None and b is not None:
        return f"{a[0]} {a[1]} → {b[1]}"
    return f"{one.name.replace('_', ' ')} {plain(one.a)} → {plain(one.b)}"


def _setting(value: object) -> str:
    return epochs.spelled(None) if value is None else plain(value)


def plain(value: object) -> str:
    """A recorded value without a unit, as one would type it."""
    if isinstance(value, bool | int | float | str | tuple):
        return epochs.spelled(value)
    if isinstance(value, dict):
        return " ".join(f"{name} {plain(part)}" for name, part in value.items()) or "none"
    return "none" if value is None else str(value)


# Where the time moved


def _moved(versus: Versus, width: int) -> list[Text]:
    found = versus.moved
    if found is None:
        return []
    a, b = versus.letters
    told = wording.rows(found)
    padded = [aligned(list(column)) for column in zip(*[one[2:] for one in told], strict=True)]
    names = [f"{'  ' * one.depth}{one.name}" for one in told]
    lines = columns(["per step", a, b, f"{b} - {a}", "per token"], list(zip(names, *padded, strict=True)))
    return [
        row("moved", [wording.sentence(found)], width),
        *[Text(line.rstrip(), style="bold" if index == 0 else "") for index, line in enumerate(lines)],
        hang(Text(), [Text(found.split, style="dim")], width),
    ]


def _judgement(one: Judged, width: int) -> Text:
    style = {"broken": "bold red", "kept": "green", "not judged": "bold yellow"}[one.outcome]
    return row({"broken": "fails", "kept": "passes", "not judged": "not judged"}[one.outcome], [one.sentence], width,
               style=style)  # fmt: skip
