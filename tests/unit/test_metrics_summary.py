"""A run summed up: epochs, warm-up, unknowns, and the object for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.metrics.catalogue import METRICS
from stackscope.analysis.metrics.cost import BytesPerToken, KvBytesPerToken
from stackscope.analysis.metrics.counts import Rebuilds, RebuildTime, RefusedChanges, Requests, Steps, WallTime
from stackscope.analysis.metrics.latency import TimeToFirstToken
from stackscope.analysis.metrics.load import HitRate, Occupancy, OutputRate
from stackscope.analysis.metrics.speculation import AcceptanceRate, TokensPerForward
from stackscope.analysis.metrics.time import CpuShare, IdleTime, PhaseShares
from stackscope.analysis.summary import RunSummary
from stackscope.records import (
    AnyRecord,
    CacheCounters,
    ConfigEvent,
    Emission,
    Footer,
    HardwareSample,
    Header,
    Log,
    Mark,
    Phases,
)
from stackscope.toggles import EngineConfig
from tests.analysis_builders import MS, attention, decode, dense_model, lab_target, request, step, verify

if TYPE_CHECKING:
    from collections.abc import Iterable

START = EngineConfig(threads=2)
HEADER = Header(stackscope="0", started="", host="", device="", model=lab_target(), config=START)


def summed(records: Iterable[AnyRecord], *, warmup_ns: int = 0) -> RunSummary:
    run = RunSummary(warmup_ns=warmup_ns)
    for record in records:
        run.write(record)
    return run


def change(epoch: int, config: EngineConfig, *, at_ns: int, kind: str = "live", **fields: object) -> ConfigEvent:
    return ConfigEvent(at_ns=at_ns, epoch=epoch, kind=kind, config=config, **fields)  # type: ignore[arg-type]


def test_an_empty_run_knows_nothing_and_says_so() -> None:
    figures = RunSummary().to_dict()
    for name in ("ttft_ns", "tokens_per_forward", "acceptance_rate", "bytes_per_token", "phase_shares", "cpu_share"):
        assert figures[name] is None
    assert figures["steps"] == 0
    assert figures["requests"] == {}
    assert figures["ended"] is None


def test_the_object_for_machines_has_every_metric_with_its_unit() -> None:
    figures = summed([HEADER, step(decode(0, cached=1)), request((10 * MS, 1))]).to_dict()
    read = json.loads(json.dumps(figures, allow_nan=False))
    for metric in METRICS:
        assert metric.tag in read
        assert read["units"][metric.tag] == metric.unit
    assert read["ttft_ns"]["n"] == 1
    assert read["ttft_ns"]["unsupported"] == ["p50", "p90", "p95", "p99"]
    assert read["goodput_requests_per_s"] is None


def test_tags_are_unique() -> None:
    assert len({metric.tag for metric in METRICS}) == len(METRICS)


def test_the_run_and_its_epochs() -> None:
    """Speculation is switched on half-way: A is 1, then 3, and 2 over all."""
    speculating = msgspec.structs.replace(START, speculation="ngram")
    run = summed(
        [
            HEADER,
            step(decode(0, cached=5), n=0, start_ns=0),
            step(decode(0, cached=6), n=1, start_ns=MS),
            change(1, speculating, at_ns=2 * MS),
            step(verify(0, cached=7, drafted=2, accepted=2), n=2, start_ns=2 * MS, epoch=1),
            step(verify(0, cached=10, drafted=2, accepted=2), n=3, start_ns=3 * MS, epoch=1),
        ]
    )
    result = run.result()
    assert [epoch[TokensPerForward] for epoch in result.epochs] == [1.0, 3.0]
    assert [epoch.config for epoch in result.epochs] == [START, speculating]
    assert result[TokensPerForward] == 2.0
    assert (result[Steps], result[WallTime]) == (4, 4 * MS)
    assert run.to_dict()["epochs"][1]["config"]["speculation"] == "ngram"  # type: ignore[index]


def test_one_configuration_makes_no_epochs() -> None:
    assert summed([HEADER, step(decode(0, cached=5))]).result().epochs == ()


def test_each_epoch_is_priced_by_its_own_cache_types_and_weights() -> None:
    quantised = msgspec.structs.replace(START, kv_type_k="q8_0", kv_type_v="q8_0")
    small = dense_model(layers=[attention()])
    first, second, third = (step(decode(0, cached=9), n=n, start_ns=n * MS, epoch=n) for n in range(3))
    result = summed(
        [
            HEADER,
            first,
            change(1, quantised, at_ns=MS, kind="rebuild", duration_ns=0),
            second,
            change(2, quantised, at_ns=2 * MS, kind="rebuild", duration_ns=0, model=small),
            third,
        ]
    ).result()
    accounts = [
        Ledger(lab_target()).account(first),
        Ledger(lab_target(), "q8_0", "q8_0").account(second),
        Ledger(small, "q8_0", "q8_0").account(third),
    ]
    assert [epoch[BytesPerToken] for epoch in result.epochs] == [account.total_bytes for account in accounts]
    assert result[BytesPerToken] == sum(account.total_bytes for account in accounts) / 3
    assert result[KvBytesPerToken] == sum(account.kv_bytes for account in accounts) / 3


def test_the_draft_model_is_known_as_long_as_it_is_the_same() -> None:
    draft = dense_model(layers=[attention()])
    config = EngineConfig(draft_model="./draft.gguf")
    header = msgspec.structs.replace(HEADER, draft_model=draft, config=config)
    drafting = step(decode(0, cached=1), draft=(), n=0)
    other = msgspec.structs.replace(config, draft_model="other.gguf")
    run = summed([header, drafting, change(1, other, at_ns=MS, kind="rebuild")])
    assert run._epochs[0].pricing.draft is not None
    assert run._epochs[1].pricing.draft is None


def test_steps_of_an_epoch_whose_event_was_lost_have_unknown_cost() -> None:
    result = summed([HEADER, step(decode(0, cached=5)), step(decode(0, cached=6), n=1, start_ns=MS, epoch=1)]).result()
    assert result[BytesPerToken] is None
    assert result.epochs[0][BytesPerToken] is not None
    assert result.epochs[1].config is None
    assert result[TokensPerForward] == 1.0


def test_steps_that_come_after_the_next_epochs_event_keep_theirs() -> None:
    late = msgspec.structs.replace(START, slots=2)
    result = summed(
        [
            HEADER,
            change(1, late, at_ns=MS),
            step(decode(0, cached=5), n=0),
            step(decode(0, cached=6), n=1, start_ns=MS, epoch=1),
        ]
    ).result()
    assert [epoch.config for epoch in result.epochs] == [START, late]
    assert [epoch[Steps] for epoch in result.epochs] == [1, 1]


def test_requests_belong_to_the_epoch_they_arrived_and_ran_in() -> None:
    """One ran before the change, one across it, one arrived before it and ran after, one is all new."""
    records: list[AnyRecord] = [HEADER]
    records += [step(decode(0, cached=n), n=n, start_ns=n * MS) for n in range(2)]
    records.append(change(1, msgspec.structs.replace(START, slots=4), at_ns=2 * MS))
    records += [step(decode(0, cached=n), n=n, start_ns=n * MS, epoch=1) for n in range(2, 4)]

    def ran(id: int, *, arrived: int, first: int, last: int) -> AnyRecord:
        emissions = (Emission(first, (first + 1) * MS, 1), Emission(last, (last + 1) * MS, 1))
        finished = request(id=id, arrived_ns=arrived, finished_ns=(last + 1) * MS)
        return msgspec.structs.replace(finished, emissions=emissions)

    records += [
        ran(0, arrived=0, first=0, last=1),
        ran(1, arrived=0, first=1, last=2),
        ran(2, arrived=1 * MS, first=2, last=3),
        ran(3, arrived=2 * MS, first=2, last=3),
    ]
    result = summed(records).result()
    assert [epoch[Requests] for epoch in result.epochs] == [{"length": 1}, {"length": 1}]
    assert result[Requests] == {"length": 4}
    assert result.spanning_requests == 2
    first_tokens = [epoch[TimeToFirstToken] for epoch in result.epochs]
    assert [spread.p50 for spread in first_tokens if spread is not None] == [1 * MS, 1 * MS]


def test_changes_are_counted() -> None:
    result = summed(
        [
            HEADER,
            step(decode(0, cached=5)),
            change(1, START, at_ns=MS, kind="rebuild", duration_ns=40 * MS),
            ConfigEvent(at_ns=60 * MS, epoch=1, kind="refused", reason="MTP heads are not there"),
            step(decode(0, cached=6), n=1, start_ns=41 * MS, epoch=1),
        ]
    ).result()
    assert (result[Rebuilds], result[RebuildTime], result[RefusedChanges]) == (1, 40 * MS, 1)
    assert result[IdleTime] == 40 * MS


def test_the_time_of_a_rebuild_slows_the_run_and_no_epoch() -> None:
    """Two steps of 1 ms with 40 ms between them: 2 tokens in 42 ms, and a token per ms under either configuration."""
    result = summed(
        [
            HEADER,
            step(decode(0, cached=5)),
            change(1, START, at_ns=MS, kind="rebuild", duration_ns=40 * MS),
            step(decode(0, cached=6), n=1, start_ns=41 * MS, epoch=1),
        ]
    ).result()
    assert result[OutputRate] == pytest.approx(2 / 0.042)
    assert [epoch[OutputRate] for epoch in result.epochs] == [1000.0, 1000.0]
    assert [epoch[IdleTime] for epoch in result.epochs] == [0, 0]


def test_the_time_of_a_rebuild_that_was_not_timed_is_unknown() -> None:
    result = summed([HEADER, change(1, START, at_ns=MS, kind="rebuild")]).result()
    assert result[Rebuilds] == 1
    assert result[RebuildTime] is None


def test_warm_up_is_left_out_and_counted_apart() -> None:
    run = summed(
        [
            HEADER,
            step(decode(0, cached=5), phases=Phases(decode=90 * MS)),
            step(decode(0, cached=6), n=1, start_ns=100 * MS, phases=Phases(decode=10 * MS)),
            request((90 * MS, 1)),
            request((110 * MS, 1), arrived_ns=100 * MS),
        ],
        warmup_ns=100 * MS,
    )
    result = run.result()
    assert (result[Steps], result[WallTime], result[IdleTime]) == (1, 10 * MS, 0)
    assert result[Requests] == {"length": 1}
    assert (result.warmup_steps, result.warmup_requests) == (1, 1)
    assert run.to_dict()["warmup"] == {"until_ns": 100 * MS, "excluded_steps": 1, "excluded_requests": 1}


def test_nothing_is_left_out_unless_asked() -> None:
    result = summed([HEADER, step(decode(0, cached=5)), request((90 * MS, 1))]).result()
    assert (result.warmup_steps, result.warmup_requests) == (0, 0)
    assert result[Steps] == 1


def test_what_a_source_cannot_know_is_unknown_not_zero() -> None:
    """A source that declares phases only: zeros in its records are blanks."""
    header = msgspec.structs.replace(HEADER, capabilities=("phases",))
    busy = step(decode(0, cached=5), slots=8, slots_busy=4, cpu_ns=MS, cache=CacheCounters(lookup_tokens=9))
    result = summed([header, busy]).result()
    assert result[HitRate] is None
    assert result[AcceptanceRate] is None
    assert result[CpuShare] is None
    assert result[Occupancy] is None
    assert result[PhaseShares] is not None
    assert result[OutputRate] is not None


def test_a_header_without_capabilities_makes_no_statement() -> None:
    busy = step(decode(0, cached=5), slots=8, slots_busy=4, cache=CacheCounters(lookup_tokens=9))
    result = summed([HEADER, busy]).result()
    assert result[HitRate] == 0.0
    assert result[Occupancy] == 0.5


def test_other_records_change_nothing() -> None:
    noise: list[AnyRecord] = [Log(at_ns=0, text="hello"), Mark(at_ns=0, label="here"), HardwareSample(at_ns=0)]
    with_noise = summed([HEADER, *noise, step(decode(0, cached=5))])
    assert with_noise.to_dict() == summed([HEADER, step(decode(0, cached=5))]).to_dict()


def test_how_the_session_ended() -> None:
    run = summed([HEADER, Footer(at_ns=MS, reason="interrupted", steps=0, requests=0)])
    run.close()
    assert run.result().ended == "interrupted"
    assert run.to_dict()["ended"] == "interrupted"


def test_reading_the_result_midway_changes_nothing() -> None:
    records = [step(decode(0, cached=n), n=n, start_ns=n * MS, epoch=n // 5) for n in range(10)]
    watched, plain = RunSummary(), RunSummary()
    for record in records:
        watched.write(record)
        watched.result()
        plain.write(record)
    assert watched.to_dict() == plain.to_dict()


def test_steps_that_overlap_make_no_negative_idle_time() -> None:
    records = [step(decode(0, cached=5)), step(decode(0, cached=6), n=1, start_ns=MS // 2)]
    assert summed(records).result()[IdleTime] == 0


@pytest.mark.parametrize("reason", ["eos", "length", "context", "stop"])
def test_every_way_to_complete_counts(reason: str) -> None:
    result = summed([request((10 * MS, 1), finish_reason=reason)]).result()  # type: ignore[arg-type]
    spread = result[TimeToFirstToken]
    assert spread is not None
    assert spread.n == 1
