"""Setting a checkout up: what makes it current, and that failures and interruptions leave it recoverable.

A stand-in for uv makes real environments and installs empty modules, so that no network and no compiler is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
SETUP: Final = ROOT / "scripts" / "setup"

UV: Final = f"""#!{sys.executable}
import os, pathlib, sys, time, venv
here = pathlib.Path(__file__).parent
call = sys.argv[1:]
with (here / "calls").open("a") as log:
    print(*call, file=log)
if call[0] == "venv":
    venv.create(call[-1], symlinks=True)
    sys.exit()
if (here / "broken").exists():
    sys.exit("error: the index is on fire")
while (here / "slow").exists():
    time.sleep(0.01)
python = pathlib.Path(call[call.index("--python") + 1])
[packages] = python.parent.parent.glob("lib/python*/site-packages")
name = "llama_cpp" if call[-1].endswith(".whl") else "stackscope"
(packages / (name + ".py")).touch()
"""


class Checkout:
    """A checkout with a library that is built already, and the stand-in for uv on its path."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"  # with a space, as people's folders have
        self.tools = folder / "tools"
        shutil.copytree(SETUP, self.root / "scripts" / "setup")
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.root / name)
        self.tools.mkdir()
        uv = self.tools / "uv"
        uv.write_text(UV)
        uv.chmod(0o755)
        self.put_library()

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("CMAKE_ARGS", "VIRTUAL_ENV")}
        return {**kept, "PATH": f"{self.tools}:{os.environ['PATH']}", **variables}

    def put_library(self, **variables: str) -> None:
        """Pretend that the library was built, for the key that these variables give."""
        code = "import environment; print(environment._library().key)"
        folder = self.root / "scripts" / "setup"
        key = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        wheel = self.root / ".build" / "library" / key / "llama_cpp_python-0-py3-none-any.whl"
        wheel.parent.mkdir(parents=True, exist_ok=True)
        wheel.touch()

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.root / "scripts" / "setup"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**variables),
        )

    def set_up(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self) -> list[str]:
        """What uv was asked since the last look."""
        log = self.tools / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    @property
    def stamp(self) -> Mapping[str, object]:
        found: Mapping[str, object] = json.loads((self.root / ".venv" / "stackscope-setup.json").read_text())
        return found


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_what_is_current_is_left_alone(checkout: Checkout) -> None:
    code, out, err = checkout.set_up("run")
    assert (code, err) == (0, "")
    assert "Ready after" in out
    calls = checkout.calls()
    assert calls[0].startswith("venv ")
    assert not any("hypothesis" in call for call in calls)
    assert checkout.set_up("run") == (0, "", "")
    assert checkout.calls() == []


def test_modules_are_compiled_even_where_python_would_not(checkout: Checkout) -> None:
    assert checkout.set_up("run", PYTHONDONTWRITEBYTECODE="1")[0] == 0
    assert any("--compile-bytecode" in call for call in checkout.calls())
    assert list((checkout.root / ".venv").glob("lib/python*/site-packages/__pycache__/stackscope.*.pyc"))


def test_development_adds_to_what_is_there_and_serves_for_running(checkout: Checkout) -> None:
    checkout.set_up("run")
    checkout.calls()
    assert checkout.set_up("dev")[0] == 0
    calls = checkout.calls()
    assert any("hypothesis" in call for call in calls)
    assert not any(call.startswith("venv ") or call.endswith(".whl") for call in calls)
    assert checkout.set_up("run") == (0, "", "")
    assert checkout.stamp["groups"] == ["dev", "run"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_the_requirements_installs_again(checkout: Checkout, name: str) -> None:
    checkout.set_up("run")
    checkout.calls()
    path = checkout.root / name
    path.write_text(path.read_text().replace("typer>=", "typer>=0.0,>=").replace("typer==", "typer==0.1."))
    assert checkout.set_up("run")[0] == 0
    assert len(checkout.calls()) == 2  # the build backend and the packages; neither environment nor library


def test_a_change_of_a_linters_settings_installs_nothing(checkout: Checkout) -> None:
    checkout.set_up("run")
    checkout.calls()
    path = checkout.root / "pyproject.toml"
    path.write_text(path.read_text().replace("line-length = 120", "line-length = 119"))
    assert checkout.set_up("run") == (0, "", "")


def test_a_failure_says_why_and_the_next_call_goes_on(checkout: Checkout) -> None:
    (checkout.tools / "broken").touch()
    code, _, err = checkout.set_up("run")
    assert code == 1
    assert err.startswith("stackscope: llama.cpp could not be installed.\n    error: the index is on fire\n")
    assert str(checkout.root / ".build" / "setup.log") in err
    (checkout.tools / "broken").unlink()
    checkout.calls()
    assert checkout.set_up("run")[0] == 0
    assert not any(call.startswith("venv ") for call in checkout.calls())


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_set_up_starts_from_a_new_environment(checkout: Checkout, end: signal.Signals) -> None:
    (checkout.tools / "slow").touch()
    process = checkout.start("run")
    assert process.stdout is not None
    for line in process.stdout:
        if "installing it" in line:
            break
    process.send_signal(end)
    process.communicate(timeout=60)
    assert process.returncode in (-end, 130, 143)
    assert not (checkout.root / ".venv" / "stackscope-setup.json").exists()
    (checkout.tools / "slow").unlink()
    checkout.calls()
    assert checkout.set_up("run")[0] == 0
    # Not the first call: the interrupted one's own install may have begun only now.
    assert any(call.startswith("venv ") for call in checkout.calls())
    assert checkout.set_up("run") == (0, "", "")


def test_two_at_once_do_the_work_once(checkout: Checkout) -> None:
    (checkout.tools / "slow").touch()
    first = checkout.start("run")
    assert first.stdout is not None
    for line in first.stdout:
        if "installing it" in line:
            break
    second = checkout.start("run")
    assert second.stdout is not None
    assert "waiting" in second.stdout.readline()
    (checkout.tools / "slow").unlink()
    outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert outputs[1][0] == ""
    assert sum(call.startswith("venv ") for call in checkout.calls()) == 1


def test_an_environment_of_somebody_else_is_never_deleted(checkout: Checkout) -> None:
    precious = checkout.root / ".venv" / "precious"
    precious.parent.mkdir()
    precious.touch()
    code, _, err = checkout.set_up("run")
    assert code == 1
    assert "was not made here" in err
    assert precious.exists()


def test_a_checkout_that_moved_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.set_up("run")
    checkout.calls()
    moved = checkout.root.with_name("moved")
    checkout.root.rename(moved)
    checkout.root = moved
    assert checkout.set_up("run")[0] == 0
    assert checkout.calls()[0].startswith("venv ")


def test_cmake_arguments_are_remembered_until_they_are_set_again(checkout: Checkout) -> None:
    checkout.set_up("run")
    plain = checkout.stamp["library"]
    checkout.put_library(CMAKE_ARGS="-DGGML_CUDA=on")
    assert checkout.set_up("run", CMAKE_ARGS="-DGGML_CUDA=on")[0] == 0
    cuda = checkout.stamp["library"]
    assert cuda != plain
    assert checkout.set_up("run") == (0, "", "")
    assert checkout.set_up("run", CMAKE_ARGS="")[0] == 0
    assert checkout.stamp["library"] == plain


def test_without_a_compiler_one_sentence_names_the_package(checkout: Checkout) -> None:
    shutil.rmtree(checkout.root / ".build")
    (checkout.tools / "python3").symlink_to(sys.executable)
    code, _, err = checkout.set_up("run", PATH=str(checkout.tools))
    assert code == 1
    assert err.startswith("stackscope: llama.cpp has to be compiled, and no C compiler was found. Install one: ")
    code, _, err = checkout.set_up("run", PATH=str(checkout.tools), CC="/bin/sh", CXX="/no/such/c++")
    assert "and the C++ compiler /no/such/c++ (CXX) was not found." in err


def test_an_old_python_says_so_in_one_sentence() -> None:
    code = (
        "import runpy, sys\n"
        "sys.version_info = (3, 9, 1, 'final', 0)\n"
        "sys.argv = ['setup', 'run', '--exact']\n"
        f"runpy.run_path({str(SETUP)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        f"stackscope: Python 3.11 or newer is needed, and {sys.executable} is 3.9. Install a newer one, or name it: "
        "make PYTHON=python3.12 run\n"
    )


def test_how_long_the_build_takes_is_told_as_the_readme_tells_it() -> None:
    code = "import library; print(*(library._usual_time(n) for n in (1, 2, 4, 16)), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=SETUP, capture_output=True, text=True, check=True)
    one, two, four, many = done.stdout.splitlines()
    assert one == "usually 4 to 8 min on 1 core, once"
    assert two == "usually 2 to 4 min on 2 cores, once"
    assert four == "usually 1 to 2 min on 4 cores, once"
    assert many == "usually 20 to 40 s on 16 cores, once"
    assert "2 to 4 minutes" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("fatal error: error writing to x.s: No space left on device", "The disk is full."),
        ("c++: fatal error: Killed signal terminated program cc1plus", "CMAKE_BUILD_PARALLEL_LEVEL=1"),
        ("CMake Error: Failed to find nvcc.", "The CUDA toolkit (nvcc) was not found."),
        ("Could NOT find Vulkan (missing: Vulkan_LIBRARY)", "The Vulkan SDK"),
        ("The C++ compiler is not able to compile a simple test program.", "The compiler does not work."),
        ("ninja: fatal error: something else", "something else"),
    ],
)
def test_a_failed_build_is_explained(tmp_path: Path, log: str, sentence: str) -> None:
    path = tmp_path / "build.log"
    path.write_text(log)
    code = f"import library, pathlib; print(library.explain(pathlib.Path({str(path)!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=SETUP, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("llama.cpp could not be built.")
    assert sentence in done.stdout
    assert log in done.stdout
    assert str(path) in done.stdout
