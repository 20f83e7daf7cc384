"""The header that the build puts before ggml: what a tile configuration is set to is really stored."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

HEADER: Final = Path(__file__).resolve().parents[2] / "scripts" / "setup" / "tile-config.h"
SOURCE: Final = """
#include <immintrin.h>
void configure(unsigned char rows) {
    alignas(64) unsigned char config[64] = {};
    config[0] = 1;
    config[55] = rows;
    _tile_loadconfig(config);
}
"""
"""As ggml does it. Some compilers take the instruction to read the first eight bytes only, and store no more."""


def compiled(folder: Path, *options: str) -> str | None:
    """The assembly of the source. `None`: this compiler cannot do that."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    source, made = folder / "tile.cpp", folder / "tile.s"
    source.write_text(SOURCE)
    command = [compiler, "-O3", "-mavx2", *options, "-S", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return made.read_text() if done.returncode == 0 else None


def test_all_of_a_tile_configuration_is_stored(tmp_path: Path) -> None:
    if compiled(tmp_path, "-mamx-tile") is None:
        pytest.skip("needs g++ for x86 that knows AMX")
    assembly = compiled(tmp_path, "-mamx-tile", "-include", str(HEADER))
    assert assembly is not None
    assert "ldtilecfg" in assembly
    assert re.search(r"%(dil|edi|rdi)\b", assembly), "the argument is stored"


def test_the_header_is_nothing_to_other_files(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    source = tmp_path / "plain.cpp"
    source.write_text("int main() { return 0; }\n")
    command = ["g++", "-Werror", "-Wall", "-include", str(HEADER), "-E", str(source)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "_tile" not in made
