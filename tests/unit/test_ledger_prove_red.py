"""Ledgers that are wrong in the ways others were, each of which the arithmetic on paper must catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.kv import key_bytes, value_bytes
from stackscope.analysis.ledger import AttentionGroup, Ledger, Work
from stackscope.records import StepRecord, Ubatch
from tests.analysis_builders import decode, lab_target, prefill, step, verify

if TYPE_CHECKING:
    from stackscope.analysis.account import Account, ExactBytes

STEP = step(
    prefill(0, new=300, cached=20, outputs=1),
    verify(1, cached=50, drafted=3, accepted=2),
    decode(2, cached=100),
    ubatches=(Ubatch(256, 0), Ubatch(49, 6)),
)

# By hand, from the geometry (see test_ledger.py): bytes and FLOPs of that step.
ATTENTION, FFN, HEAD = 196_608, 589_824, 1_048_576
PAPER = {
    "attention_weights": 2 * 6 * ATTENTION * 2,
    "ffn_weights": (5 + 6) * FFN * 2,
    "recurrent_weights": 0,
    "head_weights": HEAD * 2,
    "other_weights": 2 * 6 * 2048 + 1024,
    "embedding_rows": 305 * 512,
    "kv_read": 6 * (320 + 54 + 101) * 512,
    "kv_written": 6 * 305 * 512,
    "recurrent_state": 0,
}
PAPER_FLOPS = {
    "attention_projections": 2 * 305 * 6 * ATTENTION,
    "ffn": 2 * (305 * 5 + 6) * FFN,
    "experts": 0,
    "recurrent": 0,
    "head": 2 * 6 * HEAD,
    "other": 0,
    # 300 queries see 21 … 320 keys, 4 see 51 … 54, one sees 101.
    "attention_scores": 6 * 1024 * (300 * (21 + 320) // 2 + 51 + 52 + 53 + 54 + 101),
}


def disagreements(account: Account) -> list[str]:
    """Parts of an account that differ from the paper."""
    parts = account.exact.named() | {f"flops {k}": v for k, v in account.flops.named().items()}
    paper = PAPER | {f"flops {k}": v for k, v in PAPER_FLOPS.items()}
    return [name for name, value in parts.items() if value != paper[name]]


def test_the_ledger_agrees_with_the_paper() -> None:
    assert disagreements(Ledger(lab_target()).account(STEP)) == []


class WeightsPerToken(Ledger):
    """Weights multiplied by tokens."""

    def count(self, step: StepRecord) -> Work:
        work = super().count(step)
        return msgspec.structs.replace(work, passes=work.rows, output_passes=work.outputs)


class KvPerQueryHead(Ledger):
    """KV multiplied by query heads."""

    def __init__(self) -> None:
        super().__init__(lab_target())
        self.groups = tuple(msgspec.structs.replace(g, bytes_per_token=2 * g.bytes_per_token) for g in self.groups)


class EmbeddingStreamed(Ledger):
    """The embedding matrix read whole by every pass, besides being the head."""

    def _exact(self, work: Work) -> ExactBytes:
        exact = super()._exact(work)
        return msgspec.structs.replace(exact, embedding_rows=work.passes * 2 * HEAD)


class NotCausal(AttentionGroup, frozen=True):
    def count(self, spans: object) -> tuple[int, int]:
        tokens, _ = super().count(spans)  # type: ignore[arg-type]
        return tokens, sum(new * (cached + new) for cached, new in spans)  # type: ignore[attr-defined]


class NoCausalFactor(Ledger):
    """Every query against the whole context."""

    def __init__(self) -> None:
        super().__init__(lab_target())
        self.groups = tuple(NotCausal(g.window, g.is_chunked, g.bytes_per_token, g.flops_per_pair) for g in self.groups)


class NoUbatches(Ledger):
    """One pass whatever the library did."""

    def count(self, step: StepRecord) -> Work:
        return super().count(msgspec.structs.replace(step, ubatches=()))


class LogitsOfEveryRow(Ledger):
    """The head and the last feed-forward on every row."""

    def count(self, step: StepRecord) -> Work:
        work = super().count(step)
        return msgspec.structs.replace(work, outputs=work.rows)


class VerificationIsPrefill(Ledger):
    """Anything of more than one row taken for a prefill chunk, with logits of its last row only."""

    def count(self, step: StepRecord) -> Work:
        work = super().count(step)
        return msgspec.structs.replace(work, outputs=len(step.work))


class HalfByteWeights(Ledger):
    """Bytes from a label instead of the tensor table."""

    def __init__(self) -> None:
        super().__init__(lab_target())
        ffn = msgspec.structs.replace(self.weights.ffn, bytes=self.weights.ffn.elements // 2)
        self.weights = msgspec.structs.replace(self.weights, ffn=ffn)


@pytest.mark.parametrize(
    ("wrong", "caught"),
    [
        (WeightsPerToken(lab_target()), {"attention_weights", "ffn_weights", "head_weights", "other_weights"}),
        (KvPerQueryHead(), {"kv_read"}),
        (EmbeddingStreamed(lab_target()), {"embedding_rows"}),
        (NoCausalFactor(), {"flops attention_scores"}),
        (NoUbatches(lab_target()), {"attention_weights", "ffn_weights", "other_weights"}),
        (LogitsOfEveryRow(lab_target()), {"flops head", "flops ffn"}),
        (VerificationIsPrefill(lab_target()), {"flops head", "flops ffn"}),
        (HalfByteWeights(), {"ffn_weights"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_ledger_is_caught(wrong: Ledger, caught: set[str]) -> None:
    assert set(disagreements(wrong.account(STEP))) == caught


def test_windows_are_not_ignored() -> None:
    """A layer with a window of 4 at 9 cached tokens: 4 read, where a ledger without windows says 10."""
    windowed = msgspec.structs.replace(lab_target().layers[0], window=4)
    model = msgspec.structs.replace(lab_target(), layers=(windowed,) * 6)
    one_layer = key_bytes(windowed, "f16") + value_bytes(windowed, "f16")
    assert Ledger(model).account(step(decode(0, cached=9))).exact.kv_read == 6 * 4 * one_layer
    assert Ledger(lab_target()).account(step(decode(0, cached=9))).exact.kv_read == 6 * 10 * one_layer
