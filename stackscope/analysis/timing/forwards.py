"""What a forward does, as the columns of a linear model of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackscope.analysis.timing.curves import INCREMENTS, Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.ledger import Ledger
    from stackscope.analysis.timing.curves import Floats
    from stackscope.records import Ubatch
    from stackscope.records.ceilings import Place
    from stackscope.toggles import EngineConfig

PAD: Final = 256
"""Cells to a multiple of which the span of a KV cache is rounded (`llama_kv_cache::get_n_kv`)."""

SPLIT_SPAN: Final = 512
"""From here on ggml splits the attention of a single row over its threads (`ggml-cpu/ops.cpp`)."""

TILE_ROWS: Final = 64
"""From here on ggml's attention on a CPU works in tiles of queries and cells, masked ones included; where it is not
fused, its matrix products do."""

FAR: Final = (1024, 4096)
"""Cached tokens from which on each may cost more than those before: keys and values leave the caches, and every query
head reads them again. That is the φ of the cost model's equation 4, which grows with the context."""

_MEGA: Final = 1e6

REGIMES: Final = ("row", "split", "tile")
PARAMETERS: Final = (
    "weights", "fixed.forward", "fixed.pass",
    *(f"body.{name}" for name in INCREMENTS),
    "head.1",
    *(f"head.{name}" for name in INCREMENTS),
    *(f"pair.{regime}" for regime in REGIMES),
    *(f"far.{tokens}" for tokens in FAR),
    *(f"scan.{regime}" for regime in REGIMES),
    "read", "state",
)  # fmt: skip
"""`weights`, `head.1`, `fixed.*` and the increments are nanoseconds each time; `pair.*` and `far.*` per million FLOPs
of query–key pairs, `scan.*` per million cells × rows × query heads, `read` and `state` per million bytes."""

WEIGHTS: Final = PARAMETERS.index("weights")


class Columns(NamedTuple):
    """Columns of a design matrix: which parameter each belongs to, and the term that it is shown under."""

    parameters: tuple[str, ...]
    parameter: tuple[int, ...]
    terms: tuple[str, ...]


def _columns() -> Columns:
    owners: list[int] = []
    terms: list[str] = []
    for index, name in enumerate(PARAMETERS):
        kind = name.partition(".")[0]
        own = {
            "weights": ("weights", "compute"), "fixed": ("fixed",), "body": ("compute",), "head": ("head",),
            "pair": ("attention",), "far": ("attention",), "scan": ("attention", "resident"), "read": ("attention",),
            "state": ("attention",),
        }[kind]  # fmt: skip
        if name == "body.alone":  # What reading takes with the kernel of one row.
            own = ("weights",)
        owners += [index] * len(own)
        terms += own
    return Columns(PARAMETERS, tuple(owners), tuple(terms))


COLUMNS: Final = _columns()
N_COLUMNS: Final = len(COLUMNS.terms)
_AT: Final = {name: COLUMNS.parameter.index(index) for index, name in enumerate(PARAMETERS)}
_BODY: Final = slice(_AT[f"body.{INCREMENTS[0]}"], _AT[f"body.{INCREMENTS[-1]}"] + 1)
_HEAD: Final = slice(_AT[f"head.{INCREMENTS[0]}"], _AT[f"head.{INCREMENTS[-1]}"] + 1)


class ForwardDesign:
    """Turns forwards of one model under one configuration into rows of the design matrix. Holds no measurement."""

    def __init__(self, ledger: Ledger, config: EngineConfig, *, is_gpu: bool) -> None:
        self.ledger = ledger
        self.is_gpu = is_gpu
        self.curve = Curve(is_blocked=not is_gpu)
        self._is_unified = config.unified_kv
        self._is_full = config.swa_full
        self._threads = config.threads or 1
        plain = ("f16", "f32")
        is_plain = config.kv_type_k == config.kv_type_v and config.kv_type_k in plain
        self._has_tiles = not is_gpu and (is_plain or not config.flash_attention)
        self._has_split = self._has_tiles and config.flash_attention
        w = ledger.weights
        late = w.output_ffn + w.output_other
        body = w.attention + w.ffn + w.recurrent + w.other + late
        self.body_bytes = body.bytes + self._expert_bytes(1, 1)
        self.late_bytes = late.bytes / max(1, self.body_bytes)
        """Share of the body that is read only when there are outputs."""
        model = ledger.model
        routed = w.expert.elements + w.output_expert.elements
        self.body_elements = body.elements + (routed * model.experts_used // model.experts if model.experts else 0)
        self.late_elements = late.elements / max(1, self.body_elements)
        """Share of the body's elements that only output rows are multiplied by."""
        self.heads = _heads(ledger)

    def _expert_bytes(self, rows: int, outputs: int) -> float:
        """Expected bytes of the experts that a pass wakes (equation 3)."""
        ledger, w = self.ledger, self.ledger.weights
        if not ledger.is_sparse:
            return 0.0
        total = (
            ledger.distinct_experts(rows) * w.expert.bytes + ledger.distinct_experts(outputs) * w.output_expert.bytes
        )
        return total / ledger.model.experts

    def place(self, cache_bytes: int | None) -> Place | None:
        """Where a forward of one row reads the weights from. `None`: not known, or it makes no difference."""
        if cache_bytes is None or self.is_gpu:
            return None
        return "cache" if self.body_bytes + self.ledger.weights.head.bytes <= cache_bytes else "memory"

    def row(self, spans: Sequence[tuple[int, int]], passes: Sequence[Ubatch], cells: int = 0) -> Floats:
        """The columns of one forward. `cells`: occupied cells of the cache; 0 when only its own sequences are there."""
        made = np.zeros(N_COLUMNS)
        if not spans or not passes:
            return made
        made[_AT["fixed.forward"]] = 1.0
        made[_AT["fixed.pass"]] = len(passes)
        for one in passes:
            self._add_pass(made, one)
        self._add_attention(made, spans, max(1, sum([p.rows for p in passes]) // len(passes)), cells)
        made[_AT["state"]] = len(spans) * self.ledger.recurrent_bytes_per_sequence / _MEGA
        return made

    def _add_pass(self, made: Floats, one: Ubatch) -> None:
        late, at = self.late_elements, _AT["weights"]
        has_outputs = one.outputs > 0
        made[at] += 1.0 - (0.0 if has_outputs else self.late_bytes)
        if self.ledger.is_sparse:
            first = self._expert_bytes(1, 1 if has_outputs else 0)
            made[at + 1] += max(0.0, self._expert_bytes(one.rows, one.outputs) - first) / max(1, self.body_bytes)
        made[_BODY] += (1.0 - late) * self.curve.columns(one.rows)
        if has_outputs:
            made[_BODY] += late * self.curve.columns(one.outputs)
            made[_AT["head.1"]] += 1.0
            made[_HEAD] += self.curve.columns(one.outputs)

    def _add_attention(self, made: Floats, spans: Sequence[tuple[int, int]], rows: int, cells: int) -> None:
        occupied = cells or sum([cached + new for cached, new in spans])
        longest = max([cached + new for cached, new in spans])
        regime = self._regime(rows, occupied if self._is_unified else longest)
        for group, heads in zip(self.ledger.groups, self.heads, strict=True):
            tokens, pairs = group.count(spans)
            flops = group.flops_per_pair / _MEGA
            made[_AT["read"]] += group.bytes_per_token * tokens / _MEGA if self.is_gpu else 0.0
            if regime != "tile":
                for tokens_far in FAR:
                    if longest > tokens_far:
                        made[_AT[f"far.{tokens_far}"]] += flops * _beyond(spans, tokens_far, group.window)
            own, foreign = self._scanned(spans, occupied, longest, group.window)
            near = 0
            if regime == "split":  # The first cells count as those of the other kernel, so that there is no jump.
                if self._is_full or group.window is None:
                    pairs = self._slowest(pairs, occupied if self._is_unified else longest)
                near = min(PAD, pairs)
                made[_AT["pair.row"]] += flops * near
                made[_AT["scan.row"]] += heads * min(PAD, own) / _MEGA
                own = max(0.0, own - PAD)
            if regime == "tile" and self._is_unified and len(spans) > 1:
                strangers = min(int(foreign), _strangers(spans, occupied, None if self._is_full else group.window))
                pairs, foreign = pairs + strangers, foreign - strangers
            made[_AT[f"pair.{regime}"]] += flops * (pairs - near)
            scan = _AT[f"scan.{regime}"]
            made[scan] += heads * own / _MEGA
            made[scan + 1] += heads * foreign / _MEGA

    def _regime(self, rows: int, span: int) -> str:
        """Which of ggml's kernels attends. A GPU has one for all, as far as this model goes."""
        if self._has_tiles and rows >= TILE_ROWS:
            return "tile"
        is_split = self._has_split and rows == 1 and -(-span // PAD) * PAD >= SPLIT_SPAN
        return "split" if is_split else "row"

    def _slowest(self, attended: int, end: int) -> int:
        """Cells that one row attends to, as if every thread had as many as the one with most.

        Each thread takes its part of the whole span. The cells of a window are all at its end: of two threads one
        waits. A sequence's newest cells are taken to be the last that are occupied.
        """
        part = -(-(-(-end // PAD) * PAD) // self._threads)
        begin = end - attended
        shares = [min(end, start + part) - max(begin, start) for start in range(0, end, part)]
        return self._threads * max(shares)

    def _scanned(
        self, spans: Sequence[tuple[int, int]], occupied: int, longest: int, window: int | None
    ) -> tuple[float, float]:
        """Cells that rows go through, masked ones included: of their own sequence with padding, and of others.

        A unified cache is one span for all; split KV has one for each sequence, as long as the longest.
        """
        is_cut = window is not None and not self._is_full
        limit = window if is_cut and window is not None else None
        if limit is not None:
            occupied = min(occupied, sum([min(cached, limit) + new for cached, new in spans]))
            longest = max([min(cached, limit) + new for cached, new in spans])
        span = max(longest, occupied if self._is_unified else 0)
        padding = -(-span // PAD) * PAD - span
        own = foreign = 0.0
        for cached, new in spans:
            cells = (cached if limit is None else min(cached, limit)) + new
            own += new * (cells + padding)
            foreign += new * (span - cells)
        return own, foreign


def _heads(ledger: Ledger) -> tuple[int, ...]:
    """Query heads, summed over the layers of each attention group."""
    sums: dict[int | None, int] = {}
    for layer in ledger.model.layers:
        if layer.kv_heads > 0:
            sums[layer.window] = sums.get(layer.window, 0) + layer.heads
    return tuple(sums[group.window] for group in ledger.groups)


def _strangers(spans: Sequence[tuple[int, int]], occupied: int, limit: int | None) -> int:
    """Pairs of a row and a cell of another sequence that are computed and then masked.

    A tile goes through the cells of every sequence that has a row in it, with all of its rows; tiles of cells that all
    of its rows mask are passed over. Of cells that sequences share there is one: they have no more than are `occupied`.
    `limit`: cells that a sequence keeps of what is cached.
    """
    total = begin = 0
    tiles: dict[int, list[tuple[int, int]]] = {}
    for cached, new in spans:
        cells = (cached if limit is None else min(cached, limit)) + new
        end = begin + new
        for tile in range(begin // TILE_ROWS, -(-end // TILE_ROWS)):
            rows = min(end, (tile + 1) * TILE_ROWS) - max(begin, tile * TILE_ROWS)
            tiles.setdefault(tile, []).append((rows, cells))
        begin = end
    for members in tiles.values():
        cells_of_all = min(occupied, sum([cells for _, cells in members]))
        total += sum([rows * max(0, cells_of_all - cells) for rows, cells in members])
    return total


def _beyond(spans: Sequence[tuple[int, int]], tokens: int, window: int | None) -> float:
    """Query–key pairs with more than `tokens` cached tokens, each row taken at its sequence's end before the step."""
    total = 0.0
    for cached, new in spans:
        seen = cached if window is None else min(cached, window)
        total += new * max(0, seen - tokens)
    return total
