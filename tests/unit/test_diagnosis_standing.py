"""How a name that stands is shown while others lead, and when it goes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.diagnosis.evidence import Machine
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.naming import Namer
from stackscope.analysis.explainer import Explanation
from stackscope.analysis.live.explained import verdict
from tests.diagnosis_machine import S
from tests.unit.naming_windows import follow, window

if TYPE_CHECKING:
    from stackscope.analysis.diagnosis.evidence import Evidence


def test_a_name_on_its_way_out_shows_the_figures_of_now() -> None:
    namer = Namer()
    follow(namer, [window(at, weights=6.0, compute=2.0, commit=2.0) for at in range(10, 16)])
    held = namer.update(window(16, weights=3.6, compute=4.6, commit=1.8))
    assert held.name == "weight bandwidth"
    assert held.share == pytest.approx(0.36)
    assert sum((held.share or 0.0, *[one.share or 0.0 for one in held.rejected if one.claim])) <= 1.0 + 1e-9


def starved(at_s: float, lost: float, **parts: float) -> Evidence:
    """Forwards of 10 ms, that part of them lost to others who want the cores."""
    hog = Machine(cpu_share=1.0 - lost, foreign_cores=0.4, cpu_pressure=0.4)
    kept = 10.0 * (1.0 - lost)
    return msgspec.structs.replace(
        window(at_s, weights=0.2 * kept, attention=0.8 * kept, excess=10.0 * lost, **parts), machine=hog
    )


def test_what_is_left_of_a_name_has_the_figures_of_now_whatever_speaks_for_it() -> None:
    namer = Namer()
    follow(namer, [starved(at, 0.4) for at in range(10, 16)])
    # Nobody else wants the cores now, so that nothing confirms it.
    asleep = msgspec.structs.replace(starved(16, 0.3), machine=Machine(cpu_share=0.7))
    held = namer.update(asleep)
    assert (held.name, held.finding) == ("CPU starvation", next(
        one for one in judge(asleep).findings if one.cause == "CPU starvation"
    ))  # fmt: skip
    assert held.finding is not None
    assert not held.finding.is_confirmed
    assert held.share == held.finding.share
    assert (held.share or 0.0) < 0.31
    assert not any(one.cause == held.name for one in held.rejected)


@pytest.mark.parametrize("left", [0.0, 0.002, 0.04])
def test_a_name_of_which_nothing_is_left_goes_at_once(left: float) -> None:
    namer = Namer()
    follow(namer, [starved(at, 0.4) for at in range(10, 16)])
    naming = namer.update(starved(16, left))
    assert (naming.name, naming.previous) == (None, "CPU starvation")
    assert naming.sentence == "KV and attention leads; it is named if it still does in 2 s"
    assert naming.change is not None
    namings = follow(namer, [starved(at, left) for at in (17, 18)])
    assert [one.name for one in namings] == [None, "KV and attention"]
    assert namings[-1].since_ns == 16 * S


def test_two_that_take_turns_altogether_do_not_flicker() -> None:
    namer = Namer()
    follow(namer, [starved(at, 0.4) for at in range(10, 16)])
    names = [one.name for one in follow(namer, [starved(16 + n, 0.4 * (n % 2)) for n in range(10)])]
    assert len([1 for one, other in pairwise(names) if one != other]) <= 1


def test_two_of_which_one_is_gone_are_not_named_together_any_more() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i, weights=4.0, attention=3.9, compute=1.1, commit=1.0) for i in range(6)])
    naming = namer.update(window(13, weights=2.5, compute=6.5, commit=1.0))
    assert (naming.name, naming.previous) == (None, "co-limited")


def test_a_name_goes_where_now_this_and_now_that_would_be_named_instead() -> None:
    namer = Namer()
    follow(namer, [window(at, weights=6.0, compute=2.0, commit=2.0) for at in range(10, 16)])
    other, another = {"compute": 5.0, "attention": 2.0}, {"attention": 5.0, "compute": 2.0}
    later = [window(16 + n, weights=2.0, commit=1.0, **(another if n % 2 else other)) for n in range(8)]
    names = [one.name for one in follow(namer, later)]
    assert names[:4] == ["weight bandwidth"] * 4
    assert "weight bandwidth" not in names[4:]


def begun(at_s: float) -> Namer:
    namer = Namer()
    namer.begin(round(at_s * S))
    return namer


def test_what_leads_is_told_with_how_long_it_still_has_to() -> None:
    namer = begun(9.5)
    said = [one.sentence for one in follow(namer, [window(10), window(11.2)])]
    assert said == [
        "weight bandwidth leads; it is named if it still does in 2 s",
        "weight bandwidth leads; it is named if it still does in 0.8 s",
    ]


def test_a_run_that_is_over_waits_for_nothing() -> None:
    assert begun(8.8).update(window(10), is_over=True).sentence == (
        "the run was too short to name anything: 1.2 s of steps, 2 s are needed"
    )
    few = begun(8.8).update(window(10, forwards=3), is_over=True)
    assert few.sentence == "3 forwards in the last seconds, 8 are needed to name anything"
    changed = msgspec.structs.replace(window(10), settling=0.5)
    assert begun(5).update(changed, is_over=True).sentence == (
        "the after-effects of a change are paid in 50 % of the last steps"
    )


def test_at_the_end_of_a_longer_run_it_is_told_what_led() -> None:
    namer = begun(5)
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    namer.update(window(13.0, weights=8.0, other=2.0))
    assert namer.update(window(13.5), is_over=True).sentence == (
        "weight bandwidth led at the end, but not for the 2 s that a name takes"
    )


def test_two_that_lead_together_are_told_as_two() -> None:
    both = [window(at, weights=4.0, attention=3.9, compute=1.1, commit=1.0) for at in (10, 10.5, 11)]
    namer = begun(9.5)
    assert [one.sentence for one in follow(namer, both[:2])] == [
        "weight bandwidth and KV and attention lead together; they are named if they still do in 2 s",
        "weight bandwidth and KV and attention lead together; they are named if they still do in 1.5 s",
    ]
    assert namer.update(both[2], is_over=True).sentence == (
        "the run was too short to name anything: 1.5 s of steps, 2 s are needed"
    )


def test_what_leads_by_now_is_not_told_as_what_it_is_not() -> None:
    namer = Namer()
    follow(namer, [window(at, weights=6.0, compute=2.0, commit=2.0) for at in range(10, 16)])
    before = namer.update(window(16, weights=6.0, compute=2.0, commit=2.0))
    held = namer.update(window(16.5, weights=2.4, attention=3.0, compute=2.7, commit=1.9))
    assert (held.name, held.ahead) == ("weight bandwidth", held.rejected[:2])
    assert [one.cause for one in held.ahead] == ["KV and attention", "compute"]
    assert not before.ahead
    shown = verdict(Explanation(naming=held))
    assert shown.ahead[0] == "KV and attention 30.0 %"
    assert not any(told.startswith(("KV", "compute")) for told in shown.rejected)


def test_what_takes_over_at_once_leaves_nothing_ahead() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    namings = follow(namer, [window(13 + 0.5 * i, weights=4.0, attention=6.0) for i in range(6)])
    assert [[one.cause for one in naming.ahead] for naming in namings] == [["KV and attention"]] * 4 + [[]] * 2


def test_no_name_comes_after_itself() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    assert namer.update(window(13.0, weights=8.0, other=2.0)).previous == "weight bandwidth"
    again = follow(namer, [window(13.5 + 0.5 * i) for i in range(5)])[-1]
    assert (again.name, again.previous) == ("weight bandwidth", None)
    other = follow(namer, [window(16 + 0.5 * i, weights=4.0, attention=6.0) for i in range(6)])[-1]
    assert (other.name, other.previous) == ("KV and attention", "weight bandwidth")
    assert namer.update(window(19.0, weights=8.0, other=2.0)).previous == "KV and attention"
    back = follow(namer, [window(19.5 + 0.5 * i, weights=4.0, attention=6.0) for i in range(5)])[-1]
    assert (back.name, back.previous) == ("KV and attention", "weight bandwidth")
