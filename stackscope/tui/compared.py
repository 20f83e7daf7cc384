"""What comparing two recordings found, as lines: the verdict, the anatomy of both, where time moved, every figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.comparing import wording
from stackscope.tui.charts import bar, stacked_bar, swatch
from stackscope.tui.compose import wrapped
from stackscope.tui.lines import Line, Span, cells, fitted, printable
from stackscope.tui.wording import called, spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.comparison import Comparison, Verdict, Versus
    from stackscope.analysis.comparing.concerns import Concern
    from stackscope.analysis.comparing.differences import Area, Difference
    from stackscope.analysis.comparing.moved import Moved
    from stackscope.tui.look import Look

VERDICTS: Final[dict[Verdict, str]] = {
    "faster": "good", "slower": "bad", "not distinguishable": "value", "not comparable": "warning",
    "unknown": "warning",
}  # fmt: skip
STANDINGS: Final = {"better": "good", "worse": "bad"}
AREAS: Final[dict[Area, str]] = {
    "configuration": "Configuration at the start", "workload": "Workload", "model": "Model", "machine": "Machine",
    "recording": "Recording",
}  # fmt: skip
_NAME: Final = 28
_INDENT: Final = 9
_GAP: Final = 2
_SHARE: Final = 9
_PART: Final = 21
"""Of the longest name of a part of the forward, with its indent."""
_TABLE: Final = 65
"""Cells that the tables of times need with all of their columns."""
_WIDE: Final = 96
"""Cells from which on each part of a step has a bar for either recording."""


def judged(found: Comparison, room: int, look: Look) -> tuple[Line, ...]:
    """The second of two recordings against the first, in lines of at most `room` cells."""
    (versus,) = found.versus
    blocks = [
        [*wrapped(versus.sentence, room, VERDICTS[versus.verdict])],
        [line for concern in versus.untold for line in _concern(concern, room)],
        _anatomy(found, room, look),
        [] if versus.moved is None else _moved(versus.moved, versus.letters, room),
        _figures(versus, room, look),
        differences(versus.differences, room, look),
        [*wrapped(wording.ONE_RUN, room)],
    ]
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [(), *block] if lines else block
    return tuple(fitted(line, room, look.ellipsis) if line else line for line in lines)


def _concern(concern: Concern, room: int) -> list[Line]:
    label, style = ("barrier", "warning") if concern.is_barrier else ("note", "label")
    return _hung(Span(f"{label:<{_INDENT}}", style), concern.text, room)


def _hung(label: Span, text: str, room: int) -> list[Line]:
    """Words behind a label; further lines are indented by it."""
    indent = cells(label.text)
    first, *rest = wrapped(text, max(room - indent, 10), "") or ((),)
    return [(label, *first), *[(Span(" " * indent), *line) for line in rest]]


# The anatomy of both


def _anatomy(found: Comparison, room: int, look: Look) -> list[Line]:
    """The mean step of both as bars to one scale, and part by part beside each other."""
    a, b = (facts.anatomy_ns for facts in found.sessions)
    title: Line = (
        Span("Step anatomy", "headline"),
        Span("  mean wall time per step, idle time before it included", "label"),
    )
    if a is None or b is None:
        unknown = [facts.letter for facts in found.sessions if facts.anatomy_ns is None]
        return [title, *wrapped(f"{' and '.join(unknown)}: where the time of a step goes is not known.", room)]
    totals = [sum(parts.values()) for parts in (a, b)]
    width, longest = room - 14, max(*totals, 1.0)
    lines: list[Line] = [title]
    for letter, parts, total in zip("AB", (a, b), totals, strict=True):
        drawn = stacked_bar(list(parts.values()), max(round(width * total / longest), 1), look)
        lines.append((Span(f"{letter} ", "accent"), Span(f"{units.duration(total):>10}  ", "value"), *drawn))
    names = [name for name in a if a[name] > 0 or b[name] > 0]
    lines.append((Span(_parts_head(room), "label"),))
    lines += [_part(name, a[name], b[name], totals, room, look) for name in names]
    return lines


def _parts_head(room: int) -> str:
    bars = " " * (_bar_room(room) + 1) if _bar_room(room) else ""
    share = " " * _SHARE if room >= _TABLE else ""
    return f"{'':<14}{bars}{'A':>10}{share}  {bars}{'B':>10}{share}{'B - A':>11}"


def _bar_room(room: int) -> int:
    """Cells of a bar beside a part's time. 0: there is no room for it."""
    return (room - 14 - 2 * (11 + _SHARE) - 2 - 11) // 2 if room >= _WIDE else 0


def _part(name: str, a: float, b: float, totals: Sequence[float], room: int, look: Look) -> Line:
    one, other = (
        _spent(name, ns, total, max(*totals, 1.0), room, look) for ns, total in zip((a, b), totals, strict=True)
    )
    return (
        swatch(name, look),
        Span(f" {name:<12}"),
        *one,
        Span("  "),
        *other,
        Span(f"{wording.signed(b - a):>11}", "value"),
    )


def _spent(name: str, ns: float, total: float, longest: float, room: int, look: Look) -> Line:
    """What a part takes of the mean step of one recording, and its share; a bar to the scale of both where there is
    room."""
    width = _bar_room(room)
    drawn = (*bar(ns / longest, width, look, f"part.{name}"), Span(" ")) if width else ()
    share = f"{units.percent(ns / total if total > 0 else None):>{_SHARE}}" if room >= _TABLE else ""
    return (*drawn, Span(f"{units.duration(ns):>10}", "value"), Span(share, "unit"))


# Where the time moved


def _moved(found: Moved, letters: tuple[str, str], room: int) -> list[Line]:
    a, b = letters
    lines: list[Line] = [
        (Span("Where the time of a step moved", "headline"),),
        *wrapped(wording.sentence(found), room, ""),
    ]
    name, column = (_PART, 11) if room >= _TABLE else (18, 9)
    head = wording.Row(0, "per step", a, b, f"{b} - {a}", "per token")
    for row in (head, *wording.rows(found)):
        shown = row[2:] if room >= _TABLE else row[2:5]
        text = f"{('  ' * row.depth + row.name)[:name]:<{name}}{''.join(f'{value:>{column}}' for value in shown)}"
        lines.append((Span(text, "label" if row is head else "value" if row.depth < 2 else ""),))
    return [*lines, *wrapped(found.split, room)]


# Figures


def _figures(versus: Versus, room: int, look: Look) -> list[Line]:
    """Every figure with the interval of its change; where there is no room for all, without the values themselves."""
    a, b = versus.letters
    known = wording.known_figures(versus)
    head = wording.Cells("", a, b, f"{b} against {a}", "")
    rows = [head, *map(wording.cells, known)]
    name, one, other, change, standing = (max(map(cells, column)) for column in zip(*rows, strict=True))
    is_narrow = name + one + other + change + standing + 4 > room
    gap = " " if is_narrow or name + one + other + change + standing + 4 * _GAP > room else " " * _GAP
    lines: list[Line] = [(Span("Figures", "headline"), Span("  with the 95 % interval of each change", "label"))]
    for row in rows:
        values = "" if is_narrow else f"{gap}{row.a:>{one}}{gap}{row.b:>{other}}"
        changed = f"{gap}{row.change:>{change}}{gap}{row.standing}".rstrip()
        styles = ("label", "label") if row is head else ("value", STANDINGS.get(row.standing, ""))
        lines.append((Span(f"{row.name:<{name}}{values}", styles[0]), Span(changed, styles[1])))
    if any(any(one.is_maximum) for one in known):
        lines += wrapped(wording.FEW_VALUES, room)
    lines += _hung(Span(f"{'values':<{_INDENT}}", "label"), f" {look.dot} ".join(wording.numbers(known)), room)
    lines += _hung(Span(f"{'how':<{_INDENT}}", "label"), f" {look.dot} ".join(wording.hows(known)), room)
    few = wording.too_few(known)
    if few:
        lines += _hung(Span(f"{'too few':<{_INDENT}}", "label"), f" {look.dot} ".join(few), room)
    return lines


# What differs


def differences(found: Sequence[Difference], room: int, look: Look) -> list[Line]:
    """What is not the same: settings at the start, traffic, model, machine, and how it was recorded."""
    lines: list[Line] = []
    for area, title in AREAS.items():
        some = [one for one in found if one.area == area]
        if some:
            lines.append((Span(title, "headline"),))
            for one in some:
                name, text = _difference(one, look)
                lines += _hung(Span(f"{name[: _NAME - 1]:<{_NAME}}", "label"), text, room)
        elif area != "recording":
            lines.append((Span(title, "headline"), Span("  the same", "label")))
    return lines


def _difference(one: Difference, look: Look) -> tuple[str, str]:
    if one.name.startswith("with "):
        return one.name, f"{'A' if one.a else 'B'} only"
    a, b = (wording.quantity(one.name, value) for value in (one.a, one.b))
    if a is not None and b is not None:
        return a[0], f"{a[1]} {look.arrow} {b[1]}"
    shown = _setting if one.area == "configuration" else _text
    return called(one.name), f"{shown(one.name, one.a)} {look.arrow} {shown(one.name, one.b)}"


def _setting(name: str, value: object) -> str:
    if isinstance(value, list):
        value = tuple(value)
    return spelled(name, value) if value is None or isinstance(value, bool | int | float | str | tuple) else str(value)


def _text(_: str, value: object) -> str:
    match value:
        case None:
            return units.UNKNOWN
        case dict():
            return " ".join(f"{name} {_text('', part)}" for name, part in value.items()) or "none"
        case int() if not isinstance(value, bool):
            return units.count(value)
    return printable(str(value))
