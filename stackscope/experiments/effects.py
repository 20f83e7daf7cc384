"""What an ablation shows: speed-ups, their product beside the combination, interactions, and a verdict in words."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope import units
from stackscope.analysis import factorial
from stackscope.analysis.factorial import Contrast, Weights
from stackscope.experiments.blocks import whole_blocks
from stackscope.experiments.cells import names_of
from stackscope.experiments.quality import with_quality
from stackscope.records import Estimate, Prediction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stackscope.analysis.statistics import Interval
    from stackscope.experiments.plan import Plan
    from stackscope.experiments.state import CellRun

RESPONSE: Final = "tokens_per_s"
OTHERS: Final = ("ttft_p50_ns", "tpot_p50_ns", "step_gap_p95_ns", "e2e_p50_ns", "memory_bytes")
"""Further figures that are compared, as ratios to the baseline."""

Kind: TypeAlias = Literal["symbiotic", "overlapping", "conflicting", "independent", "unclear"]
"""Of a combination: more than the product; less, but more than each alone; less than one of them alone; neither, known
to within a few per cent; or not known well enough."""

INDEPENDENT: Final = 0.05
"""Logarithm within which an interval around the product has to lie for it to be called independent."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one cell over its blocks."""

    value: float
    """Geometric mean of a rate, median of anything else."""
    n: int
    """Runs in which it is known."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration over all blocks."""

    cell: int
    label: str
    figures: dict[str, Figure]
    speed_up: Contrast | None
    """Tokens per second relative to the baseline. `None`: it is the baseline."""
    ratios: dict[str, Contrast]
    """Further figures relative to the baseline's, by name."""
    bottleneck: str
    """What the namer says limits it, with its share. Empty: it names nothing."""
    largest_part: str
    """What takes the largest part of its step time, in words. Empty: it is not known."""
    predicted: Estimate | None = None
    """Speed-up as predicted from the baseline alone. `None`: nothing was."""


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """A combination of settings beside the product of their single speed-ups."""

    cell: int
    names: str
    measured: Contrast
    """Speed-up of the combination."""
    product: Contrast
    """Of the single speed-ups."""
    ratio: Contrast
    """The first ÷ the second."""
    best_single: Contrast
    """The combination ÷ the faster one of its settings alone."""
    best: str
    """Which one that is."""
    averaged: Contrast | None = None
    """The same ratio on average over all combinations of the other settings; pairs of a whole factorial only."""
    kind: Kind = "unclear"
    is_settled: bool = True
    """The kind may be said flatly. False: blocks are so few, or an interval reaches so near to 1, that it is a hint."""
    predicted: float | None = None
    """Ratio as predicted from the baseline alone. `None`: nothing was."""

    @property
    def is_pair(self) -> bool:
        return self.cell.bit_count() == 2


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an ablation so far."""

    n_blocks: int
    cells: tuple[Cell, ...]
    interactions: tuple[Interaction, ...]
    """Pairs first, then everything together."""
    confidence: float
    """What intervals hold, one by one; they are computed at `nominal`."""
    nominal: float
    n_claims: int
    """Interactions that are judged together: with the confidence that all of the judgements hold."""
    n_disturbed: int
    """Runs in which something else had the engine's cores."""
    n_runs: int

    def interval(self, contrast: Contrast) -> Interval | None:
        """The interval of a ratio. `None`: there is one block."""
        return contrast.interval(self.nominal)


def analyse(
    plan: Plan,
    runs: Collection[CellRun],
    predicted: Mapping[int, Prediction] | None = None,
    limits: Mapping[int, str] | None = None,
    quality: Mapping[int, Mapping[str, float]] | None = None,
) -> Ablation | None:
    """The result of the blocks that are whole. `None`: no block is.

    `predicted` by cell; `limits` is what the namer says limits a cell, where it says something; `quality` are figures
    of cells that were held against the baseline.
    """
    blocks = whole_blocks(with_quality(runs, quality or {}), plan.cells)
    if not blocks:
        return None
    known = {cell: one.tokens for cell, one in (predicted or {}).items() if one.tokens is not None}
    rates = logs(blocks, plan.cells, RESPONSE)
    assert rates is not None, "a run without a rate is no run"
    shown = [run for block in blocks for run in block.values()]
    combined = _combinations(plan)
    return Ablation(
        n_blocks=len(blocks),
        cells=tuple(_cell(plan, blocks, rates, cell, known.get(cell), (limits or {}).get(cell)) for cell in plan.cells),
        interactions=tuple(_interaction(plan, rates, cell, len(combined), known) for cell in combined),
        confidence=factorial.CONFIDENCE,
        nominal=plan.blocks.confidence,
        n_claims=len(combined),
        n_disturbed=sum(run.is_disturbed for run in shown),
        n_runs=len(shown),
    )


def is_precise(plan: Plan, blocks: Sequence[Mapping[int, CellRun]]) -> bool:
    """Every speed-up and interaction is known as well as the plan asks."""
    rates = logs(blocks, plan.cells, RESPONSE)
    assert rates is not None, "a run without a rate is no run"
    wanted = [factorial.speed_up(cell) for cell in plan.cells if cell != 0]
    wanted += [factorial.of_product(cell) for cell in _combinations(plan)]
    estimates = (factorial.estimate(rates, weights) for weights in wanted)
    return all(one.is_narrow(plan.blocks.confidence) for one in estimates)


def logs(blocks: Sequence[Mapping[int, CellRun]], cells: Sequence[int], figure: str) -> dict[int, list[float]] | None:
    """Logarithms of a figure by cell, block by block. `None`: a run lacks it, or it is not positive."""
    values = {cell: [block[cell].figures.get(figure) for block in blocks] for cell in cells}
    if any(value is None or value <= 0 for some in values.values() for value in some):
        return None
    return {cell: [math.log(value) for value in some if value is not None] for cell, some in values.items()}


def _combinations(plan: Plan) -> list[int]:
    """Cells whose interaction is told: pairs that ran, and everything together."""
    n = len(plan.factors)
    pairs = [1 << a | 1 << b for a, b in combinations(range(n), 2) if 1 << a | 1 << b in plan.cells]
    return list(dict.fromkeys([*pairs, *([plan.everything] if n > 1 else [])]))


def _cell(
    plan: Plan,
    blocks: Sequence[Mapping[int, CellRun]],
    rates: Mapping[int, Sequence[float]],
    cell: int,
    predicted: Estimate | None,
    limit: str | None,
) -> Cell:
    runs = [block[cell] for block in blocks]
    weights = factorial.speed_up(cell)
    ratios: dict[str, Contrast] = {}
    for name in OTHERS if cell != 0 else ():
        values = logs(blocks, (0, cell), name)
        if values is not None:
            ratios[name] = factorial.estimate(values, weights)
    figures = figures_of(runs)
    return Cell(
        cell=cell,
        label=plan.label(cell),
        figures=figures,
        speed_up=None if cell == 0 else factorial.estimate(rates, weights),
        ratios=ratios,
        bottleneck=limit or "",
        largest_part=largest_part(figures),
        predicted=predicted,
    )


def figures_of(runs: Sequence[CellRun]) -> dict[str, Figure]:
    """The figures of one configuration over its runs, by name."""
    names = dict.fromkeys(name for run in runs for name in run.figures)
    found = {}
    for name in names:
        values = [run.figures[name] for run in runs if name in run.figures]
        if name.endswith("_n"):
            value = sum(values)
        elif name == RESPONSE:
            value = math.exp(sum(map(math.log, values)) / len(values))
        else:
            value = median(values)
        found[name] = Figure(value=value, n=len(values))
    return found


PARTS: Final = {"decode": "the target's forward", "draft": "drafting", "host": "the host"}
"""Parts of the step time, in words."""


def largest_part(figures: Mapping[str, Figure]) -> str:
    """What takes the largest part of the step time, and how much. Empty: it is not known."""
    host = figures.get("host_share")
    parts = {name: figures[f"share.{name}"].value for name in ("decode", "draft") if f"share.{name}" in figures}
    if host is None or not parts:
        return ""
    parts["host"] = host.value
    name, share = max(parts.items(), key=lambda part: part[1])
    return f"{PARTS[name]} ({units.percent(share)})"


def _interaction(
    plan: Plan, rates: Mapping[int, Sequence[float]], cell: int, n_claims: int, known: Mapping[int, Estimate]
) -> Interaction:
    n = len(plan.factors)
    singles = factorial.bits(cell)

    def estimate(weights: Weights) -> Contrast:
        return factorial.estimate(rates, weights)

    best = max(singles, key=lambda one: estimate(factorial.speed_up(one)).log)
    ratio = estimate(factorial.of_product(cell))
    over_best = estimate(factorial.speed_up(cell, over=best))
    averaged = None
    if plan.is_full and len(singles) == 2 and n > 2:
        averaged = estimate(factorial.averaged_interaction(cell, n))
    predicted = None
    if cell in known and all(one in known for one in singles):
        predicted = known[cell].value / math.prod(known[one].value for one in singles)
    kind = kind_of(ratio, over_best, factorial.simultaneous(n_claims, plan.blocks.confidence))
    return Interaction(
        cell=cell,
        names=names_of(plan.factors, cell),
        measured=estimate(factorial.speed_up(cell)),
        product=estimate(factorial.product(cell)),
        ratio=ratio,
        best_single=over_best,
        best=names_of(plan.factors, best),
        averaged=averaged,
        kind=kind,
        is_settled=_is_settled(kind, ratio, over_best, plan.blocks.confidence),
        predicted=predicted,
    )


def kind_of(ratio: Contrast, over_best: Contrast, confidence: float) -> Kind:
    """What an interaction is called, at a confidence that all such judgements of an ablation share."""
    if ratio.is_from_one(confidence):
        if ratio.log > 0:
            return "symbiotic"
        return "conflicting" if over_best.log < 0 and over_best.is_from_one(confidence) else "overlapping"
    reach = abs(ratio.log) + ratio.half_width(confidence)
    return "independent" if reach <= INDEPENDENT else "unclear"


def _is_settled(kind: Kind, ratio: Contrast, over_best: Contrast, confidence: float) -> bool:
    """Whether all that the kind says may be said flatly."""
    match kind:
        case "unclear":
            return True  # It says nothing.
        case "independent":
            return ratio.n >= factorial.BLOCKS_TO_SETTLE  # The interval is within a few per cent already.
        case "conflicting":
            return ratio.is_settled(confidence) and over_best.is_settled(confidence)
        case _:
            return ratio.is_settled(confidence)
