"""Which ledgers price the work of each epoch, as far as the header and the changes so far tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.offload import computes_on_gpu

if TYPE_CHECKING:
    from stackscope.records import ConfigEvent, Header, ModelSummary
    from stackscope.toggles import EngineConfig, KvType


class Pricing(NamedTuple):
    """What is known of one configuration's cost. `None`: not known."""

    target: Ledger | None = None
    draft: Ledger | None = None
    threads: int | None = None
    """Engine threads that compute. `None` also where a GPU does: their CPU time is no share of the forwards' then."""


UNPRICED = Pricing()


class Ledgers:
    """Follows the models through a session. A ledger is shared by all epochs that need the same one."""

    def __init__(self) -> None:
        self.model: ModelSummary | None = None
        """The target in force. `None`: not known."""
        self.draft: ModelSummary | None = None
        """The draft model whose geometry is known, in use or not. `None`: not known."""
        self._library: str | None = None
        self._draft_name: str | None = None
        """What the configuration calls the draft model whose geometry is known."""
        self._known: list[tuple[tuple[ModelSummary, KvType, KvType], Ledger | None]] = []
        self._not_modelled: set[str] = set()

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What the cost leaves out of the models so far, in words."""
        return tuple(sorted(self._not_modelled))

    def begin(self, header: Header) -> Pricing:
        """Take the header; the cost of what it starts with."""
        self.model, self._library = header.model, header.library
        if header.draft_model is not None:
            self.draft = header.draft_model
            self._draft_name = header.draft_model.path if header.config is None else header.config.draft_model
        return self._pricing(header.config)

    def change(self, event: ConfigEvent) -> Pricing:
        """Take a change that was not refused; the cost of what is in force after it."""
        if event.model is not None:
            self.model = event.model
        if event.config is not None and "draft_model" in event.changes:
            self.draft, self._draft_name = event.draft_model, event.config.draft_model
        return self._pricing(event.config)

    def _pricing(self, config: EngineConfig | None) -> Pricing:
        if config is None:
            return UNPRICED
        target = None if self.model is None else self._ledger(self.model, config)
        has_draft = self.draft is not None and config.draft_model == self._draft_name
        draft = self._ledger(self.draft, config) if self.draft is not None and has_draft else None
        threads = None if computes_on_gpu(self._library, config) else config.threads
        return Pricing(target, draft, threads)

    def _ledger(self, model: ModelSummary, config: EngineConfig) -> Ledger | None:
        """The ledger of a model. `None`: its summary contradicts itself, and nothing can be said of its cost."""
        key = (model, config.kv_type_k, config.kv_type_v)
        for known, ledger in self._known:
            if known == key:
                return ledger
        ledger = None
        try:
            ledger = Ledger(*key)
        except ValueError as error:
            self._not_modelled.add(f"all of it ({error})")
        else:
            self._not_modelled.update(ledger.not_modelled)
        self._known.append((key, ledger))
        return ledger
