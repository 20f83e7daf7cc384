"""What the GPU check finds on a machine that it never saw: tools, cuBLAS, doubts, and a source unpacked once more."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.gpu import building, unpack
from benchmarks.gpu.stages import DOUBTS, Stage, State, perform
from benchmarks.gpu.toolkit import cublas_options
from tests.unit.test_gpu_check import CMAKE, Time, distribution, folders, program

if TYPE_CHECKING:
    from benchmarks.gpu.folders import Folders

__all__ = ["folders"]


def toolkit(root: Path, *libraries: str) -> str:
    """The compiler of a toolkit with these files beside it."""
    for name in libraries:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "bin").mkdir(parents=True, exist_ok=True)
    program(root / "bin" / "nvcc", "")
    return str(root / "bin" / "nvcc")


def package(root: Path) -> Path:
    """As pip lays NVIDIA's libraries out."""
    for name in ("lib/libcublas.so.13", "lib/libcublasLt.so.13", "include/cublas_v2.h"):
        path = root / "nvidia" / "cu13" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root / "nvidia"


@pytest.mark.parametrize("library", ["lib64/libcublas.so", "targets/x86_64-linux/lib/libcublas.so"])
def test_a_whole_toolkit_needs_no_options(tmp_path: Path, library: str) -> None:
    compiler = toolkit(tmp_path / "cuda", library)
    assert cublas_options(compiler, tmp_path / "links", [package(tmp_path)], system=()) == []
    assert not (tmp_path / "links").exists()


def test_a_toolkit_without_cublas_takes_the_python_package(tmp_path: Path) -> None:
    compiler = toolkit(tmp_path / "cuda")
    links = tmp_path / "links"
    for _ in range(2):  # A second time, what is there is replaced.
        options = cublas_options(compiler, links, [tmp_path / "nowhere", package(tmp_path)], system=())
    assert options == [
        f"-DCMAKE_CUDA_FLAGS=-isystem {tmp_path}/nvidia/cu13/include",
        f"-DCUDA_cublas_LIBRARY={links}/libcublas.so",
        f"-DCUDA_cublasLt_LIBRARY={links}/libcublasLt.so",
    ]
    # The linker looks for one name, the loader for the other.
    for name in ("libcublas.so", "libcublas.so.13"):
        assert (links / name).read_text() == "lib/libcublas.so.13"
    assert (links / "libcublasLt.so").read_text() == "lib/libcublasLt.so.13"


def test_where_nobody_has_cublas_cmake_says_so(tmp_path: Path) -> None:
    assert cublas_options(toolkit(tmp_path / "cuda"), tmp_path / "links", [], system=()) == []
    assert cublas_options(None, tmp_path / "links", [], system=()) == []


def test_tools_are_found_where_they_usually_are(tmp_path: Path) -> None:
    toolkit(tmp_path / "cuda")
    found = building.compiling({"PATH": "/first", "HOME": "/h"}, tmp_path / "cuda" / "bin")
    beside = str(Path(sys.executable).parent)
    assert found["PATH"].split(os.pathsep) == ["/first", str(tmp_path / "cuda" / "bin"), beside]
    assert found["HOME"] == "/h"
    assert building.compiler_of(found) == str(tmp_path / "cuda" / "bin" / "nvcc")
    named = {**found, "CUDACXX": str(program(tmp_path / "other", ""))}
    assert building.compiler_of(named) == str(tmp_path / "other")


def test_a_tool_that_is_missing_is_a_sentence(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.delenv("CUDACXX", raising=False)
    monkeypatch.setattr(building, "compiling", lambda _: {"PATH": str(place)})
    arguments = [*folders.arguments(), "--capability", "9.0"]
    assert building.main(arguments) == 1
    assert "CMake is neither on PATH nor beside this Python." in capsys.readouterr().out
    program(place / "cmake", CMAKE)
    assert building.main(arguments) == 1
    assert "CUDA's compiler is neither on PATH (nvcc)" in capsys.readouterr().out


def test_a_stage_with_doubts_is_not_repeated_and_fails_the_call(folders: Folders) -> None:
    time = Time(first=(DOUBTS, 2.0))
    stages = (Stage("first", "a", 50, "one"), Stage("second", "b", 50, "two", ("first",)))
    state = State(folders.work / "state.json")
    assert perform(stages, state, time.run, limit_s=600, wanted=["first", "second"], clock=time.clock) == 1
    assert (state.outcome("first"), state.outcome("second")) == ("doubtful", "done")
    assert perform(stages, state, time.run, limit_s=600, wanted=["first", "second"], clock=time.clock) == 0
    assert [name for name, _ in time.ran] == ["first", "second"]


def test_a_source_unpacked_again_is_no_newer(folders: Folders) -> None:
    """Else all of it would be compiled anew."""
    distribution(folders.carried / "llama_cpp_python-0.3.36.tar.gz")
    assert unpack.main(folders.arguments()) == 0
    before = {path: path.stat().st_mtime for path in folders.source.rglob("*") if path.is_file()}
    assert unpack.main(folders.arguments()) == 0
    assert before
    assert {path: path.stat().st_mtime for path in folders.source.rglob("*") if path.is_file()} == before
