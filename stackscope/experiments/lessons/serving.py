"""Lessons 4 and 5: what a prefix cache does not save, and what tokens per second do not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope import units
from stackscope.experiments.lessons.contracts import (
    CACHE_REQUESTS,
    Conclusion,
    Lesson,
    LessonCell,
    Models,
    Picture,
    Stage,
    changed,
)
from stackscope.experiments.lessons.data import bar_of, foretold, is_less, is_more, told
from stackscope.experiments.lessons.traffic import traffic
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from stackscope.experiments.lessons.data import Data
    from stackscope.workload.spec import WorkloadSpec

TTFT, GAP, TTFT_TAIL, GAP_TAIL = "ttft_p50_ns", "step_gap_p50_ns", "ttft_p95_ns", "step_gap_p95_ns"

SHORT, LONG = 128, 1_536
"""Tokens of the document that all questions are about; the bundled models take 2,048 in all."""


def _about(tokens: int, *, has_cache: bool) -> str:
    return f"{tokens:,} tokens, {'with' if has_cache else 'no'} cache"


LONG_Q8: str = f"{LONG:,} tokens, with cache, KV q8_0"
COLLAPSED = 0.5
SAME = 0.1
"""As a logarithm: what the time per token may differ by and still count as the same."""


def stage_prefix(models: Models, is_quick: bool) -> Stage:
    """Questions about a short and about a long document, without and with a prefix cache."""
    base = EngineConfig(model=models.small, draft_model=None, prefix_cache=False, slots=1)
    cached = changed(base, prefix_cache=True)

    def questions(tokens: int) -> WorkloadSpec:
        requests = 3 if is_quick else 6
        return traffic("rag", requests, output=48, prompt=Length.fixed(24), shared=tokens, documents=1)

    cells: list[LessonCell] = []
    for tokens in (SHORT, LONG):
        off = _about(tokens, has_cache=False)
        cells += [
            LessonCell(key=off, config=base, workload=questions(tokens)),
            LessonCell(key=_about(tokens, has_cache=True), config=cached, workload=questions(tokens), over=off),
        ]
    compressed = changed(cached, kv_type_k="q8_0", kv_type_v="q8_0")
    cells.append(
        LessonCell(key=LONG_Q8, config=compressed, workload=questions(LONG), over=_about(LONG, has_cache=False))
    )
    return Stage(
        cells=tuple(cells),
        told=(
            f"Questions about a document of {SHORT} tokens and about one of {LONG:,}, without and with a prefix cache, "
            "and with a KV cache of 8 bits. The model is small, so that attention is a good part of a step.",
            "Look at the time to the first token, and at the time between tokens.",
        ),
        quick="Requests are fewer.",
        figures=(TTFT, GAP, "tokens_per_s", "useful_hit_rate"),
        look_requests=CACHE_REQUESTS,
    )


def expect_prefix(data: Data) -> str:
    """Both times at the long document, as predicted."""
    cached = _about(LONG, has_cache=True)
    ttft, gap = data.estimate(cached, TTFT), data.estimate(cached, GAP)
    if ttft is None and gap is None:
        return ""
    sentence = (
        f"With the cache the first token of the long document comes after {foretold(ttft)} of the time, and the "
        f"time between tokens is {foretold(gap)} of what it was."
    )
    lighter = _lighter_foretold(data)
    return sentence if lighter is None else f"{sentence} A KV cache of 8 bits makes that {units.ratio(lighter)}."


def _lighter_foretold(data: Data) -> float | None:
    """The time between tokens with a KV cache of 8 bits over that with 16, both with the cache, as predicted."""
    lighter, gap = data.predicted(LONG_Q8, GAP), data.predicted(_about(LONG, has_cache=True), GAP)
    return None if lighter is None or gap is None else lighter / gap


def conclude_prefix(data: Data) -> Conclusion:
    """By both times, with the cache over without, at the long document."""
    short, long, cached = (
        _about(SHORT, has_cache=True), _about(LONG, has_cache=False), _about(LONG, has_cache=True)
    )  # fmt: skip
    ttft, gap, depth = data.ratio(cached, name=TTFT), data.ratio(cached, name=GAP), data.ratio(cached, short, GAP)
    if ttft is None or gap is None or depth is None:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    sentences = [
        f"With the cache the first token of the long document comes after {told(ttft)} of the time "
        f"({units.duration(data.figure(cached, TTFT))}, not {units.duration(data.figure(long, TTFT))}).",
        f"The time between tokens is {told(gap)} of what it was, and {told(depth)} of that with the short document.",
    ]
    is_collapsed = ttft.ratio < COLLAPSED and is_less(ttft)
    stays = abs(gap.log) < SAME or not is_less(gap)
    grows = is_more(depth)
    if is_collapsed and stays and grows:
        holds: bool | None = True
        sentences.append("Prefill is gone; each token still reads the whole document's KV.")
    elif is_collapsed and stays and not grows:
        holds = None if depth.half_width() > SAME else False
        sentences.append(
            "Prefill is gone; but attention over the long document costs too little here to show in the time per token."
        )
    else:
        holds = False
        what = "the time per token falls too" if is_collapsed else "the first token comes hardly sooner"
        sentences.append(f"That is not what was to be expected: {what}.")
    lighter = data.ratio(LONG_Q8, cached, GAP)
    if lighter is not None:
        does = "cuts it" if is_less(lighter) else "makes it longer" if is_more(lighter) else "makes no clear difference"
        extra = ": unpacking costs more than reading less saves" if is_more(lighter) else ""
        sentences.append(f"A KV cache of 8 bits {does} ({told(lighter)}){extra}.")
    return Conclusion(holds=holds, sentences=tuple(sentences))


def picture_prefix(data: Data) -> Picture:
    """Both times, with the cache over without."""
    bars = [
        data.bar(_about(tokens, has_cache=True), f"{tokens:,} tokens", name=name, group=group)
        for group, name in (("time to first token, with cache over without", TTFT), ("time between tokens, same", GAP))
        for tokens in (SHORT, LONG)
    ]
    depth = data.ratio(_about(LONG, has_cache=True), _about(SHORT, has_cache=True), GAP)
    lighter = data.ratio(LONG_Q8, _about(LONG, has_cache=True), GAP)
    group = "time between tokens"
    return Picture(
        title="what the prefix cache changes, and what it does not",
        bars=(
            *bars,
            bar_of(depth, f"{LONG:,} over {SHORT} tokens", group=group),
            bar_of(lighter, "KV q8_0 over f16", predicted=_lighter_foretold(data), group=group),
        ),
    )


FLIGHTS = (1, 4, 16)
PROMPT, OUTPUT = 96, 24
CHUNK = 32
"""Rows of a forward where prefill is cut into small pieces."""


def _flight(n: int) -> str:
    return f"{n} at a time"


CHUNKED = f"{FLIGHTS[-1]} at a time, budget {CHUNK}"


def stage_latency(models: Models, is_quick: bool) -> Stage:
    """More and more requests at a time, in as many slots."""
    base = EngineConfig(model=models.target, draft_model=None, prefix_cache=False, slots_max=FLIGHTS[-1])

    def cell(n: int, key: str, budget: int) -> LessonCell:
        requests = max(n, 2) if is_quick else max(n, 4)
        offered = traffic("unique", requests, output=OUTPUT, concurrency=n, prompt=Length.fixed(PROMPT))
        config = changed(base, slots=n, token_budget=budget)
        return LessonCell(key=key, config=config, workload=offered, over=None if n == 1 else _flight(1))

    cells = [cell(n, _flight(n), 256) for n in (FLIGHTS[::2] if is_quick else FLIGHTS)]
    if not is_quick:
        cells.append(cell(FLIGHTS[-1], CHUNKED, CHUNK))
    return Stage(
        cells=tuple(cells),
        told=(
            f"Unique prompts of {PROMPT} tokens, 1 to {FLIGHTS[-1]} at a time in as many slots, and once with prefill "
            f"in pieces of {CHUNK} rows at most instead of 256.",
            "Look at tokens per second beside the slowest first tokens and the longest gaps.",
        ),
        quick=f"Only 1 and {FLIGHTS[-1]} at a time, one token budget, fewer requests: a p95 of few is the slowest.",
        figures=("tokens_per_s", TTFT, TTFT_TAIL, GAP, GAP_TAIL),
    )


def expect_latency(data: Data) -> str:
    """Tokens per second beside the gaps at the most requests, as predicted."""
    most = _flight(FLIGHTS[-1])
    rate, gap = data.predicted(most), data.predicted(most, GAP)
    if rate is None:
        return ""
    waits = "" if gap is None else f", and each mostly waits {units.ratio(gap)} as long for a token (median gap)"
    return f"{FLIGHTS[-1]} at a time bring {units.ratio(rate)} of the tokens/s{waits}."


def conclude_latency(data: Data) -> Conclusion:
    """By what the configuration with most tokens per second does to the tails."""
    rates = {key: one.log for key in data.cells if key != _flight(1) and (one := data.ratio(key)) is not None}
    if not rates:
        return Conclusion(holds=None, sentences=("Nothing was measured whole.",))
    best = max(rates, key=lambda key: rates[key])
    rate, ttft, gap = (data.ratio(best, name=name) for name in ("tokens_per_s", TTFT_TAIL, GAP_TAIL))
    first = (
        f"Most tokens/s come with {best}: {told(rate)} of one at a time. The slowest first tokens (p95) then take "
        f"{told(ttft)} as long, {units.duration(data.figure(best, TTFT_TAIL))}, and the gaps between tokens (p95) "
        f"{told(gap)}."
    )
    sentences = [first, *_usual_wait(data)]
    if is_more(rate) and (is_more(ttft) or is_more(gap)):
        holds: bool | None = True
        sentences.append("Who looks at tokens/s alone sees a gain; each user sees a wait.")
    elif is_more(rate) and ttft is not None and gap is not None:
        holds = None if max(ttft.log, gap.log) > SAME else False
        sentences.append("More tokens/s cost no clear latency here.")
    else:
        holds = None
        sentences.append("More at a time bring no more tokens/s here: compute was in use with one already.")
        if is_more(ttft):
            sentences.append("The latency is lost for nothing.")
    if CHUNKED in data.cells:
        whole = _flight(FLIGHTS[-1])
        sentences.append(
            f"Prefill in pieces of {CHUNK} rows changes tokens/s by {told(data.ratio(CHUNKED, whole))}, gaps (p95) by "
            f"{told(data.ratio(CHUNKED, whole, GAP_TAIL))} and the first tokens (p95) by "
            f"{told(data.ratio(CHUNKED, whole, TTFT_TAIL))}."
        )
    return Conclusion(holds=holds, sentences=tuple(sentences))


def _usual_wait(data: Data) -> list[str]:
    """The median gap at the most requests, beside what was expected of it; nothing where either is not known."""
    most = _flight(FLIGHTS[-1])
    gap, expected = data.ratio(most, name=GAP) if most in data.cells else None, data.estimate(most, GAP)
    if gap is None or expected is None:
        return []
    interval = gap.interval()
    is_met = interval is not None and interval.low <= expected.high and expected.low <= interval.high
    other = "as" if is_met else "not as"
    return [f"The usual gap (median) at {most} is {told(gap)} as long, {other} expected ({foretold(expected)})."]


def picture_latency(data: Data) -> Picture:
    """Throughput and tails over one at a time."""
    keys = [key for key in data.cells if key != _flight(1)]
    groups = (
        ("tokens/s", "tokens_per_s"), ("time to first token, p95", TTFT_TAIL), ("step gap, median", GAP),
        ("step gap, p95", GAP_TAIL),
    )  # fmt: skip
    bars = tuple(data.bar(key, key, name=name, group=group) for group, name in groups for key in keys)
    return Picture(title="over one request at a time", bars=bars)


LESSONS = (
    Lesson(
        number=4,
        title="Prefix caching removes prefill, not attention",
        claim="What a prefix cache finds need not be computed again, so the first token comes at once. But every "
        "further token still attends to the whole prefix: a long context costs the same per token. That is cut only by "
        "reading less of it, or smaller values.",
        elsewhere="With a short context, or weights that are large beside the KV, attention is too small a "
        "part of a step to be seen. A KV cache of fewer bits helps only where reading it is what "
        "takes the time.",
        stage=stage_prefix,
        expect=expect_prefix,
        conclude=conclude_prefix,
        picture=picture_prefix,
    ),
    Lesson(
        number=5,
        title="Throughput alone hides latency",
        claim="More requests at a time share each reading of the weights: tokens per second rise. Each of them waits "
        "for the prefill and the rows of the others, so first tokens come later and gaps grow, most for the unlucky.",
        elsewhere="Where compute is in use with one request already, more at a time bring waiting and nothing "
        "else. A p95 of few requests is the slowest of them.",
        stage=stage_latency,
        expect=expect_latency,
        conclude=conclude_latency,
        picture=picture_latency,
    ),
)
