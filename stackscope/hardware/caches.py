"""How large the processor's caches are: what decides whether a model is read from memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path("/")

_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def last_level_bytes(cpus: Iterable[int], root: Path = ROOT) -> int | None:
    """Size of the last-level caches that these logical CPUs reach, summed. `None`: the system does not say.

    A virtual machine sees the host's cache, which it may share with others. `root` is where /sys is found.
    """
    found: dict[tuple[str, str], int] = {}
    for cpu in cpus:
        last = _last(root / f"sys/devices/system/cpu/cpu{cpu}/cache")
        if last is None:
            return None
        shared_by, size = last
        found[shared_by] = size
    return sum(found.values()) or None


def _last(folder: Path) -> tuple[tuple[str, str], int] | None:
    """((level, CPUs that share it), bytes) of one CPU's highest cache. `None`: it is not told."""
    caches = []
    for index in folder.glob("index*"):
        level, kind, size, shared = (_text(index / name) for name in ("level", "type", "size", "shared_cpu_list"))
        if level.isdigit() and kind in ("Unified", "Data"):
            caches.append((int(level), shared, size))
    if not caches:
        return None
    level_number, shared, size = max(caches)
    amount = re.fullmatch(r"(\d+)([KMG]?)", size)
    return ((str(level_number), shared), int(amount[1]) * _UNITS[amount[2]]) if amount else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
