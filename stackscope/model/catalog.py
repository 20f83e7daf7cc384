"""Where models are: the bundled lab pair, and the cache folder with what was quantised, inflated or downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from stackscope.errors import ModelFileError
from stackscope.homes import NoHomeError, expanded, user_folder
from stackscope.model.files import PARTIAL_SUFFIX, shown

Kind: TypeAlias = Literal["bundled", "quantised", "inflated", "downloaded", "unfinished"]

BUNDLED_FOLDER: Final = Path(__file__).parent / "bundled"
CACHE_VARIABLE: Final = "STACKSCOPE_CACHE"
"""Environment variable that names the cache folder."""


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model file that Stackscope knows of."""

    name: str
    """What `resolve` accepts: the file's name without .gguf, behind its repository when it was downloaded."""
    kind: Kind
    """`unfinished`: a download that stopped (getting it again continues), or a file whose writer was killed."""
    path: Path
    bytes: int


def bundled_target() -> Path:
    """The lab target, F16, 5.77 M parameters. Raises `ModelFileError` when the installation lacks it."""
    return _bundled("lab-target-f16.gguf")


def bundled_draft() -> Path:
    """The lab draft, F16, 0.92 M parameters, with the target's tokenizer. Raises as `bundled_target`."""
    return _bundled("lab-draft-f16.gguf")


def cache_folder() -> Path:
    """The folder for variants and downloads, which need not exist: `STACKSCOPE_CACHE`, else the user's cache folder.

    Raises `NoHomeError` where the user has none, `UsageError` where the variable names no place.
    """
    named = os.environ.get(CACHE_VARIABLE, "")
    return expanded(named, origin=CACHE_VARIABLE) if named else user_folder("cache")


def folder_of(kind: Kind) -> Path:
    """Where models of that kind are kept."""
    return BUNDLED_FOLDER if kind == "bundled" else cache_folder() / kind


def catalogue() -> tuple[CatalogEntry, ...]:
    """Everything bundled and cached, by kind and name. A cache folder that is not there is empty."""
    kinds: tuple[Kind, ...] = ("bundled", "quantised", "inflated", "downloaded")
    try:
        cache_folder()
    except NoHomeError:
        kinds = ("bundled",)
    return tuple(entry for kind in kinds for entry in _entries(kind))


def resolve(name: Path | str) -> Path:
    """The file for a path, or for a name out of the catalogue (`lab-target-f16`, `lab-target-q4_k_m`).

    What is there as a path comes first, and a path that names nothing is given back for its reader to say so. Raises
    `ModelFileError` when a name fits several files or none, with what there is to choose from.
    """
    path = expanded(name)
    if path.exists() or path.suffix.lower() == ".gguf":
        return path
    known = [entry for entry in catalogue() if entry.kind != "unfinished"]
    found = [entry for entry in known if str(name).lower() in (entry.name.lower(), entry.path.stem.lower())]
    if len(found) == 1:
        return found[0].path
    if found:
        places = ", ".join(shown(entry.path) for entry in found)
        raise ModelFileError(f"{shown(name)} names several models.", remedy=f"Give the path of one: {places}.")
    if path.name != str(name):  # with folders in it, it can only have been meant as a path
        return path
    names = ", ".join(entry.name for entry in known)
    raise ModelFileError(
        f"There is no model {shown(name)}.", remedy=f"Give the path of a .gguf file, or one of: {names}."
    )


def _bundled(file_name: str) -> Path:
    path = BUNDLED_FOLDER / file_name
    if not path.is_file():
        raise ModelFileError(
            f"The installation lacks its bundled model {file_name}.", remedy="Install Stackscope again."
        )
    return path


def _entries(kind: Kind) -> list[CatalogEntry]:
    folder = folder_of(kind)
    entries: list[CatalogEntry] = []
    for path in sorted(folder.rglob("*")):
        is_partial = path.name.endswith(PARTIAL_SUFFIX)
        if not (is_partial or path.suffix.lower() == ".gguf") or not path.is_file():
            continue
        name = path.relative_to(folder).with_suffix("").as_posix()
        size = path.stat().st_size
        entries.append(CatalogEntry(name=shown(name), kind="unfinished" if is_partial else kind, path=path, bytes=size))
    return entries
