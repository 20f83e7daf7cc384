"""What stands for recordings on the command line: files, and folders of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.errors import SessionFileError
from stackscope.experiments.state import NAME
from stackscope.session.format import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def recordings_in(paths: Iterable[Path]) -> list[Path]:
    """The recordings that are meant: a folder stands for those in it. Raises `SessionFileError` for one without."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = [one for one in sorted(path.iterdir()) if one.name.endswith((SUFFIX, ".jsonl")) and one.name != NAME]
        if not inside:
            raise SessionFileError(f"There is no recording in {path}.", remedy="Name a folder that has some, or files.")
        found += inside
    return found
