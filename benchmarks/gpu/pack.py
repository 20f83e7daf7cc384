"""Gathers what a machine without a network needs for `benchmarks.gpu_check`: packages for its Python, and the source.

The source distribution of llama-cpp-python is taken from `--source`, else from where set-up keeps it, else by pip,
whose cache has it where set-up has built the library.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.gpu.folders import CARRIED, ROOT, say
from benchmarks.gpu.unpack import BINDING, LIBRARY, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PACKAGES: Final = (
    *("annotated-doc", "annotated-types", "click", "diskcache", "jinja2", "markdown-it-py", "markupsafe", "mdurl"),
    *("msgspec", "numpy", "nvidia-ml-py", "platformdirs", "psutil", "pydantic", "pydantic-core", "pygments", "rich"),
    *("scipy", "shellingham", "typer", "typing-extensions", "typing-inspection", "zstandard"),
)
"""All that the engine and the command line import, the library aside."""
PLATFORMS: Final = tuple(
    f"manylinux{tag}_x86_64" for tag in ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014", "_2_5", "1")
)
MOST_BYTES: Final = 64 << 20
"""Beyond this it is told, because whoever lends machines limits what may be carried."""


def main(arguments: list[str] | None = None, run: Callable[[Sequence[str]], object] | None = None) -> int:
    """`run` runs a command, and raises when it fails."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pack", description=__doc__)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    options.add_argument("--python", default=here, help="version on the other machine")
    options.add_argument("--have", default="", help="packages that it has, separated by commas")
    options.add_argument("--source", type=Path, help="llama-cpp-python's source distribution")
    options.add_argument("--to", type=Path, default=CARRIED)
    given = options.parse_args(arguments)
    given.to.mkdir(parents=True, exist_ok=True)
    do = run or (lambda command: subprocess.run(command, check=True))
    source = given.source or find_source() or fetch_source(given.to, do)
    repack(source, given.to / "library.tar.xz")
    missing = wanted_packages(given.have.split(","))
    fetch_packages(missing, given.python, given.to / "packages", do)
    files = [path for path in given.to.rglob("*") if path.is_file() and path != source]
    total = sum(path.stat().st_size for path in files)
    say(f"{len(files)} files, {total / 1e6:.0f} MB, in {given.to}")
    if total > MOST_BYTES:
        say(f"That is more than {MOST_BYTES >> 20} MiB. Name what the other machine has: --have numpy,scipy")
    return 0


def pins() -> dict[str, str]:
    """Versions by name, in lower case and with hyphens."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {re.sub(r"[-_.]+", "-", name.strip().lower()): version.strip() for name, version in pairs}


def wanted_packages(have: Sequence[str]) -> list[str]:
    """What is to be fetched, with its version. Raises `SystemExit` for a name that is not among the packages."""
    names = {name.strip().lower() for name in have if name.strip()}
    unknown = sorted(names - set(PACKAGES))
    if unknown:
        raise SystemExit(f"{', '.join(unknown)} is not among {', '.join(PACKAGES)}.")
    known = pins()
    return [f"{name}=={known[name]}" for name in PACKAGES if name not in names]


def find_source() -> Path | None:
    """The distribution that a set-up under way keeps. `None`: there is none."""
    return next(iter(sorted((ROOT / ".build" / "library" / "source").glob("llama_cpp_python-*.tar.gz"))), None)


def fetch_source(folder: Path, run: Callable[[Sequence[str]], object]) -> Path:
    """Have pip fetch the distribution, or find it in its cache."""
    version = pins()["llama-cpp-python"]
    run(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"),
            *("--dest", str(folder), f"llama-cpp-python=={version}"),
        ]
    )
    return next(folder.glob("llama_cpp_python-*.tar.gz"))


def fetch_packages(wanted: Sequence[str], python: str, folder: Path, run: Callable[[Sequence[str]], object]) -> None:
    """Have pip fetch wheels for another Python."""
    if not wanted:
        return
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    run(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
            *("--python-version", python, "--implementation", "cp", *platforms),
            *("--dest", str(folder), *wanted),
        ]
    )


def repack(source: Path, target: Path) -> None:
    """Of the distribution only what the build needs: 3 MB instead of 77."""
    with tarfile.open(source) as whole, tarfile.open(target, "w:xz") as part:
        for member, place in wanted(whole):
            root = "" if place.parts[0] == BINDING else f"{LIBRARY}/"
            member.name = f"llama_cpp_python/{root}{place}"
            part.addfile(member, whole.extractfile(member))


if __name__ == "__main__":
    sys.exit(main())
