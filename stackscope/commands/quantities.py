"""Quantities as one types them: `8B`, `1TB/s`, `100TFLOP/s`. Strict: what could mean two things is refused."""

from __future__ import annotations

import math
import re
from typing import Final

from stackscope import units
from stackscope.errors import UsageError
from stackscope.model.ggml_types import BY_NAME

_NUMBER: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?(.*)")
_COUNTS: Final = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_DECIMAL: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY: Final = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTP", 1)}
MOST_BITS: Final = 64.0


def parameters(option: str, text: str) -> float:
    """A number of parameters: 270M, 8B, 1.5T. Raises `UsageError`."""
    value, unit = _split(text)
    factor = _COUNTS.get(unit.lower())
    if value is None or factor is None:
        raise _refused(option, text, "a number of parameters", "Write it as 270M, 8B or 1T, for 10⁶, 10⁹ and 10¹².")
    return value * factor


def size(option: str, text: str) -> float:
    """Bytes: 512B, 128KiB, 0.1MB. Raises `UsageError`."""
    return _bytes(option, text, "", "a size in bytes", "Write it as 131072B, 131kB (10³) or 128KiB (2¹⁰).")


def bandwidth(option: str, text: str) -> float:
    """Bytes per second: 1TB/s, 60GB/s, 900GiB/s. Raises `UsageError`."""
    return _bytes(option, text, "/s", "a bandwidth", "Write it as 60GB/s (10⁹ bytes), 56GiB/s (2³⁰ bytes) or 3.35TB/s.")


def flop_rate(option: str, text: str) -> float:
    """FLOP per second: 100TFLOP/s, 66GFLOP/s. Raises `UsageError`."""
    value, unit = _split(text)
    for ending in ("FLOP/s", "FLOPS"):
        factor = _DECIMAL.get(unit.removesuffix(ending)) if unit.endswith(ending) else None
        if value is not None and factor is not None:
            return value * factor
    raise _refused(
        option, text, "a rate of arithmetic", "Write it as 66GFLOP/s or 989TFLOP/s, dense, without sparsity."
    )


def bits(option: str, text: str) -> float:
    """Bits per parameter: a number, or a storage type (q4_K has 4.5). Raises `UsageError`."""
    storage = BY_NAME.get(text.strip().lower())
    if storage is not None:
        return storage.bytes * 8 / storage.block
    value, unit = _split(text)
    if value is None or unit or value > MOST_BITS:
        raise _refused(
            option,
            text,
            "a number of bits",
            "Write 16, 8.5 or 4.5, or a type such as f16, q8_0 or q4_K, and no mixture.",
        )
    return value


def acceptance(option: str, text: str) -> tuple[float, ...]:
    """Shares from 0 to 1 or in percent, parted by commas: 0.8, `80%`, `0.7,0.6,0.5`. Raises `UsageError`."""
    return tuple(_share(option, part.strip(), text) for part in text.split(","))


def _share(option: str, part: str, text: str) -> float:
    found = _NUMBER.fullmatch(part)
    value = math.nan if found is None or found[2] not in ("", "%") else float(found[1])
    value = value / 100 if part.endswith("%") else value
    if not 0.0 <= value <= 1.0:
        raise _refused(option, text, "an acceptance", "Write it as 0.8 or 80%, or by place in the draft: 0.7,0.6,0.5.")
    return value


def whole(option: str, text: str, *, least: int = 1, most: int) -> int:
    """A whole number. Raises `UsageError`."""
    if not re.fullmatch(r"[0-9]{1,15}", text.strip()) or not least <= int(text) <= most:
        raise UsageError(
            f"{option} must be a whole number, not {text!r}.",
            remedy=f"Give one from {units.count(least)} to {units.count(most)}.",
        )
    return int(text)


def _bytes(option: str, text: str, ending: str, kind: str, remedy: str) -> float:
    value, unit = _split(text)
    if unit.endswith(("b" + ending, "bit" + ending)):
        remedy = f"Bits are not taken. {remedy}"
    suffix = "B" + ending
    factor = (_DECIMAL | _BINARY).get(unit.removesuffix(suffix)) if unit.endswith(suffix) else None
    if value is None or factor is None:
        raise _refused(option, text, kind, remedy)
    return value * factor


def _split(text: str) -> tuple[float | None, str]:
    """(a number above zero, what is behind it). `None`: there is no such number."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        return None, ""
    return float(found[1]), found[2]


def _refused(option: str, text: str, kind: str, remedy: str) -> UsageError:
    return UsageError(f"{option} must be {kind}, not {text!r}.", remedy=remedy)
