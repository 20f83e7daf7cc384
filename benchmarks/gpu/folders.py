"""Where the stages of the GPU check find what was carried along, where they work, and where their results go.

Nothing but the standard library is needed here: the first stage runs before any package is there.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[2]
CARRIED: Final = ROOT / ".build" / "gpu"
"""What `benchmarks.gpu.pack` gathers; version control leaves it out."""
TARGET: Final = "target.gguf"


@dataclass(frozen=True)
class Folders:
    """The three folders, and what has its place in them."""

    carried: Path
    work: Path
    out: Path

    @classmethod
    def of(cls, options: argparse.Namespace) -> Folders:
        """As the command line names them; `work` and `out` are made."""
        folders = cls(options.carried.resolve(), options.work.resolve(), options.out.resolve())
        folders.work.mkdir(parents=True, exist_ok=True)
        folders.out.mkdir(parents=True, exist_ok=True)
        return folders

    @property
    def site(self) -> Path:
        """Packages for this machine's Python."""
        return self.work / "site"

    @property
    def source(self) -> Path:
        """llama.cpp's source."""
        return self.work / "llama.cpp"

    @property
    def build(self) -> Path:
        """The compiler's work, from which an interrupted build goes on."""
        return self.work / "build"

    @property
    def libraries(self) -> Path:
        """Where the binding looks for the compiled library."""
        return self.site / "llama_cpp" / "lib"

    @property
    def target(self) -> Path:
        """The inflated model."""
        return self.work / TARGET

    def arguments(self) -> list[str]:
        """The options that name these folders."""
        return [f"--carried={self.carried}", f"--work={self.work}", f"--out={self.out}"]

    def environment(self) -> dict[str, str]:
        """Of a stage's process: it imports this repository and what was carried along."""
        path = [str(self.site), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "PYTHONUNBUFFERED": "1"}

    def save(self, name: str, value: object) -> Path:
        """Write a result as JSON; what is there is replaced whole. Returns its path."""
        path = self.out / f"{name}.json"
        write_json(path, value)
        return path

    def result(self, name: str) -> Any:
        """A result that was saved. `None`: there is none."""
        path = self.out / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_json(path: Path, value: object) -> None:
    """Replace a file by a value as JSON."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Options that name the folders."""
    parser.add_argument("--carried", type=Path, default=CARRIED, help="what benchmarks.gpu.pack gathered")
    parser.add_argument("--work", type=Path, default=Path("/tmp/stackscope-gpu"), help="room for some 6 GB")
    parser.add_argument("--out", type=Path, default=CARRIED / "out", help="where the results go")


def sentence_of(main: Callable[[], int]) -> int:
    """What a stage comes to, with a failure that has a sentence told as one."""
    from stackscope.errors import StackscopeError

    try:
        return main()
    except StackscopeError as error:
        say(str(error))
        return 1


def say(text: str) -> None:
    """Print a line at once: whoever waits for a device reads along."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def rows(cells: list[tuple[str, ...]]) -> str:
    """Rows as aligned columns, all to the left but the second, which are values."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        first, second, *others = zip(row, widths, strict=True)
        told = [f"{first[0]:<{first[1]}}", f"{second[0]:>{second[1]}}", *[f"{text:<{width}}" for text, width in others]]
        lines.append("  ".join(told).rstrip())
    return "\n".join(lines)
