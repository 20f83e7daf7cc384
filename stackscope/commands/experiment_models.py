"""The files that an experiment needs: the target of a size worth optimising, and its weights of other types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from stackscope.experiments.cells import weights_file
from stackscope.launch import with_models
from stackscope.model.catalog import bundled_draft, bundled_target, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.toggles import EngineConfig

INFLATED_MB: Final = 200.0
"""Of the bundled target, when no model is named: large enough to be limited by reading its weights."""


def inflated_target(say: Callable[[str], None]) -> Path:
    """The bundled target, inflated; it is made the first time. Raises `ModelFileError`."""
    from stackscope.model.inflate import default_output, inflate

    source = bundled_target()
    path = default_output(source, INFLATED_MB)
    if not path.is_file():
        say(f"making {path.name}")
        inflate(source, INFLATED_MB)
    return path


def with_target(engine: EngineConfig, say: Callable[[str], None]) -> EngineConfig:
    """The configuration with its models: the bundled pair, its target inflated, where none was named.

    Raises as `with_models`.
    """
    if not engine.model:
        draft = str(bundled_draft()) if engine.draft_model is None else engine.draft_model
        engine = msgspec.structs.replace(engine, model=str(inflated_target(say)), draft_model=draft)
    return with_models(engine)


def weights_finder(model: str, say: Callable[[str], None]) -> Callable[[str], str]:
    """Gives the file for a type of a model's weights, which is quantised the first time, or for a file's own name.

    Raises `UsageError` and `ModelFileError`.
    """

    def find(wanted: str) -> str:
        if wanted.lower().endswith(".gguf"):
            return str(resolve(wanted))
        from stackscope.model.quantise import quantise

        source = Path(model)
        path, is_there = weights_file(source, wanted)
        if not is_there:
            say(f"making {path.name}")
            quantise(source, wanted, replace=True)
        return str(path)

    return find


def teller(*, is_quiet: bool) -> Callable[[str], None]:
    """Says on standard error what takes its time before the first run."""
    console = Console(stderr=True)

    def say(text: str) -> None:
        if not is_quiet:
            console.print(f"{text} …", style="dim", highlight=False)

    return say
