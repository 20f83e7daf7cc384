"""The file that an experiment's results go into, one line each, so that a killed one can be taken up again.

The first line is the plan, each further one a finished run, forced to the disk before the next begins. A line that a
kill cut off is dropped; the run it was for is then missing, and is run again.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from stackscope import __version__
from stackscope.errors import SessionFileError, UsageError
from stackscope.experiments.plan import difference
from stackscope.records import Prediction

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

FORMAT: Final = 1
"""Changes whenever what a line means does."""

NAME: Final = "experiment.jsonl"
"""Of the file, in the folder of the experiment's recordings."""

DISTURBED_SHARE: Final = 0.97
"""CPU share of the engine's threads below which something else had its cores."""


class CellRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run"):
    """One cell, run once."""

    block: int
    cell: int
    figures: dict[str, float] = {}
    """Measured quantities by name. One that is unknown or undefined is not there."""
    duration_ns: int = 0
    """From starting the engine process to its end."""
    started: str = ""
    recording: str | None = None
    """Name of the recording, in the same folder."""
    refusal: str | None = None
    """Why this configuration cannot run, as a sentence. `None`: it ran."""
    notes: tuple[str, ...] = ()

    @property
    def is_disturbed(self) -> bool:
        """Something else had the engine's cores. Of a run that does not know its own share, nothing had."""
        return self.figures.get("cpu_share", 1.0) < DISTURBED_SHARE


class CellPrediction(msgspec.Struct, frozen=True, kw_only=True, tag="prediction"):
    """What a cell was predicted to do, from the first run of the baseline."""

    cell: int
    prediction: Prediction


class CellQuality(msgspec.Struct, frozen=True, kw_only=True, tag="quality"):
    """How far a cell's answers are from those of the reference, on a fixed text."""

    cell: int
    figures: dict[str, float]


class CellRefusal(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """That a cell cannot run, as was known before anything ran."""

    cell: int
    why: str
    """A sentence, with what can be done about it."""


class _Head(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    format: int
    kind: str
    stackscope: str
    plan: dict[str, Any]


_OPENING: Final = b'{"type":"plan"'
"""What every file of an experiment begins with, were it ended in its first line."""

Line: TypeAlias = CellRun | CellPrediction | CellQuality | CellRefusal
"""Any line but the first."""


class StateFile:
    """An open experiment. A context manager: leaving it closes the file."""

    def __init__(self, descriptor: int, path: Path, plan: dict[str, Any], lines: list[Line]) -> None:
        self._descriptor = descriptor
        self.path = path
        self.plan = plan
        """As plain JSON types."""
        self.runs = [line for line in lines if isinstance(line, CellRun)]
        """Finished ones, in the order in which they ran."""
        self.predictions = {line.cell: line.prediction for line in lines if isinstance(line, CellPrediction)}
        """By cell. Empty: none were made yet."""
        self.quality = {line.cell: line.figures for line in lines if isinstance(line, CellQuality)}
        """By cell: of those that were held against the reference."""
        self.refusals = {line.cell: line.why for line in lines if isinstance(line, CellRefusal)}
        """By cell: why some cannot run, as was known beforehand."""

    @classmethod
    def open(cls, folder: Path, kind: str, plan: msgspec.Struct | None) -> Self:
        """Begin an experiment in a folder, or take up the one that is there.

        `plan` `None` takes the plan that is stored. Raises `UsageError` when the experiment is of another kind, or
        when `plan` is another one, naming the differences; `SessionFileError` when there is none, when the file cannot
        be used, or another process is using it.
        """
        path = folder / NAME
        wanted = None if plan is None else msgspec.json.decode(msgspec.json.encode(plan))
        _require_folder(folder)
        _require_file(path)
        if wanted is None and not path.exists():
            raise _missing(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            _lock(descriptor, path)
            content = _content(descriptor, path)
            lines = _lines_of(content)
            if not lines:
                if wanted is None:
                    raise _planless(path)
                _end_behind(descriptor, content, lines)
                opened = cls(descriptor, path, wanted, [])
                opened._append(_Head(format=FORMAT, kind=kind, stackscope=__version__, plan=wanted))
                return opened
            stored, results = _decoded(lines, path)
            _check(stored, kind, wanted, path)
            _end_behind(descriptor, content, lines)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, path, stored.plan, results)

    @staticmethod
    def refuse_other(folder: Path, kind: str, plan: msgspec.Struct, *, settled_later: Sequence[str] = ()) -> None:
        """Raise at once, and without writing anything, what `open` would for a folder that cannot be used.

        `settled_later` are fields of the plan that are not known yet.
        """
        path = folder / NAME
        _require_folder(folder)
        if not path.is_file():
            return
        lines = _lines_of(path.read_bytes())
        if lines:
            stored, _ = _decoded(lines, path)
            wanted = msgspec.json.decode(msgspec.json.encode(plan))
            wanted |= {name: stored.plan[name] for name in settled_later if name in stored.plan}
            _check(stored, kind, wanted, path)

    def add(self, run: CellRun) -> None:
        """Store a finished run; it is on the disk when this returns. Raises `SessionFileError`."""
        self._append(run)
        self.runs.append(run)

    def predict(self, cell: int, prediction: Prediction) -> None:
        """Store what a cell is predicted to do. Raises `SessionFileError`."""
        self._append(CellPrediction(cell=cell, prediction=prediction))
        self.predictions[cell] = prediction

    def judge(self, cell: int, figures: dict[str, float]) -> None:
        """Store how far a cell's answers are from the reference's. Raises `SessionFileError`."""
        self._append(CellQuality(cell=cell, figures=figures))
        self.quality[cell] = figures

    def refuse(self, cell: int, why: str) -> None:
        """Store why a cell cannot run. Raises `SessionFileError`."""
        self._append(CellRefusal(cell=cell, why=why))
        self.refusals[cell] = why

    def _append(self, line: msgspec.Struct) -> None:
        left = memoryview(msgspec.json.encode(line) + b"\n")
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise _unusable(self.path, error) from error

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stored(NamedTuple):
    """An experiment as far as it has come."""

    kind: str
    plan: dict[str, Any]
    """As plain JSON types."""
    runs: list[CellRun]
    predictions: dict[int, Prediction]
    """By cell, like `quality`."""
    quality: dict[int, dict[str, float]]
    refusals: dict[int, str]


def is_begun(folder: Path) -> bool:
    """Something is in a folder that an experiment may be gone on with, or that is none and has to be told of.

    One that is not there, or is empty, is a place to begin in.
    """
    try:
        return next(folder.iterdir(), None) is not None
    except FileNotFoundError:
        return False
    except OSError:  # No folder, or one that may not be read.
        return True


def read(folder: Path) -> Stored:
    """An experiment that may be going on. Raises `SessionFileError`."""
    path = folder / NAME
    _require_file(path)
    try:
        lines = _lines_of(path.read_bytes())
    except FileNotFoundError:
        raise _missing(folder) from None
    except OSError as error:
        raise _unusable(path, error) from error
    if not lines:
        raise _planless(path)
    stored, results = _decoded(lines, path)
    _require_format(stored, path)
    return Stored(
        kind=stored.kind,
        plan=stored.plan,
        runs=[line for line in results if isinstance(line, CellRun)],
        predictions={line.cell: line.prediction for line in results if isinstance(line, CellPrediction)},
        quality={line.cell: line.figures for line in results if isinstance(line, CellQuality)},
        refusals={line.cell: line.why for line in results if isinstance(line, CellRefusal)},
    )


def _content(descriptor: int, path: Path) -> bytes:
    """What a file holds. Raises `SessionFileError` where it cannot be the beginning of an experiment."""
    content = b""
    while chunk := os.read(descriptor, 1 << 20):
        content += chunk
    if not _lines_of(content) and not content.startswith(_OPENING[: len(content)]):
        raise SessionFileError(
            f"{path} is not what an experiment left behind: it does not begin with a plan.",
            remedy="Begin anew in another folder.",
        )
    return content


def _end_behind(descriptor: int, content: bytes, lines: list[bytes]) -> None:
    """Have a file end with its whole lines: what a kill cut off would spoil the next one."""
    end = sum(len(line) + 1 for line in lines)
    if end > len(content):
        os.write(descriptor, b"\n")
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)


def _lines_of(content: bytes) -> list[bytes]:
    """The whole lines; the last may lack its end, as editors leave it, if it is no beginning of a longer one."""
    *lines, rest = content.split(b"\n")
    try:
        msgspec.json.decode(rest)
    except (msgspec.DecodeError, RecursionError):
        return lines
    return [*lines, rest]


def _decoded(lines: list[bytes], path: Path) -> tuple[_Head, list[Line]]:
    try:
        stored = msgspec.json.decode(lines[0], type=_Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SessionFileError(
            f"{path} is not what an experiment left behind: line 1 is no plan ({error}).",
            remedy="Begin anew in another folder.",
        ) from None
    results: list[Line] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            results.append(msgspec.json.decode(line, type=Line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise SessionFileError(
                f"Line {number:,} of {path} cannot be read: {error}.",
                remedy="Take that line out: what it held is done again when the experiment goes on.",
            ) from None
    return stored, results


_P = TypeVar("_P", bound=msgspec.Struct)


def plan_as(kind: type[_P], plan: dict[str, Any], path: Path) -> _P:
    """A stored plan, of which `path` is the file. Raises `SessionFileError` for one that this version cannot use."""
    try:
        return msgspec.convert(plan, kind)
    except msgspec.ValidationError as error:
        raise SessionFileError(
            f"The plan on line 1 of {path} cannot be used: {error}.", remedy="Begin anew in another folder."
        ) from None


def _require_format(stored: _Head, path: Path) -> None:
    if stored.format != FORMAT:
        raise SessionFileError(
            f"{path} is of another version of Stackscope ({stored.stackscope}).", remedy="Begin anew in another folder."
        )


def _missing(folder: Path) -> SessionFileError:
    return SessionFileError(
        f"There is no experiment in {folder} to go on with.",
        remedy="Check the path; to begin one there, say with options what it is to be of.",
    )


def _planless(path: Path) -> SessionFileError:
    return SessionFileError(
        f"{path} has no plan: it was ended before it began.",
        remedy="Begin anew, with options, in this folder or another.",
    )


def other_kind(folder: Path, kind: str) -> UsageError:
    """What is raised where a folder's experiment is of this kind, and another is asked for."""
    return UsageError(f"{folder} has another kind of experiment: {kind}.", remedy="Name another folder.")


def _check(stored: _Head, kind: str, wanted: dict[str, Any] | None, path: Path) -> None:
    _require_format(stored, path)
    if stored.kind != kind:
        raise other_kind(path.parent, stored.kind)
    if wanted is None or wanted == stored.plan:
        return
    changes = difference(stored.plan, wanted)
    told = "; ".join(changes[:3]) + (f"; and {len(changes) - 3} more" if len(changes) > 3 else "")
    raise UsageError(
        f"The experiment in {path.parent} has another plan ({told}).",
        remedy="Go on with the one that is there by naming the folder alone, or begin anew in another folder.",
    )


def _lock(descriptor: int, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SessionFileError(f"{path} is in use by another process.", remedy="Wait for it, or end it.") from None


def _require_folder(folder: Path) -> None:
    """Raise `SessionFileError` for what cannot be a folder to write to."""
    above = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    number = errno.ENOTDIR if not above.is_dir() else 0 if os.access(above, os.W_OK | os.X_OK) else errno.EACCES
    if number:
        raise _unusable(folder, OSError(number, os.strerror(number)))


def _require_file(path: Path) -> None:
    """Raise `SessionFileError` for a pipe or a device: reading one might never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SessionFileError(f"{path} is no file.", remedy="Name another folder.")


def _unusable(path: Path, error: OSError) -> SessionFileError:
    return SessionFileError(f"{path} cannot be used: {error.strerror or error}.", remedy="Name another folder.")
