"""The table of storage types against the installed library, and rows in bytes."""

from __future__ import annotations

import pytest

from stackscope.model import native
from stackscope.model.ggml_types import BY_ID, BY_NAME, REMOVED, TYPE_COUNT, row_bytes


def test_the_table_is_the_library_s() -> None:
    """Every type that the library still reads, with its number, name, elements and bytes per block."""
    assert native.storage_types() == [tuple(BY_ID[number]) for number in sorted(BY_ID)]


def test_every_number_is_either_known_or_removed() -> None:
    assert set(BY_ID) | set(REMOVED) == set(range(TYPE_COUNT))
    assert not set(BY_ID) & set(REMOVED)


def test_a_row_of_blocks() -> None:
    """256 q4_K weights are one block of 144 bytes; 640 q8_0 weights are 20 blocks of 34."""
    assert row_bytes("q4_K", 256) == 144
    assert row_bytes("q8_0", 640) == 640 // 32 * 34 == 680
    assert row_bytes("F16", 3) == 6
    assert row_bytes("f32", 0) == 0


def test_a_row_that_is_no_whole_number_of_blocks() -> None:
    with pytest.raises(ValueError, match="multiple of 256"):
        row_bytes("q4_K", 640)


def test_quantised_types_are_those_with_blocks() -> None:
    assert not any(BY_NAME[name].is_quantized for name in ("f32", "f16", "bf16", "i32"))
    assert all(BY_NAME[name].is_quantized for name in ("q8_0", "q4_k", "iq4_nl", "mxfp4"))
