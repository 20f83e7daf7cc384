"""Cost metrics against arithmetic on paper."""

from __future__ import annotations

import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.metrics.cost import (
    BytesByPart,
    BytesPerToken,
    FlopsByPart,
    FlopsPerToken,
    KvBytesPerToken,
    TargetBandwidth,
    TargetFlopRate,
    WeightBytesPerToken,
)
from stackscope.analysis.summary import RunSummary
from stackscope.records import DraftForward, Header, ModelSummary, Phases, StepRecord
from stackscope.toggles import EngineConfig
from tests.analysis_builders import MS, attention, decode, dense_model, lab_target, prefill, step, verify

TOKEN_WEIGHTS = lab_target().tensor_bytes
KV_TOKEN = 6 * 512


def run_of(*steps: StepRecord, draft: ModelSummary | None = None, draft_path: str | None = None) -> RunSummary:
    run = RunSummary()
    config = EngineConfig(draft_model=draft_path)
    run.write(
        Header(stackscope="0", started="", host="", device="", model=lab_target(), draft_model=draft, config=config)
    )
    for record in steps:
        run.write(record)
    return run


def test_batched_sequences_share_the_weights() -> None:
    """8 sequences, one token each: an eighth of the weights per token, each its own KV."""
    result = run_of(step(*[decode(i, cached=99) for i in range(8)])).result()
    assert result[WeightBytesPerToken] == TOKEN_WEIGHTS / 8
    assert result[KvBytesPerToken] == 100 * KV_TOKEN + KV_TOKEN
    assert result[BytesPerToken] == TOKEN_WEIGHTS / 8 + 101 * KV_TOKEN + 512


def test_prefill_is_part_of_what_a_token_costs() -> None:
    """A prefill whose token is the first, and one decode step: two passes over the weights for two tokens."""
    result = run_of(step(prefill(0, new=50, outputs=1, emitted=1)), step(decode(0, cached=50), n=1)).result()
    assert result[WeightBytesPerToken] == 2 * TOKEN_WEIGHTS / 2


def test_parts_sum_to_the_totals() -> None:
    result = run_of(step(verify(0, cached=20, drafted=3, accepted=1)), step(prefill(1, new=9), n=1)).result()
    by_part, flops_by_part = result[BytesByPart], result[FlopsByPart]
    assert by_part is not None
    assert flops_by_part is not None
    assert sum(by_part.values()) == pytest.approx(result[BytesPerToken])
    assert sum(flops_by_part.values()) == pytest.approx(result[FlopsPerToken])


def test_rejected_rows_cost_flops_but_no_weights() -> None:
    plain = run_of(step(decode(0, cached=20))).result()
    wasted = run_of(step(verify(0, cached=20, drafted=3, accepted=0))).result()
    assert plain[WeightBytesPerToken] == wasted[WeightBytesPerToken]
    flops, more = plain[FlopsPerToken], wasted[FlopsPerToken]
    assert flops is not None
    assert more is not None
    assert more > 3.9 * flops


def test_the_draft_model_is_one_part() -> None:
    draft = dense_model(layers=[attention(heads=2, kv_heads=1)] * 2, width=128, ffn=384)
    forwards = (DraftForward(((20, 1),), 1), DraftForward(((21, 1),), 1))
    speculating = step(verify(0, cached=20, drafted=2, accepted=1), draft=forwards)
    result = run_of(speculating, draft=draft, draft_path=draft.path).result()
    drafted = Ledger(draft).account_draft(forwards).total_bytes
    parts = result[BytesByPart]
    assert parts is not None
    assert parts["draft_model"] == drafted / 2
    assert drafted > 2 * draft.tensor_bytes
    without = run_of(step(verify(0, cached=20, drafted=2, accepted=1))).result()[BytesPerToken]
    assert without is not None
    assert result[BytesPerToken] == pytest.approx(without + drafted / 2)


def test_an_unknown_draft_model_leaves_the_cost_unknown() -> None:
    forwards = (DraftForward(((20, 1),), 1),)
    result = run_of(step(verify(0, cached=20, drafted=1, accepted=1), draft=forwards)).result()
    assert result[BytesPerToken] is None
    assert result[BytesByPart] is None
    assert result[TargetBandwidth] is not None


def test_without_a_model_the_cost_is_unknown() -> None:
    run = RunSummary()
    run.write(step(decode(0, cached=1)))
    assert run.result()[BytesPerToken] is None
    assert run.result()[FlopsByPart] is None
    assert run.result()[TargetFlopRate] is None


def test_without_tokens_the_cost_per_token_is_undefined() -> None:
    result = run_of(step(prefill(0, new=50))).result()
    assert result[BytesPerToken] is None
    assert result[BytesByPart] is None


def test_rates_are_over_the_forwards_that_ended() -> None:
    """20 ms of forward, beside an aborted one of 80 ms and 5 ms of sampling."""
    done = step(decode(0, cached=9), phases=Phases(decode=20 * MS, sample=5 * MS))
    aborted = step(prefill(1, new=500), phases=Phases(decode=80 * MS), aborted=True, n=1)
    account = Ledger(lab_target()).account(done)
    result = run_of(done, aborted).result()
    assert result[TargetBandwidth] == pytest.approx(account.total_bytes / 0.020)
    assert result[TargetFlopRate] == pytest.approx(account.flops.total / 0.020)
