"""What `--fail-if` says: limits on figures, for machines that decide whether a change may go in.

    condition := figure ("<" | ">") (sign number "%" | number [unit])
    condition { "," condition }

A number with a sign is a change against the first session, in per cent; without one it is a level of the other itself.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from stackscope.analysis.comparing.figures import BY_NAME, DISTRIBUTIONS, PERCENTILES, Figure, name_of
from stackscope.errors import UsageError

_CONDITION: Final = re.compile(
    r"\s*(?P<name>[a-z0-9_]+)\s*(?P<sign>[<>])\s*(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>[^\s,<>\d]*)\s*"
)

ALIASES: Final = {"tokens_per_s": "output_tokens_per_s", "a": "tokens_per_forward", "acceptance": "acceptance_rate"}
"""Shorter names."""

UNITS: Final[dict[str, dict[str, float]]] = {
    "ns": {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "1": {"": 1.0, "%": 0.01},
    "B": {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "B/s": {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12},
}
"""What may follow a level, by the unit of the figure; elsewhere nothing may."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. It holds where the figure lies beyond it."""

    text: str
    """As it was written."""
    figure: str
    """Name of the figure."""
    sign: Literal["<", ">"]
    is_change: bool
    """The limit is on the ratio to the first session's figure."""
    limit: float
    """A ratio (1.05 for +5 %), or a level in the figure's own unit."""


def conditions(text: str) -> tuple[Condition, ...]:
    """The limits that an expression says. Raises `UsageError`, with how to say it, for anything else."""
    return tuple(_condition(part) for part in text.split(","))


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--fail-if {text.strip()!r} is no condition.",
            remedy="Write a figure, < or >, and a limit: 'tpot_p95 > +5%' (a change) or 'ttft_p99 > 200ms' (a level).",
        )
    figure = _figure(found["name"])
    number, unit = float(found["number"]), found["unit"]
    whole = f"{figure.name} {found['sign']} {found['number']}{unit}"
    if found["number"][0] in "+-":
        if unit != "%":
            raise UsageError(
                f"--fail-if {text.strip()!r}: a change is given in per cent.",
                remedy=f"Write {found['number']}%, or a level without a sign.",
            )
        if number <= -100:
            raise UsageError(f"--fail-if {text.strip()!r}: nothing falls by more than all.", remedy="Stay above -100%.")
        return Condition(text=whole, figure=figure.name, sign=_sign(found), is_change=True, limit=1 + number / 100)
    known = UNITS.get(figure.unit, {"": 1.0})
    if unit not in known:
        raise UsageError(f"--fail-if {text.strip()!r}: {figure.name} is not given in {unit or 'plain numbers'}.",
                         remedy=_units(figure, found["number"], known))  # fmt: skip
    return Condition(text=whole, figure=figure.name, sign=_sign(found), is_change=False, limit=number * known[unit])


def _sign(found: re.Match[str]) -> Literal["<", ">"]:
    return "<" if found["sign"] == "<" else ">"


def _units(figure: Figure, number: str, known: dict[str, float]) -> str:
    named = [unit for unit in known if unit]
    if not named:
        return f"Write {number} alone ({figure.unit} is meant), or +{number}% for a change."
    return f"Give it in {', '.join(named)}; for a change write +{number}%."


def _figure(name: str) -> Figure:
    """The figure of a name. Raises `UsageError` with the names that there are."""
    name = ALIASES.get(name, name)
    if name in BY_NAME:
        return BY_NAME[name]
    distributions = [name_of(metric) for metric in DISTRIBUTIONS]
    stem = re.sub(r"_p\d+$", "", name)
    if stem in distributions:
        which = ", ".join(f"{stem}_p{p}" for p in PERCENTILES)
        raise UsageError(f"--fail-if {name!r} is a distribution without a percentile that is known.",
                         remedy=f"Write one of {which}.")  # fmt: skip
    plain = [one for one in BY_NAME if re.sub(r"_p\d+$", "", one) not in distributions]
    latencies = ", ".join(f"{one}_p95" for one in distributions)
    raise UsageError(
        f"--fail-if {name!r} is no figure.",
        remedy=f"There are {', '.join(plain)}, and percentiles ({', '.join(f'p{p}' for p in PERCENTILES)}) such as"
        f" {latencies}.",
    )
