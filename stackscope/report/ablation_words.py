"""The verdict of an ablation in sentences: what helps, what gets along, and what stands in each other's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope import units
from stackscope.analysis.factorial import LEAST_BLOCKS

if TYPE_CHECKING:
    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.effects import Ablation, Cell, Interaction
    from stackscope.experiments.plan import Plan


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
    moved = _moved(result, plan)
    return [*told, *([moved] if moved else [])]


def _singles(result: Ablation, singles: list[Cell]) -> str:
    helping, hurting, neither = [], [], []
    for cell in sorted(singles, key=lambda one: -_log(one)):
        assert cell.speed_up is not None
        if not cell.speed_up.is_from_one(result.nominal):
            neither.append(cell.label)
        elif cell.speed_up.log > 0:
            helping.append(f"{cell.label} ({units.ratio(cell.speed_up.ratio)})")
        else:
            hurting.append(f"{cell.label} ({units.ratio(cell.speed_up.ratio)})")
    parts = []
    if helping:
        parts.append(f"faster with {_listed(helping)}")
    if hurting:
        parts.append(f"slower with {_listed(hurting)}")
    if neither:
        parts.append(f"no difference to tell with {_listed(neither)}")
    text = "; ".join(parts)
    return f"Alone: {text}."


def _log(cell: Cell) -> float:
    return 0.0 if cell.speed_up is None else cell.speed_up.log


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _whole(result: Ablation, whole: Interaction) -> str:
    head = f"All together: {_ratio(result, whole.measured)}, where the single speed-ups multiply to "
    head += f"{_ratio(result, whole.product)}: {_ratio(result, whole.ratio)} of the product"
    if not whole.ratio.is_from_one(result.nominal):
        return f"{head}, which cannot be told from the product itself."
    if whole.best_single.log < 0 and whole.best_single.is_from_one(result.nominal):
        return f"{head}, and slower than {whole.best} alone."
    return f"{head}, {'less' if whole.ratio.log < 0 else 'more'} than one would expect of the single ones."


def _pair(result: Ablation, one: Interaction) -> str:
    ratio = f"{_ratio(result, one.ratio)} of the product"
    match one.kind:
        case "symbiotic":
            return f"{one.names} are symbiotic: together {ratio}."
        case "conflicting":
            return f"{one.names} are in conflict: together {ratio}, and slower than {one.best} alone."
        case "overlapping":
            more = ", yet faster than either alone" if _is_faster(result, one) else ""
            return f"{one.names} stand in each other's way: together {ratio}{more}."
        case "independent":
            return f"{one.names} do not touch each other: together {ratio}."
        case _:
            return f"{one.names}: together {ratio}, which does not tell whether they touch each other."


def _is_faster(result: Ablation, one: Interaction) -> bool:
    return one.best_single.log > 0 and one.best_single.is_from_one(result.nominal)


def _ratio(result: Ablation, contrast: Contrast) -> str:
    found = result.interval(contrast)
    return units.ratio(contrast.ratio) if found is None else units.ratio(found.value, found.low, found.high)


def _moved(result: Ablation, plan: Plan) -> str | None:
    """What limits before and after. `None`: not known."""
    by_cell = {cell.cell: cell.bottleneck for cell in result.cells}
    before, after = by_cell.get(0, ""), by_cell.get(plan.everything, "")
    if not before or not after:
        return None
    return f"What limits: {before} in the baseline, {after} with everything on."
