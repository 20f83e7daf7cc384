"""Causes inside the target's forward: what it reads, what it computes, and what it goes through in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope import units
from stackscope.analysis.diagnosis.base import NO_MODEL, Claim, found, per_step, rejected, without
from stackscope.analysis.diagnosis.responses import answer

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence, Roofs
    from stackscope.analysis.diagnosis.slices import Slices

NEAR_ROOF: Final = 0.5
"""Share of a measured ceiling from which on a forward runs at it: whole forwards reach 0.65 to 0.97 of what reading
alone does (published for several processors), and this leaves room for rows beyond the first."""
BEYOND_ROOF: Final = 1.3
"""Above this share of a ceiling the division of the step is wrong, not the memory fast."""
SHOWN_ABOVE_ROOF: Final = 1.005
"""From here on a share of a ceiling is shown as more than 100 %."""
FLAT_ROWS: Final = 0.55
"""A step whose rows beyond the first add no more than this share of it is still below the knee of the roofline, where
they would add half; the rest is uncertainty."""
EFFICIENT: Final = 0.6
"""Share of the measured matrix rate from which on the rate itself confirms that computing limits."""


def weight_bandwidth(evidence: Evidence, slices: Slices) -> Claim:
    """Reading the weights: bytes ÷ bandwidth, the same however many rows there are."""
    if evidence.terms is None:
        return rejected("weight bandwidth", NO_MODEL)
    amount = slices.take_rest("weight bandwidth", ("weights",))
    share, roofs, times = slices.share(amount), evidence.roofs, evidence.times
    body = None if roofs.weight_bytes is None else roofs.weight_bytes - (roofs.head_bytes or 0.0)
    rate = _rate(body, amount)
    at_roof = _share_of(rate, roofs.bandwidth)
    rows = evidence.rows_share
    is_flat = rows is not None and rows.value <= FLAT_ROWS
    is_at_roof = at_roof is not None and NEAR_ROOF <= at_roof <= BEYOND_ROOF
    doubt = None if _is_reading(evidence) else evidence.unknown.get("weights")
    if doubt is None and not is_flat and not is_at_roof:
        near = "reading is not near the measured ceiling" if at_roof is not None else _why_no_share(roofs)
        doubt = f"rows make up more of the step than weights do, and {near}"
    size = None if body is None or evidence.forwards == 0 else body / evidence.forwards
    return found(
        "weight bandwidth", kind="need", share=share, doubt=doubt,
        claim=f"reading the weights takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            _whence(size, evidence),
            None if rate is None else f"{units.bandwidth(rate)} while it reads them{_of_roof(at_roof, roofs)}",
            None if rows is None
            else f"rows beyond the first add {units.percent(rows.value)} "
            f"[{units.percent(rows.low)}, {units.percent(rows.high)}] to a step",
            f"the forward is {units.percent(times.forward / times.wall)} of the time" if times.wall > 0 else None,
            answer(evidence.responses, "decode"),
        ),
        counterfactual=without(evidence, amount),
        falsifier="fewer bits per weight leave the step as it is, or a slower memory does not slow it",
    )  # fmt: skip


def _is_reading(evidence: Evidence) -> bool:
    """Whether whole forwards read their weights at near the ceiling: so much is measured even where the data do not
    separate the weights from the rest, whose own rate is then that of the ceiling by assumption."""
    roofs = evidence.roofs
    share = _share_of(_rate(roofs.weight_bytes, evidence.times.forward), roofs.bandwidth)
    return share is not None and NEAR_ROOF <= share <= BEYOND_ROOF


def _whence(size: float | None, evidence: Evidence) -> str | None:
    if size is None:
        return None
    place = {None: "", True: " out of the processor's cache", False: " out of memory"}[evidence.roofs.fits_cache]
    return f"{units.data_size(size)} of weights per forward, the head apart{place}"


def _of_roof(share: float | None, roofs: Roofs, *, is_divided: bool = True) -> str:
    """`share` of the measured ceiling that a rate is. Above it the ceiling needs a word, or the rate does."""
    if share is None:
        return f"; {roofs.why_none}"
    said = f", {units.percent(share)} of the"
    if share < SHOWN_ABOVE_ROOF:
        return f"{said} measured ceiling"
    if is_divided and share > BEYOND_ROOF:
        return f"{said} measured ceiling, so the step is not divided rightly here"
    return f"{said} ceiling, which was measured in a slower state of the machine"


def _why_no_share(roofs: Roofs) -> str:
    return roofs.why_none if roofs.bandwidth is None else "what it reads is not known"


def _share_of(rate: float | None, roof: float | None) -> float | None:
    """`None`: either is not known."""
    return None if rate is None or roof is None or roof <= 0.0 else rate / roof


def _rate(amount: float | None, ns: float) -> float | None:
    """Per second. `None`: not known."""
    return None if amount is None or ns <= 0.0 else amount * 1e9 / ns


def kv_attention(evidence: Evidence, slices: Slices) -> Claim:
    """Going through cached keys and values: it grows with the context."""
    if evidence.terms is None:
        return rejected("KV and attention", NO_MODEL)
    names = ("attention", "resident")  # Cells of other sequences that decode are gone through as well.
    amount = slices.take_rest("KV and attention", names)
    share, drawn = slices.share(amount), evidence.attention_share
    doubt = evidence.unknown.get("attention")
    if doubt is None and (drawn is None or drawn.low <= 0.0):
        doubt = "the time per cached token cannot be told from zero"
    tokens = evidence.batching.cached
    per_token = amount / tokens if tokens > 0 and amount > 0.0 else None
    forwards = max(1, evidence.forwards)
    rate = _rate(evidence.roofs.kv_bytes, amount)
    return found(
        "KV and attention", kind="need", share=share, doubt=doubt,
        claim=f"attention to {units.number(tokens / forwards)} cached tokens takes {per_step(evidence, amount)}, "
        f"{units.percent(share)} of the time",
        evidence=(
            None if per_token is None else f"each cached token adds {units.duration(per_token)} to a forward",
            None if drawn is None
            else f"share in a typical step {units.percent(drawn.value)} "
            f"[{units.percent(drawn.low)}, {units.percent(drawn.high)}]",
            None if rate is None else f"keys and values are gone through at {units.bandwidth(rate)} (logical bytes)",
            answer(evidence.responses, "decode"),
        ),
        counterfactual=f"{without(evidence, amount)}; at half the context half of it would go",
        falsifier="the step does not get shorter when contexts do",
    )  # fmt: skip


def compute(evidence: Evidence, slices: Slices) -> Claim:
    """Multiplying rows beyond the first: what the measured curve of time against rows adds for them."""
    if evidence.terms is None:
        return rejected("compute", NO_MODEL)
    amount = slices.take_rest("compute", ("compute",))
    share, drawn, roofs = slices.share(amount), evidence.rows_share, evidence.roofs
    doubt = evidence.unknown.get("compute")
    rate = _rate(roofs.flops, evidence.times.forward)
    at_roof = _share_of(rate, roofs.compute)
    is_fast = at_roof is not None and at_roof >= EFFICIENT
    if doubt is None and not is_fast and (drawn is None or drawn.low <= 0.0):
        doubt = "what rows beyond the first add cannot be told from zero"
    forwards, rows = max(1, evidence.forwards), evidence.batching.rows
    beyond = max(1.0, rows - evidence.batching.passes)
    return found(
        "compute", kind="need", share=share, doubt=doubt,
        claim=f"computing {units.number(rows / forwards)} rows per forward takes {per_step(evidence, amount)} more "
        f"than one row would, {units.percent(share)} of the time",
        evidence=(
            f"each row beyond the first adds {units.duration(amount / beyond)}",
            None if rate is None
            else f"forwards compute at {units.flop_rate(rate)}{_of_roof(at_roof, roofs, is_divided=False)}",
            None if drawn is None
            else f"share in a typical step {units.percent(drawn.value)} "
            f"[{units.percent(drawn.low)}, {units.percent(drawn.high)}]",
            answer(evidence.responses, "decode"),
        ),
        counterfactual=without(evidence, amount),
        falsifier="fewer rows, or more threads, leave the step as it is",
    )  # fmt: skip


def lm_head(evidence: Evidence, slices: Slices) -> Claim:
    """The output head: reading it once per pass with outputs, and multiplying it by every output row."""
    if evidence.terms is None:
        return rejected("LM head", NO_MODEL)
    amount = slices.take_rest("LM head", ("head",))
    share, batching = slices.share(amount), evidence.batching
    doubt = evidence.unknown.get("head")
    if batching.outputs == 0:
        return rejected("LM head", "no forward had an output row", share=share)
    of_rows = batching.outputs / batching.rows if batching.rows > 0 else None
    vocabulary = None if evidence.model is None else evidence.model.vocabulary
    needed = batching.decode_rows
    is_all = batching.prefill_rows > 0 and batching.outputs > needed + 0.5 * batching.prefill_rows
    forwards = max(1, evidence.forwards)
    head = evidence.roofs.head_bytes
    rate = _rate(head, amount)
    at_roof = _share_of(rate, evidence.roofs.bandwidth)
    return found(
        "LM head", kind="need", share=share, doubt=doubt,
        claim=f"the output head takes {per_step(evidence, amount)}, {units.percent(share)} of the time",
        evidence=(
            f"{units.number(batching.outputs / forwards)} output rows a forward, {units.percent(of_rows)} of the rows",
            None if vocabulary is None else f"{units.count(vocabulary)} tokens in the vocabulary",
            None if head is None else f"{units.data_size(head / forwards)} of head per forward",
            None if rate is None
            else f"{units.bandwidth(rate)} while it is read{_of_roof(at_roof, evidence.roofs)}",
            "most prompt rows have logits that nobody needs" if is_all else None,
        ),
        counterfactual=without(evidence, amount),
        falsifier="asking for fewer output rows leaves the step as it is",
    )  # fmt: skip


def resident_prefixes(evidence: Evidence, slices: Slices) -> Claim:
    """Idle cached prefixes in a unified cache: every forward scans the cells that they hold.

    A loss only where the cache does not earn it: where its useful hits spare more, it is the price of them.
    """
    batching = evidence.batching
    if evidence.terms is None:
        return rejected("resident-prefix tax", NO_MODEL, kind="loss")
    if evidence.config is not None and not evidence.config.unified_kv:
        return rejected("resident-prefix tax", "with split KV no forward scans another sequence's cells", kind="loss")
    if batching.idle_cells <= 0.0:
        return rejected("resident-prefix tax", "no cells are held by sequences outside the forward", kind="loss")
    amount = slices.take("resident-prefix tax", slices.factor * evidence.idle_resident_ns, ("resident",))
    share, spared = slices.share(amount), evidence.cache.spared
    is_earned = spared is not None and spared > share
    per_cell = amount / max(1, evidence.forwards) / batching.idle_cells
    cells = f"{units.number(batching.idle_cells)} of {units.number(batching.cells)} occupied cells"
    return found(
        "resident-prefix tax", kind="need" if is_earned else "loss", share=share,
        doubt=_tax_doubt(evidence, amount),
        claim=f"scanning cells of idle cached prefixes takes {per_step(evidence, amount)}, "
        f"{units.percent(share)} of the time" + ("; what the cache finds spares more" if is_earned else ""),
        evidence=(
            f"{cells} belong to no sequence in the forward", f"each adds {units.duration(per_cell)} to it",
            _found_prompts(evidence),
        ),
        counterfactual=f"{without(evidence, amount)}{_paid_for(spared)}",
        falsifier="evicting idle prefixes leaves the step as it is",
    )  # fmt: skip


def _paid_for(spared: float | None) -> str:
    """What would go with idle prefixes, where it is known that they spare anything."""
    if spared is None or spared <= 0.0:
        return ""
    return "; useful hits and the time to the first token would pay for it"


def _found_prompts(evidence: Evidence) -> str:
    cache, spared = evidence.cache, evidence.cache.spared
    said = f"{units.number(cache.useful_hit_tokens)} of {units.number(cache.lookup_tokens)} prompt tokens were found"
    if spared is None or cache.useful_hit_tokens == 0:
        return said
    of_time = f"{units.percent(spared)} of the time" if spared < 1.0 else f"{units.ratio(spared)} the time"
    return f"{said}; to compute them would have taken {of_time}"


def _tax_doubt(evidence: Evidence, amount: float) -> str | None:
    if amount <= 0.0:
        return "idle cells add nothing to a forward here"
    if evidence.cache.spared is None:
        return "what the hits of the prefix cache spare is not known yet"
    return evidence.unknown.get("resident")


def batch_fragmentation(evidence: Evidence, slices: Slices) -> Claim:
    """Passes beyond those that the rows need: each reads all weights again."""
    batching = evidence.batching
    extra = batching.passes - batching.least_passes
    if extra <= 0:
        return rejected("batch fragmentation", "no forward took more passes than its rows need", kind="loss")
    if batching.fragmented_ns is None:
        return rejected("batch fragmentation", NO_MODEL, kind="loss")
    lost = slices.factor * batching.fragmented_ns
    amount = slices.take("batch fragmentation", lost, ("weights", "fixed", "head", "compute"))
    share, forwards = slices.share(amount), max(1, evidence.forwards)
    split = evidence.config is not None and not evidence.config.unified_kv
    return found(
        "batch fragmentation", kind="loss", share=share,
        doubt=None if amount > 0.0 else "by the model the further passes cost nothing",
        claim=f"{units.number(batching.passes / forwards)} passes per forward where "
        f"{units.number(batching.least_passes / forwards)} would do take {per_step(evidence, amount)}, "
        f"{units.percent(share)} of the time",
        evidence=(
            f"{units.number(batching.rows / forwards)} rows per forward, "
            f"{units.number(batching.rows / batching.passes)} in each pass",
            "split KV cuts rows of unlike sequences into passes of their own" if split else None,
        ),
        counterfactual=without(evidence, amount),
        falsifier="a unified KV cache, which needs one pass, leaves the step as it is",
    )  # fmt: skip
