"""Every cause of the taxonomy, staged on a simulated machine whose truth is known; and look-alikes that are none."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import get_args

import pytest

from stackscope.analysis.diagnosis.evidence import Evidence, Times
from stackscope.analysis.diagnosis.follower import namings
from stackscope.analysis.diagnosis.judge import CAUSES
from stackscope.analysis.diagnosis.slices import Slices
from stackscope.records import Cause, Finding
from tests.diagnosis_machine import MS, Costs, Disturbance, Load, Machine, Model, S, Watch

STEADY = Load(output=200)

STAGED: dict[str, tuple[Load, Costs, Disturbance]] = {
    "weight bandwidth": (STEADY, Costs(), Disturbance()),
    "KV and attention": (Load(prompt=4000, chunk=4000, output=400), Costs(token=8000), Disturbance()),
    "compute": (Load(concurrency=32, slots=32, output=400), Costs(row=2 * MS), Disturbance()),
    "LM head": (Load(prompt=400, output=2, all_outputs=True), Costs(head_row=1 * MS), Disturbance()),
    "draft overhead": (Load(drafted=3, acceptance=0.95, output=200), Costs(draft=22 * MS), Disturbance()),
    "low acceptance": (Load(drafted=4, acceptance=0.1, output=200), Costs(row=3 * MS), Disturbance()),
    "prefill interference": (Load(concurrency=4, prompt=600, output=12), Costs(), Disturbance()),
    "host scheduling": (STEADY, Costs(), Disturbance(admit_ns=60 * MS)),
    "sampling": (Load(concurrency=4, output=200), Costs(), Disturbance(sample_ns=10 * MS)),
    "CPU starvation": (STEADY, Costs(), Disturbance(core=0.5, foreign_cores=0.5, pressure=0.5)),
    "external bandwidth contention": (STEADY, Costs(), Disturbance(read=0.6, foreign_cores=0.95, pressure=0.03)),
    "queueing": (Load(concurrency=16, slots=4), Costs(), Disturbance()),
    "cache thrash": (
        Load(concurrency=4, prompt=400, output=20, would_hit=0.9, evicted=20), Costs(), Disturbance()
    ),
    "batch fragmentation": (Load(concurrency=4, output=200, split=True), Costs(), Disturbance()),
    "resident-prefix tax": (Load(concurrency=8, output=200, idle_cells=12_000), Costs(cell=100), Disturbance()),
    "paging": (STEADY, Costs(), Disturbance(both=0.4, faults=3000, io=0.6)),
    "throttle": (STEADY, Costs(), Disturbance(both=0.5, quota=0.9, pressure=0.3)),
    "co-limited": (Load(concurrency=11, slots=16, output=4000), Costs(row=2 * MS), Disturbance()),
}  # fmt: skip


@cache
def staged(name: str, dose: Disturbance | None = None) -> Watch:
    """A machine that was left alone for a while, then disturbed. Nobody may go on with it."""
    return _disturbed(name, dose)


def _disturbed(name: str, dose: Disturbance | None = None) -> Watch:
    load, costs, disturbance = STAGED[name]
    watch = Watch(Machine(load, costs))
    watch.run(10)
    watch.run(14, disturbance if dose is None else dose)
    return watch


def finding(watch: Watch, cause: str) -> Finding:
    naming = watch.namings[-1]
    known = (naming.finding, *naming.together, *naming.rejected)
    return next(one for one in known if one is not None and one.cause == cause)


def test_every_cause_of_the_taxonomy_is_staged_and_looked_at() -> None:
    assert set(STAGED) == set(get_args(Cause))
    assert len(CAUSES) == len(get_args(Cause)) - 1  # `co-limited` is a relation of two.


@pytest.mark.parametrize("name", STAGED)
def test_a_staged_cause_is_named_first(name: str) -> None:
    naming = staged(name).namings[-1]
    assert naming.name == name, naming.sentence
    assert naming.finding is not None
    assert naming.finding.is_confirmed
    assert naming.share is not None
    assert naming.share >= 0.10


@pytest.mark.parametrize("name", STAGED)
def test_a_finding_says_its_number_its_evidence_its_bound_and_what_would_refute_it(name: str) -> None:
    naming = staged(name).namings[-1]
    found = naming.finding
    assert found is not None
    assert "%" in found.claim
    assert found.claim == naming.sentence
    assert found.evidence
    assert all("None" not in line and "nan" not in line for line in (found.claim, *found.evidence))
    assert found.counterfactual
    assert found.falsifier
    for other in naming.rejected:
        assert other.claim or other.against


@pytest.mark.parametrize("name", STAGED)
def test_every_other_cause_is_rejected_or_has_a_smaller_claim(name: str) -> None:
    naming = staged(name).namings[-1]
    told = {one.cause for one in (*naming.rejected, *naming.together)} | {naming.name}
    assert told == set(get_args(Cause)) - ({"co-limited"} if name != "co-limited" else set())


@pytest.mark.parametrize(
    ("name", "cause", "least"),
    [("low acceptance", "draft overhead", 0.15), ("prefill interference", "KV and attention", 0.10)],
)
def test_a_cause_whose_time_another_one_has_got_is_not_said_to_take_nothing(
    name: str, cause: str, least: float
) -> None:
    found = finding(staged(name), cause)
    assert (found.share, found.claim) == (None, "")
    assert found.against is not None
    told = re.fullmatch(rf"what it takes is counted under {name} \(([\d.]+) % of the time\)", found.against)
    assert told is not None, found.against
    assert least < float(told[1]) / 100 < (staged(name).namings[-1].share or 0.0)


def test_a_cause_that_takes_next_to_nothing_is_said_to_take_that() -> None:
    found = finding(staged("weight bandwidth"), "sampling")
    assert found.share == pytest.approx(0.0014, abs=2e-4)
    assert found.against == "it takes 0.14 % of the time"


def test_time_is_counted_under_those_that_have_most_of_it() -> None:
    slices = Slices(Evidence(times=Times(sample=100.0, draft=60.0, idle=840.0)))
    slices.take("low acceptance", 70.0, ("sample",))
    slices.take("draft overhead", 60.0, ("draft", "sample"))
    slices.take_evenly("throttle", 24.0, ("sample",))
    assert slices.take_rest("sampling", ("sample",)) == pytest.approx(6.0)
    share, others = slices.elsewhere("sampling")
    assert share == pytest.approx(0.094)
    assert others == ("low acceptance", "throttle")
    assert slices.elsewhere("draft overhead") == (0.0, ())
    assert sum(share for _, share in slices.shares()) == pytest.approx(1.0)


# How much


def test_starvation_takes_what_the_waiting_thread_costs_the_one_that_spins() -> None:
    # One of two threads has half a core: forwards take twice as long, though σ is only 0.75.
    share = staged("CPU starvation").namings[-1].share
    assert share == pytest.approx(0.5, abs=0.03)


def test_contention_takes_what_memory_costs_more() -> None:
    # 21 of 22.3 ms read memory; at 0.6 of the speed they take 14 ms more, of 36.3 ms.
    share = staged("external bandwidth contention").namings[-1].share
    assert share == pytest.approx(14.0 / 36.3, abs=0.03)


def test_the_bound_is_a_step_without_the_cause() -> None:
    found = staged("sampling").namings[-1].finding
    assert found is not None
    # 10.03 ms for each of 4 rows, in a step of about 65 ms: 25 are left.
    left = float(found.counterfactual.removeprefix("without it a step would take ").split()[0])
    assert left == pytest.approx(25.0, abs=1.0)


@pytest.mark.parametrize(
    ("name", "doses"),
    [
        ("CPU starvation", [Disturbance(core=c, foreign_cores=1 - c, pressure=1 - c) for c in (0.85, 0.7, 0.5)]),
        ("external bandwidth contention", [Disturbance(read=r, foreign_cores=0.9) for r in (0.8, 0.65, 0.5)]),
        ("throttle", [Disturbance(clock=c) for c in (0.85, 0.7, 0.5)]),
        ("sampling", [Disturbance(sample_ns=n * MS) for n in (2, 5, 10)]),
        ("host scheduling", [Disturbance(admit_ns=n * MS) for n in (10, 30, 60)]),
    ],
)
def test_a_larger_dose_has_a_larger_share(name: str, doses: list[Disturbance]) -> None:
    shares = [dict(staged(name, dose).namings[-1].shares)[name] for dose in doses]
    assert shares == sorted(shares)
    assert shares[-1] > shares[0] + 0.1


def test_a_disturbance_that_ends_is_no_longer_named() -> None:
    watch = _disturbed("CPU starvation")
    assert watch.run(14).name == "weight bandwidth"
    changes = [naming.change.after for naming in watch.namings if naming.change is not None]
    assert [name for name in changes if name] == ["weight bandwidth", "CPU starvation", "weight bandwidth"]


# Other ways to the same cause


@pytest.mark.parametrize(
    ("name", "disturbance"),
    [
        ("throttle", Disturbance(clock=0.6)),  # Clocks fell: reading and computing are slower alike.
        ("throttle", Disturbance(both=0.5)),  # Stopped by hand: nobody else wanted the cores.
        ("host scheduling", Disturbance(commit_ns=60 * MS)),
        ("CPU starvation", Disturbance(both=0.5, foreign_cores=1.0, pressure=0.6)),
    ],
)
def test_it_is_named_by_other_evidence_too(name: str, disturbance: Disturbance) -> None:
    watch = Watch(Machine(STEADY))
    watch.run(10)
    assert watch.run(14, disturbance).name == name


def test_a_machine_that_was_never_calm_is_starved_by_what_its_threads_lost() -> None:
    machine = Machine(STEADY)
    model = Model(machine.costs, machine.config, error=2.0, unknown={"starvation": "starved from the start"})
    naming = Watch(machine, model).run(20, Disturbance(core=0.5, foreign_cores=0.5, pressure=0.5))
    assert naming.name == "CPU starvation"
    assert naming.share == pytest.approx(0.25, abs=0.02)  # 1 - σ: all that can be said.
    assert naming.finding is not None
    assert "what an undisturbed machine needs is not known: the time model comes from a disturbed one" in (
        naming.finding.evidence
    )
    assert not any("forwards × σ" in said or "calm machine" in said for said in naming.finding.evidence)


def test_no_forward_is_said_to_take_less_than_an_undisturbed_machine_needs() -> None:
    machine = Machine(STEADY)
    watch = Watch(machine, Model(machine.costs, machine.config, error=2.0))  # It takes itself for calm.
    watch.run(10, Disturbance(both=0.5, foreign_cores=1.0, pressure=0.6))
    finding = watch.namings[-1].finding
    assert finding is not None
    assert finding.cause == "CPU starvation"
    assert not any("forwards × σ" in said for said in finding.evidence)
    calm = staged("CPU starvation").namings[-1].finding
    assert calm is not None
    assert "forwards × σ take 1.50× of what an undisturbed machine needs" in calm.evidence


# Look-alikes


@pytest.mark.parametrize(
    "placebo",
    [
        Disturbance(sleep=0.92),  # Threads that wait for each other sleep; nobody wants their cores.
        Disturbance(foreign_cores=0.9, pressure=0.4),  # Others work, and take nothing from it.
        Disturbance(reads_probe=0.6, foreign_cores=0.9),  # The probe reads more slowly, and forwards do not.
        Disturbance(reads_probe=0.7, computes_probe=0.7),  # Both probes are slower, and forwards are not.
        Disturbance(io=0.4),  # Somebody else waits for a disk.
        Disturbance(faults=100),  # Pages come from a disk, and nothing waits for them.
    ],
)
def test_what_disturbs_nothing_changes_no_name(placebo: Disturbance) -> None:
    watch = Watch(Machine(STEADY))
    watch.run(10)
    assert watch.run(14, placebo).name == "weight bandwidth"


@pytest.mark.parametrize(
    ("load", "not_named"),
    [
        # Evicted, but a cache without limit would not find more.
        (Load(concurrency=4, prompt=400, output=20, evicted=20), "cache thrash"),
        # Found again and again: hits that are useful are no thrash.
        (Load(concurrency=4, prompt=400, output=60, hit=0.9, would_hit=0.9, evicted=2), "cache thrash"),
        (Load(concurrency=4, output=200, idle_cells=12_000), "resident-prefix tax"),  # Cells that cost next to nothing.
        (Load(drafted=3, acceptance=0.9, output=200), "low acceptance"),
        (Load(concurrency=8, slots=8, output=200), "queueing"),  # All slots are taken, and nothing waits.
        (Load(concurrency=4, prompt=16, output=200), "prefill interference"),
    ],
)
def test_what_looks_like_a_fault_and_is_none_is_not_named(load: Load, not_named: str) -> None:
    watch = Watch(Machine(load, replace(Costs(), draft=0.2 * MS, cell=1.0)))
    watch.run(24)
    assert not_named not in {naming.name for naming in watch.namings}
    assert not finding(watch, not_named).is_confirmed or (finding(watch, not_named).share or 0) < 0.1


def test_an_engine_without_work_is_limited_by_nothing() -> None:
    watch = Watch(Machine(Load(output=20, pause_ns=15 * S)))
    naming = watch.run(40)
    assert {naming.name for naming in watch.namings} == {None}
    assert naming.sentence.startswith("nothing limits: the engine waits for requests")
    assert {one.cause for one in naming.rejected if one.is_confirmed and (one.share or 0) > 0.1} == set()


def test_a_slow_machine_without_any_reason_is_not_explained_away() -> None:
    watch = Watch(Machine(STEADY))
    watch.run(10)
    naming = watch.run(14, Disturbance(unseen_ns=10 * MS))
    assert naming.name is None
    assert "unexplained" in naming.sentence
    # Less what the model may be wrong by: 5 % of the forward.
    assert dict(naming.shares)["unexplained"] == pytest.approx((10 - 0.05 * 21) / 32.3, abs=0.02)


def test_threads_that_fell_asleep_during_a_slow_sampler_are_not_stopped() -> None:
    # Forwards of 0.7 ms wait another 0.7 ms for a thread that slept through 2 ms of sampling: seen on a real engine.
    costs = Costs(weights=0.6 * MS, row=0.02 * MS, head=0.05 * MS, fixed=0.05 * MS, output=0.01 * MS, host=0.05 * MS)
    watch = Watch(Machine(STEADY, costs))
    watch.run(6)
    slow = Disturbance(sample_ns=2 * MS, unseen_ns=7 * MS // 10, sleep=0.55)
    assert watch.run(9, slow).name == "sampling"
    assert finding(watch, "CPU starvation").against == "nobody else is known to have wanted the cores"


# With a model that learns


@pytest.mark.parametrize("name", ["weight bandwidth", "CPU starvation", "external bandwidth contention", "throttle"])
def test_causes_are_named_with_a_model_learned_from_the_steps_themselves(name: str) -> None:
    load, costs, disturbance = STAGED[name]
    machine = Machine(load, costs)
    records = [machine.header, *machine.run(12)]
    machine.disturbance = disturbance
    records += machine.run(14)
    *_, last = namings(records)
    assert last.name == name, last.sentence
