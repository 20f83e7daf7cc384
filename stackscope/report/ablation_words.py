"""The verdict of an ablation in sentences: what helps, what gets along, and what stands in each other's way.

An interval that leaves out 1 may still leave open by how much, and that of three blocks stands on a spread that is
hardly known. What rests on such a one is a hint, and is worded so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.factorial import BLOCKS_TO_SETTLE, LEAST_BLOCKS

if TYPE_CHECKING:
    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.effects import Ablation, Cell, Interaction
    from stackscope.experiments.plan import Plan

HINT: Final = "seems"
"""Stands where a word is a hint."""


def verdict(result: Ablation, plan: Plan) -> list[str]:
    """Sentences for people, the most important first. Each is worded by what its interval leaves open."""
    singles = [cell for cell in result.cells if cell.cell.bit_count() == 1]
    if result.n_blocks < LEAST_BLOCKS:
        return [f"With fewer than {LEAST_BLOCKS} blocks nothing can be told from chance."]
    told = [_singles(result, singles)]
    pairs = [one for one in result.interactions if one.is_pair]
    whole = next((one for one in result.interactions if one.cell == plan.everything), None)
    if whole is not None:
        told.append(_whole(result, whole))
    told += [_pair(result, one) for one in pairs]
    if whole is not None and not pairs and whole.ratio.is_from_one(result.nominal):
        told.append("Which pairs that comes from is measured by --full.")
    if any(HINT in sentence or "seem " in sentence for sentence in told):
        told.append(_what_hints_are(result))
    moved = _moved(result, plan)
    return [*told, *([moved] if moved else [])]


def remark(one: Interaction) -> str:
    """What a table calls a combination: `conflicting`, or `seems conflicting` where that is a hint."""
    return one.kind if one.is_settled else f"{HINT} {one.kind}"


def _what_hints_are(result: Ablation) -> str:
    if result.n_blocks < BLOCKS_TO_SETTLE:
        return (
            f"What seems so is a hint, no finding: {result.n_blocks} blocks hardly know their own spread. Measure at "
            f"least {BLOCKS_TO_SETTLE} before you rely on it."
        )
    return "What seems so is a hint, no finding: its interval reaches more than half of the way to no difference."


def _singles(result: Ablation, singles: list[Cell]) -> str:
    groups: dict[str, list[str]] = {}
    for cell in sorted(singles, key=lambda one: -_log(one)):
        assert cell.speed_up is not None
        name = cell.label
        if not cell.speed_up.is_from_one(result.nominal):
            kind = "no difference to tell with"
        else:
            kind = "faster with" if cell.speed_up.log > 0 else "slower with"
            if not cell.speed_up.is_settled(result.nominal):
                kind = f"{HINT} {kind}"
            name += f" ({_ratio(result, cell.speed_up)})"
        groups.setdefault(kind, []).append(name)
    kinds = [
        "faster with", f"{HINT} faster with", "slower with", f"{HINT} slower with", "no difference to tell with",
    ]  # fmt: skip
    return f"Alone: {'; '.join(f'{kind} {_listed(groups[kind])}' for kind in kinds if kind in groups)}."


def _log(cell: Cell) -> float:
    return 0.0 if cell.speed_up is None else cell.speed_up.log


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _whole(result: Ablation, whole: Interaction) -> str:
    head = f"All together: {_ratio(result, whole.measured)}, where the single speed-ups multiply to "
    head += f"{_ratio(result, whole.product)}: {_ratio(result, whole.ratio)} of the product"
    if not whole.ratio.is_from_one(result.nominal):
        return f"{head}, which cannot be told from the product itself."
    is_known = whole.ratio.is_settled(result.nominal)
    if whole.best_single.log < 0 and whole.best_single.is_from_one(result.nominal):
        is_known = is_known and whole.best_single.is_settled(result.nominal)
        return f"{head}, and {'' if is_known else f'{HINT} '}slower than {whole.best} alone."
    less = "less" if whole.ratio.log < 0 else "more"
    return f"{head}, {'' if is_known else f'which {HINT} '}{less} than one would expect of the single ones."


def _pair(result: Ablation, one: Interaction) -> str:
    ratio = f"{_ratio(result, one.ratio)} of the product"
    known = one.is_settled
    match one.kind:
        case "symbiotic":
            return f"{one.names} {'are' if known else 'seem to be'} symbiotic: together {ratio}."
        case "conflicting":
            slower = f"{_ratio(result, one.best_single)} of {one.best} alone"
            return f"{one.names} {'are' if known else 'seem to be'} in conflict: together {ratio}, and {slower}."
        case "overlapping":
            way = "stand in each other's way" if known else "seem to stand in each other's way"
            more = ", yet faster than either alone" if known and _is_faster(result, one) else ""
            return f"{one.names} {way}: together {ratio}{more}."
        case "independent":
            return f"{one.names} {'do not' if known else 'seem not to'} touch each other: together {ratio}."
        case _:
            return f"{one.names}: together {ratio}, which does not tell whether they touch each other."


def _is_faster(result: Ablation, one: Interaction) -> bool:
    return one.best_single.log > 0 and one.best_single.is_from_one(result.nominal)


def _ratio(result: Ablation, contrast: Contrast) -> str:
    found = result.interval(contrast)
    return units.ratio(contrast.ratio) if found is None else units.ratio(found.value, found.low, found.high)


def limited_by(cell: Cell) -> str:
    """What limits a cell; where nothing is named, what takes most of its time. Empty: nothing is known."""
    if cell.bottleneck or not cell.largest_part:
        return cell.bottleneck
    return f"nothing named; most of the time in {cell.largest_part}"


def _moved(result: Ablation, plan: Plan) -> str | None:
    """What limits before and after. `None`: not known."""
    by_cell = {cell.cell: cell for cell in result.cells}
    before, after = by_cell.get(0), by_cell.get(plan.everything)
    if before is None or after is None or not limited_by(before) or not limited_by(after):
        return None
    if before.bottleneck and after.bottleneck:
        return f"What limits: {before.bottleneck} in the baseline, {after.bottleneck} with everything on."
    return f"What limits: in the baseline {limited_by(before)}; with everything on {limited_by(after)}."
