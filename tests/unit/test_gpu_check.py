"""The GPU check without a GPU: its stages, what is carried along, and how the library would be built."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
import time
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import gpu_check
from benchmarks.gpu import building, pack, unpack
from benchmarks.gpu.folders import ROOT, Folders
from benchmarks.gpu.stages import LEFT, Stage, State, in_process, perform

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    for name in ("carried", "work", "out"):
        (tmp_path / name).mkdir()
    return Folders(tmp_path / "carried", tmp_path / "work", tmp_path / "out")


class Time:
    """A clock that moves when a stage is run, and what stages come to."""

    def __init__(self, **outcomes: tuple[int | None, float]) -> None:
        """For each stage its exit status and how long it takes."""
        self.now = 1000.0
        self.outcomes = outcomes
        self.ran: list[tuple[str, float]] = []

    def clock(self) -> float:
        return self.now

    def run(self, stage: Stage, limit_s: float) -> int | None:
        status, seconds = self.outcomes.get(stage.name, (0, 1.0))
        self.ran.append((stage.name, limit_s))
        self.now += min(seconds, limit_s)
        return None if seconds > limit_s else status


STAGES = (
    Stage("first", "a", 50, "one"),
    Stage("second", "b", 400, "two", ("first",), is_resumable=True),
    Stage("third", "c", 100, "three", ("second",)),
)


def performed(time: Time, folders: Folders, limit_s: float = 600, wanted: Sequence[str] = ()) -> int:
    state = State(folders.work / "state.json")
    names = wanted or [stage.name for stage in STAGES]
    return perform(STAGES, state, time.run, limit_s=limit_s, wanted=names, clock=time.clock)


def test_stages_are_done_in_order_and_not_again(folders: Folders) -> None:
    time = Time()
    assert performed(time, folders) == 0
    assert [name for name, _ in time.ran] == ["first", "second", "third"]
    assert performed(time, folders) == 0
    assert len(time.ran) == 3
    State(folders.work / "state.json").forget(["second"])
    assert performed(time, folders) == 0
    assert [name for name, _ in time.ran[3:]] == ["second"]


def test_a_long_stage_is_cut_off_and_goes_on_in_the_next_call(folders: Folders) -> None:
    time = Time(second=(0, 900.0))
    assert performed(time, folders, limit_s=300) == LEFT
    assert time.ran == [("first", 50), ("second", 299.0)]
    state = State(folders.work / "state.json")
    assert (state.outcome("second"), state.seconds("second")) == ("cut off", 299.0)
    time.outcomes = {"second": (0, 20.0)}
    assert performed(time, folders, limit_s=300) == 0
    assert time.ran[2:] == [("second", 300), ("third", 100)]
    assert State(folders.work / "state.json").seconds("second") == pytest.approx(319.0)


def test_what_does_not_fit_any_more_is_left(folders: Folders) -> None:
    time = Time(second=(0, 230.0))
    assert performed(time, folders, limit_s=300) == LEFT
    assert [name for name, _ in time.ran] == ["first", "second"]


def test_a_call_shorter_than_a_stage_begins_with_it_all_the_same(folders: Folders) -> None:
    time = Time()
    assert performed(time, folders, limit_s=40) == 0
    assert time.ran == [("first", 40), ("second", 39.0), ("third", 38.0)]
    time = Time(first=(0, 6.0))
    State(folders.work / "state.json").forget(["first", "second", "third"])
    assert performed(time, folders, limit_s=40) == LEFT
    assert time.ran == [("first", 40), ("second", 34.0)]


def test_what_needs_a_failed_stage_is_left_out(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    time = Time(second=(2, 1.0))
    assert performed(time, folders) == 1
    assert [name for name, _ in time.ran] == ["first", "second"]
    assert "third: left out, because second is not done" in capsys.readouterr().out
    time.outcomes = {}
    assert performed(time, folders) == 0


def test_only_what_is_named_is_done(folders: Folders) -> None:
    time = Time()
    assert performed(time, folders, wanted=["first"]) == 0
    assert [name for name, _ in time.ran] == ["first"]


def test_the_stages_of_the_check_hang_together() -> None:
    names = [stage.name for stage in gpu_check.STAGES]
    for index, stage in enumerate(gpu_check.STAGES):
        assert set(stage.needs) <= set(names[:index])
        assert (ROOT / f"{stage.module.replace('.', '/')}.py").is_file()
        assert stage.limit_s <= 570
    readings = next(stage for stage in gpu_check.STAGES if stage.name == "readings")
    assert readings.limit_s < 90


def test_the_command_line_names_stages_and_folders(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    arguments = [*folders.arguments(), "--again", "unpack", "unpack"]
    assert gpu_check.main(arguments, time.run) == 0
    assert [name for name, _ in time.ran] == ["unpack"]
    assert "ladder    not begun" in capsys.readouterr().out


def test_a_stage_that_takes_too_long_is_ended_with_what_it_started(folders: Folders, tmp_path: Path) -> None:
    child = tmp_path / "child"
    module = tmp_path / "endless.py"
    module.write_text(
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))\n"
        "child.wait()\n"
    )
    folders.site.mkdir()
    module.rename(folders.site / "endless.py")
    assert in_process(folders)(Stage("endless", "endless", 2, ""), 2.0) is None
    pid = int(child.read_text())
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline, "it outlived its stage"


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def test_a_stage_finds_the_repository_and_what_was_carried(folders: Folders) -> None:
    folders.site.mkdir()
    (folders.site / "carried_package.py").write_text("")
    (folders.site / "stage.py").write_text("import sys, carried_package, benchmarks.gpu\nsys.exit(7)\n")
    assert in_process(folders)(Stage("stage", "stage", 30, ""), 30.0) == 7


# Packing and unpacking

DISTRIBUTION = {
    "llama_cpp/__init__.py": "binding",
    "llama_cpp/lib/libllama.so": "of another machine",
    "llama_cpp/server/app.py": "server",
    "vendor/llama.cpp/CMakeLists.txt": "top",
    "vendor/llama.cpp/LICENSE": "licence",
    "vendor/llama.cpp/src/llama.cpp": "source",
    "vendor/llama.cpp/ggml/src/ggml-cuda/cpy.cu": "kernel",
    "vendor/llama.cpp/include/llama.h": "header",
    "vendor/llama.cpp/cmake/common.cmake": "macros",
    "vendor/llama.cpp/tools/server/server.cpp": "tool",
    "vendor/llama.cpp/models/big.gguf": "model",
    "vendor/llama.cpp/vendor/CMakeLists.txt": "add_subdirectory(missing)",
    "README.md": "readme",
}


def distribution(path: Path, files: dict[str, str] = DISTRIBUTION, root: str = "llama_cpp_python-0.3.36") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_packed", [True, False])
def test_of_the_distribution_only_what_a_build_needs_is_taken(folders: Folders, is_packed: bool) -> None:
    source = distribution(folders.work / "llama_cpp_python-0.3.36.tar.gz")
    if is_packed:
        pack.repack(source, folders.carried / "library.tar.xz")
    else:
        source.rename(folders.carried / source.name)
    (folders.carried / "packages").mkdir()
    with zipfile.ZipFile(folders.carried / "packages" / "thing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing/__init__.py", "")
    assert unpack.main(folders.arguments()) == 0
    assert files_of(folders.site) == {"llama_cpp/__init__.py", "llama_cpp/server/app.py", "thing/__init__.py"}
    assert files_of(folders.source) == {
        *("CMakeLists.txt", "LICENSE", "src/llama.cpp", "ggml/src/ggml-cuda/cpy.cu", "include/llama.h"),
        *("cmake/common.cmake", "vendor/CMakeLists.txt"),
    }
    assert (folders.source / "vendor" / "CMakeLists.txt").read_text() == ""
    assert (folders.source / "src" / "llama.cpp").read_text() == "source"


def test_unpacking_again_keeps_what_was_built(folders: Folders) -> None:
    distribution(folders.carried / "llama_cpp_python-0.3.36.tar.gz")
    assert unpack.main(folders.arguments()) == 0
    folders.libraries.mkdir(parents=True)
    (folders.libraries / "libllama.so").touch()
    assert unpack.main(folders.arguments()) == 0
    assert (folders.libraries / "libllama.so").exists()


def test_an_archive_that_leads_elsewhere_is_refused(folders: Folders) -> None:
    distribution(folders.carried / "llama_cpp_python-1.tar.gz", {"llama_cpp/../../../out/x": "x"})
    with pytest.raises(ValueError, match="leads out of its folder"):
        unpack.main(folders.arguments())
    assert files_of(folders.out) == set()


def test_without_a_source_it_says_how_to_get_one(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert unpack.main(folders.arguments()) == 1
    assert "python -m benchmarks.gpu.pack" in capsys.readouterr().out


def test_packages_are_pinned_and_fetched_for_the_other_python(tmp_path: Path) -> None:
    source = distribution(tmp_path / "llama_cpp_python-0.3.36.tar.gz")
    commands: list[Sequence[str]] = []
    arguments = ["--python", "3.12", "--have", "numpy, scipy", f"--source={source}", f"--to={tmp_path / 'to'}"]
    assert pack.main(arguments, commands.append) == 0
    [command] = commands
    assert command[command.index("--python-version") + 1] == "3.12"
    assert [word for word in command if word.startswith("msgspec==")] == [f"msgspec=={pack.pins()['msgspec']}"]
    assert not [word for word in command if word.startswith(("numpy", "scipy"))]
    assert files_of(tmp_path / "to") == {"library.tar.xz"}


def test_a_source_that_is_nowhere_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "find_source", lambda: None)

    def run(command: Sequence[str]) -> None:
        if "--no-binary" in command:
            distribution(Path(command[command.index("--dest") + 1]) / "llama_cpp_python-0.3.36.tar.gz")

    assert pack.main([f"--to={tmp_path}", f"--have={','.join(pack.PACKAGES)}"], run) == 0
    assert "library.tar.xz" in files_of(tmp_path)


def test_a_package_that_is_none_of_them_is_told() -> None:
    with pytest.raises(SystemExit, match="nunpy is not among"):
        pack.wanted_packages(["nunpy"])


def test_everything_that_is_needed_is_carried() -> None:
    """All that the packages which are carried require themselves, the screen and downloads aside."""
    from packaging.requirements import Requirement

    left_out = {"llama-cpp-python", "textual", "huggingface-hub"}
    for name in ("stackscope", "llama-cpp-python", *pack.PACKAGES):
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                wanted = needed.name.lower().replace("_", "-")
                assert wanted in {*pack.PACKAGES, *left_out}, f"{name} needs {wanted}"


# Building


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


CMAKE = """
import pathlib, sys
arguments = sys.argv[1:]
folder = pathlib.Path(arguments[arguments.index("--build") + 1] if "--build" in arguments else arguments[3])
with (folder.parent / "calls").open("a") as calls:
    print(*arguments, file=calls)
if "--build" in arguments:
    libraries = folder / "bin"
    libraries.mkdir(parents=True, exist_ok=True)
    (libraries / "libllama.so.0.5").write_text("library")
    (libraries / "libllama.so").symlink_to("libllama.so.0.5")
    (libraries / "test-llama").write_text("program")
else:
    folder.mkdir(parents=True, exist_ok=True)
"""
FACTS = {"gpu_offload": True, "devices": [{"name": "CUDA0", "description": "An H200", "type": "gpu"}]}


def answering(facts: object) -> list[str]:
    return [sys.executable, "-c", f"print({json.dumps(json.dumps(facts))})"]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of programs that is looked into first."""
    path = tmp_path / "bin"
    path.mkdir()
    program(path / "cmake", CMAKE)
    program(path / "nvcc", "")
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    return path


@pytest.mark.usefixtures("tools")
def test_the_library_is_built_for_one_chip_and_laid_beside_its_binding(folders: Folders) -> None:
    arguments = [*folders.arguments(), "--capability", "9.0"]
    assert building.main(arguments, answering(FACTS)) == 0
    configure, compile_all = (folders.work / "calls").read_text().splitlines()
    assert "-DGGML_CUDA=ON" in configure
    assert "-DCMAKE_CUDA_ARCHITECTURES=90-real" in configure
    assert "-DGGML_CUDA_NCCL=OFF" in configure
    assert "-DGGML_CUDA_NO_VMM=ON" in configure
    assert f"--build {folders.build} --target llama --parallel" in compile_all
    assert files_of(folders.libraries) == {"libllama.so", "libllama.so.0.5"}
    assert (folders.libraries / "libllama.so").is_symlink()
    assert folders.result("build")["facts"] == FACTS
    assert folders.result("build")["bytes"] == {"libllama.so.0.5": len("library")}


@pytest.mark.usefixtures("tools")
def test_printing_builds_nothing(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert building.main([*folders.arguments(), "--capability", "12.0", "--print"]) == 0
    assert "-DCMAKE_CUDA_ARCHITECTURES=120-real" in capsys.readouterr().out
    assert not (folders.work / "calls").exists()


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"gpu_offload": True, "devices": [{"name": "CPU", "description": "", "type": "cpu"}]}, "sees no GPU"),
        ({**FACTS, "gpu_offload": False}, "sees no GPU"),
    ],
)
def test_a_library_without_a_gpu_is_a_failure(
    folders: Folders, capsys: pytest.CaptureFixture[str], facts: object, said: str
) -> None:
    assert building.main([*folders.arguments(), "--capability", "9.0"], answering(facts)) == 1
    assert said in capsys.readouterr().out


def test_what_fails_is_told(folders: Folders, tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*folders.arguments(), "--capability", "9.0"]
    assert building.main(arguments, [sys.executable, "-c", "raise OSError('no libcudart')"]) == 1
    assert "does not load" in capsys.readouterr().out
    program(tools / "cmake", "raise SystemExit(5)")
    assert building.main(arguments) == 1
    assert "cmake failed with status 5" in capsys.readouterr().out


def test_the_chip_is_asked_of_nvidia_smi_where_nvml_is_silent(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tools / "nvidia-smi", "print('9.0\\n8.9')")
    assert building.by_command() == "9.0"
    program(tools / "nvidia-smi", "print('[N/A]')")
    assert building.by_command() is None
    monkeypatch.setenv("PATH", str(tools / "nowhere"))
    assert building.by_command() is None
