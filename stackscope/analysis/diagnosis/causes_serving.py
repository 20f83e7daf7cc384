"""Causes around the forward: the loop's own work, and what requests do to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.diagnosis.base import Claim, found, per_step, rejected, without
from stackscope.analysis.diagnosis.misses import window_miss
from stackscope.analysis.diagnosis.responses import answer, contradiction
from stackscope.analysis.diagnosis.slices import FORWARD, HOST

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence
    from stackscope.analysis.diagnosis.slices import Slices
    from stackscope.records import Cause

PROPORTIONAL: Final = (0.5, 1.5)
"""Sampling counts as proportional to output rows if their slope accounts for this much of it."""
LEAST_PURE: Final = 5
"""Steps without prefill that say what a step takes without it."""
INTERFERES: Final = 1.5
"""A step with prompt rows that takes so many times as long as one without holds the decoding requests up."""
AGREES: Final = 0.25
"""The waits of finished requests must be this share of what Little's law says of those in the system: while a queue
grows, they are behind."""
LEAST_FINISHED: Final = 3
IN_THE_QUEUE: Final = 0.05

_WORK: Final = {
    "admit": "admission and prefix look-ups", "build": "planning and filling the batch",
    "commit": "rollback and commit (rejected rows, histories, prefixes)", "emit": "detokenising and finishing requests",
}  # fmt: skip
_PROMPTS: Final = ("compute", "attention", "head", "resident", "weights", "fixed", "forward")
"""Where the time of prompt rows comes from, in this order."""


def host_scheduling(evidence: Evidence, slices: Slices) -> Claim:
    """The loop's own work between forwards; each of its phases is measured by itself."""
    amount = slices.take_rest("host scheduling", HOST)
    share, times, steps = slices.share(amount), evidence.times, max(1, evidence.steps)
    phases = {name: getattr(times, name) / steps for name in _WORK}
    rest = max(0.0, amount / steps - sum(phases.values()))
    if rest > 0.0:
        phases["rest"] = rest
    largest = max(phases, key=lambda name: phases[name])
    in_order = sorted(phases, key=lambda name: -phases[name])
    return found(
        "host scheduling", kind="need", share=share, doubt=contradiction(evidence.responses, "build"),
        claim=f"the loop's own work takes {per_step(evidence, amount)}, {units.percent(share)} of the time; most of it "
        f"{largest}: {_WORK.get(largest, 'making records and handing them over')}",
        evidence=(
            ", ".join([f"{name} {units.duration(phases[name])}" for name in in_order]) + " per step",
            None if evidence.terms is None
            else f"by the model all work outside forwards takes {units.duration(evidence.terms.host / steps)} per step",
            answer(evidence.responses, "build"),
        ),
        counterfactual=f"{without(evidence, amount)}: the loop does one thing at a time, so all of it would go",
        falsifier="a delay added there does not lengthen the step by as much",
    )  # fmt: skip


def sampling(evidence: Evidence, slices: Slices) -> Claim:
    """From logits to tokens: grows with the output rows."""
    amount = slices.take_rest("sampling", ("sample",))
    share, batching = slices.share(amount), evidence.batching
    per_output = batching.per_output_ns
    if per_output is None or evidence.times.sample <= 0.0:
        return rejected("sampling", "nothing was sampled", share=share)
    accounted = per_output * batching.outputs / evidence.times.sample
    low, high = PROPORTIONAL
    forwards = max(1, evidence.forwards)
    doubt = None if low <= accounted <= high else "it does not grow with the output rows"
    return found(
        "sampling", kind="need", share=share, doubt=doubt or contradiction(evidence.responses, "sample"),
        claim=f"sampling takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            *_per_output(per_output, batching.outputs / forwards, accounted),
            answer(evidence.responses, "sample"),
        ),
        counterfactual=f"{without(evidence, amount)}: forwards wait for it",
        falsifier="greedy sampling, or fewer output rows, leave the step as it is",
    )  # fmt: skip


def _per_output(per_output_ns: float, rows: float, accounted: float) -> tuple[str, ...]:
    """What an output row takes; noise alone can make that less than nothing."""
    of_rows = f"{units.number(rows)} rows a forward"
    if per_output_ns <= 0.0:
        return (f"what an output row takes cannot be told from zero, {of_rows}",)
    taken = f"{units.duration(per_output_ns)} per output row, {of_rows}"
    return (taken, f"that accounts for {units.percent(accounted)} of it")


def queueing(evidence: Evidence, slices: Slices) -> Claim:
    """Requests wait for a slot. Others run meanwhile, so it is a share of requests' time and takes no wall time."""
    load = evidence.load
    if load.wait_share is None or load.queue is None:
        return rejected("queueing", "this source does not tell of its queue", kind="wait")
    share = load.wait_share
    if share < IN_THE_QUEUE:
        return rejected("queueing", f"{units.number(load.queue)} requests wait on average", kind="wait", share=share)
    told, busy = load.wait_of_finished, 1.0 - slices.share(evidence.times.idle)
    is_known = told is not None and load.finished >= LEAST_FINISHED
    doubt = None
    if is_known and told is not None and told < AGREES * share:
        doubt = f"requests that ended waited for {units.percent(told)} of their time only"
    elif busy < 0.9:
        doubt = f"steps ran for {units.percent(busy)} of the time only"
    is_full = (load.full or 0.0) >= 0.5
    return found(
        "queueing", kind="wait", share=share, doubt=doubt,
        claim=f"requests wait for {units.percent(share)} of their time before they run",
        evidence=(
            f"on average {units.number(load.queue)} wait and {units.number(load.slots_busy)} of "
            f"{units.number(load.slots)} slots work",
            "every slot was taken while they waited" if is_full
            else "slots were free: the KV cache has no room for what waits",
            None if not is_known
            else f"the last {units.counted(load.finished, 'request')} waited for {units.percent(told)} of their time",
            f"steps ran for {units.percent(busy)} of the time",
        ),
        counterfactual=f"without the queue a request would take {units.percent(1.0 - share)} of its time",
        falsifier="with fewer arrivals the service of a request takes as long and the wait stays",
    )  # fmt: skip


def cache_thrash(evidence: Evidence, slices: Slices) -> Claim:
    """Prompts are computed again because the prefix cache had to drop them."""
    cache = evidence.cache
    window = window_miss(evidence.model, evidence.config)
    if cache.evicted_blocks <= 0 and cache.preempted <= 0:
        why = "nothing was evicted from the prefix cache"
        return rejected("cache thrash", why if window is None else f"{why}: {window}", kind="loss")
    lost = cache.lost_tokens
    if lost is None:
        why = "no shadow says what a larger cache would have found"
        return rejected("cache thrash", f"{units.number(cache.evicted_blocks)} blocks evicted, but {why}", kind="loss")
    processed = cache.lookup_tokens - cache.useful_hit_tokens
    again = min(1.0, lost / processed) if processed > 0 else 0.0
    amount = _take_prompts("cache thrash", again * _prefill_ns(evidence), evidence, slices)
    share = slices.share(amount)
    return found(
        "cache thrash", kind="loss", share=share,
        doubt=None if again > 0.0 else "a cache without limit would not have found more",
        claim=f"computing prompts again that the cache had dropped takes {per_step(evidence, amount)}, "
        f"{units.percent(share)} of the time",
        evidence=(
            f"{units.number(cache.evicted_blocks)} blocks evicted in the last minute",
            f"{units.percent(again)} of the computed prompt tokens would have been found without a limit",
            f"useful hits {units.number(cache.useful_hit_tokens)} of {units.number(cache.lookup_tokens)} tokens, "
            f"without a limit {units.number(cache.unlimited_tokens)}",
            f"{units.number(cache.preempted)} requests were put back" if cache.preempted > 0 else None,
        ),
        counterfactual=without(evidence, amount),
        falsifier="a larger cache finds no more",
    )  # fmt: skip


def _prefill_ns(evidence: Evidence) -> float:
    """Time that prompt rows take: steps of their own, and what they add to those of others."""
    return evidence.batching.prefill_ns + (_interference_ns(evidence) or 0.0)


def _take_prompts(cause: Cause, amount: float, evidence: Evidence, slices: Slices) -> float:
    """Give a cause time of prompt rows, out of the terms that they take it from."""
    terms = evidence.prompt_terms
    pattern = {} if terms is None else {name: getattr(terms, name) for name in FORWARD}
    return slices.take_like(cause, amount, pattern, _PROMPTS)


def _interference_ns(evidence: Evidence) -> float | None:
    """What prompt rows add to steps in which others decode: against steps without, else by the model."""
    batching = evidence.batching
    if batching.mixed_steps == 0:
        return 0.0
    if batching.pure_steps >= LEAST_PURE:
        pure = batching.pure_ns / batching.pure_steps
        return max(0.0, batching.mixed_ns - batching.mixed_steps * pure)
    if evidence.prompt_terms is None:
        return None
    return max(0.0, evidence.prompt_terms.forward - batching.prefill_ns)


def prefill_interference(evidence: Evidence, slices: Slices) -> Claim:
    """Decoding requests wait for prompt rows that share their steps."""
    batching = evidence.batching
    if batching.mixed_steps == 0:
        return rejected("prefill interference", "no prompt was computed beside decoding requests")
    added = _interference_ns(evidence)
    if added is None:
        return rejected("prefill interference", "too few steps without prompt rows to compare with, and no time model")
    # What is computed again is the cache's doing.
    again = slices.taken("cache thrash") / max(1.0, _prefill_ns(evidence))
    slices.ask("prefill interference", min(1.0, again) * added, _PROMPTS)
    amount = _take_prompts("prefill interference", max(0.0, 1.0 - again) * added, evidence, slices)
    share = slices.share(amount)
    mixed = batching.mixed_ns / batching.mixed_steps
    pure = mixed - added / batching.mixed_steps
    ratio = mixed / pure if pure > 0.0 else None
    is_confirmed = ratio is None or ratio >= INTERFERES
    return found(
        "prefill interference", kind="need", share=share,
        doubt=None if is_confirmed else f"steps with prompt rows take only {units.ratio(ratio)} of those without",
        claim=f"prompts computed beside decoding requests take {per_step(evidence, amount)}, "
        f"{units.percent(share)} of the time",
        evidence=(
            f"steps with prompt rows take {units.duration(mixed)}, without {units.duration(pure)}"
            + ("" if batching.pure_steps >= LEAST_PURE else " (by the model)"),
            f"{units.percent(batching.mixed_steps / max(1, evidence.forwards))} of the forwards carry prompt rows "
            "beside decoding ones",
            f"{units.number(batching.prefill_rows)} of {units.number(batching.rows)} rows were prompt rows",
        ),
        counterfactual=without(evidence, amount),
        falsifier="steps without prompt rows are as long",
    )  # fmt: skip
