"""Builds llama.cpp, which the package index only has as source, and keeps the result for the next environment.

Everything lives in `.build/library`: the fetched source, the compiler's work (an interrupted build goes on from there)
and the finished wheel, under a key of all that shapes it. It is built outside pip, because pip shows nothing while it
builds and keeps one wheel whatever `CMAKE_ARGS` and the processor were.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console import SetupError, failure, run_step

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "llama_cpp_python"
INCLUDE = Path(__file__).resolve().with_name("llama-build.cmake")
TILE_CONFIG = INCLUDE.with_name("tile-config.h")
COMPILER_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX", "CUDAARCHS", "CMAKE_GENERATOR")
BUILD_SECONDS_OF_ONE_CORE = (225, 480)
"""CPU seconds that the compiler needs without a GPU backend, on a fast and on a slow machine: the 2 to 4 minutes on two
cores of the README."""
MEMORY_PER_JOB = 1_500_000_000
"""Bytes that the largest source file needs while it compiles, with room to spare."""
INSTRUCTION_SET = re.compile(r"^(sse|ssse|avx|fma|f16c|bmi|amx|sha|vnni|asimd|sve|i8mm|bf16|dotprod|fp16)")

BUILD_CODE = """
import sys
from scikit_build_core.build import build_wheel
settings = {"build-dir": sys.argv[1], "wheel.exclude": ["bin/**", "include/**", "lib/**"]}
print("built", build_wheel(sys.argv[2], settings), flush=True)
"""
"""The wheel carries the libraries twice; only those beside the binding are ever loaded."""


@dataclass(frozen=True)
class Library:
    """One build of the library: where it is kept, and what it is built with."""

    folder: Path
    """`.build/library`."""
    version: str
    cmake_args: str
    """What the user asked for on top, e.g. `-DGGML_CUDA=on`."""

    @property
    def key(self) -> str:
        """Names this build by all that shapes it: a wheel made for another processor would end in SIGILL."""
        shape = {
            "version": self.version,
            "cmake_args": self.cmake_args,
            "include": [INCLUDE.read_text(), TILE_CONFIG.read_text()],
            "machine": [platform.system(), platform.machine(), *platform.libc_ver()],
            "instructions": instruction_set(),
            "compiler": {name: os.environ[name] for name in COMPILER_VARIABLES if name in os.environ},
        }
        return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def wheel(self) -> Path | None:
        """The finished wheel. `None`: it is yet to be built."""
        return next(iter(sorted((self.folder / self.key).glob("*.whl"))), None)

    @property
    def log(self) -> Path:
        return self.folder / "build.log"


def instruction_set() -> list[str]:
    """What a compiler tuning for this very processor may use; empty where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return [platform.processor()]
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return sorted(flag for flag in (flags.group(1).split() if flags else []) if INSTRUCTION_SET.match(flag))


def build(library: Library, python: Path, install: Sequence[str], lock: int) -> Path:
    """Fetch the source and build the wheel. `install` is the command that adds packages to the environment `python`."""
    check_compiler()
    library.log.unlink(missing_ok=True)
    tools = ["scikit-build-core", *missing_build_tools()]
    if not run_step("Build tools", [*install, *tools], library.log):
        raise SetupError(failure("The build tools could not be installed.", library.log))
    source = _fetch(library, python)

    work = library.folder / library.key
    finished = work / "finished"
    finished.mkdir(parents=True, exist_ok=True)
    extra = f" with {library.cmake_args}" if library.cmake_args else ""
    jobs = n_jobs()
    note = "a GPU backend takes up to half an hour" if library.cmake_args else _usual_time(jobs)
    if not run_step(
        f"llama.cpp, the inference library that Stackscope looks into: compiling it{extra} for this processor",
        [str(python), "-c", BUILD_CODE, str(work / "cmake"), str(finished)],
        library.log,
        note=note,
        environment=_build_environment(library, python, jobs),
        folder=source,
        keep_open=[lock],
        detail_of=_compile_step,
    ):
        raise SetupError(explain(library.log))
    built = next(finished.glob("*.whl"))
    wheel = work / built.name
    built.replace(wheel)
    shutil.rmtree(work / "cmake", ignore_errors=True)
    shutil.rmtree(finished, ignore_errors=True)
    shutil.rmtree(library.folder / "source", ignore_errors=True)
    return wheel


def _fetch(library: Library, python: Path) -> Path:
    """The unpacked source, fetched unless it already is there whole: every stage ends in a rename."""
    folder = library.folder / "source"
    archive = folder / f"{NAME}-{library.version}.tar.gz"
    source = folder / f"{NAME}-{library.version}"
    if not archive.exists() and not source.exists():
        partial = folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [
            *(str(python), "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"),
            *("--dest", str(partial), f"llama-cpp-python=={library.version}"),
        ]
        if not run_step("llama.cpp, the inference library: fetching its source, 77 MB", command, library.log):
            raise SetupError(failure("The source of llama.cpp could not be fetched.", library.log))
        next(partial.glob("*.tar.gz")).replace(archive)
    if not source.exists():
        unpacked = folder / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with tarfile.open(archive) as file:
            if hasattr(tarfile, "data_filter"):
                file.extractall(unpacked, filter="data")
            else:
                file.extractall(unpacked)
        next(unpacked.iterdir()).replace(source)
    return source


def _build_environment(library: Library, python: Path, jobs: int) -> dict[str, str]:
    # Without the warnings, which number in the thousands, the log shows what matters.
    ours = ["-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_INCLUDE={INCLUDE}", "-DLLAMA_ALL_WARNINGS=OFF"]
    return {
        **os.environ,
        "CMAKE_ARGS": f"{shlex.join(ours)} {library.cmake_args}".strip(),
        "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs)),
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _compile_step(line: str) -> str | None:
    """`[41/75] /usr/bin/c++ …` of ninja, or `[ 41%] Building …` of make."""
    match = re.match(r"\s*\[(\d+)/(\d+)\]", line)
    if match:
        return f"{match.group(1)} of {match.group(2)} files"
    match = re.match(r"\s*\[\s*(\d+)%\]", line)
    return f"{match.group(1)} %" if match else None


def n_jobs() -> int:
    """Compilers to run at once: the cores this process may use, fewer where memory is short."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota, _, period = _limit("cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cores = min(cores, max(1, round(int(quota) / int(period))))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _limit("memory.max")
    if limit.isdigit():
        memory = min(memory, int(limit))
    return min(cores, max(1, memory // MEMORY_PER_JOB))


def _limit(name: str) -> str:
    """A limit of the container around this process; empty where there is none."""
    try:
        return Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return ""


def _usual_time(jobs: int) -> str:
    """What the README says of two cores, for as many as there are."""
    least, most = (seconds / jobs for seconds in BUILD_SECONDS_OF_ONE_CORE)
    if most >= 90:
        low, high, unit = max(1, round(least / 60)), round(most / 60), "min"
    else:
        low, high, unit = max(1, round(least / 20)) * 20, max(1, round(most / 20)) * 20, "s"
    amount = f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
    return f"usually {amount} on {jobs} core{'s' if jobs > 1 else ''}, once"


def missing_build_tools() -> list[str]:
    """CMake and Ninja from the package index, where the system has none that will do."""
    tools = []
    if _cmake_version() < (3, 21):
        tools.append("cmake")
    if shutil.which("ninja") is None and shutil.which("ninja-build") is None:
        tools.append("ninja")
    return tools


def _cmake_version() -> tuple[int, ...]:
    cmake = shutil.which("cmake")
    if cmake is None:
        return (0,)
    answer = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"version (\d+)\.(\d+)", answer.stdout)
    return tuple(int(part) for part in match.groups()) if match else (0,)


def check_compiler() -> None:
    """Say which package to install before anything is fetched."""
    for variable, names, language in (
        ("CC", ("cc", "gcc", "clang"), "C"),
        ("CXX", ("c++", "g++", "clang++"), "C++"),
    ):
        named = shlex.split(os.environ.get(variable, ""))
        if not any(shutil.which(name) for name in (named[:1] or names)):
            missing = (
                f"the {language} compiler {named[0]} ({variable}) was not" if named else f"no {language} compiler was"
            )
            raise SetupError(f"llama.cpp has to be compiled, and {missing} found. Install one: {compiler_package()}")


def compiler_package() -> str:
    """How to get a compiler on this system."""
    if platform.system() == "Darwin":
        return "xcode-select --install"
    commands = {
        "apt-get": "apt-get install g++",
        "dnf": "dnf install gcc-c++",
        "zypper": "zypper install gcc-c++",
        "pacman": "pacman -S gcc",
        "apk": "apk add g++ linux-headers",
    }
    return next((command for tool, command in commands.items() if shutil.which(tool)), "GCC or Clang, for C++17")


def explain(log: Path) -> str:
    """One sentence for a failed build, out of what the compilers printed."""
    text = log.read_text(errors="replace") if log.exists() else ""
    causes = (
        (r"No space left on device", "The disk is full."),
        (
            r"Killed signal|signal terminated program|out of memory|Cannot allocate memory",
            "The compiler was killed, most likely for lack of memory. Set CMAKE_BUILD_PARALLEL_LEVEL=1 and try again.",
        ),
        (
            r"(?i)CUDA Toolkit not found|Failed to find nvcc|CMAKE_CUDA_COMPILER",
            "The CUDA toolkit (nvcc) was not found.",
        ),
        (r"(?i)Could NOT find Vulkan", "The Vulkan SDK (headers and glslc) was not found."),
        (r"(?i)hip.*(not found|could not find)|Could not find .*\bhip", "The ROCm toolkit (HIP) was not found."),
        (
            r"is not able to compile a simple test program|No CMAKE_CX*_COMPILER could be found",
            f"The compiler does not work. Install a whole one: {compiler_package()}",
        ),
    )
    sentence = next((cause for pattern, cause in causes if re.search(pattern, text)), "")
    # A compiler says what is wrong on the line itself, CMake in the indented lines below it.
    errors = re.findall(r"^.*\berror\b.*(?:\n(?: .*)?)*", text, re.IGNORECASE | re.MULTILINE)
    telling = [line for error in errors for line in error.splitlines() if line.strip()]
    return failure(f"llama.cpp could not be built. {sentence}", log, telling=telling[:12] or None)
