"""What is in force: configuration, models and load, as the header and the changes since say."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from stackscope.analysis.ledgers import UNPRICED, Ledgers, Pricing
from stackscope.records.ceilings import Limits

if TYPE_CHECKING:
    from stackscope.records import ConfigEvent, Header, ModelSummary, TrafficEvent
    from stackscope.toggles import EngineConfig, Setting

MOST_PRICINGS: Final = 16
"""Newest epochs whose cost is remembered, for steps that come after the change that followed them."""


class Standing:
    """Follows header and changes. `None` is not known."""

    def __init__(self, header: Header | None) -> None:
        self.header = header
        self.config: EngineConfig | None = None
        self.epoch = 0
        self.concurrency: int | None = None
        self.rate: float | None = None
        self._ledgers = Ledgers()
        self._pricings: dict[int, Pricing] = {}
        if header is None:
            return
        self._pricings[0] = self._ledgers.begin(header)
        self.config = header.config
        concurrency, rate = header.workload.get("concurrency"), header.workload.get("rate")
        self.concurrency = concurrency if isinstance(concurrency, int) else None
        self.rate = float(rate) if isinstance(rate, int | float) else None

    @property
    def model(self) -> ModelSummary | None:
        """The target."""
        return self._ledgers.model

    @property
    def draft_model(self) -> ModelSummary | None:
        """The draft model that the configuration names."""
        return None if self.config is None or self.config.draft_model is None else self._ledgers.draft

    @property
    def model_name(self) -> str | None:
        """The target by the name of its file, which has the type of its weights in it."""
        return None if self.model is None else PurePath(self.model.path).stem or self.model.name

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What the cost leaves out of the models so far, in words."""
        return self._ledgers.not_modelled

    @property
    def limits(self) -> Limits:
        """What this machine was measured to do at most, as far as that holds for what is in force."""
        ceilings = None if self.header is None else self.header.ceilings
        return Limits(None, None) if ceilings is None or self.config is None else ceilings.limits(self.config)

    @property
    def closed_loop(self) -> int | None:
        """Requests offered at a time. `None`: they arrive by themselves, or it is not known."""
        is_trace = self.header is not None and self.header.workload.get("arrivals") == "trace"
        return None if self.rate is not None or is_trace else self.concurrency

    @property
    def block_bytes(self) -> int | None:
        """KV bytes of one block of the prefix cache in the target's cache."""
        ledger = self.pricing(self.epoch).target
        if ledger is None or self.config is None or self.config.block_tokens < 1:
            return None
        return self.config.block_tokens * ledger.kv_bytes_per_token

    def pricing(self, epoch: int) -> Pricing:
        """What is known of an epoch's cost."""
        return self._pricings.get(epoch, UNPRICED)

    def change(self, event: ConfigEvent) -> None:
        """Take a change that was not refused."""
        self._pricings[event.epoch] = self._ledgers.change(event)
        while len(self._pricings) > MOST_PRICINGS:
            del self._pricings[next(iter(self._pricings))]
        self.epoch = event.epoch
        if event.config is not None:
            self.config = event.config

    def change_load(self, event: TrafficEvent) -> dict[str, tuple[Setting, Setting]]:
        """Take a change of the load; what it changed, before and after."""
        changes: dict[str, tuple[Setting, Setting]] = {}
        if event.concurrency is not None and event.concurrency != self.concurrency:
            changes["concurrency"] = (self.concurrency, event.concurrency)
            self.concurrency = event.concurrency
        if event.rate is not None and event.rate != self.rate:
            changes["rate"] = (self.rate, event.rate)
            self.rate = event.rate
        return changes
