"""The native side of one configuration: models, contexts, and what their memories hold, kept in step.

A rebuild makes a new backend; models whose file did not change are handed on instead of loaded again.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stackscope.cgroups import available_memory
from stackscope.engine import sizing
from stackscope.engine.llama import Context, Model, supports_offload
from stackscope.engine.memory import Memory
from stackscope.engine.openmp import usable_cores
from stackscope.errors import ToggleRefusedError
from stackscope.model.spec import load_spec
from stackscope.model.tokens import tokenizer_difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.engine.abort import AbortFlag
    from stackscope.records import ModelSummary
    from stackscope.toggles import EngineConfig


ModelKey: TypeAlias = tuple[str, int, int, str, tuple[float, ...]]
"""A file, and where its layers were put."""


class Backend:
    """Models and contexts of one configuration. Close in this order: contexts, then models."""

    def __init__(
        self,
        config: EngineConfig,
        abort: AbortFlag,
        *,
        progress: Callable[[str, float], None],
        previous: Backend | None = None,
        longest_request: int = 0,
    ) -> None:
        """Load what is not at hand and create the contexts; `longest_request` as `sizing.resolve` has it.

        `previous` has its contexts closed already; the models it shares with this configuration are taken over.
        Raises `StackscopeError`, with nothing left behind and `previous` still owning its models.
        """
        self.config = config
        self.abort = abort
        self.longest_request = longest_request
        reuse = {} if previous is None else previous.models()
        self.spec = self._summary(config.model, previous)
        self.size = sizing.resolve(config, self.spec, usable_threads=usable_cores(), longest_request=longest_request)
        self.draft_spec = None if config.draft_model is None else self._summary(config.draft_model, previous)
        self._check_pair(reuse)
        sizing.check_memory(sizing.memory_estimate(config, self.size, self.spec), available_memory())
        opened: list[Model | Context] = []
        try:
            self.model = self._model(config.model, reuse, progress, opened)
            self.draft_model = None
            if config.draft_model is not None:
                self.draft_model = self._model(config.draft_model, reuse, progress, opened)
            self.target = Context(self.model, self.size, config, abort)
            opened.append(self.target)
            self.draft = None
            if self.draft_model is not None:
                self.draft = Context(self.draft_model, self.size, config, abort)
                opened.append(self.draft)
            self.trim_refusal = probe_trim(self.target, self.model)
            self.draft_refusal = None if self.draft is None else probe_trim(self.draft, self.draft_model)
        except BaseException:
            for handle in reversed(opened):
                handle.close()
            raise
        self.memory = Memory(
            self.target,
            self.draft,
            kv_cell_bytes=sizing.kv_bytes_per_cell(config, self.spec),
            draft_cell_bytes=0 if self.draft_spec is None else sizing.kv_bytes_per_cell(config, self.draft_spec),
            draft_window=None if self.draft_spec is None else sizing.smallest_window(self.draft_spec),
        )

    @property
    def can_abort(self) -> bool:
        """Whether the forward reads the abort flag: only the CPU backend does."""
        return not (supports_offload() and self.config.gpu_layers != 0)

    def models(self) -> dict[ModelKey, Model]:
        """The loaded models, by file and placement."""
        found = {model_key(self.model.path, self.config): self.model}
        if self.draft_model is not None:
            found[model_key(self.draft_model.path, self.config)] = self.draft_model
        return found

    def _summary(self, path: str, previous: Backend | None) -> ModelSummary:
        if previous is not None:
            for spec in (previous.spec, previous.draft_spec):
                if spec is not None and spec.path == path:
                    return spec
        return load_spec(path).summary()

    def _check_pair(self, reuse: dict[ModelKey, Model]) -> None:
        draft = self.config.draft_model
        if draft is None or {draft, self.config.model} <= {path for path, *_ in reuse}:
            return
        difference = tokenizer_difference(self.config.model, draft)
        if difference is not None:
            raise ToggleRefusedError(
                f"{Path(draft).name} cannot draft for {Path(self.config.model).name}: {difference}",
                remedy="Give a draft model with the target's own tokenizer.",
            )

    def _model(
        self,
        path: str,
        reuse: dict[ModelKey, Model],
        progress: Callable[[str, float], None],
        opened: list[Model | Context],
    ) -> Model:
        key = model_key(path, self.config)
        if key in reuse:
            return reuse[key]
        if opened and isinstance(opened[0], Model) and opened[0].path == path:
            return opened[0]
        model = Model(path, self.config, progress=lambda done: progress(path, done))
        opened.append(model)
        return model

    def set_threads(self, n: int | None) -> None:
        """Use `n` threads from the next forward on; None: as many as the cores this process may use."""
        threads = usable_cores() if n is None else n
        self.target.set_threads(threads)
        if self.draft is not None:
            self.draft.set_threads(threads)

    def close_contexts(self) -> None:
        """Free both contexts; the models stay."""
        if self.draft is not None:
            self.draft.close()
        self.target.close()
        return_freed_memory()

    def close_models(self, *, except_of: Backend | None = None) -> None:
        """Free the models, those excepted that another backend uses too."""
        kept = () if except_of is None else except_of.models().keys()
        for key, model in self.models().items():
            if key not in kept:
                model.close()

    def close(self) -> None:
        self.close_contexts()
        self.close_models()


def model_key(path: str, config: EngineConfig) -> ModelKey:
    """What makes a loaded model: its file, and where its layers were put."""
    return (path, config.gpu_layers, config.main_gpu, config.split_mode, config.tensor_split)


def return_freed_memory() -> None:
    """Have the C library hand freed memory back to the system, so that rebuilds do not add up; glibc keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def probe_trim(context: Context, model: Model | None) -> str | None:
    """Why this model's memory cannot forget single positions. `None`: it can.

    Feeds four tokens, removes two, and checks both the answer and what is left: some memories answer yes and keep a
    stale state. It is also the context's warm-up.
    """
    assert model is not None
    batch = context.batch
    batch.token[:4] = 0
    batch.position[:4] = range(4)
    batch.sequence[:4] = 0
    batch.output[:4] = (0, 0, 0, 1)
    context.decode(4)
    removed = context.remove(0, 2)
    trimmed = removed and context.range_of(0).last == 1
    context.clear()
    if model.is_recurrent or model.is_hybrid:
        kind = "recurrent" if model.is_recurrent else "hybrid (partly recurrent)"
        return f"its memory is {kind}: one running state per sequence, from which single positions cannot be removed"
    return None if trimmed else "its memory cannot remove single positions"
