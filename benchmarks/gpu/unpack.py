"""Stage `unpack`: puts the carried packages where Python finds them, and llama.cpp's source where CMake does.

The source comes from `library.tar.xz`, as `benchmarks.gpu.pack` makes it, or from llama-cpp-python's own source
distribution. Of either only what a build of the library needs is taken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from benchmarks.gpu.folders import Folders, add_folders, say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARCHIVES: Final = ("library.tar.xz", "llama_cpp_python-*.tar.gz")
BINDING: Final = "llama_cpp"
LIBRARY: Final = "vendor/llama.cpp"
NEEDED: Final = ("CMakeLists.txt", "LICENSE", "cmake", "ggml", "include", "src")
"""Of llama.cpp: its tools, tests and web interface are most of the distribution."""


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    add_folders(options)
    folders = Folders.of(options.parse_args(arguments))
    archive = find_archive(folders.carried)
    if archive is None:
        say(f"There is no {' or '.join(ARCHIVES)} in {folders.carried}. Make it: python -m benchmarks.gpu.pack")
        return 1
    wheels = sorted(folders.carried.glob("**/*.whl"))
    unpack(archive, wheels, folders)
    say(f"{len(wheels)} packages, and the source of {archive.name}")
    return 0


def find_archive(folder: Path) -> Path | None:
    """The archive with the source. `None`: there is none."""
    return next((path for pattern in ARCHIVES for path in sorted(folder.glob(pattern))), None)


def unpack(archive: Path, wheels: list[Path], folders: Folders) -> None:
    """Fill the site with packages and the binding, and lay the source out. What was built stays."""
    shutil.rmtree(folders.source, ignore_errors=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folders.site)
    with tarfile.open(archive) as file:
        for member, place in wanted(file):
            root = folders.site if place.parts[0] == BINDING else folders.source
            _write(file, member, root / place)
    # The build lists it; what is in it serves parts that are not built.
    (folders.source / "vendor").mkdir(exist_ok=True)
    (folders.source / "vendor" / "CMakeLists.txt").touch()
    os.utime(folders.source / "vendor" / "CMakeLists.txt", (0, 0))


def wanted(file: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """The files of an archive that are needed, and their places: `llama_cpp/…`, or relative to llama.cpp's folder.

    Raises `ValueError` for a name that leads out of the archive's folder.
    """
    for member in file:
        parts = PurePosixPath(member.name).parts
        if not member.isfile() or len(parts) < 3:
            continue
        if ".." in parts or parts[0] == "/":
            raise ValueError(f"{member.name} leads out of its folder")
        inside = PurePosixPath(*parts[1:])
        if parts[1] == BINDING and "lib" not in parts:
            yield member, inside
        elif inside.is_relative_to(LIBRARY) and inside.relative_to(LIBRARY).parts[0] in NEEDED:
            yield member, inside.relative_to(LIBRARY)


def _write(file: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = file.extractfile(member)
    assert source is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as into:
        shutil.copyfileobj(source, into)
    os.utime(target, (member.mtime, member.mtime))  # Else a build that goes on would begin anew.


if __name__ == "__main__":
    sys.exit(main())
