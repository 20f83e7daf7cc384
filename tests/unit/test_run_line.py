"""The command that a sweep ends with: it runs what was measured, traffic and all."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from stackscope.config import resolve
from stackscope.experiments.plan import Limits
from stackscope.options import OPTIONS
from stackscope.report.run_line import command_line, warmup_told
from stackscope.toggles import EngineConfig, Sampling
from stackscope.workload.spec import Length, WorkloadSpec

BASE = EngineConfig(model="/m/target.gguf")
CODE = WorkloadSpec(name="code", requests=64)


def typed(line: str) -> dict[str, Any]:
    """The options of a command as they are typed, by name."""
    switches = {flag: (one.name, place == 0) for one in OPTIONS for place, flag in enumerate(one.flags.split("/"))
                if "/" in one.flags}  # fmt: skip
    words = iter(shlex.split(line)[2:])
    found: dict[str, Any] = {}
    for word in words:
        if word in switches:
            name, found[name] = switches[word][0], switches[word][1]
        else:
            found[word.removeprefix("--").replace("-", "_")] = next(words)
    return found


@pytest.mark.parametrize(
    ("config", "workload", "limits"),
    [
        (EngineConfig(model="/m/t.gguf", draft_model="/m/d.gguf", speculation="ngram", draft_length=4, slots=4,
                      kv_type_k="q8_0", kv_type_v="q8_0"),
         WorkloadSpec(name="code", requests=14, concurrency=4, prompt_tokens=Length.uniform(96, 192), documents=2,
                      output_tokens=Length.fixed(32), ignore_eos=True), Limits()),
        (BASE, WorkloadSpec(name="chat", requests=9, rate=2.5, arrivals="gamma", burstiness=0.5, shared_tokens=64,
                            turns=Length.geometric(3), template="plain"), Limits(ttft_ns=250_000_000)),
        (EngineConfig(model="/m/t.gguf", seed=7),
         WorkloadSpec(name="unique", requests=64, output_tokens=Length.lognormal(200, 0.6), max_tokens=300, seed=7,
                      sampling=Sampling(temperature=0.7, top_k=10, top_p=0.9, min_p=0.1, seed=7)),
         Limits(tpot_ns=12_500_000)),
        (EngineConfig(model="/m/t.gguf", kv_type_k="q8_0", flash_attention=False, tensor_split=(3.0, 1.0)),
         WorkloadSpec(path="/w/prompts.jsonl", format="jsonl", requests=20, truncate=True), Limits()),
    ],
)  # fmt: skip
def test_the_command_asks_for_the_configuration_and_the_traffic_that_ran(
    config: EngineConfig, workload: WorkloadSpec, limits: Limits
) -> None:
    found = resolve(typed(command_line(config, workload, limits)), environment={"STACKSCOPE_CONFIG": "/dev/null"})
    assert (found.engine, found.workload) == (config, workload)
    assert (found.limits.service.ttft_ns, found.limits.service.tpot_ns) == (limits.ttft_ns, limits.tpot_ns)


def test_the_defaults_of_a_run_are_not_spelled_out() -> None:
    assert command_line(BASE, CODE, Limits()) == "stackscope run --model /m/target.gguf"


def test_the_requests_that_warm_up_are_told_as_what_no_figure_counts() -> None:
    assert warmup_told(WorkloadSpec(name="code", requests=14, concurrency=4)).startswith("its first 4 requests warm up")
    assert warmup_told(WorkloadSpec(name="code", requests=11, concurrency=1)).startswith("its first request warms up")
