"""Single steps in which the engine stood still: they are told as such, and leave every other figure as it was."""

from __future__ import annotations

import re

import pytest

from stackscope.analysis.diagnosis import stalls
from stackscope.analysis.diagnosis.predicted import Sample, sampled
from stackscope.records import Phases
from tests.analysis_builders import MS, decode, prefill, step
from tests.diagnosis_machine import Disturbance, Load, Machine, S, Watch

LOADS = {
    "one request": Load(output=400),
    "several": Load(concurrency=6, output=80, prompt=96),
    "drafts": Load(concurrency=2, output=400, drafted=4, acceptance=0.6),
}


def stopped(load: Load, ns: int, *, has_model: bool = True, steps: int = 1) -> tuple[Watch, Watch]:
    """The same session without and with some steps during which the process was stopped, and two seconds on."""
    watches = Watch(Machine(load), has_model=has_model), Watch(Machine(load), has_model=has_model)
    for watch, stopped_ns in zip(watches, (0, ns), strict=True):
        watch.run(8)
        for _ in range(steps):
            watch.run(0.001, Disturbance(stopped_ns=stopped_ns))
            watch.run(0.5)
        watch.run(2)
    return watches


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_stall_is_unexplained_and_leaves_the_parts_of_a_step_as_they_were(load: Load) -> None:
    calm, stalled = stopped(load, 300 * S)
    before, after = calm.evidence, stalled.evidence
    assert [round(stall.duration_ns / S) for stall in after.stalls] == [300]
    assert before.stalls == ()
    assert after.step_ns == pytest.approx(before.step_ns, rel=0.25)
    assert after.terms is not None
    assert before.terms is not None
    for name in ("weights", "sample"):
        one, other = getattr(before.terms, name) / before.steps, getattr(after.terms, name) / after.steps
        assert other == pytest.approx(one, rel=0.25)
    each = [e.terms.attention / e.batching.cached for e in (before, after) if e.terms is not None]
    assert each[1] == pytest.approx(each[0], rel=0.1)
    assert after.slowdown == pytest.approx(1.0, abs=0.03)
    assert after.machine.cpu_share == pytest.approx(before.machine.cpu_share, abs=0.02)
    naming = stalled.namings[-1]
    assert sum(share for _, share in naming.shares) == pytest.approx(1.0)
    assert dict(naming.shares)["unexplained"] == pytest.approx(300 / (300 + 2.5), abs=0.02)


def test_no_figure_of_the_evidence_grows_by_the_length_of_a_stall() -> None:
    calm, stalled = stopped(LOADS["several"], 3_600 * S)
    said = [
        " ".join([*finding.evidence, finding.counterfactual]) for watch in (calm, stalled)
        for finding in watch.namings[-1].rejected if finding.cause in ("KV and attention", "compute", "sampling")
    ]  # fmt: skip
    assert len(said) == 6
    assert not any(re.search(r"\d (s|min|h)\b", text) for text in said)


def test_it_has_a_sentence_of_its_own_and_nothing_is_named_for_it() -> None:
    _, stalled = stopped(LOADS["one request"], 62 * S)
    naming = stalled.namings[-1]
    assert naming.name is None
    assert naming.sentence.startswith("stalled for 96")
    assert any(note.startswith("a step stalled: it took 1 min 02 s where 2") for note in naming.notes)
    assert not any(note.startswith(naming.sentence) for note in naming.notes)
    assert stalled.run(6).name == "weight bandwidth"
    assert stalled.evidence.stalls == ()
    soon = next(one.sentence for one in stalled.namings if one.notes)
    assert re.fullmatch(r"\d forwards? beside a stall, 8 are needed to name anything", soon)
    _, twice = stopped(LOADS["one request"], 3 * S // 2, steps=2)
    assert any(note.startswith("2 steps stalled, one for 1.52 s") for note in twice.namings[-1].notes)


def test_without_a_model_it_is_told_by_the_other_steps() -> None:
    calm, stalled = stopped(LOADS["several"], 300 * S, has_model=False)
    assert (len(calm.evidence.stalls), len(stalled.evidence.stalls)) == (0, 1)
    assert stalled.evidence.step_ns == pytest.approx(calm.evidence.step_ns, rel=0.3)


def test_a_machine_that_slows_every_step_down_does_not_stall() -> None:
    for has_model in (True, False):
        watch = Watch(Machine(Load(output=400)), has_model=has_model)
        watch.run(6)
        watch.run(60, Disturbance(unseen_ns=2 * S))
        assert watch.evidence.stalls == ()
        assert watch.evidence.steps >= 12


@pytest.mark.parametrize("at", range(4))
def test_a_hiccup_too_short_for_a_stall_is_not_spread_over_the_terms(at: int) -> None:
    """Whether the step is among those that the model is asked about or not."""
    watch = Watch(Machine(Load(output=400), noise=0.0))
    watch.run(8)
    watch.run(0.021 * at + 0.001)
    calm = watch.evidence
    assert calm.terms is not None
    watch.run(0.001, Disturbance(unseen_ns=900 * MS))
    watch.run(2)
    evidence = watch.evidence
    assert (evidence.stalls, watch.namings[-1].name) == ((), None)
    assert evidence.terms is not None
    assert evidence.terms.weights / evidence.forwards == pytest.approx(calm.terms.weights / calm.forwards, rel=0.02)
    # Of 0.9 in 5 seconds, less what the model may be too low by.
    assert 0.1 < (watch.namings[-1].unexplained or 0.0) < 0.18


def taken(n: int, ms: int, *, rows: int = 1) -> Sample:
    work = decode(0, cached=9) if rows == 1 else prefill(0, new=rows)
    return sampled(step(work, n=n, start_ns=n, phases=Phases(decode=ms * MS)))


def test_a_long_prompt_is_no_stall_though_nothing_else_took_so_long() -> None:
    others = [taken(n, 20) for n in range(30)]
    prompt = taken(90, 5_000, rows=512)
    assert stalls.find([prompt], others, None) == {}
    assert stalls.find([prompt], others, lambda one: 10.0 * MS * one.shape.rows) == {}
    decoded = taken(91, 5_000)
    assert set(stalls.find([prompt, decoded], others, None)) == {91}
    assert stalls.find([decoded], [taken(n, 5_000, rows=512) for n in range(9)], None) == {}


def test_alone_it_is_a_stall_only_by_the_model() -> None:
    alone = taken(1, 60_000)
    assert stalls.find([alone], [], None) == {}
    found = stalls.find([alone], [], lambda _: 20.0 * MS)
    assert (found[1].duration_ns, found[1].usual_ns) == (60 * S, 20 * MS)
