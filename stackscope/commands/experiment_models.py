"""The files that an experiment needs: the target of a size worth optimising, and its weights of other types."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console

from stackscope.commands.interrupts import told_when_interrupted
from stackscope.experiments.cells import weights_file
from stackscope.launch import with_models
from stackscope.model.catalog import bundled_draft, bundled_target, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.toggles import EngineConfig

INFLATED_MB: Final = 200.0
"""Of the bundled target, when no model is named: large enough to be limited by reading its weights."""


class ModelMaker:
    """Names the files of an experiment at once, and makes those that are missing when it is told to.

    So all that can be refused is refused before anything takes its time.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._missing: dict[Path, Callable[[], object]] = {}

    def inflated_target(self) -> Path:
        """The bundled target, inflated."""
        from stackscope.model.inflate import default_output, inflate

        source = bundled_target()
        path = default_output(source, INFLATED_MB)
        if not path.is_file():
            self._missing[path] = partial(inflate, source, INFLATED_MB)
        return path

    def with_target(self, engine: EngineConfig) -> EngineConfig:
        """The configuration with its models: the bundled pair, its target inflated, where none was named.

        Raises as `with_models`, and `ModelFileError`.
        """
        if engine.model:
            found = with_models(engine)
            require_models(found.model, found.draft_model)
            return found
        draft = bundled_draft() if engine.draft_model is None else resolve(engine.draft_model)
        require_models(str(draft))
        return msgspec.structs.replace(engine, model=str(self.inflated_target()), draft_model=str(draft))

    def weights(self, model: str, wanted: str) -> str:
        """The file for a type of a model's weights, or for a file's own name.

        Raises `UsageError` and `ModelFileError`.
        """
        if wanted.lower().endswith(".gguf"):
            return str(resolve(wanted))
        from stackscope.model.quantise import quantise, require_quantisable

        source = Path(model)
        path, is_there = weights_file(source, wanted)
        if source in self._missing or not is_there:
            if source not in self._missing:
                require_quantisable(source, wanted)
            self._missing[path] = partial(quantise, source, wanted, replace=True)
        return str(path)

    def make(self) -> None:
        """Make what is missing, in the order in which it was named.

        Raises `UsageError` and `ModelFileError`; `KeyboardInterrupt` leaves what is whole.
        """
        while self._missing:
            path = next(iter(self._missing))
            self._say(f"making {path.name}")
            with told_when_interrupted(f"{path.name} was not finished, and nothing was measured."):
                self._missing[path]()
            del self._missing[path]


def require_models(*paths: str | None) -> None:
    """Raise the `ModelFileError` of files that are no models for text, as far as their headers tell."""
    from stackscope.model.header import read_header
    from stackscope.model.suitability import require_text_model

    for path in paths:
        if path is not None:
            require_text_model(read_header(Path(path)))


def teller(*, is_quiet: bool) -> Callable[[str], None]:
    """Says on standard error what takes its time before the first run."""
    console = Console(stderr=True)

    def say(text: str) -> None:
        if not is_quiet:
            console.print(f"{text} …", style="dim", highlight=False)

    return say
