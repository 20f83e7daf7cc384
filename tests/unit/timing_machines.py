"""Machines that nobody built: their time for a forward is a formula, so that what a fit says can be held against it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.records import Phases, SlotWork, StepRecord, Ubatch
from stackscope.records.ceilings import Ceilings, ForwardTime, OtherCache, TypeRate
from stackscope.toggles import EngineConfig
from tests.unit.ceilings_builders import about, ceilings, conditions
from tests.unit.record_builders import make_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.records import DraftForward, ModelSummary
    from stackscope.records.ceilings import CacheKind

MEASURED_ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 512)
MEASURED_DEPTHS = (0, 512, 1024, 1536, 2048)

CONFIG = EngineConfig(model="/models/synthetic.gguf", threads=2)


@dataclass(frozen=True)
class Machine:
    """Reads so many bytes per second, and multiplies four rows together at one rate and single rows at another."""

    model: ModelSummary = field(default_factory=make_model)
    bytes_per_s: float = 12e9
    block_flops: float = 60e9
    """With whole blocks of four rows, beyond the reading."""
    single_flops: float = 25e9
    """With each row that is left over."""
    pair_flops: float = 15e9
    scanned_per_s: float = 2e9
    """Cells × query heads that are passed over."""
    fixed_ns: float = 90_000.0
    """Of each forward."""
    sample_ns: float = 4_000.0
    """Of each output row."""
    host_ns: tuple[float, float] = (70_000.0, 9_000.0)
    """Of each step, and of each sequence."""
    is_blocked: bool = True
    alone: float = 0.0
    """What one row takes longer than reading, as a share of it."""
    shares_rows: bool = True
    """Threads share the cells of a single row; else they take its heads."""

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.model)

    @property
    def pricing(self) -> Pricing:
        return Pricing(self.ledger, None, 2)

    def _product_ns(self, n_bytes: float, elements: float, rows: int) -> float:
        """Reading once, and multiplying: the first row is hidden behind the reading."""
        if rows == 0:
            return 0.0
        blocks, left = divmod(rows, 4)
        if not self.is_blocked:
            blocks, left = 0, 0
        elif blocks == 0:
            left -= 1
        flops = 2.0 * elements
        extra = 4 * blocks * flops / self.block_flops + left * flops / self.single_flops
        if not self.is_blocked:
            extra = (rows - 1) * flops / self.block_flops
        if rows == 1:
            extra += self.alone * n_bytes / self.bytes_per_s
        return 1e9 * (n_bytes / self.bytes_per_s + extra)

    def pass_ns(self, one: Ubatch) -> float:
        """All matrices, once."""
        w = self.ledger.weights
        early, late = w.attention + w.ffn + w.other, w.output_ffn + w.output_other
        return (
            self._product_ns(early.bytes, early.elements, one.rows)
            + self._product_ns(late.bytes, late.elements, one.outputs)
            + self._product_ns(w.head.bytes, w.head.elements, one.outputs)
        )

    def attention_ns(self, spans: Sequence[tuple[int, int]], cells: int) -> float:
        """Every pair that the mask leaves, and every cell of the padded span, whosever it is.

        In tiles of 64 rows, all of a tile's rows attend to the cells of all its sequences, and the mask undoes that.
        """
        total = 0.0
        owners = [index for index, (_, new) in enumerate(spans) for _ in range(new)]
        tiles = [owners[first : first + 64] for first in range(0, len(owners), 64)] if len(owners) >= 64 else []
        strangers = sum(sum(spans[other]) for tile in tiles for own in tile for other in set(tile) - {own})
        heads = sum(layer.heads for layer in self.model.layers)
        span = -(-max(cells, max(cached + new for cached, new in spans)) // 256) * 256
        is_split = self.shares_rows and spans[0][1] == 1 and len(spans) == 1 and span >= 512
        for group in self.ledger.groups:
            pairs = group.count(spans)[1]
            if is_split:  # Two threads have half of the span each, and end together.
                used = max(cells, spans[0][0] + 1)
                early = max(0, span // 2 - (used - pairs))
                pairs = 2 * max(early, pairs - early)
            total += group.flops_per_pair * (pairs + strangers) / self.pair_flops
        return 1e9 * (total + heads * (span * sum(new for _, new in spans) - strangers) / self.scanned_per_s)

    def forward_ns(self, spans: Sequence[tuple[int, int]], passes: Sequence[Ubatch], cells: int = 0) -> float:
        cells = cells or sum(cached + new for cached, new in spans)
        return self.fixed_ns + sum(self.pass_ns(one) for one in passes) + self.attention_ns(spans, cells)

    def rows_ns(self, rows: int, cached: int = 0) -> float:
        """A forward of so many rows, each an output, of one sequence."""
        return self.forward_ns(((cached, rows),), (Ubatch(rows, rows),))

    def calibrated(self, noise: float = 0.0, seed: int = 0) -> Ceilings:
        """What a calibration of this machine finds."""
        draw = random.Random(seed)

        def measured(rows: int, sequences: int, outputs: int, cached: int = 0) -> ForwardTime:
            spans = ((cached, rows // sequences),) * sequences
            ns = self.forward_ns(spans, (Ubatch(rows, outputs),)) * draw.lognormvariate(0.0, noise)
            return ForwardTime(
                rows=rows, sequences=sequences, outputs=outputs, cached=cached, ns=about(ns, max(0.01, 3 * noise))
            )

        rates = TypeRate(
            type="F16", place="memory", vector_bytes_per_s=about(self.bytes_per_s),
            vector_flops_per_s=about(self.single_flops), matrix_flops_per_s=about(self.block_flops), matrix_rows=512,
        )  # fmt: skip
        return ceilings(
            conditions=conditions(model="synthetic.gguf"),
            types=(rates,), cache_bytes=1 << 20, fits_cache=False, fixed_ns=self.fixed_ns, draft=None,
            draft_forwards=(),
            forwards=tuple(
                measured(rows, 1 if rows > 64 else rows, 1 if rows > 64 else rows) for rows in MEASURED_ROWS
            ),
            contexts=tuple(measured(1, 1, 1, cached) for cached in MEASURED_DEPTHS),
        )  # fmt: skip

    def with_cache(self, ceilings: Ceilings, kind: CacheKind) -> Ceilings:
        """Ceilings to which forwards of this machine were added, as those with another kind of cache."""
        shapes = [(rows, rows if rows < 64 else 1, cached) for cached in (0, 256, 512, 2048) for rows in (1, 4, 64)]
        times = tuple(
            ForwardTime(
                rows=rows, sequences=1, outputs=outputs, cached=cached,
                ns=about(self.forward_ns(((cached, rows),), (Ubatch(rows, outputs),)), 0.01),
            )
            for rows, outputs, cached in shapes
        )  # fmt: skip
        other = OtherCache(kind=kind, contexts=times)
        return msgspec.structs.replace(ceilings, other_caches=(*ceilings.other_caches, other))

    def draft_ns(self, forwards: Sequence[DraftForward]) -> float:
        """This machine has no draft model."""
        assert not forwards
        return 0.0

    def step(
        self, n: int, spans: Sequence[tuple[int, int]], outputs: Sequence[int], *, cells: int = 0,
        passes: tuple[Ubatch, ...] = (), noise: float = 1.0, share: float = 0.99,
    ) -> StepRecord:  # fmt: skip
        """A step of these (cached, new) sequences with so many outputs each; the forward is `noise` times as long."""
        work = tuple(
            SlotWork(
                request=slot, slot=slot, phase="decode" if new <= 8 else "prefill", new=new, cached=cached,
                outputs=o, emitted=o, drafted=new - 1 if 1 < new <= 8 and o == new else 0,
            )
            for slot, ((cached, new), o) in enumerate(zip(spans, outputs, strict=True))
        )  # fmt: skip
        one = Ubatch(sum(new for _, new in spans), sum(outputs))
        cells = cells or sum(cached + new for cached, new in spans)
        decode = round(self.forward_ns(spans, passes or (one,), cells) * noise)
        host = self.host_ns[0] + self.host_ns[1] * len(spans)
        phases = Phases(decode=decode, sample=round(self.sample_ns * one.outputs), other=round(host))
        return StepRecord(
            n=n, start_ns=n * 10_000_000, phases=phases, work=work, ubatches=passes, slots_busy=len(work), slots=8,
            kv_cells=cells, cpu_ns=round(2 * share * decode),
        )  # fmt: skip

    def traffic(
        self, n: int, *, seed: int = 0, noise: float = 0.03, passes: int = 1, idle: int = 1500, deepest: int = 1800
    ) -> list[StepRecord]:
        """Decodes of one to eight sequences, verifications, and now and then a chunk of a prompt beside them."""
        draw = random.Random(seed)
        steps: list[StepRecord] = []
        for index in range(n):
            spans = [(draw.randint(20, deepest), draw.choice((1, 1, 1, 4))) for _ in range(draw.randint(1, 8))]
            outputs = [new for _, new in spans]
            if draw.random() < 0.25:
                spans.append((draw.choice((0, 128, 256)), draw.choice((16, 33, 64, 128, 230))))
                outputs.append(draw.choice((0, 1)))
            own = sum(cached + new for cached, new in spans)
            cells = own + (draw.randint(0, idle) if idle else 0)
            cut = self._cut(sum(new for _, new in spans), sum(outputs), draw.randint(1, passes))
            steps.append(
                self.step(index, spans, outputs, cells=cells, passes=cut, noise=draw.lognormvariate(0.0, noise))
            )
        return steps

    def _cut(self, rows: int, outputs: int, n: int) -> tuple[Ubatch, ...]:
        """A forward in up to `n` passes of about the same size; the first have the outputs."""
        n = min(n, rows)
        made: list[Ubatch] = []
        for index in range(n):
            part = rows // n + (index < rows % n)
            has = min(part, outputs)
            outputs -= has
            made.append(Ubatch(part, has))
        return tuple(made)


def quantised(machine: Machine, kind: str = "Q4_0", share: float = 0.28125) -> Machine:
    """The same model with its blocks' matrices in another type, and the head as it was."""
    tensors = tuple(
        msgspec.structs.replace(tensor, type=kind, bytes=int(tensor.bytes * share))
        if tensor.layer is not None
        else tensor
        for tensor in machine.model.tensors
    )
    model = msgspec.structs.replace(machine.model, tensors=tensors, path=f"/models/synthetic-{kind}.gguf")
    return replace(machine, model=model)
