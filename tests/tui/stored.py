"""Stored texts of what is shown. All of them are of synthetic sessions, and say so in their first line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent.parent / "golden" / "tui"
UPDATE: Final = "UPDATE_GOLDEN"
"""Environment variable that has the stored texts written anew, to be read before they are committed."""
LABEL: Final = "Synthetic: numbers that were made up, and measured by nobody."


def check(name: str, text: str) -> None:
    """The text is the stored one of that name."""
    path = GOLDEN / name
    labelled = f"{LABEL}\n{text}"
    if os.environ.get(UPDATE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(labelled, encoding="utf-8")
    assert labelled == path.read_text(encoding="utf-8")
