"""A lesson as it ran, in a file: what was staged, predicted and measured, on which machine and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from stackscope.errors import SessionFileError
from stackscope.experiments.lessons.contracts import LessonCell, Stage
from stackscope.experiments.lessons.data import Data
from stackscope.experiments.limits import Limit
from stackscope.experiments.state import CellRun
from stackscope.records import Prediction
from stackscope.session.paths import known_folders, recording_folder

FORMAT: Final = 1
"""Changes whenever what a field means does."""


class LessonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one lesson. What follows from it is worked out anew whenever it is shown."""

    format: int = FORMAT
    lesson: int
    stackscope: str
    date: str
    """When it began, local time with its offset."""
    host: str
    device: str
    cores: int
    """That the engine may use."""
    stage: Stage
    """Models by the names of their files."""
    is_quick: bool = False
    is_interrupted: bool = False
    seconds: float
    """From the first run's start to the last one's end."""
    predictions: dict[str, Prediction]
    """By cell, made before it ran."""
    runs: tuple[CellRun, ...] = ()
    searched: tuple[CellRun, ...] = ()
    chosen: str | None = None
    limits: dict[str, Limit] = {}
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> Data:
        return Data(self.stage.cells, self.runs, self.predictions, self.limits, self.searched, self.chosen)


def own_path(number: int) -> Path:
    """Where the result of a lesson that runs here goes."""
    return recording_folder() / "lessons" / f"{number:02}.json"


def shipped_path(number: int) -> Path | None:
    """The recorded result that comes with Stackscope. `None`: there is none, or this is no checkout."""
    for folder in known_folders():
        path = folder.path / "lessons" / f"{number:02}.json"
        if folder.is_shipped and path.is_file():
            return path
    return None


def read(path: Path) -> LessonRecord:
    """A lesson's record. Raises `SessionFileError`."""
    if path.exists() and not path.is_file():  # A pipe would be waited for.
        raise SessionFileError(f"{path} is not a file.", remedy="Check the path.")
    try:
        record = msgspec.json.decode(path.read_bytes(), type=LessonRecord)
    except OSError as error:
        raise SessionFileError(f"{path} cannot be read: {error.strerror or error}.", remedy="Check the path.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise SessionFileError(f"{path} is no record of a lesson: {error}.", remedy="Run the lesson anew.") from None
    if record.format != FORMAT:
        raise SessionFileError(f"{path} is of another version of Stackscope.", remedy="Run the lesson anew.")
    return record


def write(path: Path, content: dict[str, Any]) -> None:
    """Put a lesson's document into its file. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")


def with_names(stage: Stage) -> Stage:
    """A stage whose models are named by their files alone: where they lie says something of the user only."""
    cells = tuple(msgspec.structs.replace(cell, config=_named(cell)) for cell in stage.cells)
    return msgspec.structs.replace(stage, cells=cells, axes=())


def _named(cell: LessonCell) -> Any:
    draft = cell.config.draft_model
    return msgspec.structs.replace(
        cell.config, model=Path(cell.config.model).name, draft_model=None if draft is None else Path(draft).name
    )


def prediction_with_names(prediction: Prediction) -> Prediction:
    """The same of a prediction."""
    changes = {
        name: (_name(was), _name(becomes)) if name in ("model", "draft_model") else (was, becomes)
        for name, (was, becomes) in prediction.changes.items()
    }
    return msgspec.structs.replace(prediction, changes=changes)


def _name(value: object) -> Any:
    return Path(value).name if isinstance(value, str) else value
