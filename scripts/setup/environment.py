"""Makes `.venv` what the checkout needs, and does nothing at all when it already is.

A stamp in the environment says what it was made from. It is taken away before anything changes and put back last, so a
set-up that was interrupted is recognised: the environment is then made again, with the library that is already built.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from console import SetupError, clock, failure, run_step
from library import Library, build

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "stackscope-setup.json"
BUILD = ROOT / ".build"
LOG = BUILD / "setup.log"
CONSTRAINTS = ROOT / "constraints.txt"
OURS = BUILD / "environment-is-ours"
"""Says that `.venv` was made here and may be deleted by what made it."""
KEPT_ARGS = BUILD / "library" / "cmake-args"


COMPILE = (
    "import compileall, importlib.util, pathlib; found = importlib.util.find_spec('stackscope'); "
    "compileall.compile_dir(pathlib.Path(found.origin).parent, quiet=1)"
)
"""Compiles the package wherever it is, also where Python is told to write no bytecode of its own accord."""


def main(arguments: list[str]) -> int:
    """Set up for `run` or `dev`. Returns the exit code."""
    is_dev = "dev" in arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["PIP_USER"] = "0"  # some people's pip is set to install for the user, which no environment allows
    try:
        wanted = _wanted(is_dev=is_dev, is_exact="--exact" in arguments)
        if not _is_current(_read_stamp(), wanted):
            _set_up(wanted, is_dev=is_dev)
    except SetupError as error:
        print(f"stackscope: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstackscope: set-up was interrupted; the next call goes on from here.", file=sys.stderr)
        return 130
    return 0


def _wanted(*, is_dev: bool, is_exact: bool) -> dict[str, Any]:
    """What the stamp must say. A development environment also serves for running."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shaping = [project["project"], project.get("dependency-groups"), project["build-system"], CONSTRAINTS.read_text()]
    return {
        "root": str(ROOT),
        "packages": hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest(),
        "library": _library().key,
        "groups": ["dev", "run"] if is_dev else ["run"],
        "python": list(sys.version_info[:2]) if is_exact else None,
    }


def _library() -> Library:
    """The build in force: `CMAKE_ARGS` where it is set, even to nothing, else what the last build was made with."""
    kept = KEPT_ARGS.read_text() if KEPT_ARGS.exists() else ""
    arguments = os.environ.get("CMAKE_ARGS", kept).strip()
    return Library(folder=BUILD / "library", version=pinned("llama-cpp-python"), cmake_args=arguments)


def pinned(name: str) -> str:
    """The version of a package in the constraints."""
    for line in CONSTRAINTS.read_text().splitlines():
        package, separator, version = line.partition("==")
        if separator and package.strip().lower() == name:
            return version.strip()
    raise SetupError(f"{CONSTRAINTS.name} does not pin {name}.")


def _read_stamp() -> dict[str, Any] | None:
    """`None`: the environment is absent, unfinished or not of our making."""
    if not PYTHON.exists():
        return None
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def _is_current(stamp: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    return (
        stamp is not None
        and all(stamp.get(name) == wanted[name] for name in ("root", "packages", "library"))
        and set(wanted["groups"]) <= set(stamp.get("groups", []))
        and wanted["python"] in (None, stamp.get("python"))
    )


def _set_up(wanted: dict[str, Any], *, is_dev: bool) -> None:
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up of this checkout is running; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_current(_read_stamp(), wanted):
                return
        _set_up_alone(wanted, is_dev=is_dev, lock=lock.fileno())


def _set_up_alone(wanted: dict[str, Any], *, is_dev: bool, lock: int) -> None:
    started = time.monotonic()
    print(f"Setting Stackscope up in {ENVIRONMENT}; later calls find it ready.", flush=True)
    LOG.unlink(missing_ok=True)
    stamp = _read_stamp()
    if stamp is None or stamp.get("root") != wanted["root"] or wanted["python"] not in (None, stamp.get("python")):
        _make_environment()
        stamp = {}
    STAMP.unlink(missing_ok=True)

    library = _library()
    made: dict[str, Any] = {**stamp, "root": wanted["root"], "python": _python_version(), "packages": None}
    try:
        if stamp.get("library") != library.key:
            _install_library(library, lock)
        made["library"] = library.key
        _install_packages(is_dev=is_dev or "dev" in stamp.get("groups", []))
        made["packages"] = wanted["packages"]
        made["groups"] = sorted({*wanted["groups"], *stamp.get("groups", [])})
    finally:
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt | SystemExit):
            _write_stamp(made)
    print(f"Ready after {clock(time.monotonic() - started)}.", flush=True)


def _write_stamp(stamp: dict[str, Any]) -> None:
    """Without `packages` after a failure: what there is stays usable, and the next call goes on with it."""
    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(stamp, indent=1))
    unfinished.replace(STAMP)


def _make_environment() -> None:
    """A new `.venv`, by uv where it is there, in place of one that has no valid stamp."""
    if ENVIRONMENT.exists() or ENVIRONMENT.is_symlink():
        if not OURS.exists():
            raise SetupError(f"{ENVIRONMENT} is in the way, and was not made here. Move it away, or delete it.")
        shutil.rmtree(ENVIRONMENT)
    OURS.touch()
    uv = shutil.which("uv")
    command = (
        [sys.executable, "-m", "venv", str(ENVIRONMENT)]
        if uv is None
        else [uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(ENVIRONMENT)]
    )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not run_step(f"Python {version} environment, by {'venv' if uv is None else 'uv'}", command, LOG):
        remedy = (
            "The module venv is incomplete here. Install it: apt-get install python3-venv"
            if uv is None and "ensurepip" in LOG.read_text(errors="replace")
            else ""
        )
        raise SetupError(failure(f"The environment could not be made. {remedy}", LOG))


def _install_command() -> list[str]:
    """The command that adds packages to the environment, at the pinned versions."""
    uv = shutil.which("uv")
    if uv is not None:
        # As pip does by itself: compiling textual at the first start would take longer than all the rest of it.
        return [uv, "pip", "install", "--compile-bytecode", "--python", str(PYTHON), "--constraint", str(CONSTRAINTS)]
    return [
        *(str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"),
        *("--constraint", str(CONSTRAINTS)),
    ]


def _install_library(library: Library, lock: int) -> None:
    wheel = library.wheel
    if wheel is None:
        wheel = build(library, PYTHON, _install_command(), lock)
    KEPT_ARGS.write_text(library.cmake_args)
    command = [*_install_command(), "--no-deps", "--force-reinstall", str(wheel)]
    if not run_step("llama.cpp: installing it", command, LOG):
        raise SetupError(failure("llama.cpp could not be installed.", LOG))


def _install_packages(*, is_dev: bool) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    build_backend = [*project["build-system"]["requires"], "editables"]
    wanted = ["--editable", str(ROOT), *(groups["dev"] if is_dev else [])]
    what = "Stackscope, with what it needs" + (" and what its tests need" if is_dev else "")
    done = run_step("Build backend", [*_install_command(), *build_backend], LOG) and run_step(
        what, [*_install_command(), "--no-build-isolation", *wanted], LOG
    )
    if not done:
        raise SetupError(failure("The packages could not be installed.", LOG))
    check = [str(PYTHON), "-c", "import llama_cpp, stackscope"]
    if not run_step("Checking that the library loads", check, LOG):
        raise SetupError(failure("llama.cpp was built but does not load. Build it again: make distclean run", LOG))
    # Nobody does it for a package that is used from its checkout. Where it fails, each start takes a little longer.
    run_step("Compiling modules, for a quick start", [str(PYTHON), "-P", "-c", COMPILE], LOG)


def _python_version() -> list[int]:
    answer = subprocess.run(
        [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    return [int(part) for part in answer.stdout.split()]
