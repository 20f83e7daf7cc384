"""What `doctor` says of the folders that things are kept in."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

from stackscope import config, units
from stackscope.commands.examinations import Check
from stackscope.errors import StackscopeError, UsageError
from stackscope.homes import NoHomeError
from stackscope.model.catalog import cache_folder
from stackscope.session.paths import recording_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def of_folders() -> Iterator[Check]:
    """Where things are kept, and whether they can be."""
    yield _folder("Recordings", recording_folder, "Give another place with --record PATH.")
    yield _folder("Models", cache_folder, "Give another place with STACKSCOPE_CACHE.")
    yield _settings()


def _settings() -> Check:
    """Whether the settings file, if there is one, can be read."""
    check = partial(Check, topic="Folders", name="Settings")
    try:
        path = config.settings_file(None, os.environ)
        if path is None:
            return check(holds=True, value=f"none; {config.user_settings_file()} would be read")
        n_settings = len(config.read_settings(path))
    except NoHomeError:
        return check(holds=True, value="none, and no home folder to look for them")
    except StackscopeError as error:
        remedy = error.remedy or "Correct it, or name another file with STACKSCOPE_CONFIG."
        return check(holds=False, value=error.message, remedy=remedy, is_needed=True)
    except OSError as error:  # of a folder that may not be entered
        value = f"{error.filename}: {error.strerror}"
        return check(holds=False, value=value, remedy="Give a file with STACKSCOPE_CONFIG.", is_needed=True)
    return check(holds=True, value=f"{path}: {units.count(n_settings)} set")


def _folder(name: str, find: Callable[[], Path], remedy: str) -> Check:
    """Whether a folder can be written to, or made where it does not exist yet."""
    try:
        folder = find()
    except UsageError as error:
        return Check(topic="Folders", name=name, holds=False, value=error.message, remedy=error.remedy)
    # What a folder that may not be entered holds counts as missing; Path.exists would raise.
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))  # noqa: PTH110
    is_writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    free = f"{units.data_size(shutil.disk_usage(nearest).free)} free"
    value = f"{folder} ({free})" if is_writable else f"{folder} cannot be written to"
    return Check(topic="Folders", name=name, holds=is_writable, value=value, remedy=None if is_writable else remedy)
