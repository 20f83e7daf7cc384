"""Descriptions of workloads: what is refused, what a line and a header say."""

from __future__ import annotations

import msgspec
import pytest

from stackscope.errors import WorkloadError
from stackscope.toggles import Sampling
from stackscope.workload.check import WorkloadFacts, check, header
from stackscope.workload.spec import Length, WorkloadSpec, describe, parse_length, validate


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("128", Length.fixed(128)),
        (" 64..256 ", Length.uniform(64, 256)),
        ("lognormal(200, 0.6)", Length.lognormal(200, 0.6)),
        ("Geometric(12.5)", Length.geometric(12.5)),
    ],
)
def test_a_length_is_read_as_typed_and_written_back(text: str, length: Length) -> None:
    assert parse_length(text) == length
    assert parse_length(str(length)) == length


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "9..3", "..", "1e9", "nan", "lognormal(0.2, 1)", "geometric(0)", "99999999999", "12 tokens"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError):
        parse_length(text)


def test_the_largest_draw_is_bounded() -> None:
    assert Length.fixed(7).most == 7
    assert Length.uniform(3, 9).most == 9
    # Eight means where nothing is said, else what is said.
    assert Length.geometric(10).most == 80
    assert Length(kind="lognormal", mean=10, spread=1, high=25).most == 25
    # A lower bound above the mean is also the upper one.
    assert Length(kind="fixed", mean=3, low=5).most == 5


BAD: list[tuple[dict[str, object], str]] = [
    ({}, "either a built-in or a file"),
    ({"name": "code", "path": "x.jsonl"}, "either a built-in or a file"),
    ({"name": "poetry"}, "no built-in workload 'poetry'"),
    ({"name": "code", "requests": 0}, "requests must lie between 1 and"),
    ({"name": "code", "concurrency": 0}, "concurrency"),
    ({"name": "code", "rate": float("nan")}, "rate must lie"),
    ({"name": "code", "rate": float("inf")}, "rate must lie"),
    ({"name": "code", "rate": 0.0}, "rate must lie"),
    ({"name": "code", "duration_s": -1.0}, "duration_s"),
    ({"name": "code", "max_tokens": 0}, "max_tokens"),
    ({"name": "code", "seed": -1}, "seed"),
    ({"name": "code", "sampling": Sampling(top_p=1.5)}, "sampling.top_p"),
    ({"name": "code", "sampling": Sampling(temperature=float("nan"))}, "sampling.temperature"),
    ({"name": "code", "output_tokens": Length(kind="uniform", low=5)}, "needs a highest value"),
    ({"name": "code", "output_tokens": Length(kind="geometric")}, "needs a mean"),
    ({"name": "code", "prompt_tokens": Length(mean=5, low=9, high=8)}, "below the lowest"),
    ({"name": "code", "turns": Length.fixed(3)}, "turns has no meaning for the workload code"),
    ({"name": "chat", "documents": 3}, "documents has no meaning"),
    ({"name": "code", "shared_tokens": 3}, "shared_tokens has no meaning"),
    ({"name": "code", "truncate": True}, "truncate has no meaning"),
    ({"path": "x.jsonl", "prompt_tokens": Length.fixed(3)}, "prompt_tokens has no meaning for a file"),
    ({"name": "code", "arrivals": "trace"}, "has no trace of arrivals"),
    ({"path": "x.jsonl", "arrivals": "trace", "rate": 2.0}, "either from the trace or at a rate"),
    ({"name": "code", "arrivals": "gamma"}, "gamma arrivals need a rate"),
    ({"name": "code", "rate": 1.0, "burstiness": 0.5}, "burstiness has no meaning for poisson"),
    ({"path": "x.jsonl", "time_scale": 2.0}, "time_scale only stretches"),
    ({"name": "code", "arrivals": "sometimes", "rate": 1.0}, "arrivals: there is no 'sometimes'"),
    ({"path": "x", "format": "csv"}, "format: there is no 'csv'"),
]


@pytest.mark.parametrize(("fields", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_a_description_that_makes_no_sense_is_refused(fields: dict[str, object], sentence: str) -> None:
    spec = WorkloadSpec(**fields)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError) as caught:
        validate(spec)
    assert sentence in caught.value.message
    assert "\n" not in str(caught.value)


def test_a_description_survives_the_wire() -> None:
    spec = WorkloadSpec(
        name="rag",
        rate=2.5,
        arrivals="gamma",
        burstiness=0.25,
        documents=3,
        prompt_tokens=Length.lognormal(30, 0.5),
        output_tokens=Length.uniform(8, 16),
        sampling=Sampling(temperature=0.7, seed=4),
        seed=2**63 - 1,
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=WorkloadSpec) == spec


def test_an_unknown_option_is_not_ignored() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"name":"code","max_token":5}', type=WorkloadSpec)


def test_one_line_says_what_is_offered() -> None:
    assert describe(WorkloadSpec(name="code")) == "code · closed loop, 8 in flight · endless · seed 0"
    spec = WorkloadSpec(
        name="chat", rate=2.5, arrivals="gamma", burstiness=0.25, requests=1200, duration_s=90.0, seed=7
    )
    assert describe(spec) == (
        "chat · open loop, 2.5 requests/s, gamma (burstiness 0.25) · 1,200 requests · 1 min 30 s · seed 7"
    )
    trace = WorkloadSpec(
        path="/data/mooncake.jsonl", arrivals="trace", time_scale=0.5, token_scale=0.125, max_tokens=64
    )
    assert describe(trace) == (
        "mooncake.jsonl · open loop, the trace's arrivals × 0.5 · output ≤ 64 · tokens × 0.125 · endless · seed 0"
    )


def test_the_header_holds_the_whole_description() -> None:
    spec = WorkloadSpec(name="unique", requests=3)
    said = header(spec, check(spec))
    assert said["seed"] == 0  # a default is stated, not left out
    assert said["name"] == "unique"
    assert said["corpus"] == 1
    assert said["file"] is None
    assert msgspec.json.decode(msgspec.json.encode(said)) == said
    assert check(spec) == WorkloadFacts()
