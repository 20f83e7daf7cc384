"""What a search is for: figures to make large or small, and limits that must hold."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from stackscope.analysis import factorial
from stackscope.errors import UsageError
from stackscope.experiments.quality import AGREEMENT, DIVERGENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stackscope.experiments.search_model import Array

MORE: Final = frozenset(
    {"tokens_per_s", "goodput", "acceptance", "tokens_per_forward", "useful_hit_rate", "greedy_agreement"}
)
"""Figures of which more is better; of all others, less."""

NAMES: Final[dict[str, str]] = {
    "tokens_per_s": "tokens_per_s", "goodput": "goodput", "memory": "memory_bytes", "kl": "mean_kl",
    "agreement": "greedy_agreement", "energy": "joules_per_token",
    **{
        f"{latency}_{p}": f"{latency}_{p}_ns" for latency in ("ttft", "step_gap", "tpot", "e2e") for p in ("p50", "p95")
    },
}  # fmt: skip
"""What people call a figure, and its name."""

UNITS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9,
                "MiB": 2.0**20, "GiB": 2.0**30, "%": 0.01, "": 1.0}  # fmt: skip

EXACT: Final = frozenset({AGREEMENT, DIVERGENCE})
"""Figures that no run strays in: they were found once for each configuration."""

AS_GOOD: Final = 0.01
"""What two figures may differ by and count as the same: less is hardly seen in what is printed."""
NEAR: Final = 0.05
"""What they may differ by where that may be chance, the chance included: wider intervals make nothing as good."""

DEFAULT: Final = ("tokens_per_s", "step_gap_p95", "memory")


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on a figure."""

    text: str
    figure: str
    relation: Literal["<", ">"]
    limit: float

    def holds(self, figures: Mapping[str, float]) -> bool | None:
        """Whether it holds. `None`: the figure is not known."""
        value = figures.get(self.figure)
        if value is None:
            return None
        return value < self.limit if self.relation == "<" else value > self.limit

    def probability(self, mean: Array, deviation: Array) -> Array:
        """That it holds, given what is thought of the figure's logarithm."""
        z = (math.log(self.limit) - mean) / np.maximum(deviation, 1e-9)
        return factorial.normal(z if self.relation == "<" else -z)


class Goals(msgspec.Struct, frozen=True, kw_only=True):
    """Objectives, the main one first, and constraints."""

    objectives: tuple[str, ...] = tuple(NAMES[name] for name in DEFAULT)
    """Names of figures."""
    constraints: tuple[Constraint, ...] = ()

    @property
    def main(self) -> str:
        return self.objectives[0]

    @property
    def figures(self) -> frozenset[str]:
        """All that are mentioned."""
        return frozenset((*self.objectives, *(constraint.figure for constraint in self.constraints)))

    def sign(self, figure: str) -> int:
        """1 where more is better, −1 where less is."""
        return 1 if figure in MORE else -1

    def weights(self, random: np.random.Generator | None) -> dict[str, float]:
        """A weighting of the objectives, drawn evenly; without a generator, the main one alone."""
        if random is None or len(self.objectives) == 1:
            return {self.main: 1.0}
        drawn = random.dirichlet(np.ones(len(self.objectives)))
        return dict(zip(self.objectives, (float(weight) for weight in drawn), strict=True))

    def keeps(self, figures: Mapping[str, float]) -> bool:
        """Every constraint is known to hold."""
        return all(constraint.holds(figures) is True for constraint in self.constraints)


def parse_objectives(text: str) -> tuple[str, ...]:
    """Figures by the names people give them: `tokens_per_s,step_gap_p95`. Raises `UsageError`."""
    found = tuple(dict.fromkeys(_figure(name) for name in text.split(",") if name.strip()))
    if not found:
        raise UsageError("There is no objective.", remedy=f"Choose among {', '.join(NAMES)}.")
    return found


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """Limits as they are typed: `ttft_p95 < 200ms, memory < 2GB`. Raises `UsageError`."""
    found = []
    for part in text.split(","):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*(\w+)\s*([<>])=?\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(\S*)\s*", part)
        unit = None if match is None else UNITS.get(match[4])
        if match is None or unit is None:
            raise UsageError(f"{part.strip()!r} is no limit.", remedy="Write it like 'ttft_p95 < 200ms'.")
        try:
            limit = float(match[3]) * unit
        except ValueError:
            limit = 0.0
        if limit <= 0:
            raise UsageError(f"{part.strip()!r} is no limit: it is not above zero.")
        relation: Literal["<", ">"] = "<" if match[2] == "<" else ">"
        found.append(Constraint(text=part.strip(), figure=_figure(match[1]), relation=relation, limit=limit))
    return tuple(found)


def _figure(name: str) -> str:
    plain = name.strip().replace("-", "_").replace("/", "_per_")
    if plain not in NAMES:
        raise UsageError(f"There is no figure {name.strip()}.", remedy=f"Choose among {', '.join(NAMES)}.")
    return NAMES[plain]


def pareto(
    figures: Mapping[int, Mapping[str, float]],
    goals: Goals,
    chance: Callable[[str, int, int], float | None] = lambda *_: None,
) -> list[int]:
    """Those of which no other is as good in every objective and better in one; constraints must hold.

    `chance(objective, one, other)` is by how much the logarithms of two may differ and yet be the same; `None`: that is
    not known. What lacks an objective that others have is not among them; an objective that nobody has does not count.
    """
    known = [name for name in goals.objectives if any(name in one for one in figures.values())]
    able = [key for key, one in figures.items() if goals.keeps(one) and all(name in one for name in known)]

    def beats(one: int, other: int) -> bool:
        leads = [
            (goals.sign(name) * _lead(name, figures[one][name], figures[other][name]), chance(name, one, other))
            for name in known
        ]
        return all(_is_as_good(*lead) for lead in leads) and any(_is_better(*lead) for lead in leads)

    best = [key for key in able if not any(beats(other, key) for other in able if other != key)]
    return best or able  # Where each is as good as the next, and the last not as good as the first.


def _lead(name: str, one: float, other: float) -> float:
    """By how much one figure is larger than another, as a logarithm; infinitely where nothing is the same by chance."""
    if name in EXACT or one <= 0 or other <= 0:
        return 0.0 if one == other else math.copysign(math.inf, one - other)
    return math.log(one / other)


def _is_better(lead: float, chance: float | None) -> bool:
    return lead > max(AS_GOOD, chance or 0.0)


def _is_as_good(lead: float, chance: float | None) -> bool:
    return lead >= -AS_GOOD or (chance is not None and -lead <= chance <= NEAR + lead)
