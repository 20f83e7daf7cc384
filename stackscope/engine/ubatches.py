"""How the library cuts one batch into ubatches, for those who run it; what-ifs ask the same in `analysis.ubatches`."""

from __future__ import annotations

from stackscope.analysis.ubatches import split_equal, split_simple

__all__ = ["split_equal", "split_simple"]
