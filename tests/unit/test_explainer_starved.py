"""Of an engine that does not get its cores, nothing is recommended but to free them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.doubts import UNEXPLAINED
from stackscope.analysis.explainer import NAMING_NS, RANKING_NS, SETTLING_NS, Explainer
from stackscope.analysis.live.explained import suggestions
from stackscope.engine.allowances import Allowances
from stackscope.records import StepRecord
from stackscope.report.explained import document, told
from tests.diagnosis_machine import CALM, Disturbance, Load, Machine

if TYPE_CHECKING:
    from stackscope.analysis.explainer import Explanation

STARVED = Disturbance(both=0.2, foreign_cores=1.6, pressure=0.9)
"""One is left a fifth of its cores, and its steps stray no more than those of a calm machine."""
LOAD = Load(concurrency=5, slots=4, output=200)
"""There is always one that waits: more slots would help."""
DRAFTING = Load(concurrency=5, slots=4, output=200, drafted=3, acceptance=0.05)


def explained(*parts: tuple[float, Disturbance], load: Load = LOAD) -> tuple[Explainer, Machine, Explanation]:
    """An explainer that looks all the time: seconds of each disturbance, one after the other."""
    machine, explainer = Machine(load), Explainer(rules=Allowances(2), cpu_ns=lambda: 0)
    explainer.write(machine.header)
    found = explainer.explanation(machine.now_ns)
    for seconds, machine.disturbance in parts:
        for record in machine.run(seconds):
            explainer.write(record)
            found = explainer.explanation(machine.now_ns)
    return explainer, machine, found


def require_nothing(found: Explanation) -> None:
    """On the screen, in summaries and for machines alike."""
    assert found.ranking is not None
    assert found.ranking.recommended == ()
    assert suggestions(found) == ()
    words = "the engine's threads do not get their cores: free them first"
    helps = [one.plain for one in told(found) if one.label == "would help"]
    assert len(helps) == 1
    assert helps[0].startswith(f"not said: {words}")
    made = document(found)
    assert str(made["doubt"]).startswith(words)
    changes = made["changes"]
    assert isinstance(changes, list)
    assert changes
    assert not any(one["recommended"] for one in changes)


def test_the_same_machine_has_recommendations_when_it_is_calm() -> None:
    *_, found = explained((20, CALM))
    assert found.ranking is not None
    assert found.ranking.recommended


def test_from_the_start_it_is_told_to_free_cores_and_nothing_else() -> None:
    explainer, machine, found = explained((20, STARVED))
    assert found.naming.name == "CPU starvation"
    assert found.residual is not None
    assert found.residual < 0.2  # By that alone there would be recommendations.
    require_nothing(found)
    require_nothing(explainer.final(machine.now_ns))


def test_something_else_that_is_named_does_not_make_up_for_it() -> None:
    *_, found = explained((20, STARVED), load=DRAFTING)
    assert found.naming.name == "low acceptance"
    assert dict(found.naming.shares)["CPU starvation"] > 0.35
    require_nothing(found)


def test_what_was_recommended_before_is_withdrawn_with_the_name() -> None:
    """And not only when predictions are made anew, which takes up to half a minute."""
    machine, explainer = Machine(LOAD), Explainer(rules=Allowances(2), cpu_ns=lambda: 0)
    explainer.write(machine.header)
    for machine.disturbance, seconds in ((CALM, 20), (STARVED, 12)):
        for record in machine.run(seconds):
            explainer.write(record)
            found = explainer.explanation(machine.now_ns)
            if found.naming.name == "CPU starvation":
                require_nothing(found)
    assert found.naming.name == "CPU starvation"


def test_after_a_run_that_was_starved_a_calm_end_recommends_nothing() -> None:
    explainer, machine, _ = explained((40, STARVED), (14, CALM))
    found = explainer.final(machine.now_ns)
    assert found.naming.name != "CPU starvation"
    assert found.stood[0].naming.name == "CPU starvation"
    require_nothing(found)


def test_cores_that_are_free_again_bring_the_recommendations_back() -> None:
    *_, found = explained((20, CALM), (8, STARVED), (40, CALM))
    assert found.naming.name != "CPU starvation"
    assert found.ranking is not None
    assert found.ranking.recommended


def test_they_come_back_with_the_cores_however_much_the_last_look_cost() -> None:
    """And not when the next look is due, which takes up to half a minute."""
    spent = itertools.count(step=20_000_000)
    machine, explainer = Machine(LOAD), Explainer(rules=Allowances(2), cpu_ns=lambda: next(spent))
    explainer.write(machine.header)
    freed_ns, again_ns = None, None
    for machine.disturbance, seconds in ((CALM, 20), (STARVED, 18), (CALM, 40)):
        for record in machine.run(seconds):
            explainer.write(record)
            found = explainer.explanation(machine.now_ns)
            if seconds == 40 and found.naming.name != "CPU starvation":
                assert found.ranking is not None
                freed_ns = freed_ns or machine.now_ns
                again_ns = again_ns or (machine.now_ns if found.ranking.doubt is None else None)
    assert freed_ns is not None
    assert again_ns is not None
    assert again_ns - freed_ns < RANKING_NS[0] + NAMING_NS[1]


@pytest.mark.parametrize("cost_ns", [0, 10**9])
def test_that_too_few_steps_have_run_is_not_said_when_more_have(cost_ns: int) -> None:
    """Whatever the look cost that found too few."""
    spent = [0]

    def cpu_ns() -> int:
        spent[0] += cost_ns
        return spent[0]

    machine, explainer = Machine(LOAD), Explainer(rules=Allowances(2), cpu_ns=cpu_ns)
    explainer.write(machine.header)
    steps = 0
    for record in machine.run(3):
        explainer.write(record)
        steps += isinstance(record, StepRecord)
        if steps == 6 and isinstance(record, StepRecord):
            looked_ns = machine.now_ns + SETTLING_NS
            why = explainer.explanation(looked_ns).why_no_ranking
            assert why.endswith("to predict from: 6 of 8.")
    assert explainer.explanation(looked_ns + NAMING_NS[0]).ranking is not None


def test_while_much_is_unexplained_nothing_is_recommended() -> None:
    """Forwards take 20 ms more, for no reason that shows anywhere: naming refuses, and so does advice."""
    machine, explainer = Machine(LOAD), Explainer(rules=Allowances(2), cpu_ns=lambda: 0)
    explainer.write(machine.header)
    unexplained = Disturbance(unseen_ns=20_000_000)
    n_refused = 0
    for machine.disturbance, seconds in ((CALM, 20), (unexplained, 12), (CALM, 15)):
        for record in machine.run(seconds):
            explainer.write(record)
            found = explainer.explanation(machine.now_ns)
            if "unexplained, too much to name" in found.naming.sentence:
                n_refused += 1
                assert found.ranking is not None
                assert found.ranking.doubt == UNEXPLAINED
                assert not found.ranking.recommended
    assert n_refused > 100
    assert found.ranking is not None
    assert found.ranking.recommended
