"""What a GPU can do at most: bandwidth from its clock and bus, and rated figures from a table with a source per row."""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

OVERRIDE_VARIABLE: Final = "STACKSCOPE_GPU_BANDWIDTH"
"""Environment variable with the bandwidth of this machine's GPUs in GB/s, where the driver does not tell it."""

NOT_AVAILABLE: Final = 0xFFFFFFFF
"""What the driver answers for a 32-bit number that it does not have."""


class Peak(msgspec.Struct, frozen=True):
    """A theoretical DRAM bandwidth."""

    bytes_per_s: float
    source: str
    """How it was come by, in words."""


class Rated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rated figures of a kind of GPU: dense ones, without sparsity. `None` is not known."""

    names: tuple[str, ...]
    """Whole names as the driver spells them: a laptop's part has a longer one, and other figures."""
    dram_gb_per_s: float | None = None
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    int8_tops: float | None = None
    fp4_tflops: float | None = None
    pcie_gb_per_s: float | None = None
    """Each way."""
    bus_bits: dict[str, int] = {}
    """Bus widths that some drivers tell wrongly: what they tell, and what it is."""
    source: str


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gpu: tuple[Rated, ...]


@cache
def table() -> tuple[Rated, ...]:
    """All rows."""
    text = resources.files("stackscope.hardware").joinpath("gpus.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table).gpu


def rated(name: str) -> Rated | None:
    """The row of a GPU by its whole name. `None`: the table has none, and a similar name is another GPU."""
    return next((row for row in table() if name in row.names), None)


def from_clock(name: str, clock_mhz: int, bus_bits: int) -> Peak | str:
    """Bandwidth from the highest memory clock and the width of the bus, or why it cannot be told.

    Two transfers per clock: the driver tells clocks of GDDR and HBM such that this holds for both. The figures that it
    tells for an H100 SXM, 2619 MHz and 5120 bit, make 3352 GB/s.
    """
    if not 0 < clock_mhz < NOT_AVAILABLE:
        return "the driver tells no memory clock"
    if not 0 < bus_bits < NOT_AVAILABLE:
        return "the driver tells no width of the memory bus"
    row = rated(name)
    bits = bus_bits if row is None else row.bus_bits.get(str(bus_bits), bus_bits)
    source = f"{units.count(clock_mhz)} MHz × {units.count(bits)} bit × 2 ÷ 8"
    if bits != bus_bits:
        source += f" (this driver tells {units.count(bus_bits)} bit)"
    return Peak(clock_mhz * 1e6 * bits * 2 / 8, source)


def override(environment: Mapping[str, str]) -> Peak | None:
    """The bandwidth that the user states. Raises `UsageError` for what is no number of GB/s."""
    text = environment.get(OVERRIDE_VARIABLE, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"{OVERRIDE_VARIABLE} must be a number of GB/s, not {text!r}.", remedy="For a DGX Spark, set it to 273."
        )
    return Peak(value * 1e9, f"stated by {OVERRIDE_VARIABLE}")
