"""Which file of which repository of the Hugging Face Hub is meant, and where it is kept here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from stackscope.errors import UsageError
from stackscope.model.catalog import folder_of
from stackscope.model.files import shown

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_REVISION: Final = "main"

_SHARD: Final = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)


class HubFile(NamedTuple):
    """A file of a repository of the Hub."""

    repository: str
    """OWNER/NAME."""
    file: str
    """Path inside the repository."""
    revision: str


def parse(name: str, *, revision: str | None = None) -> HubFile:
    """Read `OWNER/REPO/FILE`, or the address of the file's page. Raises `UsageError` for anything else."""
    parts = name.split("/")
    if parts[0] in ("http:", "https:"):
        parts = [unquote(part) for part in name.partition("?")[0].split("/")[3:]]
        if len(parts) > 4 and parts[2] in ("resolve", "blob"):
            revision = parts[3] if revision is None else revision
            parts = [*parts[:2], *parts[4:]]
    is_safe = all(part not in ("", ".", "..") and not set(part) & set('\\:*?"<>|\0') for part in parts)
    if len(parts) < 3 or not is_safe:
        remedy = "For example: stackscope models get Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf."
        raise UsageError(f"{shown(name)} does not name a file as OWNER/REPO/FILE.", remedy=remedy)
    found = HubFile("/".join(parts[:2]), "/".join(parts[2:]), DEFAULT_REVISION if revision is None else revision)
    if not found.file.lower().endswith(".gguf"):
        raise UsageError(f"{shown(found.file)} is not a .gguf file.", remedy="Name a .gguf file of the repository.")
    if (shard := _SHARD.search(found.file)) and int(shard[1]) > 1:
        raise UsageError(
            f"{shown(found.file)} is one of {int(shard[1])} parts of a split model.",
            remedy="Choose a file that is whole, or download the parts with hf download and merge them.",
        )
    return found


def place_of(wanted: HubFile) -> Path:
    """Where the file is kept in the cache folder."""
    return folder_of("downloaded") / wanted.repository / wanted.file
