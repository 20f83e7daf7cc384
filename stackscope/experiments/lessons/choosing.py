"""Lessons 9 and 12: whom drafts help, and why what was tuned for one traffic is not tuned for another."""

from __future__ import annotations

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
from stackscope.experiments.lessons.data import is_less, is_more, is_same, told, why_lost
from stackscope.experiments.lessons.traffic import completions, traffic
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from stackscope.analysis.factorial import Contrast
    from stackscope.experiments.lessons.data import Data
    from stackscope.toggles import KvType

HEAVY, LIGHT = "Q8_0", "Q4_K_M"
GAP, A = "step_gap_p50_ns", "tokens_per_forward"
KV_TYPES: tuple[KvType, ...] = ("f16", "q8_0")


def _eight(kind: str, kv: str, *, drafts: bool) -> str:
    return f"{kind}, KV {kv}, {'drafts' if drafts else 'plain'}"


def stage_eight(models: Models, is_quick: bool) -> Stage:
    """Two weight quantisations, two KV types, speculation off and on."""
    source = drafting(models)
    workload = completions(is_quick=is_quick)
    cells: list[LessonCell] = []
    for kind in (HEAVY, LIGHT):
        model = models.weights(kind)
        for kv in KV_TYPES[: 1 if is_quick else 2]:
            off = EngineConfig(model=model, draft_model=models.draft, kv_type_k=kv, kv_type_v=kv, draft_length=3)
            plain = _eight(kind, kv, drafts=False)
            on = changed(off, speculation=source)
            cells += [
                LessonCell(key=plain, config=off, workload=workload),
                LessonCell(key=_eight(kind, kv, drafts=True), config=on, workload=workload, over=plain),
            ]
    return Stage(
        cells=tuple(cells),
        told=(
            "The eight configurations of the field: weights of 8 and about 4.5 bits, KV of 16 and 8 bits, drafts off "
            "and on, as in profiles/sweeps/eight.toml.",
            "Look at what drafts bring with each type of weights.",
        ),
        quick="KV has 16 bits only, so that four configurations are left; requests are fewer.",
        figures=("tokens_per_s", "step_gap_p50_ns", "tokens_per_forward"),
    )


def heavier_over_lighter(data: Data) -> Contrast | None:
    """What drafts bring with the heavier weights ÷ with the lighter, on average over the KV types."""
    kvs = [kv for kv in KV_TYPES if _eight(HEAVY, kv, drafts=True) in data.cells]
    weights: dict[str, float] = {}
    for kv in kvs:
        for kind, sign in ((HEAVY, 1.0), (LIGHT, -1.0)):
            weights[_eight(kind, kv, drafts=True)] = sign / len(kvs)
            weights[_eight(kind, kv, drafts=False)] = -sign / len(kvs)
    return data.contrast(weights)


def expect_eight(data: Data) -> str:
    """What drafts bring with each type of weights, as predicted."""
    gains = {kind: data.predicted(_eight(kind, "f16", drafts=True)) for kind in (HEAVY, LIGHT)}
    if any(one is None for one in gains.values()):
        return ""
    phrases = [f"{units.ratio(gain)} with {kind}" for kind, gain in gains.items()]
    return f"Drafts bring {' and '.join(phrases)}."


def conclude_eight(data: Data) -> Conclusion:
    """By that contrast."""
    ratio = heavier_over_lighter(data)
    heavy, light = (_eight(kind, "f16", drafts=True) for kind in (HEAVY, LIGHT))
    if ratio is None:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    sentences = [
        f"Drafts bring {told(data.ratio(heavy))} with {HEAVY} weights and {told(data.ratio(light))} with {LIGHT}; over "
        f"the KV types they bring {told(ratio)} as much with the heavier ones."
    ]
    costs = data.cost(heavy), data.cost(light)
    price = f"A round costs {units.number(costs[0])} plain steps with {HEAVY} and {units.number(costs[1])} with {LIGHT}"
    if is_more(ratio):
        holds: bool | None = True
        sentences.append(f"{price}{_brought(data, heavy, light)}.")
    elif is_less(ratio):
        holds = False
        sentences.append(
            f"Here it is the other way round. {price}: relative to a step, further rows cost less with the lighter "
            "type, whose single row is dearer than its bytes alone would make it."
        )
    else:
        holds = None if ratio.half_width() > 0.05 else False
        sentences.append(f"{price}: no difference that could be told from none.")
    lost = why_lost(data, heavy)
    if lost is not None and is_less(data.ratio(heavy)):
        sentences.append(lost)
    return Conclusion(holds=holds, sentences=tuple(sentences))


def _brought(data: Data, heavy: str, light: str) -> str:
    """What a round takes beyond a plain step, and the tokens it brings; nothing where that is not known."""
    costs, tokens = [data.cost(key) for key in (heavy, light)], [data.figure(key, A) for key in (heavy, light)]
    steps = [data.figure(data.cells[key].over or key, GAP) for key in (heavy, light)]
    if None in (*costs, *tokens, *steps):
        return ""
    extra = [(cost - 1) * step for cost, step in zip(costs, steps, strict=True)]  # type: ignore[operator]
    more = (
        "so that they save less and their rows cost more besides"
        if extra[1] > extra[0]
        else "so that less is saved, at much the same price"
    )
    return (
        f", which is {units.duration(extra[0])} and {units.duration(extra[1])} more than a plain step, for "
        f"{units.number(tokens[0])} and {units.number(tokens[1])} tokens: with the lighter weights a step that is "
        f"saved is worth {units.duration(steps[1])} instead of {units.duration(steps[0])}, {more}"
    )


def picture_eight(data: Data) -> Picture:
    """What drafts bring, by weights and KV type."""
    bars = tuple(
        data.bar(key, f"KV {kv}", group=f"{kind} weights")
        for kind in (HEAVY, LIGHT)
        for kv in KV_TYPES
        if (key := _eight(kind, kv, drafts=True)) in data.cells
    )
    return Picture(title="tokens/s with drafts over plain", bars=bars)


PLAIN = "plain"
SETTINGS = (PLAIN, "prefix cache", "drafts", "cache and drafts")
CODE, UNIQUE = "shared code", "long unique prompts"


def _under(setting: str, kind: str) -> str:
    return f"{setting}, {kind}"


def stage_traffic(models: Models, is_quick: bool) -> Stage:
    """Four settings, under two kinds of traffic."""
    base = EngineConfig(model=models.target, draft_model=models.draft, prefix_cache=False, draft_length=3)
    source = drafting(models)
    configs = {
        PLAIN: base,
        "prefix cache": changed(base, prefix_cache=True),
        "drafts": changed(base, speculation=source),
        "cache and drafts": changed(base, prefix_cache=True, speculation=source),
    }
    requests = 2 if is_quick else 4
    offered = {
        CODE: traffic("code", requests, output=24, prompt=Length.fixed(192), documents=1),
        UNIQUE: traffic("unique", requests, output=24, prompt=Length.fixed(320)),
    }
    return Stage(
        cells=tuple(
            LessonCell(
                key=_under(setting, kind),
                config=config,
                workload=workload,
                over=None if setting == PLAIN else _under(PLAIN, kind),
            )
            for kind, workload in offered.items()
            for setting, config in configs.items()
        ),
        told=(
            "Prefix cache and drafts, off and on, on completions that share a file, and on long prompts that share "
            "nothing.",
            "Look at whether the winner of the first traffic is the winner of the second.",
        ),
        quick="Requests are fewer.",
        figures=("tokens_per_s", "ttft_p50_ns", "tokens_per_forward", "useful_hit_rate"),
        look_requests=CACHE_REQUESTS,
    )


def expect_traffic(data: Data) -> str:
    """The winner under each traffic, as predicted; `plain` is at 1."""
    phrases = []
    for kind in (CODE, UNIQUE):
        gains = {one: data.predicted(_under(one, kind)) for one in SETTINGS[1:]}
        known = {PLAIN: 1.0, **{one: gain for one, gain in gains.items() if gain is not None}}
        if len(known) > 1:
            best = max(known, key=lambda one: known[one])
            phrases.append(f"on {kind} {best} ({units.ratio(known[best])} of plain)")
    return f"The winner is {', '.join(phrases)}." if phrases else ""


def conclude_traffic(data: Data) -> Conclusion:
    """By what the winner of the one traffic does under the other, beside that one's own winner."""
    if data.n_blocks == 0:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    here, there = (_winner(data, kind) for kind in (CODE, UNIQUE))
    sentences = [
        f"On {CODE} the winner is {_gained(data, here, CODE)}{_ties(data, CODE)}, on {UNIQUE} "
        f"{_gained(data, there, UNIQUE)}{_ties(data, UNIQUE)}."
    ]
    holds: bool | None
    if here == there:
        holds, sentence = _kept(data, here)
    else:
        holds, sentence = _taken_along(data, here, there)
    sentences.append(sentence)
    why = _foreseen(data, here)
    return Conclusion(holds=holds, sentences=tuple([*sentences, why] if why else sentences))


def _winner(data: Data, kind: str) -> str:
    best = data.fastest([_under(one, kind) for one in SETTINGS])
    return next(one for one in SETTINGS if _under(one, kind) == best)


def _kept(data: Data, winner: str) -> tuple[bool | None, str]:
    """Where one setting is ahead under both kinds of traffic: whether another may do better under the second."""
    others = [data.ratio(_under(winner, UNIQUE), _under(one, UNIQUE)) for one in SETTINGS if one != winner]
    if all(one is not None and one.log - one.half_width() >= -INDEPENDENT for one in others):
        return False, "One setting wins under both kinds of traffic here; what it brings is another matter."
    return None, (
        f"One setting is ahead under both kinds of traffic here, but on {UNIQUE} the intervals are too wide to say "
        "whether another does better."
    )


def _taken_along(data: Data, here: str, there: str) -> tuple[bool | None, str]:
    """What the winner of the first traffic loses under the second."""
    lost = data.ratio(_under(here, UNIQUE), _under(there, UNIQUE))
    setting = here if there == PLAIN else _gained(data, here, UNIQUE)
    taken = f"Taken along to the {UNIQUE}, {setting} has {told(lost)} of the tokens/s of {there}"
    if is_same(lost, INDEPENDENT):
        return False, f"{taken}: to within a few per cent, nothing is lost by keeping it."
    if is_less(lost):
        return True, f"{taken}: tuned for the first traffic, it loses under the second."
    return None, f"{taken}: the interval holds 1 and is too wide to say whether anything is lost."


def _ties(data: Data, kind: str) -> str:
    """The settings that cannot be told from the winner under a kind of traffic."""
    near = data.rivals([_under(one, kind) for one in SETTINGS])
    names = [one for one in SETTINGS if _under(one, kind) in near]
    return f", which cannot be told from {' or '.join(names)}" if names else ""


def _gained(data: Data, setting: str, kind: str) -> str:
    """A setting with what it brings there: `drafts (1.19× [1.15, 1.23] of plain)`."""
    return setting if setting == PLAIN else f"{setting} ({told(data.ratio(_under(setting, kind)))} of plain)"


def _foreseen(data: Data, setting: str) -> str | None:
    """What drafts bring under either traffic. `None`: the setting has none, or it is not known."""
    here, there = (data.figure(_under(setting, kind), "tokens_per_forward") for kind in (CODE, UNIQUE))
    config = data.cells[_under(setting, CODE)].config
    if config.speculation == "off" or here is None or there is None:
        return None
    rows = units.counted(config.draft_length + 1, "row")
    return (
        f"A round of up to {rows} brings {units.number(here)} tokens on {CODE} and {units.number(there)} on {UNIQUE}: "
        "drafts pay for what is easy to foresee."
    )


def picture_traffic(data: Data) -> Picture:
    """The settings over plain, under each traffic."""
    bars = tuple(
        data.bar(_under(setting, kind), setting, group=kind) for kind in (CODE, UNIQUE) for setting in SETTINGS[1:]
    )
    return Picture(title="tokens/s over plain, by traffic", bars=bars)


LESSONS = (
    Lesson(
        number=9,
        title="Speculation helps heavier weights more than lighter ones",
        claim="What drafts save is reading the weights once per token. The more bytes a weight has, the more that is, "
        "while the price of the drafts stays: quantise the target, and they have less to save.",
        elsewhere="On a processor a lighter type may make the first row cheap and further rows no dearer, or a "
        "type may be slow for one row and fast for several. Then drafts help the lighter weights "
        "more.",
        stage=stage_eight,
        expect=expect_eight,
        conclude=conclude_eight,
        picture=picture_eight,
    ),
    Lesson(
        number=12,
        title="Tuning follows the traffic",
        claim="A configuration is best for the work that it was tuned on. A prefix cache lives on shared prefixes, "
        "drafts on text that is easy to foresee; where neither is there, they cost and bring nothing.",
        elsewhere="A setting that costs nothing where it does not help, as a prefix cache nearly does, wins or "
        "ties everywhere.",
        stage=stage_traffic,
        expect=expect_traffic,
        conclude=conclude_traffic,
        picture=picture_traffic,
    ),
)
