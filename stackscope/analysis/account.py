"""What a forward cost, in named parts: exact bytes, expected bytes, modelled bytes and FLOPs, kept apart by type."""

from __future__ import annotations

from typing import Self

import msgspec


class Parts(msgspec.Struct, frozen=True):
    """Named quantities that add part by part."""

    def __add__(self, other: Self) -> Self:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return type(self)(*[a + b for a, b in pairs])

    def named(self) -> dict[str, int | float]:
        """The parts by name, in the order they are declared."""
        return msgspec.structs.asdict(self)


class ExactBytes(Parts, frozen=True):
    """Bytes that follow from tensor table, geometry and batch alone. Integers, without any estimate.

    A weight is read once per pass, an embedding row once per token, and each cached token of a sequence once per
    forward and layer (the *logical* read; how often a kernel really fetches it is a matter of timing, not of count).
    """

    attention_weights: int = 0
    """Projections around the attention of every block."""
    ffn_weights: int = 0
    """Dense feed-forward matrices and routers; shared experts are among them."""
    recurrent_weights: int = 0
    head_weights: int = 0
    """The output matrix, and only in passes that have outputs."""
    other_weights: int = 0
    """Norms and whatever has no role of its own. The last block's norms count in every pass, the one in front of the
    head only in passes that have outputs."""
    embedding_rows: int = 0
    """One row of the embedding matrix per token fed."""
    kv_read: int = 0
    kv_written: int = 0
    recurrent_state: int = 0
    """Recurrent state read and written back, per sequence and forward."""

    @property
    def weights(self) -> int:
        return (
            self.attention_weights + self.ffn_weights + self.recurrent_weights + self.head_weights + self.other_weights
        )

    @property
    def total(self) -> int:
        return self.weights + self.embedding_rows + self.kv_read + self.kv_written + self.recurrent_state


class ExpectedBytes(Parts, frozen=True):
    """Bytes that depend on what a router chose: the expectation over independent routing (equation 3, ρ = 1)."""

    expert_weights: float = 0.0

    @property
    def total(self) -> float:
        return self.expert_weights


class ModelledBytes(Parts, frozen=True):
    """Traffic between operations, which depends on fusion and caches. An estimate that never enters a total."""

    activations: int = 0
    logits: int = 0

    @property
    def total(self) -> int:
        return self.activations + self.logits


class Flops(Parts, frozen=True):
    """Multiplications and additions, each counted as one. Exact integers, whatever type the kernel computes in."""

    attention_projections: int = 0
    ffn: int = 0
    experts: int = 0
    """Every token uses the same number of experts, so this is exact although their bytes are not."""
    recurrent: int = 0
    head: int = 0
    other: int = 0
    attention_scores: int = 0
    """Queries against keys and weights against values, over the tokens that the causal mask and the window leave."""

    @property
    def total(self) -> int:
        return (
            self.attention_projections
            + self.ffn
            + self.experts
            + self.recurrent
            + self.head
            + self.other
            + self.attention_scores
        )


class Account(Parts, frozen=True):
    """What forwards cost. Accounts add: over steps, and target plus draft."""

    exact: ExactBytes = ExactBytes()
    expected: ExpectedBytes = ExpectedBytes()
    modelled: ModelledBytes = ModelledBytes()
    flops: Flops = Flops()

    @property
    def is_exact(self) -> bool:
        """No part of `total_bytes` is an expectation."""
        return self.expected.expert_weights == 0.0

    @property
    def weight_bytes(self) -> int | float:
        """Bytes of weights read; `int` when exact, `float` when experts make it an expectation."""
        return self.exact.weights if self.is_exact else self.exact.weights + self.expected.expert_weights

    @property
    def kv_bytes(self) -> int:
        """Bytes of attention KV read and written."""
        return self.exact.kv_read + self.exact.kv_written

    @property
    def total_bytes(self) -> int | float:
        """Bytes moved, the modelled ones left out; `int` when exact, `float` when an expectation is among them."""
        return self.exact.total if self.is_exact else self.exact.total + self.expected.total

    def named_bytes(self) -> dict[str, int | float]:
        """Every part of `total_bytes` by name. Expectations are named `_expected`, and left out when there are none."""
        parts = self.exact.named()
        if not self.is_exact:
            parts["expert_weights_expected"] = self.expected.expert_weights
        return parts


NOTHING = Account()
"""The cost of no forward at all."""
