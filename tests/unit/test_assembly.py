"""From samples to ceilings, on a synthetic model whose bytes and FLOPs are counted on paper."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.experiments import assembly
from stackscope.experiments.protocol import Findings, Item, Series
from stackscope.experiments.samples import Sample
from stackscope.records import LayerSummary
from stackscope.records.ceilings import CacheKind, ForwardTime, Measured
from tests.analysis_builders import dense_model
from tests.unit.ceilings_builders import conditions

LAYER = LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64)
MODEL = dense_model(layers=[LAYER, LAYER])
MATRICES = 2 * (2 * (256 * (256 + 128 + 128) + 256 * 256) + 2 * 3 * 256 * 768 + 4096 * 256)
"""Bytes of its matrices, F16, the tied head among them: 2 blocks of attention and feed-forward."""
KV_ROW = 2 * 2 * (64 + 64) * 2
"""KV bytes of one token over both layers: 2 layers × 2 KV heads × (64 + 64) × 2 B."""


def series(kind: str, *ns: float, **item: Any) -> Series:
    return Series(item=Item(kind=kind, **item), samples=tuple(map(Sample, ns)))  # type: ignore[arg-type]


def findings(*found: Series, **changes: Any) -> Findings:
    made = Findings(library="L", threads=2, is_gpu=False, model=MODEL, draft=None, series=found)
    return msgspec.structs.replace(made, **changes)


def occasion(**changes: Any) -> assembly.Occasion:
    made = assembly.Occasion(
        conditions=conditions(), measured="2026-10-01T12:00:00+00:00", stackscope="0", is_full=False, duration_ns=9,
        foreign_share=0.0, is_quiet=True, cache_bytes=32 << 20, draft=None,
    )  # fmt: skip
    return made._replace(**changes)


def test_matrices_are_counted_by_type() -> None:
    assert assembly.matrix_bytes(MODEL) == {"F16": MATRICES}
    assert assembly.weight_bytes(MODEL) == MATRICES + 4 * 256 * (2 * 2 + 1)  # and the norms, F32


def test_rates_of_types_come_from_one_row_and_from_many() -> None:
    found = assembly.types(
        findings(
            # 40, 38 and 36 GB/s.
            series("product", 1_000, 40 / 38 * 1_000, 40 / 36 * 1_000, type="f16", place="cache", rows=1, bytes=40_000),
            series("product", 50_000, type="f16", place="cache", rows=512, bytes=40_000, flops=5_000_000),
            series("product", 10_000, type="q4_K", place="cache", rows=512, bytes=9, flops=2_000_000),
        ),
        {},
    )
    assert [kind.type for kind in found] == ["f16", "q4_K"]
    first, second = found
    assert first.vector_bytes_per_s is not None
    assert first.vector_bytes_per_s.value == pytest.approx(38e9)
    assert first.matrix_flops_per_s is not None
    assert first.matrix_flops_per_s.value == pytest.approx(100e9)
    assert (first.matrix_rows, first.place) == (512, "cache")
    assert second.vector_bytes_per_s is None


def test_what_matrices_leave_of_a_forward_is_fixed() -> None:
    kinds = assembly.types(
        findings(series("product", 1_000, type="F16", rows=1, bytes=20_000, flops=1)),  # 20 B/ns
        {},
    )
    times = assembly.forwards(findings(series("forward", 700_000, rows=1, sequences=1, outputs=1)), "forward")
    assert assembly.fixed(times, kinds, MODEL) == pytest.approx(700_000 - MATRICES / 20)
    fast = assembly.forwards(findings(series("forward", 1_000, rows=1, sequences=1, outputs=1)), "forward")
    assert assembly.fixed(fast, kinds, MODEL) == "a forward of one row takes no longer than its matrices alone do"
    assert "is not known" in str(assembly.fixed(times, (), MODEL))
    assert assembly.fixed((), kinds, MODEL) == "no forward of one row was timed"


def test_a_cached_token_costs_what_the_slope_says() -> None:
    # 3 ns per cached token on top of 500 µs; the second round is slower by a fifth.
    depths = [
        series("context", 500_000 + 3 * cached, 600_000 + 3.6 * cached, rows=1, sequences=1, outputs=1, cached=cached)
        for cached in (0, 512, 1024)
    ]
    depth = assembly.cost_of_depth(findings(*depths), Ledger(MODEL))
    assert depth.ns_per_token is not None
    assert depth.read_bytes_per_s is not None
    assert depth.ns_per_token.value == pytest.approx(3.3)
    assert depth.read_bytes_per_s.value == pytest.approx(KV_ROW / 3.3 * 1e9)
    assert depth.why_not is None


def test_other_shapes_and_caches_stay_out_of_the_slope_and_apart() -> None:
    kind = CacheKind(kv_type_k="q8_0", kv_type_v="q8_0", flash_attention=True)
    one = {"rows": 1, "sequences": 1, "outputs": 1}
    four = {"rows": 4, "sequences": 1, "outputs": 4}
    found = findings(
        series("context", 1_000, **one), series("context", 3_000, **one, cached=1000),
        series("context", 9_000, **four, cached=1000), series("context", 5_000, **one, others=4000),
        series("context", 8_000, **one, cached=1000, cache=kind),
    )  # fmt: skip
    slope = assembly.cost_of_depth(found, Ledger(MODEL)).ns_per_token
    assert slope is not None
    assert slope.value == pytest.approx(2)
    contexts = assembly.forwards(found, "context")
    assert [(time.rows, time.cached, time.others, time.cells) for time in contexts] == [
        (1, 0, 0, 1), (1, 0, 4000, 4001), (1, 1000, 0, 1001), (4, 1000, 0, 1004)
    ]  # fmt: skip
    [other] = assembly.other_caches(found)
    assert (other.kind, [time.ns.value for time in other.contexts]) == (kind, [8_000])


def test_windows_end_the_slope_where_the_ledger_says() -> None:
    windowed = LayerSummary(heads=4, kv_heads=2, key_length=64, value_length=64, window=512)
    ledger = Ledger(dense_model(layers=[LAYER, windowed]))
    # Each token of either layer costs 2 ns: beyond the window, only the first layer's.
    depths = [
        series("context", 2 * (cached + 1) + 2 * min(cached + 1, 512), rows=1, sequences=1, outputs=1, cached=cached)
        for cached in (0, 256, 1024)
    ]
    depth = assembly.cost_of_depth(findings(*depths), ledger)
    assert depth.ns_per_token is not None
    assert depth.ns_per_token.value == pytest.approx(2)


def test_a_slope_that_cannot_be_told_has_a_reason() -> None:
    none = assembly.cost_of_depth(findings(series("context", 5, rows=1, sequences=1, outputs=1)), Ledger(MODEL))
    assert none == assembly.Depth(why_not="the context holds too few tokens to see what they cost")
    falling = [series("context", 900 - cached, rows=1, sequences=1, outputs=1, cached=cached) for cached in (0, 512)]
    found = assembly.cost_of_depth(findings(*falling), Ledger(MODEL))
    assert found == assembly.Depth(why_not="what cached tokens cost is lost in the noise")


def test_a_drift_between_descents_does_not_reach_the_slope() -> None:
    # Each descent has a level of its own, which is far more than 8,192 tokens at 3 ns cost.
    levels = (500_000, 900_000, 450_000, 800_000, 700_000)
    depths = [
        series("context", *(level + 3 * cached for level in levels), rows=1, sequences=1, outputs=1, cached=cached)
        for cached in (0, 512, 8192)
    ]
    found = assembly.cost_of_depth(findings(*depths), Ledger(MODEL)).ns_per_token
    assert found is not None
    assert found.value == pytest.approx(3)
    assert found.spread == pytest.approx(0, abs=1e-9)
    assert found.n == len(levels)


def test_what_does_not_agree_with_itself_is_unknown_and_says_so() -> None:
    one = {"rows": 1, "sequences": 1, "outputs": 1}
    product = {"type": "f16", "flops": 8, "bytes": 8}
    found = assembly.assemble(
        findings(
            series("read", 1_000, 1_500, 2_000, place="memory", bytes=8, rows=1),
            series("product", 1_000, 1_010, 990, **product, rows=1),
            series("product", 1_000, 9_000, 3_000, 9_000, **product, rows=512),
            # By descents, 1,000 tokens add 1, 2, 8 and 9 µs.
            series("context", 5_000, 5_000, 5_000, 5_000, **one),
            series("context", 6_000, 7_000, 13_000, 14_000, **one, cached=1000),
        ),
        occasion(),
    )
    assert found.reads == ()
    assert found.bandwidth is None
    [kind] = found.types
    assert kind.vector_bytes_per_s is not None
    assert (kind.matrix_flops_per_s, kind.matrix_rows) == (None, 0)
    assert (found.context_ns_per_token, found.kv_read_bytes_per_s) == (None, None)
    assert found.unknown["reading memory"] == "its samples differ by 75 %, too much for a figure"
    assert found.unknown["f16 matrices × 512"].startswith("its samples differ by")
    assert found.unknown["context"].startswith("its samples differ by")


def test_the_ceilings_are_the_most_that_was_reached() -> None:
    ledger = Ledger(MODEL)
    times = assembly.forwards(
        findings(
            series("forward", 500_000, rows=1, sequences=1, outputs=1),
            series("forward", 2_000_000, rows=8, sequences=8, outputs=8),
            series("forward", 30_000_000, rows=512, sequences=1, outputs=1),
        ),
        "forward",
    )
    one, many = (ledger.account_draft([assembly._shape(time)]) for time in (times[0], times[2]))
    compute = assembly.compute(times, ledger)
    assert compute is not None
    assert (compute.kind, compute.rows) == ("forward", 512)
    assert compute.value == pytest.approx(many.flops.total / 30e-3)
    slow, fast = (
        assembly.reads(findings(series("read", ns, place=place, bytes=1_000_000, rows=1)), {})
        for place, ns in (("memory", 100_000), ("cache", 10_000))
    )
    # Forwards read faster than memory gives: then they are the ceiling.
    bandwidth = assembly.bandwidth(times, ledger, slow, fits_cache=False)
    assert bandwidth is not None
    assert (bandwidth.kind, bandwidth.rows) == ("forward", 1)
    assert bandwidth.value == pytest.approx(one.total_bytes / 500e-6)
    # What the cache gives counts for a model that stays in it.
    assert assembly.bandwidth(times, ledger, [*slow, *fast], fits_cache=False) == bandwidth
    cached = assembly.bandwidth(times, ledger, [*slow, *fast], fits_cache=True)
    assert cached is not None
    assert cached.kind == "cache"
    assert cached.value == pytest.approx(100e9)
    assert assembly.compute((), ledger) is None


def test_everything_has_its_place_or_its_reason() -> None:
    found = assembly.assemble(
        findings(
            series("forward", 700_000, rows=1, sequences=1, outputs=1),
            series("draft", 90_000, rows=1, sequences=1, outputs=1),
            series("save", 1_000, cached=512, bytes=6_000), series("load state", 2_000, cached=512, bytes=6_000),
            series("rebuild", 5, 7, 9), series("load", 40),
            unknown={"forward of 512, one output": "it would have taken about 9 s"},
        ),
        occasion(),
    )  # fmt: skip
    assert found.forwards == (ForwardTime(rows=1, sequences=1, outputs=1, ns=Measured(value=700_000)),)
    assert [time.ns.value for time in found.draft_forwards] == [90_000]
    assert found.rebuild_ns == Measured(value=7, spread=2 / 7, n=3)
    assert found.load_ns == Measured(value=40)
    assert found.handoff is not None
    assert found.handoff.bytes_per_s == pytest.approx(2e9)
    assert found.fits_cache is True
    assert found.unknown.keys() == {"forward of 512, one output", "context", "fixed cost"}
    assert found.reads == ()


def test_a_gpus_memory_is_not_the_processors_cache() -> None:
    found = assembly.assemble(findings(is_gpu=True), occasion())
    assert (found.cache_bytes, found.fits_cache) == (None, None)
    found = assembly.assemble(findings(draft=MODEL), occasion(cache_bytes=1 << 20))
    assert (found.fits_cache, found.draft_fits_cache) == (False, False)


def test_a_forward_that_does_not_agree_with_itself_is_no_ceiling() -> None:
    steady = ForwardTime(rows=4, sequences=1, outputs=4, ns=Measured(value=1e6, spread=0.02, n=5))
    wild = ForwardTime(rows=8, sequences=1, outputs=8, ns=Measured(value=1e4, spread=0.75, n=3))
    ledger = Ledger(MODEL)
    found = assembly.compute([steady, wild], ledger)
    assert found is not None
    assert found.rows == 4
    assert assembly.compute([wild], ledger) is None
