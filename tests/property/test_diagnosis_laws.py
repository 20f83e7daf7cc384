"""What holds of every diagnosis, whatever the evidence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stackscope.analysis.diagnosis.evidence import (
    Batching,
    CacheUse,
    Evidence,
    Load,
    Machine,
    Roofs,
    Speculation,
    Times,
)
from stackscope.analysis.diagnosis.gather import Gatherer
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.naming import LEAST_FORWARDS, MOST_UNEXPLAINED, Namer, choose
from stackscope.analysis.diagnosis.reference import Reference
from stackscope.analysis.diagnosis.tally import Tally, add_steps, total
from stackscope.analysis.ledgers import UNPRICED
from stackscope.analysis.live.sums import counted, end_times
from stackscope.analysis.timing.terms import Terms
from stackscope.pipeline import time_ns
from stackscope.records import Cause, Estimate, StepRecord
from stackscope.toggles import EngineConfig
from tests.diagnosis_machine import Costs, Model, S
from tests.diagnosis_machine import Load as Asked
from tests.diagnosis_machine import Machine as Simulated
from tests.property.test_live_laws import sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import AnyRecord

some = settings(max_examples=60)
few = settings(max_examples=20)

ns = st.floats(0, 1e10, allow_subnormal=False)
share = st.none() | st.floats(0, 1, allow_subnormal=False)
rate = st.none() | st.floats(0, 1e12, allow_subnormal=False)
count = st.integers(0, 10_000)
amount = st.floats(0, 1e6, allow_subnormal=False)
reasons = st.dictionaries(st.sampled_from(Terms._fields), st.just("cannot be told apart"), max_size=3)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    low, value, high = sorted([draw(st.floats(-1, 1)) for _ in range(3)])
    return Estimate(value, low, high)


times = st.builds(
    Times, idle=ns, admit=ns, build=ns, commit=ns, emit=ns, shadow=ns, sample=ns, draft=ns, forward=ns,
    other=st.floats(0, 1e9, allow_subnormal=False),
)  # fmt: skip
machines = st.builds(
    Machine, cpu_share=share, cpu_share_calm=share, foreign_cores=st.none() | st.floats(0, 8), cpu_pressure=share,
    io_pressure=share, memory_pressure=share, throttled=share, faults_per_s=rate, swap_bytes_per_s=rate,
    switches_per_s=rate, read=st.none() | st.floats(0.01, 2), read_bytes_per_s=rate,
    compute=st.none() | st.floats(0.01, 2), probe_cpu_share=share,
    clocks_held=st.lists(st.tuples(st.just("power cap"), st.floats(0, 1)), max_size=1).map(tuple),
    gpus=st.none() | st.integers(0, 4), gpus_used=st.none() | st.integers(0, 4), gpu_busy=share,
)  # fmt: skip
speculations = st.none() | st.builds(
    Speculation, tokens_per_forward=st.none() | st.floats(0, 9), coverage=share, acceptance=share, drafted=count,
    wasted_rows=st.none() | st.floats(0, 9), length=st.none() | st.floats(0, 9),
    break_even=st.none() | st.floats(0.1, 9), break_even_if_free=st.none() | st.floats(0.1, 9), round_ns=rate,
    plain_ns=rate, wall_ns=ns,
)  # fmt: skip
batchings = st.builds(
    Batching, rows=amount, outputs=amount, prefill_rows=amount, decode_rows=amount, passes=amount, least_passes=amount,
    fragmented_ns=st.none() | ns, mixed_steps=amount, mixed_ns=ns, pure_steps=amount, pure_ns=ns, prefill_ns=ns,
    per_output_ns=st.none() | st.floats(-1e6, 1e6), cached=amount, idle_cells=amount, cells=amount,
)  # fmt: skip
loads = st.builds(
    Load, queue=st.none() | st.floats(0, 100), slots_busy=st.none() | st.floats(0, 100), slots=st.none() | amount,
    waiting=share, wait_share=share, full=share, wait_of_finished=share, finished=count,
)  # fmt: skip
caches = st.builds(
    CacheUse, lookup_tokens=amount, hit_tokens=amount, useful_hit_tokens=amount, evicted_blocks=amount,
    preempted=amount, unlimited_tokens=st.none() | amount,
)  # fmt: skip
roofs = st.builds(
    Roofs, bytes=rate, weight_bytes=rate, head_bytes=rate, kv_bytes=rate, flops=rate, bandwidth=rate, compute=rate,
    fits_cache=st.none() | st.booleans(),
)  # fmt: skip
terms = st.builds(Terms, *([ns] * len(Terms._fields)))
evidences = st.builds(
    Evidence, at_ns=st.integers(0, 10**12), steps=count, forwards=count, times=times, terms=st.none() | terms,
    prompt_terms=st.none() | terms, idle_resident_ns=ns, is_reference_calm=st.booleans(), unknown=reasons,
    attention_share=st.none() | estimates(), rows_share=st.none() | estimates(), machine=machines,
    speculation=speculations, batching=batchings, load=loads, cache=caches, roofs=roofs,
    config=st.none() | st.builds(
        EngineConfig, unified_kv=st.booleans(), threads=st.none() | st.integers(1, 64), slots=st.just(4)
    ),
    settling=st.floats(0, 1),
)  # fmt: skip


@some
@given(evidences)
def test_shares_sum_to_the_whole_with_what_is_unexplained(evidence: Evidence) -> None:
    judged = judge(evidence)
    if evidence.times.wall <= 0.0:
        assert judged.shares == ()
        return
    assert math.isclose(sum(share for _, share in judged.shares), 1.0, rel_tol=1e-9)
    assert all(share >= 0.0 for _, share in judged.shares)
    assert dict(judged.shares)["unexplained"] >= 0.0
    assert list(judged.shares) == sorted(judged.shares, key=lambda item: -item[1])


@some
@given(evidences)
def test_no_cause_takes_more_than_there_is(evidence: Evidence) -> None:
    judged = judge(evidence)
    taken = [finding for finding in judged.findings if judged.kinds[finding.cause] != "wait"]
    assert all(0.0 <= (finding.share or 0.0) <= 1.0 + 1e-9 for finding in judged.findings)
    assert sum(finding.share or 0.0 for finding in taken) <= 1.0 + 1e-9


@some
@given(evidences)
def test_every_cause_answers_with_a_finding_or_with_a_reason(evidence: Evidence) -> None:
    judged = judge(evidence)
    assert {finding.cause for finding in judged.findings} == set(get_args(Cause)) - {"co-limited"}
    for finding in judged.findings:
        assert finding.is_confirmed or finding.against
        assert not (finding.is_confirmed and finding.against)
        if finding.is_confirmed:
            assert finding.claim
            assert finding.falsifier
            assert finding.evidence
        said = " ".join((finding.claim, *finding.evidence, finding.against or "", finding.counterfactual))
        assert "None" not in said
        assert "nan" not in said


@some
@given(evidences)
def test_a_name_is_confirmed_and_never_above_a_tenth_unexplained(evidence: Evidence) -> None:
    judged = judge(evidence)
    choice = choose(evidence, judged)
    if choice.name is None:
        assert choice.sentence
        return
    assert judged.unexplained <= MOST_UNEXPLAINED
    assert choice.finding is not None
    assert choice.finding.is_confirmed
    assert choice.share is not None
    assert choice.share >= 0.10
    assert evidence.forwards >= LEAST_FORWARDS or evidence.times.idle >= 0.5 * evidence.times.wall


def _in_time(found: Sequence[Evidence]) -> list[Evidence]:
    return [msgspec.structs.replace(one, at_ns=i * S // 2) for i, one in enumerate(found)]


@few
@given(st.lists(evidences, min_size=1, max_size=6))
def test_what_is_shown_over_time_keeps_the_same_laws(found: list[Evidence]) -> None:
    namer = Namer()
    before: str | None = None
    for evidence in _in_time(found):
        naming = namer.update(evidence)
        if naming.name is not None:
            assert naming.unexplained is not None
            assert naming.unexplained <= MOST_UNEXPLAINED
            assert naming.finding is not None
            assert naming.finding.is_confirmed
            assert naming.finding.cause == naming.name
        assert (naming.change is not None) == (naming.name != before)
        if naming.change is not None:
            assert (naming.change.before, naming.change.after) == (before, naming.name)
        before = naming.name


@few
@given(evidences, evidences, st.integers(1, 3), st.integers(1, 3))
def test_evidence_that_alternates_never_makes_a_name_flicker(
    one: Evidence, other: Evidence, for_one: int, for_other: int
) -> None:
    """Alternating faster than a name is held, it changes at most as often as it is refused for what is unexplained."""
    cycle = [one] * for_one + [other] * for_other
    namer = Namer()
    changes = [naming.change for naming in map(namer.update, _in_time(cycle * 12)) if naming.change is not None]
    choices = [choose(evidence, judge(evidence)) for evidence in (one, other)]
    same = choices[0].name == choices[1].name
    settles = int(same or any(choice.is_refusal for choice in choices))
    assert len(changes) <= settles


@some
@given(sessions())
def test_tallies_agree_with_the_sums_of_the_live_view(session: list[AnyRecord]) -> None:
    steps = [record for record in session if isinstance(record, StepRecord)]
    assume(steps)
    ends = end_times(steps)
    tally = Tally()
    add_steps(tally, steps, ends, None)
    sums = counted(steps, ends, UNPRICED).sums
    assert (tally.steps, tally.forwards, tally.busy, tally.idle) == (
        sums.steps, sums.forwards, sums.busy_ns, sums.idle_ns,
    )  # fmt: skip
    assert (tally.forward, tally.draft, tally.sample) == (sums.forward_ns, sums.draft_ns, sums.sample_ns)
    assert (tally.prefill_rows, tally.decode_rows) == (sums.prefill_rows, sums.decode_rows)
    assert (tally.pairs, tally.drafted) == (sums.decode_forwards, sums.drafted)
    assert (tally.lookup_tokens, tally.evicted_blocks) == (sums.lookup_tokens, sums.blocks_evicted)
    assert math.isclose(tally.times.wall, sums.wall_ns, abs_tol=1.0)


@some
@given(sessions(), st.integers(1, 14))
def test_tallies_add(session: list[AnyRecord], at: int) -> None:
    steps = [record for record in session if isinstance(record, StepRecord)]
    assume(len(steps) > at)
    ends = end_times(steps)
    whole, first, second = Tally(), Tally(), Tally()
    add_steps(whole, steps, ends, 2)
    add_steps(first, steps[:at], ends[:at], 2)
    add_steps(second, steps[at:], ends[at:], 2)
    both = total([first, second])
    both.idle = whole.idle  # The idle stretch between the two belongs to neither.
    assert both == whole


@few
@given(sessions())
def test_no_record_upsets_a_gatherer_and_its_times_are_those_of_the_steps(session: list[AnyRecord]) -> None:
    gatherer, namer, last_ns = Gatherer(), Namer(), 0
    for record in session:
        gatherer.write(record)
        at_ns = time_ns(record)
        if at_ns is not None:
            last_ns = max(last_ns, at_ns)
            evidence = gatherer.evidence(last_ns, None)
            naming = namer.update(evidence)
            assert evidence.times.wall >= 0.0
            assert not naming.shares or math.isclose(sum(share for _, share in naming.shares), 1.0, rel_tol=1e-9)


@settings(max_examples=12)
@given(st.integers(1, 12), st.integers(16, 400), st.integers(4, 60), st.integers(0, 3), st.integers(0, 2_000))
def test_a_model_that_is_right_leaves_nothing_unexplained(
    concurrency: int, prompt: int, output: int, drafted: int, idle_cells: int
) -> None:
    asked = Asked(
        concurrency=concurrency, prompt=prompt, output=output, drafted=drafted, acceptance=0.5, idle_cells=idle_cells
    )
    machine = Simulated(asked, noise=0.0)
    gatherer = Gatherer()
    gatherer.write(machine.header)
    for record in machine.run(2):
        gatherer.write(record)
    evidence = gatherer.evidence(machine.now_ns, Model(machine.costs, machine.config))
    judged = judge(evidence)
    other = evidence.times.other / evidence.times.wall  # What the phase `other` is, which nothing explains.
    assert judged.unexplained <= other + 0.01


@given(st.lists(st.tuples(st.booleans(), st.floats(0.5, 2.0)), min_size=1, max_size=12))
def test_a_disturbed_model_never_takes_the_place_of_a_calm_one(looks: list[tuple[bool, float]]) -> None:
    reference, config = Reference(), EngineConfig()
    calm: list[float] = []
    for is_calm, error in looks:
        model = Model(replace(Costs()), config, error=error, is_calibrated=False)
        was_calm = reference.update(model, config, UNPRICED, is_calm=is_calm)
        if is_calm:
            calm.append(error)
        assert was_calm == bool(calm)
        if calm:
            assert isinstance(reference.model, Model)
            assert reference.model.error == calm[-1]
