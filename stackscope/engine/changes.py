"""Changing the configuration of a running engine: live, by rebuild, or refused with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope.cgroups import available_memory
from stackscope.engine import refusals, sizing
from stackscope.engine.backend import Backend
from stackscope.engine.llama import supports_offload
from stackscope.engine.openmp import usable_cores
from stackscope.errors import EngineError, StackscopeError, ToggleRefusedError
from stackscope.model.spec import load_spec
from stackscope.model.tokens import tokenizer_difference
from stackscope.records import ConfigEvent
from stackscope.toggles import EngineConfig, Setting, ToggleKind, changed_fields, kind_of_change

if TYPE_CHECKING:
    from stackscope.engine.loop import Engine
    from stackscope.records import ModelSummary


Changes: TypeAlias = dict[str, tuple[Setting, Setting]]
By: TypeAlias = Literal["user", "plan", "engine"]

PLACEMENT: Final = ("main_gpu", "split_mode", "tensor_split")
"""Settings that say where the layers of a model go."""


def refusal(config: EngineConfig, backend: Backend) -> str | None:
    """Why this configuration cannot run on the models that are loaded. `None`: it can."""
    return refusals.refusal(
        config, backend.spec, target_cannot=backend.trim_refusal, draft_cannot=backend.draft_refusal
    )


def soften(config: EngineConfig, backend: Backend) -> tuple[EngineConfig, str | None]:
    """A starting configuration that these models can run, and what the user should know about it.

    The prefix cache is on by default, so a model that cannot have one starts without it. Whatever else cannot run
    was asked for, and raises `ToggleRefusedError`.
    """
    notes = []
    if not supports_offload():
        if config.gpu_layers > 0:
            notes.append(
                "This build of llama.cpp has no GPU backend: every layer is on the CPU, and an idle GPU expected."
            )
        elif any(getattr(config, name) != getattr(EngineConfig(), name) for name in PLACEMENT):
            notes.append("This build of llama.cpp has no GPU backend: where layers go on GPUs has no effect.")
    reason = refusal(config, backend)
    if reason is not None:
        config = msgspec.structs.replace(config, prefix_cache=False)
        if refusal(config, backend) is not None:
            raise ToggleRefusedError(reason, remedy="Leave that setting out.")
        notes.append(f"{reason} It is off.")
    return config, " ".join(notes) or None


def reconfigure(engine: Engine, config: EngineConfig, by: By) -> ConfigEvent:
    """Bring `config` into force. Never raises for a refusal: the event says why, and the old one stays."""
    before = engine.config
    if config.threads is None:  # As at the start: what is in force is a number, which predictions go by.
        config = msgspec.structs.replace(config, threads=usable_cores())
    changes = changed_fields(before, config)
    at_ns = engine.now()
    try:
        sizing.resolve(config, engine.backend.spec, usable_threads=engine.backend.size.threads)
    except ToggleRefusedError as error:
        return _refused(engine, changes, by, at_ns, str(error))
    reason = refusal(config, engine.backend)
    kind = kind_of_change(before, config)
    if reason is not None and (kind is ToggleKind.LIVE or not _may_differ_after_rebuild(changes)):
        return _refused(engine, changes, by, at_ns, reason)
    too_small = sizing.fits_live(config, engine.backend.size) if kind is ToggleKind.LIVE else None
    if kind is ToggleKind.LIVE and too_small is None:
        engine.apply_live(config)
        return ConfigEvent(at_ns=at_ns, epoch=engine.next_epoch(), kind="live", by=by, changes=changes, config=config)
    return _rebuild(engine, config, changes, by, at_ns, too_small)


def _may_differ_after_rebuild(changes: Changes) -> bool:
    """Another model, or another cache, may lift what refuses the setting now; it is asked again once built."""
    return bool({"model", "draft_model", "swa_full", "unified_kv"} & changes.keys())


def _refused(engine: Engine, changes: Changes, by: By, at_ns: int, reason: str) -> ConfigEvent:
    return ConfigEvent(at_ns=at_ns, epoch=engine.epoch, kind="refused", by=by, changes=changes, reason=reason)


def _other_vocabulary(before: str, after: str) -> str | None:
    """Why requests in flight cannot go on with another model. `None`: they can."""
    try:
        difference = tokenizer_difference(before, after)
    except StackscopeError as error:
        return str(error)
    return None if difference is None else f"The requests in flight are tokens of another vocabulary: {difference}"


def _restore(engine: Engine, old: Backend) -> None:
    """Go back to the configuration in force, whose models are still loaded. Raises `EngineError` when that fails."""
    try:
        backend = Backend(
            engine.config, old.abort, progress=engine.progress, previous=old, longest_request=old.longest_request
        )
    except StackscopeError as error:
        raise EngineError(f"The configuration before could not be brought back: {error}") from error
    _install(engine, backend, engine.config)


def _install(engine: Engine, backend: Backend, config: EngineConfig) -> None:
    engine.install(backend, config)
    engine.idle()  # What the building took belongs to no step.


def _check_room(engine: Engine, config: EngineConfig) -> ModelSummary:
    """The target to come. Raises `StackscopeError` where its context would cut a request in flight short."""
    known = engine.backend.spec
    model = known if config.model == known.path else load_spec(config.model).summary()
    now = engine.longest_requests[-1]
    threads = engine.backend.size.threads
    sizing.check_room(config, sizing.resolve(config, model, usable_threads=threads, longest_request=now), now)
    return model


def _built(engine: Engine, config: EngineConfig, model: ModelSummary, old: Backend) -> Backend:
    """A backend with room for as long requests as there were, or at least for those in flight.

    Where that takes little of the memory, it has room for all that could be asked for before. Raises `StackscopeError`
    where there is no room for those in flight either.
    """
    most, ever, now = engine.longest_requests

    def build(longest: int) -> Backend:
        return Backend(config, old.abort, progress=engine.progress, previous=old, longest_request=longest)

    threads, free = engine.backend.size.threads, available_memory()
    ever = sizing.longest_with_room(config, model, usable_threads=threads, most=most, longest=ever, free=free)
    try:
        return build(ever)
    except StackscopeError:
        if now == ever or config.context_tokens is not None:  # It would be of the same size.
            raise
    return build(now)


def _rebuild(
    engine: Engine,
    config: EngineConfig,
    changes: Changes,
    by: By,
    at_ns: int,
    why: str | None,
) -> ConfigEvent:
    old = engine.backend
    if "model" in changes:
        reason = _other_vocabulary(engine.config.model, config.model)
        if reason is not None:
            return _refused(engine, changes, by, at_ns, reason)
    try:
        model = _check_room(engine, config)
    except StackscopeError as error:
        return _refused(engine, changes, by, at_ns, str(error))
    requeued = engine.put_back_all()
    engine.release_backend()
    try:
        backend = _built(engine, config, model, old)
    except StackscopeError as error:
        _restore(engine, old)
        return _refused(engine, changes, by, at_ns, f"{error} The configuration before it goes on.")
    cannot = refusal(config, backend)
    if cannot is not None:
        backend.close_contexts()
        backend.close_models(except_of=old)
        _restore(engine, old)
        return _refused(engine, changes, by, at_ns, cannot)
    old.close_models(except_of=backend)
    _install(engine, backend, config)
    return ConfigEvent(
        at_ns=at_ns,
        epoch=engine.next_epoch(),
        kind="rebuild",
        by=by,
        changes=changes,
        reason=why,
        duration_ns=engine.now() - at_ns,
        requeued=requeued,
        config=config,
        model=backend.spec if "model" in changes else None,
        draft_model=backend.draft_spec if "draft_model" in changes else None,
    )
