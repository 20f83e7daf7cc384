"""Ten accountings that are wrong in the ways others were. The checks must catch each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.validate.checks import Accounting
from benchmarks.validate.score_tau import cut
from stackscope.analysis.ledger import AttentionGroup, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.validate.checks import Following
    from stackscope.analysis.account import ExactBytes
    from stackscope.analysis.ledger import Work
    from stackscope.records import ModelSummary, Ubatch
    from stackscope.toggles import KvType

GIB: Final = 2**40 / 1e12
"""A terabyte taken for 2⁴⁰ bytes."""


class WeightsPerToken(Ledger):
    """Weights multiplied by tokens, as one observability mixin has it."""

    def count_spans(self, spans: Sequence[tuple[int, int]], rows: int, outputs: int, passes: Iterable[Ubatch]) -> Work:
        work = super().count_spans(spans, rows, outputs, passes)
        return msgspec.structs.replace(work, passes=rows, output_passes=outputs)


class KvPerQueryHead(Ledger):
    """KV multiplied by query heads, which forgets that they share it."""

    def __init__(self, model: ModelSummary, kv_type_k: KvType = "f16", kv_type_v: KvType = "f16") -> None:
        super().__init__(model, kv_type_k, kv_type_v)
        layer = next(layer for layer in model.layers if layer.kv_heads > 0)
        shared = layer.heads // layer.kv_heads
        self.groups = tuple(
            msgspec.structs.replace(group, bytes_per_token=shared * group.bytes_per_token) for group in self.groups
        )


class EmbeddingStreamed(Ledger):
    """The embedding matrix read whole in every pass, beside the head."""

    def _exact(self, work: Work) -> ExactBytes:
        table = sum(tensor.bytes for tensor in self.model.tensors if tensor.role == "embedding")
        return msgspec.structs.replace(super()._exact(work), embedding_rows=work.passes * table)


class _WholeContext(AttentionGroup, frozen=True):
    def count(self, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
        tokens, _ = super().count(spans)
        return tokens, sum(new * (cached + new) for cached, new in spans)


class NoCausalFactor(Ledger):
    """Every query of a prompt against the whole of it."""

    def __init__(self, model: ModelSummary, kv_type_k: KvType = "f16", kv_type_v: KvType = "f16") -> None:
        super().__init__(model, kv_type_k, kv_type_v)
        self.groups = tuple(
            _WholeContext(g.window, g.is_chunked, g.bytes_per_token, g.flops_per_pair) for g in self.groups
        )


class NoUbatches(Ledger):
    """One pass over the weights, whatever the library did."""

    def count_spans(self, spans: Sequence[tuple[int, int]], rows: int, outputs: int, passes: Iterable[Ubatch]) -> Work:
        work = super().count_spans(spans, rows, outputs, passes)
        return msgspec.structs.replace(work, passes=min(work.passes, 1), output_passes=min(work.output_passes, 1))


def _static(seen: Following, length: int) -> float | None:
    """Survival by place in longer drafts, cut: the rounds of a shorter draft begin elsewhere."""
    longest = max(seen.by_length)
    return cut(seen.by_length[longest], length) if length < longest else None


MUTANTS: Final = (
    Accounting("weights per token", ledger=WeightsPerToken),
    Accounting("KV per query head", ledger=KvPerQueryHead),
    Accounting("embedding streamed", ledger=EmbeddingStreamed),
    Accounting("sparse peak", peak=lambda row: None if row.bf16_tflops is None else 2 * row.bf16_tflops * 1e12),
    Accounting("GiB for GB", bandwidth=lambda text: Accounting().bandwidth(text) * GIB),
    Accounting("static survival", tau=_static),
    Accounting("no causal factor", ledger=NoCausalFactor),
    Accounting("no ubatches", ledger=NoUbatches),
    Accounting("bonus counted as accepted", accepted=lambda work: work.accepted + 1),
    Accounting("recompute counted as hit", hits=lambda cache: cache.hit_tokens),
)
