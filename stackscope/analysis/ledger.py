"""From what a step did to the bytes it moved and the FLOPs it executed (equations 1 to 8 of the cost model).

Work is counted first (passes, rows, tokens read, query–key pairs) and priced afterwards. Counts add over forwards and
prices are linear in counts, so a long run is counted step by step and priced once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.account import NOTHING, Account, ExactBytes, ExpectedBytes, Flops, ModelledBytes
from stackscope.analysis.kv import CHUNKED_WINDOWS, key_bytes, kv_bytes_per_token, value_bytes
from stackscope.analysis.weights import Weights
from stackscope.model.architectures import not_modelled
from stackscope.records import Ubatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stackscope.records import DraftForward, ModelSummary, StepRecord
    from stackscope.toggles import KvType

_F32: Final = 4

_ACTIVATION_ROWS_MODEL: Final = 28
"""Rows of the model's width that one token moves per block: norms 4 + 4, inputs of the five projections 5, their
results 4, rotary 2, attention in and out 2, down-projection result 1, residual sums 3 + 3."""
_ACTIVATION_ROWS_FFN: Final = 6
"""The same of the feed-forward's width: gate and up written 2 and read 2, their product written 1 and read 1."""


class Work(msgspec.Struct, frozen=True):
    """What forwards did, counted. Additive; the tuples follow the attention groups of the ledger that counted."""

    passes: int = 0
    """Passes over the weights (ubatches)."""
    output_passes: int = 0
    """Those with at least one output row."""
    rows: int = 0
    outputs: int = 0
    sequences: int = 0
    """Sequences, summed over forwards."""
    tokens_read: tuple[int, ...] = ()
    """Cached tokens read, per attention group: those in the cache before the forward and its own."""
    pairs: tuple[int, ...] = ()
    """Query–key pairs that mask and window leave, per attention group."""
    experts: float = 0.0
    """Expected distinct experts per block, summed over passes."""
    output_experts: float = 0.0
    """The same of the last block, where only output rows are routed."""


NO_WORK: Final = Work()


class WorkSum:
    """Work of many forwards, counted by one ledger and added up in place: half the time of adding values."""

    def __init__(self) -> None:
        self._passes = self._output_passes = self._rows = self._outputs = self._sequences = 0
        self._tokens_read: list[int] = []
        self._pairs: list[int] = []
        self._experts = self._output_experts = 0.0

    def add(self, work: Work) -> None:
        """Take the work of one more forward."""
        self._passes += work.passes
        self._output_passes += work.output_passes
        self._rows += work.rows
        self._outputs += work.outputs
        self._sequences += work.sequences
        self._experts += work.experts
        self._output_experts += work.output_experts
        if not self._pairs:
            self._tokens_read, self._pairs = [0] * len(work.pairs), [0] * len(work.pairs)
        for group, pairs in enumerate(work.pairs):
            self._tokens_read[group] += work.tokens_read[group]
            self._pairs[group] += pairs

    @property
    def total(self) -> Work:
        return Work(
            self._passes,
            self._output_passes,
            self._rows,
            self._outputs,
            self._sequences,
            tuple(self._tokens_read),
            tuple(self._pairs),
            self._experts,
            self._output_experts,
        )


class AttentionGroup(msgspec.Struct, frozen=True):
    """Layers that see the same window, taken together."""

    window: int | None
    """Tokens. `None`: full attention."""
    is_chunked: bool
    """The window is a fixed chunk of the positions and does not slide."""
    bytes_per_token: int
    """KV bytes of one cached token over these layers."""
    flops_per_pair: int
    """FLOPs of one query–key pair over these layers and their heads: score and weighted value."""

    def count(self, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """(cached tokens read, query–key pairs) of sequences given as (cached, new) tokens (equations 4 and 8)."""
        tokens = pairs = 0
        window = self.window
        if window is None:
            for cached, new in spans:
                tokens += cached + new
                pairs += new * cached + new * (new + 1) // 2
        elif self.is_chunked:
            for cached, new in spans:
                tokens += cached + new - cached // window * window
                pairs += _chunked_sum(cached + new, window) - _chunked_sum(cached, window)
        else:
            for cached, new in spans:
                if cached >= window:
                    tokens += window + new - 1
                    pairs += new * window
                else:
                    growing = min(window - cached, new)
                    tokens += cached + new
                    pairs += growing * cached + growing * (growing + 1) // 2 + (new - growing) * window
        return tokens, pairs


def _chunked_sum(positions: int, window: int) -> int:
    """Query–key pairs of the first `positions` positions when attention starts anew with each chunk."""
    chunks, rest = divmod(positions, window)
    return chunks * window * (window + 1) // 2 + rest * (rest + 1) // 2


class Ledger:
    """Prices the work of one model with one pair of KV cache types. Immutable once made; an epoch has one."""

    def __init__(self, model: ModelSummary, kv_type_k: KvType = "f16", kv_type_v: KvType = "f16") -> None:
        """Raises `ValueError` for KV types that do not divide the model's rows into blocks."""
        self.model = model
        self.not_modelled = not_modelled(model.architecture)
        """What of this architecture the counts leave out, in words; empty for nearly all."""
        self.weights = Weights.of(model)
        self.groups = _attention_groups(model, kv_type_k, kv_type_v)
        self.kv_bytes_per_token = kv_bytes_per_token(model, kv_type_k, kv_type_v)
        self.recurrent_bytes_per_sequence = 2 * _F32 * sum(layer.recurrent_state for layer in model.layers)
        """State read and written back, per sequence and forward (equation 5)."""
        self.is_sparse = model.experts > 0 and self.weights.expert.bytes + self.weights.output_expert.bytes > 0
        """Some weights are those of experts, so that part of the work is an expectation and no integer."""
        self._distinct: dict[int, float] = {}

    def account(self, step: StepRecord) -> Account:
        """What the target's forward of a step cost.

        A step that was aborted is priced as planned; how much of it ran is not known, so leave it out of totals.
        """
        return self.price(self.count(step))

    def account_draft(self, forwards: Iterable[DraftForward]) -> Account:
        """What forwards of a draft model cost; this ledger is then the draft model's.

        Each is taken for one pass over the weights. With split KV the library may need more, which is not recorded: the
        weights are then a lower bound.
        """
        return self.price(self.count_draft(forwards))

    def count(self, step: StepRecord) -> Work:
        """The work of the target's forward of a step."""
        return self.count_steps((step,))

    def count_steps(self, steps: Iterable[StepRecord]) -> Work:
        """The work of the target's forwards of many steps, in a third of the time that they take one by one."""
        spans: list[tuple[int, int]] = []
        passes: list[Ubatch] = []
        rows = outputs = 0
        for step in steps:
            if not step.work:
                continue
            n_rows = n_outputs = 0
            for slot in step.work:
                new = slot.new
                spans.append((slot.cached, new))
                n_rows += new
                n_outputs += slot.outputs
            rows += n_rows
            outputs += n_outputs
            passes += step.ubatches or (Ubatch(n_rows, n_outputs),)
        return self.count_spans(spans, rows, outputs, passes) if passes else NO_WORK

    def count_draft(self, forwards: Iterable[DraftForward]) -> Work:
        """The work of forwards of a draft model."""
        spans: list[tuple[int, int]] = []
        passes: list[Ubatch] = []
        rows = outputs = 0
        for forward in forwards:
            if forward.spans:
                n_rows = sum([new for _, new in forward.spans])
                spans += forward.spans
                passes += forward.ubatches or (Ubatch(n_rows, forward.outputs),)
                rows += n_rows
                outputs += forward.outputs
        return self.count_spans(spans, rows, outputs, passes) if passes else NO_WORK

    def count_spans(self, spans: Sequence[tuple[int, int]], rows: int, outputs: int, passes: Iterable[Ubatch]) -> Work:
        """The work of forwards taken together: (cached, new) tokens of every sequence in each, their rows and outputs
        summed, and all their passes."""
        n_passes = output_passes = 0
        experts = output_experts = 0.0
        for one in passes:
            n_passes += 1
            output_passes += one.outputs > 0
            if self.is_sparse:
                experts += self.distinct_experts(one.rows)
                output_experts += self.distinct_experts(one.outputs)
        counts = [group.count(spans) for group in self.groups]
        tokens_read = tuple([tokens for tokens, _ in counts])
        pairs = tuple([pairs for _, pairs in counts])
        return Work(n_passes, output_passes, rows, outputs, len(spans), tokens_read, pairs, experts, output_experts)

    def distinct_experts(self, tokens: int) -> float:
        """Expected distinct experts of a block that `tokens` tokens wake (equation 3, independent routing)."""
        known = self._distinct.get(tokens)
        if known is None:
            n, used = self.model.experts, self.model.experts_used
            known = n * (1.0 - (1.0 - used / n) ** tokens) if n > 0 else 0.0
            self._distinct[tokens] = known
        return known

    def price(self, work: Work) -> Account:
        """Bytes and FLOPs of counted work, exact wherever the types say so."""
        if work.passes == 0:
            return NOTHING
        return Account(self._exact(work), self._expected(work), self._modelled(work), self._flops(work))

    def _exact(self, work: Work) -> ExactBytes:
        w = self.weights
        kv_read = 0
        for group, tokens in zip(self.groups, work.tokens_read, strict=True):
            kv_read += group.bytes_per_token * tokens
        return ExactBytes(
            work.passes * w.attention.bytes,
            work.passes * w.ffn.bytes + work.output_passes * w.output_ffn.bytes,
            work.passes * w.recurrent.bytes,
            work.output_passes * w.head.bytes,
            work.passes * w.other.bytes + work.output_passes * w.output_other.bytes,
            work.rows * w.embedding_row,
            kv_read,
            work.rows * self.kv_bytes_per_token,
            work.sequences * self.recurrent_bytes_per_sequence,
        )

    def _expected(self, work: Work) -> ExpectedBytes:
        if not self.is_sparse:
            return _NONE_EXPECTED
        w = self.weights
        total = work.experts * w.expert.bytes + work.output_experts * w.output_expert.bytes
        return ExpectedBytes(total / self.model.experts)

    def _modelled(self, work: Work) -> ModelledBytes:
        blocks = len(self.model.layers) * self.model.embedding * _ACTIVATION_ROWS_MODEL
        per_row = (blocks + self.weights.ffn_width * _ACTIVATION_ROWS_FFN) * _F32
        return ModelledBytes(work.rows * per_row, work.outputs * self.model.vocabulary * _F32)

    def _flops(self, work: Work) -> Flops:
        w, rows, outputs = self.weights, work.rows, work.outputs
        scores = 0
        for group, pairs in zip(self.groups, work.pairs, strict=True):
            scores += group.flops_per_pair * pairs
        experts = 0
        if self.is_sparse:
            routed = rows * w.expert.elements + outputs * w.output_expert.elements
            experts = 2 * routed * self.model.experts_used // self.model.experts
        return Flops(
            2 * rows * w.attention.elements,
            2 * (rows * w.ffn.elements + outputs * w.output_ffn.elements),
            experts,
            2 * rows * w.recurrent.elements,
            2 * outputs * w.head.elements,
            2 * rows * w.other.elements,
            scores,
        )


_NONE_EXPECTED: Final = ExpectedBytes()


def _attention_groups(model: ModelSummary, kv_type_k: KvType, kv_type_v: KvType) -> tuple[AttentionGroup, ...]:
    """The layers with attention, grouped by window. A layer that shares another's KV still reads it."""
    sums: dict[int | None, tuple[int, int]] = {}
    for layer in model.layers:
        if layer.kv_heads == 0:
            continue
        size, flops = sums.get(layer.window, (0, 0))
        sums[layer.window] = (
            size + key_bytes(layer, kv_type_k) + value_bytes(layer, kv_type_v),
            flops + 2 * layer.heads * (layer.key_length + layer.value_length),
        )
    is_chunked = model.architecture in CHUNKED_WINDOWS
    return tuple(
        AttentionGroup(window, is_chunked and window is not None, size, flops) for window, (size, flops) in sums.items()
    )
