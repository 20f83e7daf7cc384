"""Lesson 10: why one has to search."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stackscope import units
from stackscope.analysis import factorial
from stackscope.experiments.lessons.contracts import (
    Conclusion,
    Lesson,
    LessonCell,
    Models,
    Picture,
    Stage,
    changed,
    drafting,
)
from stackscope.experiments.lessons.data import is_more, told
from stackscope.experiments.lessons.traffic import completions
from stackscope.experiments.search_space import Axis, Value
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.lessons.data import Data
    from stackscope.toggles import Setting

SEARCH_RUNS, QUICK_SEARCH_RUNS = 8, 5


def stage_search(models: Models, is_quick: bool) -> Stage:
    """Every configuration of two axes, after a search that may run few of them."""
    source = drafting(models)
    kinds = ("F16", "Q8_0") if is_quick else ("F16", "Q8_0", "Q4_K_M")
    files = {kind: models.target if kind == "F16" else models.weights(kind) for kind in kinds}
    drafts: dict[str, dict[str, Setting]] = {
        "plain": {"speculation": "off"},
        "n-gram drafts of 3": {"speculation": "ngram", "draft_length": 3},
        "drafts of 3": {"speculation": source, "draft_length": 3},
        "drafts of 7": {"speculation": source, "draft_length": 7},
    }
    if is_quick or source == "ngram":
        del drafts["n-gram drafts of 3"]
    axes = (
        Axis(name="weights", values=tuple(Value(text=kind, fields={"model": files[kind]}) for kind in kinds)),
        Axis(name="drafts", values=tuple(Value(text=text, fields=fields) for text, fields in drafts.items())),
    )
    base = EngineConfig(model=models.target, draft_model=models.draft)
    workload = completions(is_quick=True)  # There are many cells.
    first = f"{kinds[0]}, plain"
    cells = tuple(
        LessonCell(
            key=(key := f"{weights.text}, {how.text}"),
            config=changed(base, **weights.fields, **how.fields),
            workload=workload,
            over=None if key == first else first,
        )
        for weights in axes[0].values
        for how in axes[1].values
    )
    runs = QUICK_SEARCH_RUNS if is_quick else SEARCH_RUNS
    return Stage(
        cells=cells,
        told=(
            f"{len(cells)} configurations of weights and drafts. A search may run {runs} times; then all are measured.",
            "Look at whether the best settings of each kind, put together, are the best configuration, and at what the "
            "search has found.",
        ),
        quick="Six configurations instead of twelve, and a search of 5 runs.",
        figures=("tokens_per_s", "step_gap_p50_ns", "tokens_per_forward"),
        axes=axes,
        search_runs=runs,
    )


class Hurting(NamedTuple):
    """Two settings that each help alone, and together are worse than the better of them."""

    one: str
    other: str
    over_best: Contrast


def _split(key: str) -> tuple[str, str]:
    weights, _, drafts = key.partition(", ")
    return weights, drafts


def _axes(data: Data) -> tuple[list[str], list[str]]:
    """The values of both axes, the first ones first."""
    pairs = [_split(key) for key in data.cells]
    return list(dict.fromkeys(one for one, _ in pairs)), list(dict.fromkeys(one for _, one in pairs))


def intuition(data: Data) -> str:
    """The best weights, drafts being off, with the best drafts, weights being those of the first configuration."""
    of_weights, of_drafts = _singles(data)
    return f"{_split(data.fastest(of_weights))[0]}, {_split(data.fastest(of_drafts))[1]}"


def _singles(data: Data) -> tuple[list[str], list[str]]:
    """The configurations that tell the best weights, and those that tell the best drafts."""
    weights, drafts = _axes(data)
    return [f"{one}, {drafts[0]}" for one in weights], [f"{weights[0]}, {one}" for one in drafts]


def _guesses(data: Data) -> list[str]:
    """What intuition may put together, where the best of a kind is not known for sure; `intuition` first."""
    of_weights, of_drafts = _singles(data)
    weights, drafts = ([data.fastest(keys), *data.rivals(keys)] for keys in (of_weights, of_drafts))
    return [f"{_split(one)[0]}, {_split(other)[1]}" for one in weights for other in drafts]


def hurting(data: Data) -> list[Hurting]:
    """Every such pair, beyond doubt for all of them together; the worst first."""
    weights, drafts = _axes(data)
    return _hurting_at(data, factorial.simultaneous((len(weights) - 1) * (len(drafts) - 1)))


def nearly_hurting(data: Data) -> list[Hurting]:
    """Pairs of which that holds by their own intervals, but not for all pairs together."""
    sure = {(pair.one, pair.other) for pair in hurting(data)}
    return [pair for pair in _hurting_at(data, factorial.CONFIDENCE) if (pair.one, pair.other) not in sure]


def _hurting_at(data: Data, confidence: float) -> list[Hurting]:
    weights, drafts = _axes(data)
    found = []
    for one, other in ((one, other) for one in weights[1:] for other in drafts[1:]):
        alone = f"{one}, {drafts[0]}", f"{weights[0]}, {other}"
        gains = [data.ratio(key) for key in alone]
        if any(gain is None or gain.log <= 0 or not gain.is_from_one(confidence) for gain in gains):
            continue
        over_best = data.ratio(f"{one}, {other}", data.fastest(alone))
        if over_best is not None and over_best.log < 0 and over_best.is_from_one(confidence):
            found.append(Hurting(one, other, over_best))
    return sorted(found, key=lambda pair: pair.over_best.log)


def expect_search(data: Data) -> str:
    """The best configuration, as predicted."""
    known = {key: one for key in data.cells if (one := data.predicted(key)) is not None}
    if not known:
        return ""
    best = max(known, key=lambda key: known[key])
    return f"The best is {best}, at {units.ratio(known[best])} of the first."


def conclude_search(data: Data) -> Conclusion:
    """By the best configuration beside what one would have put together, and beside what the search chose."""
    if data.n_blocks == 0:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    best, pairs = data.fastest(list(data.cells)), hurting(data)
    holds, told_best = _beside_intuition(data, best)
    sentences = [f"The best of {len(data.cells)} within blocks is {best}{_over_first(data, best)}.", *told_best]
    sentences += [
        f"{pair.one} and {pair.other} each help alone; together they run at {told(pair.over_best)} of the better one."
        for pair in pairs[:2]
    ]
    if pairs:
        holds = True
    elif near := nearly_hurting(data):
        sentences.append(_hint(data, near[0]))
        holds = None if holds is False else holds
    if data.chosen is not None:
        sentences.append(_search_told(data, best))
    return Conclusion(holds=holds, sentences=tuple(sentences))


def _over_first(data: Data, best: str) -> str:
    """What it brings over the first configuration; nothing, where it is that."""
    first = next(key for key, cell in data.cells.items() if cell.over is None)
    return "" if best == first else f", at {told(data.ratio(best, first))} of {first}"


def _beside_intuition(data: Data, best: str) -> tuple[bool | None, list[str]]:
    """Whether the best is another one than single settings make, and what is to be said of it.

    Only a configuration that is told apart from each that would change the answer gives one.
    """
    guessed, *others = _guesses(data)
    rivals = data.rivals(list(data.cells))
    over = None if best == guessed else data.ratio(best, guessed)
    if over is None and rivals:
        near = max(rivals, key=data.rank)
        return None, [
            "The best weights and the best drafts, put together, are just that; but it cannot be told from "
            f"{near}, which runs at {told(data.ratio(near, best))} of it."
        ]
    holds: bool | None
    if over is None:
        holds = False
        sentences = ["The best weights and the best drafts, put together, are just that: here intuition does."]
    elif is_more(over):
        holds = True
        sentences = [f"It runs at {told(over)} of {guessed}, which the best single settings make together."]
    else:
        holds = None
        sentences = [f"It cannot be told from {guessed}, which the best single settings make ({told(over)})."]
    changing = [one for one in others if (one == best or one in rivals) is (holds is True)]
    if holds is not None and changing:
        holds = None
        sentences.append(
            f"But the best single settings may as well be those of {changing[0]}: alone they cannot be told apart."
        )
    return holds, sentences


def _hint(data: Data, pair: Hurting) -> str:
    """A pair that would hurt, were it the only one that was looked at."""
    weights, drafts = _axes(data)
    alone = [data.ratio(f"{pair.one}, {drafts[0]}"), data.ratio(f"{weights[0]}, {pair.other}")]
    n = (len(weights) - 1) * (len(drafts) - 1)
    return (
        f"A hint: {pair.one} ({told(alone[0])}) and {pair.other} ({told(alone[1])}) seem to help alone, and together "
        f"run at {told(pair.over_best)} of the better one. Each interval leaves out 1, but not where all {n} pairs "
        "are to hold together."
    )


def _search_told(data: Data, best: str) -> str:
    runs = units.counted(len(data.searched), "run")
    assert data.chosen is not None
    n_seen = len({run.cell for run in data.searched})
    saw = f"The search looked at {n_seen} of {len(data.cells)} in {runs}"
    if data.chosen == best:
        return f"{saw} and chose the best."
    return f"{saw} and chose {data.chosen}, which runs at {told(data.ratio(data.chosen, best))} of the best."


def picture_search(data: Data) -> Picture:
    """Every configuration over the first, the fastest first."""
    first = next(key for key, cell in data.cells.items() if cell.over is None)
    keys = sorted((key for key in data.cells if key != first), key=lambda key: -data.rank(key))
    return Picture(title=f"tokens/s over {first}", bars=tuple(data.bar(key, key) for key in keys))


LESSONS = (
    Lesson(
        number=10,
        title="The best configuration is not obvious",
        claim="Settings meet each other: the best of each kind, put together, need not be the best, and two that help "
        "alone may hurt together. A search that learns from its runs finds it with a part of them.",
        elsewhere="With few axes that hardly meet each other, the best settings of each make the best "
        "configuration. Interactions grow with the number of axes.",
        stage=stage_search,
        expect=expect_search,
        conclude=conclude_search,
        picture=picture_search,
    ),
)
