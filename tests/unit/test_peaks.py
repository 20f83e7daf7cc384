"""Rated figures and theoretical bandwidths of GPUs."""

from __future__ import annotations

import pytest

from stackscope.errors import UsageError
from stackscope.hardware import peaks
from stackscope.hardware.peaks import Peak


@pytest.mark.parametrize(
    ("name", "clock", "bus", "gb_per_s"),
    [
        ("NVIDIA H100 80GB HBM3", 2619, 5120, 3352.32),
        ("NVIDIA A100-SXM4-40GB", 1215, 5120, 1555.2),
        ("NVIDIA GeForce RTX 4090", 10501, 384, 1008.096),
        ("Tesla T4", 5001, 256, 320.064),
        ("NVIDIA B200", 3996, 7680, 7672.32),
        ("NVIDIA B200", 3996, 8192, 7672.32),
    ],
)
def test_clock_and_bus_make_a_bandwidth(name: str, clock: int, bus: int, gb_per_s: float) -> None:
    """Case 56: a B200 has 7,672 GB/s, by its clock and bus."""
    found = peaks.from_clock(name, clock, bus)
    assert isinstance(found, Peak)
    assert found.bytes_per_s / 1e9 == pytest.approx(gb_per_s)


@pytest.mark.parametrize(("clock", "bus"), [(0, 384), (0xFFFFFFFF, 384), (2619, 0), (2619, 0xFFFFFFFF)])
def test_what_is_not_told_makes_none(clock: int, bus: int) -> None:
    assert isinstance(peaks.from_clock("NVIDIA GB10", clock, bus), str)


def test_a_similar_name_is_another_gpu() -> None:
    found = peaks.rated("NVIDIA H100 80GB HBM3")
    assert found is not None
    assert (found.dram_gb_per_s, found.bf16_tflops, found.fp8_tflops) == (3350, 989, 1978)
    assert found.fp4_tflops is None
    for name in ("NVIDIA H100", "NVIDIA H100 NVL", "nvidia h100 80gb hbm3", "NVIDIA L4 Laptop GPU", ""):
        assert peaks.rated(name) is None


def test_every_row_has_a_source_and_a_name_of_its_own() -> None:
    rows = peaks.table()
    assert len(rows) > 10
    assert all(row.source for row in rows)
    names = [name for row in rows for name in row.names]
    assert len(names) == len(set(names))


def test_figures_are_dense() -> None:
    """Every step to half the bits doubles the rate, where it does not leave the hardware out of use."""
    for row in peaks.table():
        for wide, narrow in ((row.bf16_tflops, row.fp8_tflops), (row.fp8_tflops, row.fp4_tflops)):
            assert wide is None or narrow is None or 1.9 < narrow / wide < 3.2
        assert row.bf16_tflops is not None
        assert row.bf16_tflops <= 2500


@pytest.mark.parametrize(("text", "expected"), [("273", 273e9), (" 2.5e2 ", 250e9)])
def test_a_bandwidth_may_be_stated(text: str, expected: float) -> None:
    found = peaks.override({peaks.OVERRIDE_VARIABLE: text})
    assert found is not None
    assert found.bytes_per_s == pytest.approx(expected)
    assert peaks.OVERRIDE_VARIABLE in found.source


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "273 GB/s"])
def test_a_stated_bandwidth_must_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="STACKSCOPE_GPU_BANDWIDTH must be a number of GB/s"):
        peaks.override({peaks.OVERRIDE_VARIABLE: text})


def test_nothing_need_be_stated() -> None:
    assert peaks.override({}) is None
    assert peaks.override({peaks.OVERRIDE_VARIABLE: " "}) is None
