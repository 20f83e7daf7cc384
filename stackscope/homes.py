"""Home folders: what `~` stands for in a path, and where this user's settings, recordings and models go by default.

A process may have no home: a container under a numeric uid has neither HOME nor an entry in the system's list of users.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, TypeAlias

from stackscope.errors import UsageError

Kind: TypeAlias = Literal["cache", "config", "data"]

_VARIABLES: Final[dict[Kind, str]] = {
    "cache": "STACKSCOPE_CACHE",
    "config": "STACKSCOPE_CONFIG",
    "data": "XDG_DATA_HOME",
}
"""What names another place than one below the home folder."""


class NoHomeError(UsageError):
    """A folder of the user's is needed, and the user has no home that it could be in."""


def user_folder(kind: Kind) -> Path:
    """Where this user's files of that kind go, which need not exist. Raises `NoHomeError`."""
    import platformdirs

    find = {
        "cache": platformdirs.user_cache_path,
        "config": platformdirs.user_config_path,
        "data": platformdirs.user_data_path,
    }[kind]
    try:
        folder = find("stackscope", appauthor=False)
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():  # Older releases of platformdirs leave the ~ where it is.
        raise NoHomeError(
            "There is no home folder: HOME is not set, and the system does not know this user.",
            remedy=f"Set HOME, or {_VARIABLES[kind]}.",
        )
    return folder


def expanded(path: Path | str, *, origin: str | None = None) -> Path:
    """A path in which `~` and `~name` are the home folders that they stand for; raises as `expanded_text`."""
    return Path(expanded_text(os.fspath(path), origin=origin))


def expanded_text(text: str, *, origin: str | None = None) -> str:
    """The same of a path as text, which keeps a slash at its end.

    `origin` is what the user calls the setting that holds it. Raises `UsageError` where there is no such home folder.
    """
    whole = os.path.expanduser(text)  # noqa: PTH111 - a slash at the end means a folder, and Path drops it
    if not text.startswith("~") or not whole.startswith("~"):
        return whole
    home = text.partition("/")[0]
    why = f"there is no user {home[1:]}" if home != "~" else "HOME is not set, and the system does not know this user"
    told = f"{text} names no place: {why}."
    raise UsageError(told if origin is None else f"{origin}: {told}", remedy="Write the folder out.")
