"""What a comparison says: verdicts, what forbids them, what differs, and where the time moved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stackscope.analysis.comparing.collecting import Collector
from stackscope.analysis.comparing.comparison import Comparison, Versus, compare_digests
from stackscope.analysis.comparing.digest import TermTimes
from stackscope.records import ConfigEvent, GpuSample, HardwareSample
from stackscope.toggles import EngineConfig
from tests.unit import timing_machines
from tests.unit.compare_sessions import CAPABILITIES, Run
from tests.unit.record_builders import make_header, make_model, make_step

A = Run()
SLOWER = Run(noise=2, base_ns=6e6)
ALIKE = Run(noise=2)


def versus(b: Run, a: Run = A, **options: Any) -> Versus:
    return compare_digests([a.digest(), b.digest()], **options).versus[0]


def barriers(found: Versus) -> list[str]:
    return [one.kind for one in found.concerns if one.is_barrier]


def notes(found: Versus) -> list[str]:
    return [one.kind for one in found.concerns if not one.is_barrier]


# Verdicts


def test_what_is_slower_is_called_so_with_its_number() -> None:
    found = versus(SLOWER)
    assert found.verdict == "slower"
    assert found.sentence.startswith("B is slower than A: tokens/s out -")
    assert found.is_same_work
    assert found["output_tokens_per_s"].how == "paired"
    ratio = found["output_tokens_per_s"].ratio
    assert ratio is not None
    truth = versus(Run(spread=0.0, base_ns=6e6), Run(spread=0.0))["output_tokens_per_s"].ratio
    assert truth is not None
    assert ratio.holds(truth.value)
    assert ratio.high - ratio.low < 0.05


def test_and_the_other_way_round() -> None:
    found = versus(A, SLOWER)
    assert found.verdict == "faster"
    assert found["tpot_p50"].standing == "better"
    assert found["tokens_per_forward"].standing == "not distinguishable"


def test_overlapping_sets_are_not_distinguishable() -> None:
    """Case 74: two runs that differ by chance alone."""
    found = versus(ALIKE)
    assert found.verdict == "not distinguishable"
    assert found.sentence.startswith("B is not distinguishable from A: tokens/s out ")
    assert found["tpot_p50"].standing == "not distinguishable"


@pytest.mark.parametrize(
    "how", [{"requests": 24}, {"lengths": (200, 24)}, {"slots": 1, "requests": 30}], ids=["few", "in lockstep", "alone"]
)
def test_what_differs_by_chance_alone_is_rarely_called_different(how: dict[str, Any]) -> None:
    """Requests of one length that run four at a time share every hitch: there are four times fewer than it seems."""
    found = [versus(Run(noise=seed, **how), Run(noise=seed + 100, **how)) for seed in range(30)]
    judged = [one for each in found for one in each.figures if one.ratio is not None]
    different = [one.name for one in judged if one.standing != "not distinguishable"]
    assert len(different) <= 0.07 * len(judged)
    assert [each.verdict for each in found].count("not distinguishable") >= 27


def test_the_p99_of_few_requests_is_the_maximum_and_is_said_to_be() -> None:
    """Case 74: twenty requests."""
    found = versus(Run(requests=20, noise=2), Run(requests=20))
    p99 = found["ttft_p99"]
    assert p99.n == (20, 20)
    assert p99.is_maximum == (True, True)
    assert (p99.ratio, p99.standing) == (None, "unknown")
    assert p99.why is not None
    assert p99.why.startswith("too few: 20 worth ")
    assert p99.why.endswith("and its interval needs 250")
    assert found["ttft_p95"].standing == "unknown"
    assert found["tpot_p50"].ratio is not None
    step_gap = found["step_gap_p50"]
    assert step_gap.n is not None
    assert step_gap.n[0] > 400


def test_where_arrivals_set_the_pace_the_verdict_is_of_how_long_requests_take() -> None:
    load = {"rate": 5.0, "concurrency": None}
    found = versus(Run(noise=2, base_ns=6e6, workload=load), Run(workload=load))
    assert found.headline == "e2e_p50"
    assert found.sentence.startswith("B is slower than A: E2E p50 +")


def test_latencies_that_go_the_other_way_are_named() -> None:
    """Drafts: more tokens per second, fewer and longer steps."""
    found = versus(Run(drafted=3, noise=2, config={"speculation": "draft"}))
    assert found.verdict == "faster"
    assert "Worse all the same: " in found.sentence
    assert "step gap p50 +" in found.sentence
    assert found["tokens_per_forward"].standing == "better"
    assert found["acceptance_rate"].ratio is None
    assert found["acceptance_rate"].why == "not known"


def test_three_sessions_are_each_held_against_the_first() -> None:
    found = compare_digests([A.digest(), SLOWER.digest(), ALIKE.digest()])
    assert [one.letters for one in found.versus] == [("A", "B"), ("A", "C")]
    assert [one.verdict for one in found.versus] == ["slower", "not distinguishable"]


@pytest.mark.parametrize("n", [0, 1, 27])
def test_one_session_has_nothing_to_be_compared_with(n: int) -> None:
    with pytest.raises(ValueError, match="2 to 26"):
        compare_digests([A.digest()] * n)


# What forbids a verdict


def test_a_warm_prefix_cache_is_not_compared_with_a_cold_one() -> None:
    """Case 73: A hits 0 %, B 92 %, and both are set alike."""
    found = versus(Run(noise=2, hit=0.92))
    assert found.verdict == "not comparable"
    assert barriers(found) == ["hit rate"]
    assert "A found 0 % of the prompt tokens in its prefix cache, B 92.0 %" in found.sentence
    assert not found.is_comparable


def test_hits_that_a_setting_explains_are_part_of_the_effect() -> None:
    found = versus(Run(noise=2, hit=0.92), Run(config={"prefix_cache": False}))
    assert barriers(found) == []
    assert "hit rate" in notes(found)
    assert found.verdict == "faster"


def test_a_recording_that_begins_with_a_warm_cache_is_told() -> None:
    def digest(blocks: int) -> Any:
        collector = Collector("x")
        cache = msgspec.structs.replace(make_step().cache, resident_blocks=blocks)
        collector.take([make_header(), *(make_step(n, cache=cache) for n in range(40))])
        return collector.digest()

    found = compare_digests([digest(0), digest(64)]).versus[0]
    assert barriers(found) == ["warm cache"]
    assert found.sentence.endswith("The prefix cache of B was warm from the start, the other's was empty.")


def test_other_prompts_are_not_compared() -> None:
    found = versus(Run(work=1, noise=2, workload={"seed": 1}))
    assert barriers(found) == ["seed"]
    assert found.sentence.endswith("The workloads have different seeds, 0 and 1: the prompts were not the same.")
    assert not found.is_same_work


def test_what_a_verdict_says_is_not_told_again_beside_it() -> None:
    other = Run(work=1, noise=2, workload={"seed": 1})
    found, anyway = versus(other), versus(other, anyway=True)
    told = [one.text for one in found.concerns if one.is_barrier]
    assert found.sentence.endswith(told[0])
    assert [one.text for one in found.untold if one.is_barrier] == told[1:]
    assert "not comparable" not in anyway.sentence
    assert anyway.untold == anyway.concerns  # It is compared anyway: then nothing else says what speaks against it.


@pytest.mark.parametrize("change", [{"concurrency": 8}, {"name": "code"}, {"prompt_tokens": {"mean": 96.0}}])
def test_another_workload_is_not_compared(change: dict[str, object]) -> None:
    found = versus(Run(noise=2, workload=change))
    assert barriers(found) == ["workload"]
    assert next(iter(change)).replace("_", " ") in found.sentence


def test_a_longer_workload_is_compared_and_told() -> None:
    found = versus(Run(noise=2, requests=90, workload={"requests": 90}))
    assert (barriers(found), found.is_same_work) == ([], False)
    assert "extent" in notes(found)
    assert found["output_tokens_per_s"].how == "unpaired"


def gpu(*reasons: str) -> GpuSample:
    return GpuSample(uuid="GPU-1", name="G", is_used=True, throttle=reasons)


def test_a_throttled_gpu_is_not_compared_with_one_that_was_not() -> None:
    found = versus(Run(noise=2, gpu=gpu("temperature")), Run(gpu=gpu()))
    assert barriers(found) == ["throttled"]
    assert "held down (temperature) for B in 100 % of the readings" in found.sentence
    both = versus(Run(noise=2, gpu=gpu("temperature")), Run(gpu=gpu("temperature")))
    assert (barriers(both), notes(both)) == ([], ["throttled"])
    assert barriers(versus(Run(noise=2, gpu=gpu()), Run(gpu=gpu()))) == []


def test_a_quota_that_held_one_up_is_told() -> None:
    def digest(share: float) -> Any:
        collector = Collector("x")
        steps = [make_step(n) for n in range(40)]
        collector.take([make_header(), *steps, HardwareSample(at_ns=0, throttled_share=share, cpu_pressure=share)])
        return collector.digest()

    found = compare_digests([digest(0.0), digest(0.4)]).versus[0]
    assert barriers(found) == ["quota"]
    assert "pressure" in notes(found)


def test_synthetic_acceptance_is_not_compared_with_a_real_one() -> None:
    synthetic = Run(noise=2, drafted=3, step={"invalid_output": True})
    found = versus(synthetic, Run(drafted=3))
    assert barriers(found) == ["synthetic"]
    assert "The acceptance of B is synthetic" in found.sentence
    both = versus(synthetic, Run(drafted=3, step={"invalid_output": True}))
    assert (barriers(both), "synthetic" in notes(both)) == ([], True)


def test_several_configurations_in_one_session_are_not_compared() -> None:
    config = EngineConfig(model="/models/synthetic-F16.gguf", threads=2, slots=2)
    records = list(Run(noise=2).records())
    half = len(records) // 2
    change = ConfigEvent(at_ns=0, epoch=1, kind="live", config=config)
    later = [msgspec.structs.replace(r, epoch=1) if hasattr(r, "epoch") else r for r in records[half:]]
    collector = Collector("x")
    collector.take([*records[:half], change, *later])
    found = compare_digests([A.digest(), collector.digest()]).versus[0]
    assert barriers(found) == ["epochs"]
    assert "B ran under 2 configurations" in found.sentence


def test_where_nothing_ran_nothing_is_compared() -> None:
    found = versus(Run(requests=0))
    assert "nothing ran" in barriers(found)
    assert found.moved is None
    assert found["output_tokens_per_s"].why == "not known"


def test_a_verdict_can_be_had_anyway() -> None:
    found = versus(Run(noise=2, hit=0.92), anyway=True)
    assert found.verdict == "faster"
    assert barriers(found) == ["hit rate"]


def test_what_no_interval_can_be_had_of_is_not_called_anything() -> None:
    def digest() -> Any:
        collector = Collector("x")
        collector.take([make_header(), make_step()])
        return collector.digest()

    found = compare_digests([digest(), digest()]).versus[0]
    assert found.verdict == "unknown"
    assert found.sentence == "Nothing can be said of A and B: tokens/s out has no interval (too few steps)."


# What the reader is told


def test_settings_that_differ_are_listed() -> None:
    found = versus(Run(noise=2, config={"kv_type_k": "q8_0", "kv_type_v": "q8_0"}))
    told = {(one.area, one.name): (one.a, one.b) for one in found.differences}
    assert told == {
        ("configuration", "kv_type_k"): ("f16", "q8_0"), ("configuration", "kv_type_v"): ("f16", "q8_0"),
    }  # fmt: skip
    assert notes(found) == ["several settings"]


def test_another_machine_model_and_library_are_told() -> None:
    model = make_model(name="other", parameters=99)
    there = {"host": "there", "device": "Other CPU", "library": "llama 2 | CPU : AVX2 = 1", "model": model}
    found = versus(Run(noise=2, header=there), Run(header={"library": "llama 1 | CPU : AVX2 = 1"}))
    assert notes(found) == ["model", "machine", "library"]
    told = {(one.area, one.name): (one.a, one.b) for one in found.differences}
    assert told["machine", "host"] == ("synthetic", "there")
    assert told["machine", "library"] == ("llama 1", "llama 2")
    assert told["model", "parameters"][1] == 99


def test_features_that_only_one_build_uses_are_told_apart() -> None:
    found = versus(
        Run(noise=2, header={"library": "llama 1 | CPU : AVX2 = 1 | FMA = 1 |"}),
        Run(header={"library": "llama 1 | CPU : AVX2 = 1 |"}),
    )
    assert [(one.name, one.a, one.b) for one in found.differences] == [("with FMA = 1", None, True)]


def test_a_file_elsewhere_is_the_same_workload() -> None:
    file = {"sha256": "ab", "format": "jsonl"}
    here, there = {"path": "/a/x.jsonl", "file": file}, {"path": "/b/x.jsonl", "file": file}
    assert versus(Run(noise=2, workload=there), Run(workload=here)).is_comparable
    other = {"path": "/b/x.jsonl", "file": {**file, "sha256": "cd"}}
    assert barriers(versus(Run(noise=2, workload=other), Run(workload=here))) == ["workload"]


def test_a_recording_that_was_cut_off_or_began_late_is_told() -> None:
    collector = Collector("x")
    collector.take(r for r in Run(noise=2).records() if not hasattr(r, "n") or r.n >= 50)
    found = compare_digests(
        [A.digest(), collector.digest(truncated="It has no end mark.", left_out="3 records …")]
    ).versus[0]
    assert {"middle", "cut off", "left out"} <= set(notes(found))
    warm = Collector("x", warmup_ns=10**9)
    warm.take(r for r in Run(noise=2).records() if not hasattr(r, "n") or r.n >= 50)
    assert "middle" not in notes(compare_digests([A.digest(warmup_ns=10**9), warm.digest()]).versus[0])


# Where the time moved


def test_phases_sum_to_the_step_and_the_forward_to_its_phase() -> None:
    found = versus(SLOWER).moved
    assert found is not None
    for side in ("a_ns", "b_ns", "a_token_ns", "b_token_ns"):
        assert sum(getattr(one, side) for one in found.phases) == pytest.approx(getattr(found.step, side))
        decode = next(one for one in found.phases if one.name == "decode")
        assert sum(getattr(one, side) for one in found.decode) == pytest.approx(getattr(decode, side))
    assert found.step.change_ns == pytest.approx(1e6, rel=0.1)
    assert [one.name for one in found.decode] == ["weights", "head", "KV", "other", "not split further"]
    assert "by the bytes that the ledger counts" in found.split


def test_a_quantised_cache_moves_fewer_bytes() -> None:
    """All forwards take as long as before: of half the bytes of KV, the rest has taken up the time."""
    found = versus(Run(config={"kv_type_k": "q8_0", "kv_type_v": "q8_0"})).moved
    assert found is not None
    parts = {one.name: one for one in found.decode}
    assert parts["KV"].b_ns < 0.6 * parts["KV"].a_ns
    assert found.step.change_ns == 0.0


def test_a_model_of_unknown_geometry_is_not_divided() -> None:
    found = versus(SLOWER, Run(header={"model": None})).moved
    assert found is not None
    assert found.decode == ()
    assert "geometry is not recorded" in found.split


def calibrated(machine: timing_machines.Machine, seed: int) -> Any:
    """A session of a machine whose times are its own, with its ceilings."""
    header = make_header(
        model=machine.model, config=timing_machines.CONFIG, ceilings=machine.calibrated(), capabilities=CAPABILITIES
    )
    collector = Collector("x")
    collector.take([header, *machine.traffic(400, seed=seed)])
    return collector.digest()


def test_with_ceilings_the_forward_is_divided_by_the_time_model() -> None:
    """A machine that reads at two thirds of the rate: only what reading weights takes has moved."""
    fast, slow = timing_machines.Machine(), timing_machines.Machine(bytes_per_s=8e9)
    digests = [calibrated(fast, 1), calibrated(slow, 1)]
    assert all(isinstance(one.terms, TermTimes) for one in digests)
    found = compare_digests(digests).versus[0].moved
    assert found is not None
    assert found.split.startswith("The forward is divided by the time model")
    parts = {one.name: one.change_ns for one in found.decode}
    reading = parts["weights"] + parts["head"]
    assert reading == pytest.approx(sum(parts.values()), rel=0.2)
    weights = fast.ledger.weights
    n_bytes = weights.attention.bytes + weights.ffn.bytes + weights.other.bytes + weights.head.bytes
    expected = 1e9 * n_bytes * (1 / 8e9 - 1 / 12e9)
    assert reading == pytest.approx(expected, rel=0.25)


def test_a_calibration_of_other_conditions_says_nothing() -> None:
    machine = timing_machines.Machine()
    config = msgspec.structs.replace(timing_machines.CONFIG, kv_type_k="q8_0")
    collector = Collector("x")
    collector.take([make_header(config=config, ceilings=machine.calibrated()), *machine.traffic(50)])
    assert collector.digest().terms == "the machine had been calibrated for another configuration"


def test_a_comparison_is_plain_data() -> None:
    found = compare_digests([A.digest(), SLOWER.digest()])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison).versus[0].verdict == "slower"
