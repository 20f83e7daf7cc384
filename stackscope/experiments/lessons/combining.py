"""Lessons 1 and 2: speed-ups that do not multiply, and bottlenecks that move."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stackscope import units
from stackscope.experiments.effects import INDEPENDENT
from stackscope.experiments.lessons.contracts import (
    CACHE_REQUESTS,
    Conclusion,
    Lesson,
    LessonCell,
    Models,
    Picture,
    Stage,
    changed,
    drafting,
)
from stackscope.experiments.lessons.data import bar_of, is_less, is_more, told, why_lost
from stackscope.experiments.lessons.traffic import completions, traffic
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.lessons.data import Data

BASELINE, ALL = "baseline", "all together"
WEIGHTS, CACHE, DRAFTS = "weights Q8_0", "prefix cache", "speculation"
SINGLES = (WEIGHTS, CACHE, DRAFTS)


def stage_product(models: Models, is_quick: bool) -> Stage:
    """Three optimisations: none, each alone, all."""
    base = EngineConfig(model=models.target, draft_model=models.draft, prefix_cache=False)
    source, lighter = drafting(models), models.weights("Q8_0")
    offered = completions(is_quick=is_quick)
    configs = {
        WEIGHTS: changed(base, model=lighter),
        CACHE: changed(base, prefix_cache=True),
        DRAFTS: changed(base, speculation=source),
        ALL: changed(base, model=lighter, prefix_cache=True, speculation=source),
    }
    return Stage(
        cells=(
            LessonCell(key=BASELINE, config=base, workload=offered),
            *(LessonCell(key=key, config=one, workload=offered, over=BASELINE) for key, one in configs.items()),
        ),
        told=(
            "Lighter weights, a prefix cache and drafts, each alone and all together, on code completions.",
            "Look at the product of the three single speed-ups beside what the three bring together.",
        ),
        quick="Requests are fewer.",
        figures=("tokens_per_s", "ttft_p50_ns", "step_gap_p50_ns", "tokens_per_forward"),
        look_requests=CACHE_REQUESTS,
    )


def product_of(data: Data) -> Contrast | None:
    """The product of the single speed-ups."""
    return data.contrast({**dict.fromkeys(SINGLES, 1.0), BASELINE: -float(len(SINGLES))})


def interaction_of(data: Data) -> Contrast | None:
    """The combination ÷ that product."""
    return data.contrast({ALL: 1.0, **dict.fromkeys(SINGLES, -1.0), BASELINE: len(SINGLES) - 1.0})


def predicted_product(data: Data) -> float | None:
    """The product of the single speed-ups as predicted. `None`: one of them was not."""
    known = [one for key in SINGLES if (one := data.predicted(key)) is not None]
    return math.prod(known) if len(known) == len(SINGLES) else None


def expect_product(data: Data) -> str:
    """The predicted combination beside the product of the predicted singles."""
    product, together = predicted_product(data), data.predicted(ALL)
    if product is None or together is None:
        return ""
    return (
        f"Together {units.ratio(together)}, which is {units.ratio(together / product)} of the product of the singles, "
        f"{units.ratio(product)}."
    )


def conclude_product(data: Data) -> Conclusion:
    """By the ratio of combination and product."""
    product, together, ratio = product_of(data), data.ratio(ALL), interaction_of(data)
    if product is None or together is None or ratio is None:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    alone = ", ".join(f"{units.ratio(one.ratio)} ({key})" for key in SINGLES if (one := data.ratio(key)) is not None)
    sentences = [
        f"Alone they bring {alone}: a product of {told(product)}. Together they bring {told(together)}, "
        f"which is {told(ratio)} of the product."
    ]
    if is_less(ratio):
        sentences.append("They take from each other: what one has made cheap, another can save no more.")
        holds: bool | None = True
    elif is_more(ratio):
        sentences.append("They do not multiply here either, but help each other: together they bring more.")
        holds = True
    elif abs(ratio.log) + ratio.half_width() <= INDEPENDENT:
        sentences.append("So they do multiply here, to within a few per cent: each saves a part that the others leave.")
        holds = False
    else:
        sentences.append("The interval holds 1 and is too wide to say whether they multiply.")
        holds = None
    lost = [key for key in SINGLES if is_less(data.ratio(key))]
    if lost:
        sentences.append(f"Alone, {' and '.join(lost)} already {'loses' if len(lost) == 1 else 'lose'} here.")
    why = why_lost(data, DRAFTS) if DRAFTS in lost else None
    return Conclusion(holds=holds, sentences=tuple([*sentences, why] if why else sentences))


def picture_product(data: Data) -> Picture:
    """The singles, their product, and the combination."""
    return Picture(
        title="tokens/s over the baseline",
        bars=(
            *(data.bar(key, key) for key in SINGLES),
            bar_of(product_of(data), "their product", predicted=predicted_product(data)),
            data.bar(ALL, ALL),
        ),
    )


HEAVY, MIDDLE, LIGHT = "F16", "Q8_0", "Q4_K_M"


def stage_next(models: Models, is_quick: bool) -> Stage:
    """The same work with ever lighter weights, and drafts that take their time."""
    source = drafting(models)
    # The namer wants to see each for some seconds.
    offered = traffic("code", 6 if is_quick else 12, output=48, prompt=Length.uniform(64, 128), documents=2)

    def config(kind: str | None) -> EngineConfig:
        model = models.target if kind is None else models.weights(kind)
        return EngineConfig(model=model, draft_model=models.draft, speculation=source)

    return Stage(
        cells=(
            LessonCell(key=HEAVY, config=config(None), workload=offered),
            LessonCell(key=MIDDLE, config=config(MIDDLE), workload=offered, over=HEAVY),
            LessonCell(key=LIGHT, config=config(LIGHT), workload=offered, over=HEAVY),
        ),
        told=(
            "The same code completions with drafts, and with weights of 16, 8 and about 4.5 bits.",
            "Look at what the namer says limits each, and with what share of the time.",
        ),
        quick="Requests are fewer, and the namer sees less of each.",
        figures=("tokens_per_s", "step_gap_p50_ns", "tokens_per_forward", "host_share"),
        names_limits=True,
    )


def expect_next(data: Data) -> str:
    """What limits with lighter weights, as predicted."""
    causes = {key: one.bottleneck for key in (MIDDLE, LIGHT) if (one := data.predictions.get(key)) is not None}
    phrases = [f"{cause} with {key}" for key, cause in causes.items() if cause is not None]
    return f"What limits then: {', '.join(phrases)}." if phrases else ""


def conclude_next(data: Data) -> Conclusion:
    """By the names before and after."""
    first, last = data.limits.get(HEAVY), data.limits.get(LIGHT)
    if first is None or last is None:
        return Conclusion(holds=None, sentences=("The namer has seen nothing whole.",))
    speeds = f"Q8_0 brings {told(data.ratio(MIDDLE))}, Q4_K_M {told(data.ratio(LIGHT))} of the tokens/s at F16."
    if first.name is None or last.name is None:
        key, limit = (HEAVY, first) if first.name is None else (LIGHT, last)
        unnamed = limit.sentence.rstrip(".")
        why = f"With {key} weights the namer names nothing ({unnamed}), so nothing can be said to move."
        return Conclusion(holds=None, sentences=(speeds, why))
    before, after = _share(data, HEAVY, first.name), _share(data, LIGHT, first.name)
    moved = f"The share of {first.name} goes from {units.percent(before)} to {units.percent(after)}"
    if first.name != last.name:
        then = _share(data, HEAVY, last.name)
        sentence = (
            f"{moved}, and the name from {first.name} to {last.name}, which had {units.percent(then)} of the time and "
            f"now has {units.percent(last.share)}."
        )
        is_ahead = (last.share or 0.0) >= after
        rest = "To go on, relieve that." if is_ahead else f"Yet {first.name} takes more still: the two limit together."
        return Conclusion(holds=True if is_ahead else None, sentences=(speeds, sentence, *_between(data), rest))
    reason = f"{moved}: it stays the name, since nothing else takes as much."
    if first.name == "weight bandwidth":
        reason += " Weights this large, read for few tokens, have to shrink further before anything else limits."
    elif is_less(data.ratio(LIGHT)) or is_less(data.ratio(MIDDLE)):
        reason += " Reading weights was not what limited, so lighter ones, which have to be unpacked, bring nothing."
    return Conclusion(holds=False, sentences=(speeds, reason, *_between(data)))


def _between(data: Data) -> list[str]:
    """What is said of the weights between the two, and where the names are not those that were expected."""
    limit = data.limits.get(MIDDLE)
    sentences = []
    if limit is not None and limit.name is None and limit.shares:
        most = max(limit.shares, key=lambda cause: limit.shares[cause])
        sentences.append(
            f"With {MIDDLE}, {most} takes most, {units.percent(limit.shares[most])}, and nothing is named "
            f"({limit.sentence.rstrip('.')})."
        )
    elif limit is not None and limit.name is not None:
        sentences.append(f"With {MIDDLE} the name is {limit.name}, at {units.percent(limit.share)}.")
    missed = [
        f"{one.bottleneck} with {key}"
        for key in (MIDDLE, LIGHT)
        if (one := data.predictions.get(key)) is not None and one.bottleneck is not None
        and (found := data.limits.get(key)) is not None and found.name not in (None, one.bottleneck)
    ]  # fmt: skip
    return [*sentences, f"Expected was {', '.join(missed)}."] if missed else sentences


def _share(data: Data, key: str, cause: str) -> float:
    limit = data.limits[key]
    return limit.shares.get(cause, limit.share or 0.0 if limit.name == cause else 0.0)


def picture_next(data: Data) -> Picture:
    """Tokens per second over F16."""
    return Picture(
        title="tokens/s over F16 weights", bars=tuple(data.bar(key, _named(data, key)) for key in (MIDDLE, LIGHT))
    )


def _named(data: Data, key: str) -> str:
    limit = data.limits.get(key)
    return key if limit is None or limit.name is None else f"{key}: {limit.name}"


LESSONS = (
    Lesson(
        number=1,
        title="Speed-ups do not multiply",
        claim="Each optimisation is sold with the factor that it brings alone. Two that save the same time cannot both "
        "save it, so that a stack of them brings less than the product, or sometimes more, and only a measurement of "
        "the whole tells.",
        elsewhere="On a processor that is limited by compute already, drafts lose alone, and with lighter "
        "weights they may lose more or less than the product says. With traffic that shares no "
        "prefix the cache brings nothing, and there is nothing to multiply.",
        stage=stage_product,
        expect=expect_product,
        conclude=conclude_product,
        picture=picture_product,
    ),
    Lesson(
        number=2,
        title="Relieving one bottleneck promotes the next",
        claim="Something always limits. Make the weights lighter and their reading stops being it: attention over the "
        "KV cache, the draft model or the host comes to the front, and the next saving has to be made there.",
        elsewhere="A model whose weights are most of what a step reads, at any type that it has, keeps its "
        "name: then the next type has to be lighter still. On a processor lighter weights also have "
        "to be unpacked, so that compute may come to the front instead.",
        stage=stage_next,
        expect=expect_next,
        conclude=conclude_next,
        picture=picture_next,
    ),
)
