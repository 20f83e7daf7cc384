"""Where recordings go, and what they are called."""

from __future__ import annotations

import os
import re
import tomllib
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackscope.errors import UsageError
from stackscope.homes import NoHomeError, expanded, user_folder
from stackscope.session.format import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

_PACKAGE: Final = Path(__file__).resolve().parents[1]

ELSEWHERE: Final = "--record PATH"
"""What a run is told to record elsewhere with; experiments have a folder instead."""

_PART_LENGTH: Final = 48
"""Characters kept of a workload's or model's name: file systems allow 255 bytes, and two such parts stay readable."""


@dataclass(frozen=True)
class Destination:
    """Where one recording is to be written."""

    path: Path
    is_chosen: bool
    """The user named this very file: when it exists, recording is refused. Otherwise a number is added to the name."""


def recording_folder(*, package: Path = _PACKAGE) -> Path:
    """Where recordings go by default.

    `profiles/recorded`, which git ignores, in the checkout that the package runs from; for an installed package, or a
    checkout that may not be written to, the user's data folder. Raises `NoHomeError` where there is none.
    """
    root = package.parent
    if _is_checkout(root) and os.access(root, os.W_OK):
        return root / "profiles" / "recorded"
    return user_folder("data") / "recorded"


@dataclass(frozen=True)
class Folder:
    """A folder with recordings."""

    path: Path
    is_shipped: bool = False
    """Its recordings come with Stackscope, and are nobody's to delete."""


def known_folders(*, package: Path = _PACKAGE) -> tuple[Folder, ...]:
    """Folders to look for recordings in, which need not exist: where they go, where they went before, what ships."""
    root = package.parent
    own: tuple[Folder, ...] = ()
    with suppress(NoHomeError):  # Then none of them is in it.
        own = (Folder(user_folder("data") / "recorded"),)
    if not _is_checkout(root):
        return own
    return (Folder(root / "profiles" / "recorded"), *own, Folder(root / "profiles", is_shipped=True))


def destination(
    chosen: Path | str | None, *, started: datetime, workload: str, model: str, folder: Path | None = None
) -> Destination:
    """Where to record a run that began at `started` (wall clock), by what the user chose.

    `None`: a name made from the other arguments, in `folder` or else `recording_folder()`. A folder (one that exists,
    or a text that ends in a slash): that name in it. Anything else: that file, its suffix completed to `.jsonl.zst`.
    """
    name = recording_name(started, workload, model)
    if chosen is None:
        return Destination(path=(recording_folder() if folder is None else folder) / name, is_chosen=False)
    text = os.fspath(chosen)
    if not text.strip():
        raise UsageError("The path to record to is empty.", remedy="Give a file or a folder.")
    path = expanded(text)
    if text.endswith(("/", os.sep)) or path.is_dir():
        return Destination(path=path / name, is_chosen=False)
    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path} is no file, and a recording needs one.",
            remedy="Give a file or a folder, or --no-record to keep nothing.",
        )
    return Destination(path=path.with_name(_with_suffix(path.name)), is_chosen=True)


def recording_name(started: datetime, workload: str, model: str) -> str:
    """A name such as `2026-11-29T20-15-03-code-lab-target.jsonl.zst`, free of characters that some system minds."""
    parts = (started.strftime("%Y-%m-%dT%H-%M-%S"), _plain(workload), _plain(model))
    return "-".join(part for part in parts if part) + SUFFIX


def numbered(path: Path) -> Iterator[Path]:
    """The path itself, then the same with `-2`, `-3` and so on before the suffix, without end."""
    yield path
    stem = path.name.removesuffix(SUFFIX)
    for number in count(2):
        yield path.with_name(f"{stem}-{number}{SUFFIX}")


def _with_suffix(name: str) -> str:
    return name.removesuffix(".zst").removesuffix(".jsonl") + SUFFIX


def _plain(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._]+", "-", ascii_text)[:_PART_LENGTH].strip("-.")


def _is_checkout(root: Path) -> bool:
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError):
        return False  # No project file, or not one that can be read: then this is no checkout of ours.
    return isinstance(project, dict) and project.get("name") == "stackscope"
