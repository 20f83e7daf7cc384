"""What a calibration says to the process that measures, and what it hears from it: lines of JSON."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from stackscope.experiments.apart import Refused
from stackscope.experiments.samples import Sample
from stackscope.records import ModelSummary
from stackscope.records.ceilings import CacheKind
from stackscope.toggles import EngineConfig

Kind: TypeAlias = Literal["read", "product", "forward", "context", "draft", "save", "load state", "rebuild", "load"]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure, and how often."""

    curves_s: float
    """Reading, products and forwards at empty contexts."""
    contexts_s: float
    """Filling a context and forwards at its depths."""
    rebuilds_s: float
    caches_s: float = 0.0
    """The same with other types of KV cache, and the other way of attention."""
    most: int
    """Samples of anything at most."""
    is_full: bool = False
    """Every row count with all outputs and with one, and deeper contexts."""


QUICK: Final = Budget(curves_s=8.0, contexts_s=4.0, caches_s=3.0, rebuilds_s=1.8, most=9)
FULL: Final = Budget(curves_s=90.0, contexts_s=40.0, caches_s=20.0, rebuilds_s=10.0, most=15, is_full=True)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    config: EngineConfig
    budget: Budget
    cache_bytes: int | None
    """Last level of the processor's caches. `None`: not known."""
    memory_bytes: int
    """What may be taken for reading at most."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was measured, by what makes it that thing."""

    kind: Kind
    rows: int = 0
    sequences: int = 0
    outputs: int = 0
    cached: int = 0
    others: int = 0
    """Cells of other sequences."""
    cache: CacheKind | None = None
    """How keys and values are kept. `None`: as configured."""
    type: str = ""
    place: Literal["memory", "cache"] = "memory"
    bytes: int = 0
    """Read or moved by one run."""
    flops: int = 0


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one thing, in the order of time."""

    item: Item
    samples: tuple[Sample, ...]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what the measuring process says."""


class Progress(Message, frozen=True, kw_only=True, tag="progress"):
    """How far it is."""

    what: str
    fraction: float


class Findings(Message, frozen=True, kw_only=True, tag="findings"):
    """Everything that was measured; the last message."""

    library: str
    threads: int
    is_gpu: bool
    model: ModelSummary
    draft: ModelSummary | None
    series: tuple[Series, ...]
    unknown: dict[str, str] = {}
    """Why something is missing, by what it is."""


AnyMessage: TypeAlias = Progress | Findings | Refused

_messages: Final[msgspec.json.Decoder[AnyMessage]] = msgspec.json.Decoder(AnyMessage)


def decode_message(line: bytes) -> AnyMessage:
    """The message on a line. Raises `msgspec.DecodeError` when there is none."""
    return _messages.decode(line)
