"""The time of a step in parts that sum to it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Terms(NamedTuple):
    """Nanoseconds of one step. The parts are not negative and sum to the prediction."""

    weights: float = 0.0
    """Reading the weights, the head apart, as at one row: once per pass."""
    head: float = 0.0
    """The output head: reading it, and multiplying it by the output rows."""
    compute: float = 0.0
    """What more rows than one add to `weights`."""
    attention: float = 0.0
    """What cached tokens add."""
    resident: float = 0.0
    """What occupied cells of other sequences and idle prefixes add, which a unified cache scans."""
    fixed: float = 0.0
    """Per forward and pass, whatever is in it."""
    draft: float = 0.0
    """Obtaining drafts: forwards of the draft model, or n-gram look-ups."""
    sample: float = 0.0
    """Logits to tokens, per output row."""
    host: float = 0.0
    """Admission, building the batch, committing, emitting, and the rest of the loop."""

    @property
    def forward(self) -> float:
        """The target's forward."""
        return self.weights + self.head + self.compute + self.attention + self.resident + self.fixed

    @property
    def total(self) -> float:
        return self.forward + self.draft + self.sample + self.host


TERMS: Final = Terms._fields
