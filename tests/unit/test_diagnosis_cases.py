"""What went wrong for people who did this job, as they reported it, and what is said of it here."""

from __future__ import annotations

import re

import msgspec
import pytest

from stackscope import units
from stackscope.analysis.diagnosis.causes_speculation import break_even_acceptance, outcome
from stackscope.analysis.diagnosis.evidence import CacheUse, Evidence, Machine, Speculation
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.misses import (
    full_window_bytes,
    is_window_evicted,
    miss_reason,
    prompt_figures,
    window_miss,
)
from stackscope.analysis.diagnosis.notes import gpu_note, moe_note, notes
from stackscope.records import Estimate, GpuSample
from stackscope.records.ceilings import Ceiling
from stackscope.toggles import EngineConfig
from tests import diagnosis_machine as simulated
from tests.analysis_builders import attention, dense_model, lab_target, sparse_model
from tests.diagnosis_machine import MS, Costs, Disturbance, Load, Watch
from tests.unit.ceilings_builders import ceilings, conditions

H100 = GpuSample(
    uuid="GPU-1", name="NVIDIA H100 80GB HBM3", index=0, utilisation=0.0, memory_total_bytes=80_000_000_000
)
CPU_LIBRARY = "llama-cpp-python 0.3.36 | CPU : SSE3 = 1 | AVX2 = 1 |"


# Case 2: verifying several tokens costs up to five times one token, so high acceptance still loses.


def test_high_acceptance_loses_where_verification_is_dear() -> None:
    # t(1) = 10 ms, t(5) = 48 ms, drafts for nothing; 90 % of each token: A = 1 + .9 + .81 + .729 + .656 = 4.10.
    tokens = sum(0.9**j for j in range(5))
    round_of_four = Speculation(
        tokens_per_forward=tokens, coverage=1.0, acceptance=(tokens - 1) / 4, drafted=400, length=4.0,
        break_even=4.8, break_even_if_free=4.8, round_ns=48e6, plain_ns=10e6, wall_ns=48e8,
    )  # fmt: skip
    assert outcome(round_of_four) == "acceptance"
    assert break_even_acceptance(round_of_four) == pytest.approx((4.8 - 1) / 4)  # 95 %


def test_the_verdict_has_the_measured_cost_of_verification_and_the_break_even() -> None:
    # One row takes 10 ms, each further one 9.5 ms: five rows take 48 ms. Nine in ten drafted tokens are accepted.
    costs = Costs(
        weights=10 * MS, row=9.5 * MS, head=0, head_row=0, token=0, cell=0, fixed=0, output=0, draft=0, host=0
    )
    watch = Watch(simulated.Machine(Load(drafted=4, acceptance=0.9, output=300), costs))
    naming = watch.run(30)
    assert watch.evidence.speculation is not None
    assert watch.evidence.speculation.break_even == pytest.approx(4.8)
    assert naming.name == "low acceptance"
    assert naming.finding is not None
    said = " ".join((naming.sentence, *naming.finding.evidence))
    assert "4.80 needed to break even" in said
    assert "95.0 % would break even" in said
    assert "verification alone costs 4.80 plain steps" in said
    assert "switching speculation off" in naming.finding.counterfactual


def test_the_same_acceptance_wins_where_verification_is_cheap() -> None:
    naming = Watch(simulated.Machine(Load(drafted=4, acceptance=0.9, output=300), Costs(draft=0.1 * MS))).run(20)
    assert naming.name == "weight bandwidth"


def test_even_full_acceptance_can_lose() -> None:
    dear = Speculation(
        tokens_per_forward=4.9, coverage=1.0, acceptance=0.98, drafted=400, length=4.0, break_even=5.5,
        break_even_if_free=5.4, round_ns=55e6, plain_ns=10e6, wall_ns=55e8,
    )  # fmt: skip
    assert outcome(dear) == "acceptance"
    wanted = break_even_acceptance(dear)
    assert wanted is not None
    assert wanted > 1.0


# Case 3: sparse targets lose because verification wakes more experts.


def test_a_sparse_target_is_warned_of_from_its_metadata_alone() -> None:
    target = sparse_model(experts=64, used=8, expert_elements=3000)
    draft = dense_model(layers=[attention()] * 2)
    said = moe_note(target, draft, 4)
    # 64·(1 - (7/8)^5) ÷ 8 = 3.90 times the experts.
    assert said is not None
    assert "verifying 5 rows wakes up to 3.90 times the experts of one row (8 of 64 per token)" in said
    assert "the draft model reads" in said


def test_no_warning_for_a_dense_target_nor_where_all_experts_are_used() -> None:
    assert moe_note(lab_target(), None, 4) is None
    assert moe_note(sparse_model(experts=4, used=4), None, 4) is None
    assert moe_note(None, None, 4) is None


def test_the_warning_stands_beside_the_verdict_while_speculation_is_on() -> None:
    evidence = Evidence(
        model=sparse_model(experts=64, used=8), config=EngineConfig(speculation="ngram", draft_length=4)
    )
    assert any("experts" in line for line in notes(evidence))
    quiet = msgspec.structs.replace(evidence, config=EngineConfig(speculation="off"))
    assert notes(quiet) == ()


# Case 7: a rollback that copies state each round.


def test_the_share_of_rollback_and_commit_is_told_apart() -> None:
    watch = Watch(simulated.Machine(Load(drafted=3, acceptance=0.8, output=200), Costs(draft=1 * MS)))
    watch.run(10)
    naming = watch.run(14, Disturbance(commit_ns=60 * MS))
    assert naming.name == "host scheduling"
    assert "most of it commit: rollback and commit" in naming.sentence
    assert naming.finding is not None
    assert naming.finding.evidence[0].startswith("commit 60.1 ms")
    assert watch.evidence.times.commit / watch.evidence.steps == pytest.approx(60.12 * MS, rel=0.01)


# Case 12: models with sliding windows compute whole prompts again.


def test_an_evicted_window_is_no_changed_prompt() -> None:
    assert is_window_evicted(9716, 1024, 10_423)  # What is looked back to begins at 9,399.
    said = miss_reason(first_position=9716, window=1024, matched=10_423, prompt=10_500)
    assert said is not None
    assert said.startswith("window evicted (first position 9,716, window 1,024)")
    assert "prompt changed" not in said


def test_a_changed_prompt_and_a_whole_window_are_told_apart() -> None:
    assert miss_reason(first_position=9000, window=1024, matched=10_423, prompt=10_500) == (
        "prompt changed at token 10,423"
    )
    assert miss_reason(first_position=0, window=None, matched=12, prompt=20) == "prompt changed at token 12"
    assert miss_reason(first_position=9000, window=1024, matched=10_423, prompt=10_423) is None
    assert not is_window_evicted(0, 1024, 500)


def test_keeping_the_windows_whole_is_offered_with_what_it_costs() -> None:
    model = dense_model(layers=[attention(window=512)] * 5 + [attention()], architecture="gemma3")
    config = EngineConfig(swa_full=False, context_tokens=8192)
    # 2 KV heads × 64 × 2 bytes × (K and V) = 512 bytes a token and layer; 5 layers; 8,192 - 512 cells.
    assert full_window_bytes(model, config, 8192) == 5 * 512 * 7680
    said = window_miss(model, config)
    assert said is not None
    assert "window evicted" in said
    assert "swa_full would keep all of them, for 19.7 MB of memory" in said
    assert window_miss(model, msgspec.structs.replace(config, swa_full=True)) is None
    assert window_miss(lab_target(), config) is None


def test_it_is_said_where_no_prefix_is_found() -> None:
    model = dense_model(layers=[attention(window=512)] * 5 + [attention()], architecture="gemma3")
    machine = simulated.Machine(Load(concurrency=4, prompt=600, output=12), model=model, swa_full=False)
    naming = Watch(machine).run(12)
    thrash = next(one for one in naming.rejected if one.cause == "cache thrash")
    assert thrash.against is not None
    assert "window evicted" in thrash.against
    assert "swa_full" in thrash.against


# Case 13: cached and processed tokens confused.


def test_hits_are_cached_by_cached_and_processed_and_speed_is_of_what_was_processed() -> None:
    figures = prompt_figures(96_593, 459, 1820 * MS)
    assert units.percent(figures.hit_rate) == "99.5 %"
    assert units.token_rate(figures.tokens_per_s) == "252 tok/s"


def test_what_is_undefined_is_a_dash() -> None:
    nothing = prompt_figures(0, 0, 0)
    assert (units.percent(nothing.hit_rate), units.token_rate(nothing.tokens_per_s)) == ("-", "-")
    whole = prompt_figures(500, 0, 0)
    assert (units.percent(whole.hit_rate), units.token_rate(whole.tokens_per_s)) == ("100 %", "-")
    assert CacheUse().hit_rate is None
    assert CacheUse(lookup_tokens=97_052, hit_tokens=96_593).hit_rate == pytest.approx(0.99527, abs=1e-5)


# Case 26: layers silently stay on the processor.


@pytest.mark.parametrize("gpu_layers", [99, -1, 0])
def test_an_idle_gpu_beside_a_cpu_backend_is_expected(gpu_layers: int) -> None:
    machine = simulated.Machine(Load(output=200), gpus=(H100,), library=CPU_LIBRARY, gpu_layers=gpu_layers)
    naming = Watch(machine).run(12)
    assert any(line.startswith("CPU backend; GPU idle is expected") for line in naming.notes)
    said = " ".join((naming.sentence, *naming.notes, *(line.claim for line in naming.rejected)))
    assert "underused" not in said
    assert naming.name == "weight bandwidth"


def test_of_a_gpu_that_is_used_nothing_is_said() -> None:
    used = Evidence(machine=Machine(gpus=1, gpus_used=1, gpu_busy=0.0), library="llama | CUDA : ARCHS = 900 | CPU :")
    assert gpu_note(used) is None
    assert gpu_note(Evidence(machine=Machine(gpus=0, gpus_used=0))) is None
    assert gpu_note(Evidence(machine=Machine())) is None


def test_where_nobody_can_tell_whether_it_is_used_nothing_is_said() -> None:
    untold = msgspec.structs.replace(H100, unknown={"is_used": "the engine does not say"})
    naming = Watch(simulated.Machine(Load(output=200), gpus=(untold,), library=CPU_LIBRARY)).run(6)
    assert naming.notes == ()


def test_a_gpu_build_that_computes_on_the_processor_is_said_without_blaming_the_build() -> None:
    library = "llama-cpp-python 0.3.36 | CUDA : ARCHS = 900 | CPU : AVX2 = 1 |"
    evidence = Evidence(machine=Machine(gpus=1, gpus_used=0), library=library, config=EngineConfig(gpu_layers=0))
    assert gpu_note(evidence) == "CPU backend; GPU idle is expected: no layer is on a GPU"


GPU_LIBRARIES = (
    "llama-cpp-python 0.3.36 | CUDA : ARCHS = 900 | USE_GRAPHS = 1 | CPU : AVX2 = 1 |",
    "llama-cpp-python 0.3.36 | CPU : AVX2 = 1 | offloads to Vulkan0 |",
)


@pytest.mark.parametrize("library", GPU_LIBRARIES)
def test_threads_that_wait_for_a_gpu_are_neither_stopped_nor_starved(library: str) -> None:
    # The threads spin for a while and then sleep until the GPU is done: on a processor that is a process being stopped.
    def run(library: str) -> Watch:
        watch = Watch(simulated.Machine(Load(output=200), library=library))
        watch.run(12, Disturbance(sleep=0.9))
        watch.run(12, Disturbance(sleep=0.3))
        return watch

    assert run(CPU_LIBRARY).namings[-1].name == "throttle"
    watch = run(library)
    naming = watch.namings[-1]
    assert naming.name == "weight bandwidth"
    assert watch.evidence.machine.cpu_share is None
    said = {line.cause: line.against for line in naming.rejected}
    assert said["CPU starvation"] == "the forwards run on a GPU, for which the threads wait"


@pytest.mark.parametrize("library", GPU_LIBRARIES)
def test_a_slower_processor_does_not_throttle_a_gpu(library: str) -> None:
    watch = Watch(simulated.Machine(Load(output=200), library=library))
    watch.run(12)
    naming = watch.run(12, Disturbance(reads_probe=0.4))
    assert naming.name == "weight bandwidth"
    said = {line.cause: line.against for line in naming.rejected}
    assert said["external bandwidth contention"] == "the forwards read the GPU's own memory, which no probe does"


# Case 56: the peak is not known.


def test_there_is_a_verdict_without_a_roof_where_no_ceiling_was_measured() -> None:
    naming = Watch(simulated.Machine(Load(output=200))).run(12)
    assert naming.name == "weight bandwidth"
    assert naming.finding is not None
    assert any(line.endswith("no ceiling was measured") for line in naming.finding.evidence)
    assert not any("of the measured ceiling" in line for line in naming.finding.evidence)


@pytest.mark.parametrize(
    ("changes", "threads", "model", "told"),
    [
        (
            {"is_quiet": False, "foreign_share": 0.3}, 2, "lab.gguf",
            "the ceiling was measured on a busy machine and does not count: stackscope calibrate, when it is quiet",
        ),
        ({}, 4, "lab.gguf", "the ceiling was measured with other threads or another placement: stackscope calibrate"),
        ({"reads": ()}, 2, "other.gguf", "the ceiling was measured with another model: stackscope calibrate"),
    ],
    ids=["busy", "threads", "model"],
)  # fmt: skip
def test_a_ceiling_that_was_measured_and_is_not_used_is_not_said_to_be_missing(
    changes: dict[str, object], threads: int, model: str, told: str
) -> None:
    measured = ceilings(conditions=conditions(model=model, threads=threads), **changes)
    watch = Watch(simulated.Machine(Load(output=200), ceilings=measured))
    naming = watch.run(12)
    assert naming.finding is not None
    assert any(line.endswith(f"while it reads them; {told}") for line in naming.finding.evidence)
    known = [line for one in naming.rejected if one.cause in ("compute", "LM head") for line in one.evidence]
    assert len([line for line in known if line.endswith(told)]) == 2
    rows = Estimate(0.7, 0.6, 0.8)
    doubted = judge(msgspec.structs.replace(watch.evidence, rows_share=rows)).findings
    assert next(one.against for one in doubted if one.cause == "weight bandwidth") == (
        f"rows make up more of the step than weights do, and {told}"
    )


@pytest.mark.parametrize(
    ("measured_at", "told"),
    [
        (12e9, r"[78]\d\.\d % of the measured ceiling"),
        (8e9, r"1[12]\d % of the ceiling, which was measured in a slower state of the machine"),
        (4e9, r"2\d\d % of the measured ceiling, so the step is not divided rightly here"),
    ],
)
def test_with_a_ceiling_the_same_verdict_says_how_near_it_is(measured_at: float, told: str) -> None:
    # The lab target's body is 9 MB; read in 1 ms, it comes at 9 GB/s.
    measured = ceilings(conditions=conditions(model="lab.gguf"), fits_cache=False)
    measured = msgspec.structs.replace(measured, bandwidth=Ceiling(value=measured_at, kind="memory"))
    costs = Costs(weights=1 * MS, row=0.05 * MS, head=0.1 * MS, host=0.02 * MS, fixed=0.01 * MS, output=0.001 * MS)
    naming = Watch(simulated.Machine(Load(output=400), costs, ceilings=measured)).run(6)
    assert naming.name == "weight bandwidth"
    assert naming.finding is not None
    [line] = [line for line in naming.finding.evidence if "while it reads them" in line]
    assert re.search(f"{told}$", line), line
    assert any("out of memory" in line for line in naming.finding.evidence)
