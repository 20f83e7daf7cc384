"""A comparison in words and cells: what the command, the screen and the report all say the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stackscope import units
from stackscope.analysis.comparing.comparison import spelled
from stackscope.analysis.comparing.figures import DISTRIBUTIONS, name_of
from stackscope.analysis.comparing.judging import value_text
from stackscope.analysis.comparing.percentiles import NEEDS
from stackscope.analysis.totals import SPELLED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.comparison import Compared, Versus
    from stackscope.analysis.comparing.moved import Moved, Part

STANDINGS: Final = {
    "better": "better", "worse": "worse", "more": "more", "less": "less", "not distinguishable": "unclear",
    "unknown": "",
}  # fmt: skip
"""How a figure stands, in a column."""
SAME: Final = 0.01
"""A change of which the whole interval is smaller than this is called none, rather than one that is not known."""

HOWS: Final = {
    "paired": "portions of the same work paired",
    "unpaired": "blocks of time",
    "resampled": "requests resampled",
    "by shares": "shares of values below",
}

TIMES: Final = frozenset({"duration", "warm-up left out"})
"""What differs between two recordings and is a time."""

ONE_RUN: Final = (
    "Intervals are of the spread inside each session. What differs from one run to the next, such as where memory came"
    " to lie, is not in them: it takes repeated runs."
)
SHARED: Final = "values of a request, and of those that run beside it, share hitches, so that many tell what few would"
FEW_VALUES: Final = "* of so few values, this percentile is no more than the maximum"


class Cells(NamedTuple):
    """A figure of two sessions, as a row of a table."""

    name: str
    a: str
    b: str
    change: str
    standing: str


def known_figures(versus: Versus) -> list[Compared]:
    """The figures of which at least one session has something."""
    return [one for one in versus.figures if one.a or one.b]


def cells(one: Compared) -> Cells:
    """The row of a figure."""
    return Cells(one.header, _value(one, 0), _value(one, 1), _change(one), _standing(one))


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
        is_same = one.ratio.holds(1.0) and one.ratio.low > 1.0 - SAME and one.ratio.high < 1.0 + SAME
        return "same" if is_same else STANDINGS[one.standing]
    return "too few" if one.why is not None and one.why.startswith("too few") else ""


def numbers(figures: Sequence[Compared]) -> list[str]:
    """How many values each distribution is of."""
    told = {}
    for metric in DISTRIBUTIONS:
        for one in figures:
            if one.n is not None and one.name.startswith(f"{name_of(metric)}_p"):
                told[metric.header] = f"{metric.header} {units.count(one.n[0])} and {units.count(one.n[1])}"
    return list(told.values()) or ["no request completed in either"]


def hows(figures: Sequence[Compared]) -> list[str]:
    """Where the intervals come from."""
    used = {one.how for one in figures}
    rates = [HOWS[how] for how in ("paired", "unpaired") if how in used]
    percentiles = [HOWS[how] for how in ("resampled", "by shares") if how in used]
    told = ["95 %, each by itself"]
    if rates:
        told.append(f"rates: {', else '.join(rates)}")
    if percentiles:
        told.append(f"percentiles: {', else '.join(percentiles)}")
    return told


def too_few(figures: Sequence[Compared]) -> list[str]:
    """Why figures have no interval although they have values: what those are worth, and what each would need."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in figures:
        if _standing(one) == "too few" and one.why is not None and NEEDS in one.why:
            what, _, least = one.why.removeprefix("too few: ").partition(NEEDS)
            header, _, percentile = one.header.rpartition(" ")
            found.setdefault((header, what), []).append(f"{percentile} needs {least}")
    told = []
    for (header, what), needs in found.items():
        leasts = {one.rpartition(" ")[2] for one in needs}
        is_alike = len(needs) > 1 and len(leasts) == 1
        told.append(f"{header}: {what}, {f'each needs {leasts.pop()}' if is_alike else ', '.join(needs)}")
    is_shared = any("independent" in what for _, what in found)
    return [*told, *([SHARED] if is_shared else [])]


def quantity(name: str, value: object) -> tuple[str, str] | None:
    """What differs by a quantity with a unit: its name and its value as text. `None`: it is none of those.

    Sizes are whole numbers of bytes, times seconds, or nanoseconds where the name says so.
    """
    plain = name.removesuffix(" (ns)").removesuffix("_s").replace("_", " ")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (plain, "none") if value is None and plain in TIMES else None
    if plain in TIMES:
        return plain, units.duration(value if name.endswith(" (ns)") else 1e9 * value)
    if name.rpartition(" ")[2] == "weights":
        return name, units.data_size(value)
    return (name, units.count(value)) if isinstance(value, int) and name.rpartition(" ")[2] == "parameters" else None


class Row(NamedTuple):
    """A part of the step beside that of the other session."""

    depth: int
    """How deep it lies within the step: 0 the step, 1 its phases, 2 the parts of the target's forward."""
    name: str
    a: str
    b: str
    change: str
    per_token: str


def rows(found: Moved) -> list[Row]:
    """The step, its phases and the parts of the forward, those that moved most first."""
    made = [_row(found.step, 0)]
    for phase in by_change(found.phases):
        made.append(_row(phase, 1))
        if phase.name == "decode":
            made += [_row(one, 2) for one in by_change(found.decode)]
    return made


def _row(part: Part, depth: int) -> Row:
    name = SPELLED.get(part.name, part.name) if depth == 1 else part.name
    return Row(
        depth, name, units.duration(part.a_ns), units.duration(part.b_ns), signed(part.change_ns),
        signed(part.token_change_ns),
    )  # fmt: skip


def by_change(parts: Sequence[Part]) -> list[Part]:
    """Those that moved most first."""
    return sorted(parts, key=lambda one: -abs(one.change_ns))


def sentence(found: Moved) -> str:
    """Where the step time moved, the largest parts first: `step -3.1 ms: forward -3.4 ms (weights -4.4 ms, …), …`."""
    told = []
    for phase in _telling(by_change(found.phases), found.step):
        inner = by_change(found.decode) if phase.name == "decode" else []
        parts = ", ".join(f"{one.name} {signed(one.change_ns)}" for one in _telling(inner, found.step))
        told.append(
            f"{SPELLED.get(phase.name, phase.name)} {signed(phase.change_ns)}{f', of which {parts}' if parts else ''}"
        )
    return f"step {signed(found.step.change_ns)}: {'; '.join(told) or 'no part of it by 1 %'}"


def _telling(parts: Sequence[Part], step: Part) -> list[Part]:
    """Those that moved by 1 % of the step at least."""
    return [one for one in parts if abs(one.change_ns) >= 0.01 * max(step.a_ns, step.b_ns)]


def signed(duration_ns: float | None) -> str:
    """A change of a duration with its sign."""
    return f"{'+' if duration_ns is not None and duration_ns > 0 else ''}{units.duration(duration_ns)}"
