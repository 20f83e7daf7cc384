"""Ceilings that nobody measured: synthetic, small enough for arithmetic on paper."""

from __future__ import annotations

from typing import Any

import msgspec

from stackscope.records.ceilings import (
    Ceiling,
    Ceilings,
    Conditions,
    ForwardTime,
    Handoff,
    Measured,
    ReadRate,
    TypeRate,
)


def conditions(**changes: Any) -> Conditions:
    """Two threads, f16 KV, a file called synthetic.gguf."""
    given = Conditions(
        machine="synthetic; A CPU; 2 cores",
        library="llama-cpp-python 0.3.36 | CPU : AVX2 = 1 |",
        model="synthetic.gguf",
        model_bytes=11_000_000,
        model_mtime_ns=1_700_000_000_000_000_000,
        threads=2,
        kv_type_k="f16",
        kv_type_v="f16",
        flash_attention=True,
        unified_kv=True,
        swa_full=True,
        placement="layers -1, gpu 0, split layer",
        waiting="GOMP_SPINCOUNT=30000",
    )
    return msgspec.structs.replace(given, **changes)


def about(value: float, spread: float | None = 0.02, n: int = 5) -> Measured:
    return Measured(value=value, spread=spread, n=n)


def ceilings(**changes: Any) -> Ceilings:
    """A model that fits the cache, on a quiet machine, with a saw-tooth at three rows."""
    few = ((1, 0.6), (2, 0.8), (3, 1.5), (4, 1.2), (5, 1.8), (6, 2.0), (8, 2.1), (12, 3.1), (16, 4.0))
    times = (*few, (24, 5.8), (32, 7.6), (64, 15.0), (128, 24.0), (512, 90.0))
    found = Ceilings(
        conditions=conditions(),
        measured="2026-10-01T12:00:00+00:00",
        stackscope="0.0",
        duration_ns=17_000_000_000,
        foreign_share=0.004,
        is_quiet=True,
        cache_bytes=33_554_432,
        fits_cache=True,
        draft_fits_cache=True,
        reads=(
            ReadRate(place="memory", set_bytes=134_217_728, bytes_per_s=about(15e9)),
            ReadRate(place="cache", set_bytes=11_500_000, bytes_per_s=about(60e9, 0.12)),
        ),
        types=(
            TypeRate(
                type="f16", place="cache", vector_bytes_per_s=about(30e9), vector_flops_per_s=about(30e9),
                matrix_flops_per_s=about(62e9), matrix_rows=512,
            ),
        ),
        forwards=tuple(
            ForwardTime(
                rows=rows, sequences=1 if rows > 64 else rows, outputs=1 if rows > 64 else rows, ns=about(1e6 * ms)
            )
            for rows, ms in times
        ),
        contexts=tuple(
            ForwardTime(rows=1, sequences=1, outputs=1, cached=cached, ns=about(6e5 + 100 * cached))
            for cached in (0, 512, 1024)
        ),
        context_ns_per_token=about(100.0),
        kv_read_bytes_per_s=about(3.1e10),
        fixed_ns=120_000.0,
        draft="synthetic-draft.gguf",
        draft_forwards=(ForwardTime(rows=1, sequences=1, outputs=1, ns=about(150_000)),),
        rebuild_ns=about(1.1e8),
        load_ns=about(2.2e7, None, 1),
        handoff=Handoff(
            tokens=1024, state_bytes=3_157_008, save_bytes_per_s=about(6e9), load_bytes_per_s=about(3e9)
        ),
        compute=Ceiling(value=66e9, kind="forward", rows=512, spread=0.02),
        bandwidth=Ceiling(value=60e9, kind="cache", spread=0.12),
    )  # fmt: skip
    return msgspec.structs.replace(found, **changes)
