"""What the words of a report mean: the parts of the time, and every metric as its class explains it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

from stackscope.analysis.metrics.catalogue import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

TERMS: Final = (
    ("–", "Not known, or not defined: never zero. Zero is 0."),
    ("n", "Number of values behind a percentile."),
    ("*", "A percentile that fewer than one value lies beyond, so that it is no more than the maximum."),
    ("modelled", "Counted by the ledger from the model's tensors and the batch, not measured by a counter."),
    ("step", "One turn of the engine's loop: at most one forward of the target."),
    ("forward", "One computation of the target over all rows of a batch. As a phase: its time, of prompt rows too."),
    ("epoch", "The time under one configuration."),
    ("prefill", "Of a forward: its share of prompt rows. In all other places: computing a prompt."),
    ("decode", "Of a forward: one row for each sequence that decodes."),
    ("verify", "Of a forward: the rows beyond that one, which judge drafted tokens."),
    ("draft", "Everything done to obtain drafts: look-ups, the draft model's forwards."),
    ("sample", "Logits to tokens, and verification of drafts."),
    ("schedule", "Admitting requests, deciding and filling the batch, trimming what was rejected."),
    ("emit", "Tokens to text, stops, finishing requests."),
    ("shadow", "Tracking what an optimisation that is off would have done."),
    ("idle", "Between steps: nothing to do, or a rebuild."),
    ("unexplained", "The rest of the loop, and forwards that were cut short."),
)


def legend() -> Iterator[tuple[str, str]]:
    """(term, meaning) of every word."""
    yield from TERMS
    for metric in METRICS:
        kind = type(metric)
        prose = " ".join((inspect.getdoc(kind) or "").split())
        yield kind.header, f"{prose} = {kind.formula}."
