"""What a sweep has found: every configuration that ran, the best ones, and pairs of settings that hurt together."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis import factorial
from stackscope.analysis.factorial import Contrast
from stackscope.analysis.statistics import Interval
from stackscope.experiments import effects, footing
from stackscope.experiments.blocks import whole_blocks
from stackscope.experiments.effects import Figure
from stackscope.experiments.search import EXPLORING, Search
from stackscope.experiments.search_goals import EXACT, pareto
from stackscope.experiments.search_space import configuration_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from stackscope.experiments.search_plan import SweepPlan
    from stackscope.experiments.search_space import Configuration
    from stackscope.experiments.state import CellRun
    from stackscope.records import Prediction

RATE: Final = effects.RESPONSE
MOST_PAIRS: Final = 6
"""That are told, the worst first."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration that ran."""

    cell: int
    label: str
    n_runs: int
    figures: dict[str, Figure]
    """As in the average run, where configurations ran in other blocks than others."""
    speed_up: Contrast | None
    """Tokens per second relative to the first configuration, over blocks that have both. `None`: there is none."""
    is_best: bool
    """No other is better in one objective and as good in the others, as far as can be told."""
    keeps: bool
    """The constraints."""
    bottleneck: str


class HurtingPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two changes that each help alone, and together are worse than the better one of them alone."""

    one: str
    other: str
    context: str
    """The configuration that both change."""
    first: Contrast
    """Speed-up of the one, over the context; then of the other, and of both."""
    second: Contrast
    both: Contrast
    over_best: Contrast
    """Both ÷ the better one."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the winner that the first configuration has not."""

    text: str
    alone: Contrast | None
    """What it does alone. `None`: that did not run in the same blocks."""
    fitted: Interval | None = None
    """The winner's tokens per second ÷ those without it, by the model of a search. `None`: there is no model."""


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep so far."""

    rows: tuple[Row, ...]
    """The fastest first."""
    winner: Row | None
    """`None`: nothing that ran keeps the constraints."""
    over_next: Contrast | None
    """The winner's first objective ÷ that of the next that keeps the constraints, over blocks that have both."""
    n_rivals: int
    """Others that keep the constraints and ran."""
    n_open: int
    """Those of them that may be as good as the winner in the first objective, as far as can be told."""
    why: tuple[Why, ...]
    pairs: tuple[HurtingPair, ...]
    n_pairs: int
    """Pairs that could be looked at."""
    refused: tuple[tuple[str, str], ...]
    """(configuration, why it cannot run)."""
    n_configurations: int
    n_runs: int
    """With those that were refused."""
    n_measured: int
    n_disturbed: int
    """Runs in which something else had the engine's cores."""
    is_levelled: bool
    """Figures are as in the average run: what the runs of a block have in common is taken out of them."""


def analyse(plan: SweepPlan, runs: Sequence[CellRun], guesses: Mapping[str, Mapping[int, float]]) -> SweepResult:
    """What the runs show, whole blocks or not."""
    space = plan.configurations
    ran: dict[int, list[CellRun]] = {}
    measured = [run for run in runs if run.refusal is None]
    for run in footing.levelled(measured):
        ran.setdefault(run.cell, []).append(run)
    figures = {cell: effects.figures_of(some) for cell, some in ran.items()}
    plain = {cell: {name: one.value for name, one in some.items()} for cell, some in figures.items()}
    best = set(pareto(plain, plan.goals, _chance(plan, measured)))
    rows = [
        Row(
            cell=cell,
            label=space[cell].label,
            n_runs=len(some),
            figures=figures[cell],
            speed_up=None if cell == 0 else paired(runs, cell, 0),
            is_best=cell in best,
            keeps=plan.goals.keeps(plain[cell]),
            bottleneck=effects.largest_part(figures[cell]),
        )
        for cell, some in ran.items()
    ]
    rows.sort(key=lambda row: -row.figures[RATE].value)
    winner = _winner(plan, runs, rows, guesses)
    rivals = [] if winner is None else _rivals(plan, rows, winner)
    pairs, n_pairs = hurting_pairs(plan, runs)
    return SweepResult(
        rows=tuple(rows),
        winner=winner,
        over_next=None if winner is None or not rivals else paired(runs, winner.cell, rivals[0], plan.goals.main),
        n_rivals=len(rivals),
        n_open=0 if winner is None else sum(not _is_beaten(plan, runs, winner.cell, one, guesses) for one in rivals),
        why=() if winner is None else _why(plan, runs, winner.cell, guesses),
        pairs=pairs,
        n_pairs=n_pairs,
        refused=tuple((space[run.cell].label, run.refusal) for run in runs if run.refusal is not None),
        n_configurations=len(space),
        n_runs=len(runs),
        n_measured=len(measured),
        n_disturbed=sum(run.is_disturbed for run in measured),
        is_levelled=footing.is_uneven(measured),
    )


def _chance(plan: SweepPlan, runs: Sequence[CellRun]) -> Callable[[str, int, int], float | None]:
    """By how much an objective of two configurations may differ, as a logarithm, and be the same."""
    spreads = {name: footing.spread(runs, name) for name in plan.goals.objectives}
    n = Counter(run.cell for run in runs)

    def chance(objective: str, one: int, other: int) -> float | None:
        found = spreads[objective]
        return None if found is None else found.reach(n[one], n[other])

    return chance


def guesses_of(predictions: Mapping[int, Prediction], n: int) -> dict[str, dict[int, float]]:
    """Predicted figures relative to the first configuration, where at least half of them were predicted."""
    rates = {cell: one.tokens.value for cell, one in predictions.items() if one.tokens is not None}
    gaps = {cell: one.step_gap.value for cell, one in predictions.items() if one.step_gap is not None}
    found = {RATE: rates, "step_gap_p95_ns": gaps}
    return {name: {0: 1.0, **some} for name, some in found.items() if 2 * (len(some) + 1) >= n}


def search_of(plan: SweepPlan, guesses: Mapping[str, Mapping[int, float]]) -> Search:
    """The search of a plan that has a budget."""
    assert plan.budget is not None
    places = [one.places for one in plan.configurations]
    return Search(
        places, plan.goals, budget=plan.budget, seed=plan.workload.seed, guesses=guesses, refused=plan.refused
    )


def paired(runs: Collection[CellRun], cell: int, over: int, figure: str = RATE) -> Contrast | None:
    """A configuration's figure ÷ another's, over the blocks in which both ran. `None`: there is none."""
    blocks = whole_blocks([run for run in runs if run.block != EXPLORING and run.refusal is None], (cell, over))
    logs = effects.logs(blocks, (cell, over), figure)
    return None if not blocks or logs is None else factorial.estimate(logs, factorial.speed_up(cell, over=over))


def _winner(
    plan: SweepPlan, runs: Sequence[CellRun], rows: Sequence[Row], guesses: Mapping[str, Mapping[int, float]]
) -> Row | None:
    able = {row.cell: row for row in rows if row.keeps and plan.goals.main in row.figures}
    if not able:
        return None
    if plan.budget is not None:
        chosen = search_of(plan, guesses).best(runs, able)
        return None if chosen is None else able[chosen]
    sign = plan.goals.sign(plan.goals.main)
    return max(able.values(), key=lambda row: sign * row.figures[plan.goals.main].value)


def _rivals(plan: SweepPlan, rows: Sequence[Row], winner: Row) -> list[int]:
    """The others that could have won, the best first."""
    main, sign = plan.goals.main, plan.goals.sign(plan.goals.main)
    able = [row for row in rows if row.keeps and row.cell != winner.cell and main in row.figures]
    return [row.cell for row in sorted(able, key=lambda row: -sign * row.figures[main].value)]


def _is_beaten(
    plan: SweepPlan, runs: Sequence[CellRun], winner: int, rival: int, guesses: Mapping[str, Mapping[int, float]]
) -> bool:
    """The winner is better beyond chance: by blocks that have both, or where those are too few by a search's model."""
    main, is_more = plan.goals.main, plan.goals.sign(plan.goals.main) > 0
    if main in EXACT:
        known = {run.cell: run.figures[main] for run in runs if main in run.figures}
        return known[winner] > known[rival] if is_more else known[winner] < known[rival]
    contrast = paired(runs, winner, rival, main)
    found = None if contrast is None else contrast.interval()
    if found is None and plan.budget is not None:
        found = search_of(plan, guesses).model.ratio(runs, main, winner, rival)
    if found is None:
        return False
    return found.low > 1.0 if is_more else found.high < 1.0


def _why(
    plan: SweepPlan, runs: Sequence[CellRun], winner: int, guesses: Mapping[str, Mapping[int, float]]
) -> tuple[Why, ...]:
    """The settings that make the winner, each with what it does alone where that ran, or here by a search's model.

    The model says nothing of a setting whose other value never ran: that would be a prediction, told as if measured.
    """
    search = None if plan.budget is None else search_of(plan, guesses)
    space = plan.configurations
    numbers = {one.places: cell for cell, one in enumerate(space)}
    first, own = space[0].places, space[winner].places
    ran = [space[run.cell].places for run in runs]
    found = []
    for axis, place in enumerate(own):
        if place != first[axis]:
            alone = numbers.get(_moved(first, axis, place))
            text = f"{plan.axes[axis].name}={plan.axes[axis].values[place].text}"
            without = numbers.get(configuration_at(plan.base, plan.axes, _moved(own, axis, first[axis])).places)
            fitted = None
            if search is not None and without is not None and any(one[axis] == first[axis] for one in ran):
                fitted = search.model.ratio(runs, RATE, winner, without)
            found.append(Why(text=text, alone=None if alone is None else paired(runs, alone, 0), fitted=fitted))
    return tuple(found)


def _moved(places: tuple[int, ...], axis: int, place: int) -> tuple[int, ...]:
    return (*places[:axis], place, *places[axis + 1 :])


def hurting_pairs(plan: SweepPlan, runs: Sequence[CellRun]) -> tuple[tuple[HurtingPair, ...], int]:
    """Pairs of changes that each help alone, the combination being worse than the better of them; and how many pairs
    were looked at.

    Of every configuration that ran in the same blocks with both changes, with each and with neither. The intervals hold
    for all of them together.
    """
    space = plan.configurations
    numbers = {one.places: cell for cell, one in enumerate(space)}
    squares = list(_squares(space, numbers, {run.cell for run in runs if run.refusal is None}))
    found = []
    n_looked = 0
    confidence = factorial.simultaneous(max(len(squares), 1))
    for context, one, other, both in squares:
        blocks = whole_blocks([run for run in runs if run.block != EXPLORING], (context, one, other, both))
        logs = effects.logs(blocks, (context, one, other, both), RATE)
        if len(blocks) < factorial.LEAST_BLOCKS or logs is None:
            continue
        n_looked += 1
        first = factorial.estimate(logs, factorial.speed_up(one, over=context))
        second = factorial.estimate(logs, factorial.speed_up(other, over=context))
        better = one if first.log >= second.log else other
        over_best = factorial.estimate(logs, factorial.speed_up(both, over=better))
        clear = all(contrast.is_from_one(confidence) for contrast in (first, second, over_best))
        if clear and first.log > 0 and second.log > 0 and over_best.log < 0:
            pair = HurtingPair(
                one=_change(plan, space[context], space[one]),
                other=_change(plan, space[context], space[other]),
                context=space[context].label,
                first=first,
                second=second,
                both=factorial.estimate(logs, factorial.speed_up(both, over=context)),
                over_best=over_best,
            )
            found.append(pair)
    found.sort(key=lambda pair: pair.over_best.log)
    return tuple(found[:MOST_PAIRS]), n_looked


def _squares(
    space: Sequence[Configuration], numbers: Mapping[tuple[int, ...], int], ran: Collection[int]
) -> list[tuple[int, int, int, int]]:
    """(context, one changed, the other changed, both), all of which ran, for each pair of changes from first values."""
    found = []
    n_axes = len(space[0].places)
    for both in ran:
        own = space[both].places
        for a, b in combinations([axis for axis in range(n_axes) if own[axis] > 0], 2):
            one, other = numbers.get(_moved(own, b, 0)), numbers.get(_moved(own, a, 0))
            context = numbers.get(_moved(_moved(own, a, 0), b, 0))
            if one is not None and other is not None and context is not None and {one, other, context} <= {*ran}:
                found.append((context, one, other, both))
    return found


def _change(plan: SweepPlan, before: Configuration, after: Configuration) -> str:
    return " ".join(
        f"{axis.name}={axis.values[place].text}"
        for axis, place, was in zip(plan.axes, after.places, before.places, strict=True)
        if place != was
    )
