"""What configurations this engine would run, and what memory they would take: the rules that what-ifs go by."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from stackscope.engine import refusals, sizing
from stackscope.errors import ToggleRefusedError
from stackscope.toggles import ToggleKind, kind_of_change

if TYPE_CHECKING:
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig


class Allowances:
    """Answers without asking the engine: what only it finds out, such as memory that is not free, is not refused."""

    def __init__(self, cores: int | None = None) -> None:
        """`cores` that the engine may use. `None`: not known."""
        self.cores = cores
        self._built: EngineConfig | None = None
        self._longest, self._in_flight = 0, 0
        self._free: int | None = None

    def holding(self, built: EngineConfig, *, longest: int, in_flight: int, free: int | None) -> Allowances:
        """The same beside a context that was `built` for a configuration, with the lengths of requests, in tokens with
        output, the longest so far and of those in flight; and the bytes of memory that are free. `None`: not known."""
        other = copy.copy(self)
        other._built, other._longest, other._in_flight, other._free = built, longest, in_flight, free
        return other

    def refusal(self, config: EngineConfig, model: ModelSummary, draft: ModelSummary | None) -> str | None:
        """Why it would not run, as a sentence. `None`: nothing is known against it."""
        try:
            sizing.check_room(config, self._size(config, model), self._in_flight)
        except ToggleRefusedError as error:
            return str(error)
        return refusals.refusal(
            config,
            model,
            target_cannot=refusals.running_state(model),
            draft_cannot=None if draft is None else refusals.running_state(draft),
        )

    def memory_bytes(self, config: EngineConfig, model: ModelSummary, draft: ModelSummary | None) -> int | None:
        """Weights, KV cells and logit rows of both models and contexts. `None`: the configuration is refused."""
        try:
            size = self._size(config, model)
        except ToggleRefusedError:
            return None
        models = [model] if draft is None else [model, draft]
        return sum(one.tensor_bytes + sizing.memory_estimate(config, size, one) for one in models)

    def cells(self, config: EngineConfig, model: ModelSummary) -> int | None:
        """KV cells of the target's context. `None`: the configuration is refused."""
        try:
            return self._size(config, model).n_ctx
        except ToggleRefusedError:
            return None

    def _size(self, config: EngineConfig, model: ModelSummary) -> sizing.ContextSize:
        threads, longest = self.cores or 1, self._longest
        if self._built is not None and self._built.model == config.model:
            before = sizing.resolve(self._built, model, usable_threads=threads, longest_request=longest)
            is_live = kind_of_change(self._built, config) is ToggleKind.LIVE
            if is_live and sizing.fits_live(config, before) is None:
                return before
            most, free = before.n_ctx_seq, self._free
            longest = sizing.longest_with_room(
                config, model, usable_threads=threads, most=most, longest=longest, free=free
            )
        return sizing.resolve(config, model, usable_threads=threads, longest_request=longest)
