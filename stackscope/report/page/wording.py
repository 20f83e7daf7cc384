"""Values of metrics as text, by their unit, through `units`; what is not known is an en dash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.distribution import Spread
from stackscope.analysis.totals import SPELLED

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN: Final = "–"

_BY_UNIT: Final[dict[str, Callable[[float | None], str]]] = {
    "ns": units.duration,
    "1": units.percent,
    "B": units.data_size,
    "B/token": units.data_size,
    "B/s": units.bandwidth,
    "FLOP/token": units.flops,
    "FLOP/s": units.flop_rate,
    "tokens/s": units.token_rate,
    "requests/s": units.request_rate,
}


def dashed(text: str) -> str:
    """The text of a value, with the dash of this report where it is unknown."""
    return UNKNOWN if text == units.UNKNOWN else text


def quantity(value: float | None, unit: str) -> str:
    """One number in its unit."""
    return dashed(_BY_UNIT.get(unit, units.number)(value))


def percentile(spread: Spread | None, name: str, unit: str) -> str:
    """A percentile of a distribution, marked where too few values lie beyond it."""
    if spread is None:
        return UNKNOWN
    return quantity(getattr(spread, name), unit) + ("*" if name in spread.unsupported else "")


def worded(value: object, unit: str) -> str:
    """The value of any metric on one line."""
    match value:
        case None:
            return UNKNOWN
        case Spread():
            told = [f"{name} {percentile(value, name, unit)}" for name in ("p50", "p95", "p99")]
            return " · ".join([*told, f"n {units.count(value.n)}"])
        case dict():
            shown = {name: part for name, part in value.items() if part != 0}
            names = [SPELLED.get(name, str(name).replace("_", " ")) for name in shown]
            told = [f"{name} {quantity(part, unit)}" for name, part in zip(names, shown.values(), strict=True)]
            return " · ".join(told) or quantity(0, unit)
        case tuple():
            return " · ".join([quantity(part, unit) for part in value]) or UNKNOWN
        case int() | float():
            return quantity(value, unit)
    return str(value)
