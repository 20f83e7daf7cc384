"""How long a name stands, and what takes its place."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from stackscope.analysis.diagnosis.evidence import Evidence, Machine
from stackscope.analysis.diagnosis.naming import HOLD_NS, Namer
from tests.diagnosis_machine import S
from tests.unit.naming_windows import follow, window


def test_a_first_name_needs_two_seconds() -> None:
    namings = follow(Namer(), [window(at) for at in (10, 10.5, 11, 11.5, 12, 12.5)])
    assert [naming.name for naming in namings] == [None] * 4 + ["weight bandwidth"] * 2
    assert namings[0].sentence == "weight bandwidth leads; it is named if it still does in 2 s"
    assert namings[-1].since_ns == 10 * S


def test_a_session_that_was_sought_through_is_named_at_the_first_look() -> None:
    """Nobody looked before, so there is no name that could flicker: more steps would not come at the end of it."""
    namer = Namer()
    namer.begin(5 * S)
    naming = namer.update(window(10))
    assert naming.name == "weight bandwidth"
    assert naming.since_ns == 10 * S
    begun_just_now = Namer()
    begun_just_now.begin(9 * S)
    assert begun_just_now.update(window(10)).name is None


def test_another_name_must_lead_for_two_seconds() -> None:
    other = {"weights": 4.0, "attention": 6.0}
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    namings = follow(namer, [window(13 + 0.5 * i, **other) for i in range(6)])
    assert [naming.name for naming in namings] == ["weight bandwidth"] * 4 + ["KV and attention"] * 2
    assert namings[-1].previous == "weight bandwidth"
    changes = [naming.change for naming in namings if naming.change is not None]
    assert [(change.before, change.after) for change in changes] == [("weight bandwidth", "KV and attention")]
    assert changes[0].sentence == namings[4].sentence


def test_one_that_leads_by_far_takes_over_after_one_second() -> None:
    namer = Namer()
    follow(
        namer, [window(10 + 0.5 * i, weights=3.2, attention=2.1, compute=1.6, head=1.6, commit=1.5) for i in range(6)]
    )
    namings = follow(namer, [window(13 + 0.5 * i, weights=1.0, attention=9.0) for i in range(4)])
    assert [naming.name for naming in namings] == ["weight bandwidth"] * 2 + ["KV and attention"] * 2


def test_too_much_unexplained_ends_a_name_at_once() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    naming = namer.update(window(13.0, weights=8.0, other=2.0))
    assert naming.name is None
    assert naming.change is not None
    assert naming.change.after is None
    assert naming.previous == "weight bandwidth"


def test_it_comes_back_only_after_two_seconds() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    namer.update(window(13.0, weights=8.0, other=2.0))
    namings = follow(namer, [window(13.5 + 0.5 * i) for i in range(5)])
    assert [naming.name for naming in namings] == [None] * 4 + ["weight bandwidth"]
    assert namings[0].sentence == "weight bandwidth leads; it is named if it still does in 2 s"


def test_alternating_evidence_does_not_flicker() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    parts = ({"weights": 4.0, "attention": 6.0}, {"weights": 6.0, "attention": 4.0})
    namings = follow(namer, [window(13 + 0.5 * i, **parts[i % 2]) for i in range(40)])
    assert {naming.name for naming in namings} == {"weight bandwidth"}
    assert all(naming.change is None for naming in namings)


def test_two_causes_near_the_line_between_one_and_both_do_not_flicker() -> None:
    parts = ({"weights": 4.2, "attention": 3.8}, {"weights": 4.4, "attention": 3.6})
    for first, name in ((parts[0], "co-limited"), (parts[1], "weight bandwidth")):
        namer = Namer()
        follow(namer, [window(10 + 0.5 * i, **first, compute=2.0) for i in range(6)])
        long = [window(13 + 2.5 * i + 0.5 * j, **parts[i % 2], compute=2.0) for i in range(8) for j in range(5)]
        assert {naming.name for naming in follow(namer, long)} == {name}


def test_a_name_does_not_stand_for_ever_by_having_stood() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i, weights=4.1, attention=3.9, compute=2.0) for i in range(6)])
    apart = [window(13 + 0.5 * i, weights=4.4, attention=3.6, compute=2.0) for i in range(20)]
    names = [naming.name for naming in follow(namer, apart)]
    # Eight points apart are two causes, but for one that stands: five seconds, and two until the name changes.
    assert names == ["co-limited"] * 14 + ["weight bandwidth"] * 6


def test_a_loss_near_the_lead_that_it_needs_does_not_flicker() -> None:
    def at(at_s: float, lost: float) -> Evidence:
        hog = Machine(cpu_share=1.0 - lost, foreign_cores=0.4, cpu_pressure=0.4)
        return msgspec.structs.replace(window(at_s, weights=10.0 * (1.0 - lost), excess=10.0 * lost), machine=hog)

    for first, name in ((0.11, "CPU starvation"), (0.09, "weight bandwidth")):
        namer = Namer()
        follow(namer, [at(10 + 0.5 * i, first) for i in range(6)])
        lost = (first, 0.2 - first)
        long = [at(13 + 2.5 * i + 0.5 * j, lost[i % 2]) for i in range(8) for j in range(5)]
        names = [naming.name for naming in follow(namer, long)]
        assert len([1 for one, other in pairwise(names) if one != other]) <= (name == "weight bandwidth")
        assert names[-1] == "CPU starvation"


def test_a_name_that_stands_shows_the_newest_figures() -> None:
    namer = Namer()
    follow(namer, [window(10 + 0.5 * i) for i in range(6)])
    naming = namer.update(window(13.0, weights=7.0, attention=3.0))
    assert naming.share == pytest.approx(0.7)
    assert naming.since_ns == 10 * S


def test_the_hold_is_that_of_the_verdict_by_phases() -> None:
    from stackscope.analysis.live import verdict

    assert verdict.HOLD_NS == HOLD_NS
