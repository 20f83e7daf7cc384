"""Causes in speculation: drafts that cost too much, and drafts that are not accepted often enough.

A round is a step that may carry drafts. It wins when the tokens it yields per sequence (A) exceed its time over that of
a plain step (A*, the break-even). Where it loses, what it loses goes to one of the two: to the drafts' cost when they
are good and free ones would win, else to their acceptance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stackscope import units
from stackscope.analysis.diagnosis import shortening
from stackscope.analysis.diagnosis.base import NO_MODEL, Claim, found, per_step, rejected, without
from stackscope.analysis.diagnosis.responses import answer, contradiction

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence, Speculation
    from stackscope.analysis.diagnosis.slices import Slices

GOOD_ACCEPTANCE: Final = 0.6
"""From here on the drafts themselves are not what is wrong."""
MARGIN: Final = 0.03
"""A closer to the break-even than this cannot be told from it, however well the model knows it."""
_SPENT_ON_DRAFTS: Final = ("draft", "compute", "head", "sample", "attention", "weights", "fixed")
"""Where the time of rounds that lose comes from: drafting, then the rows that verification adds."""

Outcome: TypeAlias = Literal["wins", "even", "costs", "acceptance"]


def outcome(speculation: Speculation) -> Outcome | None:
    """What becomes of drafting: `costs` and `acceptance` say why it loses. `None`: the break-even is not known."""
    tokens, needed, if_free = speculation.tokens_per_forward, speculation.break_even, speculation.break_even_if_free
    if tokens is None or needed is None or if_free is None:
        return None
    low, high = speculation.break_even_low, speculation.break_even_high
    if tokens >= max(needed * (1.0 + MARGIN), needed if high is None else high):
        return "wins"
    if tokens > min(needed * (1.0 - MARGIN), needed if low is None else low):
        return "even"
    most = 1.0 + (speculation.coverage or 0.0) * (speculation.length or 0.0)
    if most <= needed:
        return "costs" if most > if_free else "acceptance"
    is_good = speculation.acceptance is not None and speculation.acceptance >= GOOD_ACCEPTANCE
    return "costs" if is_good and tokens >= if_free else "acceptance"


def lost_ns(speculation: Speculation) -> float:
    """Time of the rounds beyond what plain steps would have taken for the same tokens; 0 where drafting wins."""
    tokens, needed = speculation.tokens_per_forward, speculation.break_even
    if tokens is None or needed is None or needed <= tokens:
        return 0.0
    return speculation.wall_ns * (1.0 - tokens / needed)


def break_even_acceptance(speculation: Speculation) -> float | None:
    """Acceptance at which rounds win as much as they cost, at this length and coverage; above 1 there is none.

    A = 1 + coverage × accepted tokens per draft, so acceptance = (A* - 1) ÷ (coverage × length). `None`: not known.
    """
    length = (speculation.coverage or 0.0) * (speculation.length or 0.0)
    return None if speculation.break_even is None or length <= 0.0 else max(speculation.break_even - 1.0, 0.0) / length


def low_acceptance(evidence: Evidence, slices: Slices) -> Claim:
    """Rounds yield fewer tokens than they cost plain steps, because drafts are rejected."""
    speculation = evidence.speculation
    if speculation is None:
        return rejected("low acceptance", "nothing was drafted", kind="loss")
    what = outcome(speculation)
    if what is None:
        return rejected("low acceptance", NO_MODEL, kind="loss")
    said = _needs(speculation)
    if what != "acceptance":
        return rejected("low acceptance", said, kind="loss")
    amount = slices.take("low acceptance", lost_ns(speculation), _SPENT_ON_DRAFTS)
    share, wanted = slices.share(amount), break_even_acceptance(speculation)
    verdict = (
        "no acceptance would break even"
        if wanted is not None and wanted > 1.0
        else f"{units.percent(wanted)} would break even"
    )
    long = shortening.told(speculation)
    return found(
        "low acceptance", kind="loss", share=share, doubt=None,
        claim=f"speculation loses {units.percent(share)} of the time: {said}" + ("" if long is None else f"; {long}"),
        evidence=(
            f"{units.percent(speculation.acceptance)} of {units.count(speculation.drafted)} drafted tokens were "
            f"accepted; {verdict}",
            *shortening.evidence(speculation),
            _cost_of_rounds(speculation),
            f"{units.number(speculation.wasted_rows)} rows of each verification committed nothing",
            f"{units.percent(speculation.coverage)} of the forwards carried a draft",
        ),
        counterfactual=without(evidence, amount) + f"; switching speculation off would do that{_shorter(speculation)}",
        falsifier="without speculation tokens do not come faster",
    )  # fmt: skip


def _needs(speculation: Speculation) -> str:
    """A beside A*, with the interval of that where A lies in it."""
    tokens, needed = speculation.tokens_per_forward, speculation.break_even
    low, high = speculation.break_even_low, speculation.break_even_high
    is_within = low is not None and high is not None and tokens is not None and low < tokens < high
    span = f" [{units.number(low)}, {units.number(high)}]" if is_within else ""
    return f"{units.number(tokens)} tokens per forward, {units.number(needed)}{span} needed to break even"


def _shorter(speculation: Speculation) -> str:
    """What shorter drafts would do beyond that, where they win."""
    best = speculation.shorter
    return "" if best is None or best.gain < shortening.WINS else f", and drafts of {best.length} more than that"


def _cost_of_rounds(speculation: Speculation) -> str:
    verify = speculation.break_even_if_free
    return (
        f"a round takes {units.duration(speculation.round_ns)}, a plain step {units.duration(speculation.plain_ns)}: "
        f"verification alone costs {units.number(verify)} plain steps, "
        f"with drafts {units.number(speculation.break_even)}"
    )


def draft_overhead(evidence: Evidence, slices: Slices) -> Claim:
    """Obtaining drafts takes the time, though they are accepted; it may lose what verification wins.

    Where it loses, its share is all that is lost, the rows of verification included, and at least its own phase.
    """
    speculation = evidence.speculation
    if speculation is None:
        return rejected("draft overhead", "nothing was drafted")
    what = outcome(speculation)
    is_loss = what == "costs"
    got = slices.take("draft overhead", lost_ns(speculation), _SPENT_ON_DRAFTS) if is_loss else 0.0
    amount = got + slices.take_rest("draft overhead", ("draft",))
    share, steps = slices.share(amount), max(1, evidence.steps)
    drafting = evidence.times.draft / steps
    per_token = evidence.times.draft / speculation.drafted if speculation.drafted else None
    plain = speculation.plain_ns
    relative = None if per_token is None or plain is None or plain <= 0.0 else per_token / plain
    tokens, needed = speculation.tokens_per_forward, speculation.break_even
    doubt = None
    if what == "acceptance":
        doubt = "drafts are rejected too often to judge what they cost"
    elif what is None and (speculation.acceptance or 0.0) < GOOD_ACCEPTANCE:
        doubt = "what a round would have to bring is not known, and many drafts are rejected"
    doubt = doubt or contradiction(evidence.responses, "draft")
    long = shortening.told(speculation) if is_loss else None
    verb = "loses by it" if is_loss else "wins all the same" if what == "wins" else "gains nothing beyond doubt"
    return found(
        "draft overhead", kind="loss" if is_loss else "need", share=share, doubt=doubt,
        claim=(
            f"speculation loses {units.percent(share)} of the time by what its rounds cost: "
            f"{_needs(speculation)}"
            if got > evidence.times.draft
            else f"obtaining drafts takes {per_step(evidence, amount)}, {units.percent(share)} of the time"
            + ("" if what is None else f"; speculation {verb}")
        )
        + ("" if long is None else f"; {long}"),
        evidence=(
            f"drafting takes {units.duration(drafting)} of a step; {units.duration(per_token)} per drafted token"
            + ("" if relative is None else f", {units.number(relative)} of a plain step"),
            f"{units.percent(speculation.acceptance)} of the drafted tokens were accepted: "
            f"{units.number(tokens)} tokens per forward"
            + ("" if needed is None else f", {units.number(needed)} needed to break even"),
            None if needed is None else _cost_of_rounds(speculation),
            answer(evidence.responses, "draft"),
        ),
        counterfactual=without(evidence, amount),
        falsifier="a smaller draft model, or shorter drafts, leave the round as long",
    )  # fmt: skip
