"""The storage types of ggml: how many weights make a block, and how many bytes a block takes.

Numbers and names are those of `ggml_blck_size`, `ggml_type_size` and `ggml_type_name`; a test compares this table with
the installed library.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class StorageType(NamedTuple):
    """One way to store a row of weights."""

    id: int
    """Number of the type in a GGUF file."""
    name: str
    block: int
    """Elements per block; a row is a whole number of blocks."""
    bytes: int
    """Bytes per block."""

    @property
    def is_quantized(self) -> bool:
        return self.block > 1


_TABLE: Final = (
    StorageType(0, "f32", 1, 4),
    StorageType(1, "f16", 1, 2),
    StorageType(2, "q4_0", 32, 18),
    StorageType(3, "q4_1", 32, 20),
    StorageType(6, "q5_0", 32, 22),
    StorageType(7, "q5_1", 32, 24),
    StorageType(8, "q8_0", 32, 34),
    StorageType(9, "q8_1", 32, 36),
    StorageType(10, "q2_K", 256, 84),
    StorageType(11, "q3_K", 256, 110),
    StorageType(12, "q4_K", 256, 144),
    StorageType(13, "q5_K", 256, 176),
    StorageType(14, "q6_K", 256, 210),
    StorageType(15, "q8_K", 256, 292),
    StorageType(16, "iq2_xxs", 256, 66),
    StorageType(17, "iq2_xs", 256, 74),
    StorageType(18, "iq3_xxs", 256, 98),
    StorageType(19, "iq1_s", 256, 50),
    StorageType(20, "iq4_nl", 32, 18),
    StorageType(21, "iq3_s", 256, 110),
    StorageType(22, "iq2_s", 256, 82),
    StorageType(23, "iq4_xs", 256, 136),
    StorageType(24, "i8", 1, 1),
    StorageType(25, "i16", 1, 2),
    StorageType(26, "i32", 1, 4),
    StorageType(27, "i64", 1, 8),
    StorageType(28, "f64", 1, 8),
    StorageType(29, "iq1_m", 256, 56),
    StorageType(30, "bf16", 1, 2),
    StorageType(34, "tq1_0", 256, 54),
    StorageType(35, "tq2_0", 256, 66),
    StorageType(39, "mxfp4", 32, 17),
    StorageType(40, "nvfp4", 64, 36),
    StorageType(41, "q1_0", 128, 18),
    StorageType(42, "q2_0", 64, 18),
)

BY_ID: Final = {t.id: t for t in _TABLE}
BY_NAME: Final = {t.name.lower(): t for t in _TABLE}
TYPE_COUNT: Final = 43
"""Type numbers from here on are unknown to the tested library."""

REMOVED: Final = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4"} | {
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Types that llama.cpp once wrote and no longer reads."""


def row_bytes(type_name: str, elements: int) -> int:
    """Bytes of one row of `elements` weights: elements / block × bytes per block (`ggml_row_size`).

    Raises ValueError when the row is not a whole number of blocks, KeyError for an unknown type.
    """
    storage = BY_NAME[type_name.lower()]
    if elements % storage.block != 0:
        msg = f"a {type_name} row is a multiple of {storage.block} elements, not {elements}"
        raise ValueError(msg)
    return elements // storage.block * storage.bytes
