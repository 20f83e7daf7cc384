"""What a sweep says of what it found, and where that is less than was asked of it: nothing ran, nothing keeps the
limits, runs were few, what they show may be chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.experiments.search_goals import NAMES
from stackscope.experiments.search_results import RATE, search_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.search_goals import Constraint, Goals
    from stackscope.experiments.search_plan import SweepPlan
    from stackscope.experiments.search_results import Row, SweepResult, Why
    from stackscope.records import Estimate


PARETO: Final = (
    "in the Pareto set: nothing is better in one objective and as good in the others, beyond 1 % and what may be chance"
)
LEVELLED: Final = (
    "figures as in the average run, because not all ran side by side: what the runs of a block have in common is taken "
    "out"
)
"""What the figures of configurations are that ran in other blocks than others."""


def called(figure: str) -> str:
    """A figure as people call it."""
    return next((name for name, known in NAMES.items() if known == figure), figure)


def nothing_ran(result: SweepResult) -> str:
    """Why there is no row, in a sentence."""
    if not result.refused:
        return "Nothing has run yet."
    n = len({label for label, _ in result.refused})
    tried = "The one configuration that was tried" if n == 1 else f"Each of the {n} configurations that were tried"
    return f"Nothing could run. {tried} was refused, for the reason that stands below."


def no_winner(plan: SweepPlan, rows: Sequence[Row]) -> str:
    """Why none of the configurations that ran is one to take, in a sentence."""
    broken = [one for one in plan.goals.constraints if not any(one.holds(_values(row)) for row in rows)]
    if broken:
        return f"None: {'; '.join(_broken(one, rows) for one in broken)}."
    if not any(row.keeps for row in rows):
        limits = " and ".join(one.text for one in plan.goals.constraints)
        return f"None: each limit is kept by some configuration, but no one keeps {limits} together."
    return f"None: no run that keeps the limits knows {called(plan.goals.main)}, which is the first objective."


def _broken(one: Constraint, rows: Sequence[Row]) -> str:
    known = [row for row in rows if one.figure in row.figures]
    if not known:
        return f"{one.text} cannot be judged, because no run knows {called(one.figure)}"
    pick = min if one.relation == "<" else max
    nearest = pick(known, key=lambda row: row.figures[one.figure].value)
    value = _shown(one.figure, nearest.figures[one.figure].value)
    return f"no configuration that ran keeps {one.text}, the nearest being {nearest.label} with {value}"


def _values(row: Row) -> dict[str, float]:
    return {name: figure.value for name, figure in row.figures.items()}


def _shown(figure: str, value: float) -> str:
    if figure.endswith("_ns"):
        return units.duration(value)
    if figure.endswith("_bytes"):
        return units.data_size(value)
    return units.number(value, places=4)


def ratio_text(contrast: Contrast | None) -> str:
    """A ratio with its interval, as far as there is one."""
    if contrast is None:
        return units.UNKNOWN
    found = contrast.interval()
    return units.ratio(contrast.ratio) if found is None else units.ratio(found.value, found.low, found.high)


def in_blocks(contrast: Contrast) -> str:
    """Of which runs a ratio is that has no interval: rates beside it are of all blocks, and may say otherwise."""
    if contrast.interval() is not None:
        return ""
    return f", in the {'one block' if contrast.n == 1 else f'{contrast.n} blocks'} that ran both"


def brings(one: Why) -> str | None:
    """What a setting brings, where its interval tells it from chance. `None`: nothing was run or fitted for it."""
    known = []
    alone = None if one.alone is None else one.alone.interval()
    for found, how in ((alone, "alone"), (one.fitted, "here, by what all runs say together")):
        if found is not None:
            known.append(f"{units.ratio(found.value, found.low, found.high)} {how}")
            if not found.low <= 1.0 <= found.high:
                return f"{one.text} brings {known[-1]}"
    if one.alone is not None and not known:
        known.append(f"{units.counted(one.alone.n, 'block')} {'is' if one.alone.n == 1 else 'are'} too few")
    return f"what {one.text} brings cannot be told from chance: {known[-1]}" if known else None


def ahead(result: SweepResult, goals: Goals) -> str | None:
    """That others are shown with more than the winner has, and why they are not it. `None`: none are."""
    winner, sign = result.winner, goals.sign(goals.main)
    assert winner is not None
    own = sign * winner.figures[goals.main].value
    able = [row for row in result.rows if row.keeps and goals.main in row.figures]
    n = sum(sign * row.figures[goals.main].value > own for row in able)
    if n == 0 or not result.is_levelled:
        return None
    who = "another is" if n == 1 else f"{units.count(n)} others are"
    return f"{who} shown as better, of fewer or less alike runs: what ran side by side in the race decides"


def predicted(of: Estimate, winner: Row, rows: Sequence[Row]) -> str:
    """What was measured and what was predicted of the winner, and over what."""
    first = next((row for row in rows if row.cell == 0), None)
    if first is None:
        return f"predicted {units.ratio(of.value)} of the first configuration"
    speed_up = winner.speed_up
    measured = units.ratio(winner.figures[RATE].value / first.figures[RATE].value)
    if speed_up is not None and speed_up.interval() is not None:
        measured = ratio_text(speed_up)
    return f"measured {measured} of the first configuration ({first.label}), predicted {units.ratio(of.value)}"


def left_open(result: SweepResult) -> str | None:
    """That others may be as good as the winner. `None`: none may, or there are none."""
    if result.n_open == 0:
        return None
    if result.n_rivals == 1:
        who = "the other one cannot"
    elif result.n_open == result.n_rivals:
        who = f"none of the {result.n_rivals} others can"
    else:
        who = f"{result.n_open} of the {result.n_rivals} others cannot"
    return f"whether it is the best is left open: {who} be told from it"


def few_runs(plan: SweepPlan) -> str | None:
    """What a search gives up that may run too seldom to try every value. `None`: it may run often enough."""
    if plan.budget is None:
        return None
    n_untried = search_of(plan, {}).n_untried
    if n_untried == 0:
        return None
    values = units.counted(n_untried, "value")
    verb = "has" if n_untried == 1 else "have"
    return (
        f"{units.counted(plan.budget, 'run')} are few for {units.counted(len(plan.configurations), 'configuration')}: "
        f"{values} of the settings {verb} no run before the best are raced. Give --search "
        f"{least_budget(plan)} or more, or fewer values."
    )


def least_budget(plan: SweepPlan) -> int:
    """Runs with which a search tries every value at least once."""
    budget = plan.budget or 0
    while search_of(msgspec.structs.replace(plan, budget=budget), {}).n_untried > 0:
        budget += 1
    return budget
