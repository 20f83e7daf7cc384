"""llama.cpp's mixtures of storage types ("file types"): their numbers, names, and which of them can be made here."""

from __future__ import annotations

import re
from typing import Final

from stackscope.errors import UsageError

FILE_TYPES: Final = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12,
    "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20,
    "Q2_K_S": 21, "IQ3_XS": 22, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28,
    "IQ2_M": 29, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37, "MXFP4_MOE": 38, "NVFP4": 39,
    "Q1_0": 40, "Q2_0": 41,
}  # fmt: skip
"""Numbers of `enum llama_ftype` (`include/llama.h`)."""

NEED_IMPORTANCE_MATRIX: Final = frozenset(
    {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S"}
)
"""Mixtures with tensors that `tensor_requires_imatrix` (`src/llama-quant.cpp`) refuses without one."""

SAME_AS: Final = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
"""Short names that llama-quantize takes too."""


def canonical(name: str) -> str:
    """The file type's own spelling. Raises `UsageError` for an unknown one, and for one that cannot be made here."""
    spelled = name.strip().upper().replace("-", "_")
    spelled = SAME_AS.get(spelled, spelled)
    if spelled in NEED_IMPORTANCE_MATRIX:
        raise UsageError(
            f"{spelled} needs an importance matrix: without one, weights this small come out as noise.",
            remedy="Choose a type that needs none, such as Q4_K_M, IQ4_XS, Q3_K_M or Q2_K.",
        )
    if spelled == "NVFP4":
        raise UsageError("NVFP4 is made when a model is converted, not by the quantiser.", remedy="Choose MXFP4_MOE.")
    if spelled not in FILE_TYPES:
        usable = ", ".join(sorted(FILE_TYPES.keys() - NEED_IMPORTANCE_MATRIX - {"NVFP4"}))
        raise UsageError(f"There is no type {name}.", remedy=f"Choose one of: {usable}.")
    return spelled


def name_of(number: int | None) -> str | None:
    """The name of a file type by its number. `None`: the number is unknown, or the file states none."""
    return next((name for name, n in FILE_TYPES.items() if n == number), None)


_SUFFIX: Final = re.compile("[-._](" + "|".join(sorted(FILE_TYPES, key=len, reverse=True)) + ")$", re.IGNORECASE)


def split_type(stem: str) -> tuple[str, str]:
    """A file's name without its extension, parted into the model and the type it ends with, separator included."""
    found = _SUFFIX.search(stem)
    return (stem, "") if found is None else (stem[: found.start()], found[0])
