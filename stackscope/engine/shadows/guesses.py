"""The draft model in a context of its own, for the shadow: one sequence, few rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.cgroups import available_memory
from stackscope.engine import sizing
from stackscope.engine.abort import AbortFlag
from stackscope.engine.llama import Context, DecodeStatus
from stackscope.errors import StackscopeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stackscope.engine.backend import Backend
    from stackscope.engine.llama import Model
    from stackscope.engine.sizing import ContextSize
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig

MOST_CELLS: Final = 4096
"""Tokens of the longest request that is followed: a longer one would take memory that others may need more."""
ROWS: Final = 128
OUTPUTS: Final = 32
"""Logit rows of a forward: each has an entry for every token of the vocabulary."""
MEMORY_SHARE: Final = 0.1
"""Of the memory that is free, the most that the context may take."""


class ContextGuesses:
    """Implements `models.Guesses` with a llama.cpp context."""

    def __init__(self, model: Model, spec: ModelSummary, size: ContextSize, config: EngineConfig) -> None:
        """`size` is that of the context for real drafts. Raises `StackscopeError` where there is no room."""
        own = msgspec.structs.replace(
            size,
            n_ctx=min(size.n_ctx_seq, MOST_CELLS),
            n_ctx_seq=min(size.n_ctx_seq, MOST_CELLS),
            n_batch=ROWS,
            n_ubatch=ROWS,
            n_seq_max=1,
            n_outputs_max=OUTPUTS,
            slots_max=1,
            threads=1,  # One thread waits for no other: beside a busy neighbour, two took up to 300 ms for 0.5.
            n_paths=0,
            has_guards=False,
        )
        free = available_memory()
        sizing.check_memory(
            sizing.memory_estimate(config, own, spec), None if free is None else int(free * MEMORY_SHARE)
        )
        self.n_rows = ROWS
        self.n_outputs = OUTPUTS
        # Nobody raises this flag: a forward here is short, and what cuts short the engine's is none of its business.
        self._abort = AbortFlag()
        self._context = Context(model, own, config, self._abort)
        self.n_cells = self._context.n_ctx_seq
        window = None if config.swa_full else sizing.smallest_window(spec)
        self._can_go_back = window is None

    def feed(self, tokens: NDArray[np.int32], start: int, n_outputs: int) -> list[int] | None:
        context = self._context
        batch, n = context.batch, len(tokens)
        batch.token[:n] = tokens
        batch.position[:n] = range(start, start + n)
        batch.sequence[:n] = 0
        batch.output[:n] = 0
        if n_outputs:
            batch.output[n - n_outputs : n] = 1
        try:
            if context.decode(n) != DecodeStatus.OK:
                self._abort.lower()
                return None
            said: list[int] = context.logits(n_outputs).argmax(1).tolist() if n_outputs else []
        except StackscopeError:
            return None
        return said

    def keep(self, n_tokens: int) -> int:
        if n_tokens > 0 and self._can_go_back and self._context.remove(0, n_tokens):
            return n_tokens
        self._context.clear()
        return 0

    def close(self) -> None:
        self._context.close()


def open_guesses(backend: Backend) -> ContextGuesses | str | None:
    """The draft model of a backend, ready to be asked. Text: why it cannot be. `None`: there is no draft model."""
    if backend.draft is None or backend.draft_model is None or backend.draft_spec is None:
        return None
    if backend.draft_refusal is not None:
        return f"The draft model is not tried while it is off: {backend.draft_refusal}."
    try:
        return ContextGuesses(backend.draft_model, backend.draft_spec, backend.size, backend.config)
    except StackscopeError as error:
        return f"The draft model is not tried while it is off: {error}"
