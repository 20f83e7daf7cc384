"""What the engine got done, how full it was, and what the prefix cache spared."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stackscope.analysis.metrics.base import Figures, Metric, Need, ratio

if TYPE_CHECKING:
    from stackscope.analysis.distribution import Spread


class OutputRate(Metric[float]):
    """Tokens that entered outputs, per second of wall time, idle time included."""

    tag = "output_tokens_per_s"
    header = "tokens/s out"
    unit = "tokens/s"
    formula = "Σ emitted ÷ wall time"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> float | None:
        return None if figures.wall_s is None else figures.steps.work.emitted / figures.wall_s


class InputRate(Metric[float]):
    """Prompt tokens computed per second of wall time, recomputation included, prefix hits not."""

    tag = "input_tokens_per_s"
    header = "tokens/s in"
    unit = "tokens/s"
    formula = "Σ rows of prefilling sequences ÷ wall time"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> float | None:
        return None if figures.wall_s is None else figures.steps.work.prefill_rows / figures.wall_s


class RequestRate(Metric[float]):
    """Requests completed per second of wall time."""

    tag = "requests_per_s"
    header = "requests/s"
    unit = "requests/s"
    formula = "completed requests ÷ wall time"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "requests")

    def compute(self, figures: Figures) -> float | None:
        return None if figures.wall_s is None else figures.requests.completed / figures.wall_s


class BatchRows(Metric["Spread"]):
    """Rows of a target forward: decode and verify rows of all sequences and prefill chunks."""

    tag = "batch_rows"
    header = "batch rows"
    unit = "rows"
    formula = "Σ new tokens of a forward"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> Spread | None:
        return figures.steps.work.batch_rows.spread()


class Occupancy(Metric[float]):
    """Share of the slots that held a request, weighted by time inside steps."""

    tag = "occupancy"
    header = "occupancy"
    unit = "1"
    formula = "Σ busy slots × step time ÷ Σ slots × step time"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "slots")

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.load.busy_slot_ns, figures.steps.load.slot_ns)


class QueueDepth(Metric[float]):
    """Requests waiting, weighted by time inside steps."""

    tag = "queue_depth"
    header = "queue"
    unit = "requests"
    formula = "Σ waiting requests × step time ÷ Σ step time"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "slots")

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.load.queue_request_ns, figures.steps.time.busy_ns)


class KvCells(Metric[float]):
    """Occupied cells of the KV cache, idle cached prefixes included, weighted by time inside steps."""

    tag = "kv_cells"
    header = "KV cells"
    unit = "tokens"
    formula = "Σ occupied cells × step time ÷ Σ step time"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.load.kv_cell_ns, figures.steps.time.busy_ns)


class KvCellsPeak(Metric[int]):
    """Most cells of the KV cache occupied after any step."""

    tag = "kv_cells_peak"
    header = "KV cells, peak"
    unit = "tokens"
    formula = "max occupied cells"
    needs: ClassVar[tuple[Need, ...]] = ("steps",)

    def compute(self, figures: Figures) -> int | None:
        return figures.steps.load.kv_cells_peak if figures.steps.steps > 0 else None


class HitRate(Metric[float]):
    """Share of the prompt tokens looked up in the prefix cache that were found. Undefined when none was looked up."""

    tag = "prefix_hit_rate"
    header = "hit rate"
    unit = "1"
    formula = "Σ hit tokens ÷ Σ tokens looked up"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "prefix_cache")

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.cache.hit_tokens, figures.steps.cache.lookup_tokens)


class UsefulHitRate(Metric[float]):
    """Share of the prompt tokens looked up whose computation was really spared. A request that was pre-empted and finds
    its own work again is no gain: it is a hit, not a useful one."""

    tag = "useful_hit_rate"
    header = "useful hit rate"
    unit = "1"
    formula = "Σ useful hit tokens ÷ Σ tokens looked up"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "prefix_cache")

    def compute(self, figures: Figures) -> float | None:
        return ratio(figures.steps.cache.useful_hit_tokens, figures.steps.cache.lookup_tokens)


class CacheBlocks(Metric[dict[str, int]]):
    """Blocks of the prefix cache: read on hits, written, evicted, and resident at the end and at most."""

    tag = "cache_blocks"
    header = "cache blocks"
    unit = "blocks"
    formula = "Σ read, Σ written, Σ evicted; resident after the last step; max resident"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "prefix_cache")

    def compute(self, figures: Figures) -> dict[str, int] | None:
        cache = figures.steps.cache
        return {
            "read": cache.blocks_read,
            "written": cache.blocks_written,
            "evicted": cache.blocks_evicted,
            "resident": cache.resident_blocks_last,
            "resident_peak": cache.resident_blocks_peak,
        }


class CopiedBytes(Metric[int]):
    """KV bytes that reuse really copied: with split KV only, a unified cache shares cells."""

    tag = "copied_kv_bytes"
    header = "KV copied"
    unit = "B"
    formula = "Σ copied bytes"
    needs: ClassVar[tuple[Need, ...]] = ("steps", "prefix_cache")

    def compute(self, figures: Figures) -> int | None:
        return figures.steps.cache.copied_bytes


LOAD_METRICS: tuple[Metric[object], ...] = (
    OutputRate(),
    InputRate(),
    RequestRate(),
    BatchRows(),
    Occupancy(),
    QueueDepth(),
    KvCells(),
    KvCellsPeak(),
    HitRate(),
    UsefulHitRate(),
    CacheBlocks(),
    CopiedBytes(),
)
