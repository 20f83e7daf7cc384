"""Rules about the source itself: sizes, who may import what, and words that have no place in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "stackscope"
MOST_LINES_OF_A_FILE: Final = 400
MOST_LINES_OF_A_FUNCTION: Final = 60

HOME_OF: Final[dict[str, tuple[str, ...]]] = {
    "llama_cpp": ("engine/llama.py", "engine/vocabulary.py", "engine/facts.py"),
    "psutil": ("hardware/host.py", "hardware/sampler.py"),
    "pynvml": ("hardware/nvml",),
    "textual": ("tui/",),
    "huggingface_hub": ("model/download",),
    "jinja2": ("workload/",),
    "zstandard": ("session/", "workload/"),
    "typer": ("cli.py", "verbs/"),
    "rich": ("commands/", "report/", "tui/"),
    "ctypes": ("tui/heap.py", "engine/", "hardware/nvml.py", "hardware/host_perf.py", "model/native"),
    "socket": (),
    "urllib": ("model/download.py", "model/hub_files.py"),
    "http": ("model/download.py",),
    "requests": (),
    "httpx": (),
    "scipy": ("analysis/", "engine/"),
    "gguf": (),
    "pyarrow": ("report/export/",),
    "torch": (),
}
"""Where in the package each of these may be imported; nowhere where there is nothing. A folder ends in a slash."""

LIGHT: Final = ("stackscope.cli", "stackscope.config", "stackscope.records", "stackscope.units", "stackscope.errors")
HEAVY: Final = ("numpy", "llama_cpp", "rich", "huggingface_hub", "psutil", "pynvml", "scipy", "textual")

NOT_OURS: Final = re.compile(r"pypi\.org|pythonhosted|index-url|find-links|/work/|/root/|\bTODO\b|\bFIXME\b|\bXXX\b")


@cache
def python_files() -> tuple[Path, ...]:
    """Every Python file of the repository, the training script aside, which is kept as it ran."""
    folders = (PACKAGE, ROOT / "tests", ROOT / "benchmarks", ROOT / "scripts")
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return tuple(path for path in found if path.name != "train_lab_pair.py" and "__pycache__" not in path.parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    assert len(python_files()) > 50
    assert PACKAGE / "cli.py" in python_files()


def test_no_file_is_too_long() -> None:
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{shown(path)}: {node.name}": n_lines
        for path in python_files()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for n_lines in [(node.end_lineno or 0) - node.lineno + 1]
        if n_lines > MOST_LINES_OF_A_FUNCTION
    }
    assert long == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [shown(path) for path in python_files() if tree(path).body and ast.get_docstring(tree(path)) is None]
    assert silent == []


def imported(path: Path) -> set[str]:
    """Names of the top-level packages that a module imports, inside functions too, but not for types alone."""
    skipped = {
        child
        for node in ast.walk(tree(path))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("library", HOME_OF)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    homes = tuple(str(PACKAGE / home) + ("/" if home.endswith("/") else "") for home in HOME_OF[library])
    strays = [
        shown(path)
        for path in python_files()
        if path.is_relative_to(PACKAGE) and library in imported(path) and not str(path).startswith(homes or ("\0",))
    ]
    assert strays == []


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_stay_light(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_no_place_of_origin_and_no_leftovers_are_in_the_source() -> None:
    names = ("*.md", "*.toml", "*.txt", "Makefile", "*.cmake", ".ci/run", "docs/*.md", "benchmarks/*.md")
    texts = [path for pattern in names for path in ROOT.glob(pattern)]
    mine = Path(__file__)
    found = {
        f"{shown(path)}: {match.group()}"
        for path in (*python_files(), *texts)
        if path != mine
        for match in NOT_OURS.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 30
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []


def test_every_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"].values()
    wanted = [*project["project"]["dependencies"], *(requirement for group in groups for requirement in group)]
    names = {re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-") for requirement in wanted}  # type: ignore[index]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    assert names - pinned == set()
