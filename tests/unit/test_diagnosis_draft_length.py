"""Drafts that are too long: said in those words, with the length that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.diagnosis import shortening
from stackscope.analysis.diagnosis.evidence import Shorter, Speculation
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.tally import Rounds, Tally, total
from tests.diagnosis_machine import Costs, Load, Machine, Running, S, Watch

if TYPE_CHECKING:
    from stackscope.records import Finding, SlotWork


class Windows(Machine):
    """21 drafts of 64 with 4 accepted, and one of 34 with 12: 1,378 drafted, 96 accepted, and nothing else."""

    def __init__(self, costs: Costs) -> None:
        super().__init__(Load(drafted=64, output=119, pause_ns=60 * S), costs)
        self._verified = 0

    def _plan(self) -> list[tuple[Running, int, int, int, int]]:
        return [
            (request, cached, 35, 35, 34) if drafted and self._verified == 21 else (request, cached, new, out, drafted)
            for request, cached, new, out, drafted in super()._plan()
        ]

    def _worked(self, request: Running, cached: int, new: int, outputs: int, drafted: int) -> SlotWork:
        work = super()._worked(request, cached, new, outputs, drafted)
        if not drafted:
            return work
        self._verified += 1
        accepted = 12 if drafted == 34 else 4
        request.kv += accepted
        request.done += accepted
        return msgspec.structs.replace(work, accepted=accepted, emitted=1 + accepted)


def found(costs: Costs) -> tuple[Finding, Speculation]:
    watch = Watch(Windows(costs))
    watch.run(4.5)
    evidence = watch.gatherer.evidence(watch.machine.now_ns, watch.model)
    assert evidence.speculation is not None
    [finding] = [one for one in judge(evidence).findings if one.cause == "low acceptance"]
    return finding, evidence.speculation


def test_a_window_far_too_long_loses_and_the_length_that_fits_is_named() -> None:
    """22 rounds of 5.36 tokens at 8.48 plain steps each; of 4 they bring 5 at 1.48."""
    finding, speculation = found(Costs())
    assert (speculation.drafted, speculation.acceptance) == (1378, 96 / 1378)
    assert finding.is_confirmed
    assert finding.claim.startswith("speculation loses ")
    assert "5.36 tokens per forward, 8." in finding.claim
    assert "; drafts of 62.6 tokens are too long, those of 4 would win: 3.38× the speed" in finding.claim
    assert finding.evidence[0].startswith("6.97 % of 1,378 drafted tokens were accepted; ")
    assert "tokens 1 to 4 of a draft were accepted in 100 %, 100 %, 100 %, 100 % of the drafts" in finding.evidence
    assert "of what is drafted after token 4, 0.62 % is accepted" in finding.evidence
    assert "cut to 4, drafts would bring about 5.00 tokens per forward" in finding.evidence
    assert finding.counterfactual.endswith("switching speculation off would do that, and drafts of 4 more than that")


def test_where_no_length_wins_the_one_that_fits_is_still_named() -> None:
    """A further row costs as much as a step of its own."""
    finding, speculation = found(Costs(weights=2e6, row=4e6, draft=0.0, head=0.0, head_row=0.0))
    assert speculation.shorter is not None
    assert speculation.shorter.gain < shortening.WINS
    assert "drafts of 64 tokens are too long, those of 4 fit better" in finding.claim
    assert finding.counterfactual.endswith("switching speculation off would do that")


def test_drafts_that_are_accepted_evenly_are_not_too_long() -> None:
    even = Speculation(length=4.0, acceptance=0.7, drafted=400, survival=(0.9, 0.8, 0.7, 0.6))
    assert shortening.told(even) is None
    never = Speculation(length=4.0, acceptance=0.0, drafted=400)
    assert shortening.told(never) is None


def test_a_whole_length_is_told_as_one() -> None:
    long = Speculation(length=8.0, survival=(0.5,), shorter=Shorter(1, 1.5, 1.2))
    assert (
        shortening.told(long) == "drafts of 8 tokens are too long, those of 1 would win: 1.20× the speed without drafts"
    )


def test_tokens_of_drafts_that_are_cut() -> None:
    """Two rounds, 3 and 0 of 4 accepted, and one without a draft: of 2 they bring 3, 1 and 1."""
    tally = Tally(pairs=3, verifications=2, drafted=8, rounds=Rounds({(4, 3, 4): 1, (4, 0, 1): 1}))
    assert shortening.tokens_at(tally, 2) == pytest.approx(5 / 3)
    assert shortening.tokens_at(tally, 8) == pytest.approx((4 + 1 + 1) / 3)
    assert shortening.survival(tally) == (0.5, 0.5, 0.5)


def test_sums_of_rounds_are_new_ones() -> None:
    one = Tally(rounds=Rounds({(4, 3, 4): 1}))
    both = total([one, Tally(rounds=Rounds({(4, 3, 4): 2, (1, 1, 2): 1}))])
    assert both.rounds == {(4, 3, 4): 3, (1, 1, 2): 1}
    alone = total([one])
    alone.rounds[4, 3, 4] += 5
    assert one.rounds == {(4, 3, 4): 1}
