"""Take the paths of the machine that recorded them out of shipped recordings: a model is left with its file's name.

    python scripts/neutral_profiles.py [FILE...]

Without files: all of profiles/. Nothing else of a recording changes, and one without such paths is left as it is. The
recordings of a user keep their paths, by which the models are found again.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import zstandard

PROFILES: Final = Path(__file__).parent.parent / "profiles"
LEVEL: Final = 9

MODEL: Final = re.compile(rb'"(?:/|[A-Za-z]:(?:/|\\\\))(?:[^"\\]|\\.)*?([^"/\\]+\.gguf)"')
"""A JSON string that is the absolute path of a model file; its name is the group."""

ABSOLUTE: Final = re.compile(rb'"(?:/[A-Za-z0-9_.~-]+/|~/|[A-Za-z]:(?:/|\\\\))[^"]*"')
"""A JSON string that is any absolute path, of a file or of a folder in one."""


def plain(path: Path) -> bytes:
    """The lines of a recording."""
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()


def neutral(lines: bytes) -> bytes:
    """The same lines, with the names of model files instead of their absolute paths."""
    return MODEL.sub(rb'"\1"', lines)


def main(files: list[str]) -> int:
    """Rewrite files in place; 1 where absolute paths of another kind remain."""
    paths = [Path(file) for file in files] or sorted(PROFILES.rglob("*.jsonl.zst"))
    remains = 0
    for path in paths:
        before = plain(path)
        after = neutral(before)
        if after != before:
            unfinished = path.with_name(f".{path.name}.new")
            unfinished.write_bytes(zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(after))
            unfinished.replace(path)
            print(f"{path}: {len(MODEL.findall(before)):,} paths")
        for left in sorted(set(ABSOLUTE.findall(after))):
            print(f"{path} still holds {left.decode(errors='replace')}", file=sys.stderr)
            remains = 1
    return remains


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
