"""Stage `build`: compiles the pinned llama.cpp with CUDA for the chip that is there, and lays it beside its binding.

A build that was interrupted goes on from the folder it worked in. `--print` prints the commands, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.gpu.folders import Folders, add_folders, say
from benchmarks.gpu.toolkit import cublas_options, installed_packages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OFF: Final = (
    *("LLAMA_BUILD_COMMON", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER"),
    *("LLAMA_BUILD_APP", "LLAMA_ALL_WARNINGS", "GGML_CUDA_NCCL", "GGML_CCACHE"),
)
"""Parts that nobody loads here, and what would look for more than CUDA's compiler."""
ON: Final = ("BUILD_SHARED_LIBS", "GGML_CUDA", "GGML_CUDA_NO_VMM")
"""Without virtual memory management nothing is linked with the driver's library: a toolkit may lack the stub for it,
and one that is there may come to be loaded in the driver's place."""
INCLUDE: Final = Path(__file__).resolve().parents[2] / "scripts" / "setup" / "llama-build.cmake"
"""What the project's own build gives CMake as well: hosts of GPUs often have AMX, which some compilers get wrong."""
MEMORY_PER_JOB: Final = 1_200_000_000
"""Bytes that CUDA's compiler needs for the largest file (0.6 GB as measured with CUDA 13.0), twice."""
CHECK: Final = (sys.executable, "-m", "stackscope.engine.facts")


def main(arguments: list[str] | None = None, check: Sequence[str] = CHECK) -> int:
    """`check` is a command that says as JSON what the library can do."""
    options = argparse.ArgumentParser(description=__doc__)
    add_folders(options)
    options.add_argument("--print", action="store_true", help="print the commands only")
    options.add_argument("--capability", help="compute capability of the GPU, e.g. 9.0; asked of the driver otherwise")
    given = options.parse_args(arguments)
    folders = Folders.of(given)
    capability = given.capability or capability_of_driver()
    if capability is None:
        say("Neither NVML nor nvidia-smi tells the GPU's compute capability. Name it: --capability 9.0")
        return 1
    environment = compiling(os.environ)
    commands = [configure(folders, capability, environment), compile_all(folders)]
    if given.print:
        for command in commands:
            say(shlex.join(command))
        return 0
    missing = missing_tool(environment)
    if missing is not None:
        say(missing)
        return 1
    commands[0] += cublas_options(compiler_of(environment), folders.work / "cublas", installed_packages())
    for command in commands:
        say(shlex.join(command))
        status = subprocess.run(command, check=False, env=environment).returncode
        if status != 0:
            say(f"{command[0]} failed with status {status}.")
            return 1
    return install(folders, capability, check)


def compiler_of(environment: Mapping[str, str]) -> str | None:
    """CUDA's compiler, as CMake finds it. `None`: there is none."""
    return shutil.which(environment.get("CUDACXX") or "nvcc", path=environment.get("PATH"))


def missing_tool(environment: Mapping[str, str]) -> str | None:
    """What to do about a tool that is not there. `None`: all are."""
    if shutil.which("cmake", path=environment.get("PATH")) is None:
        return "CMake is neither on PATH nor beside this Python. Put it on PATH."
    if compiler_of(environment) is None:
        return "CUDA's compiler is neither on PATH (nvcc) nor in /usr/local/cuda/bin. Name it in CUDACXX."
    return None


def capability_of_driver() -> str | None:
    """Compute capability of the first GPU, as `9.0`. `None`: nobody tells."""
    try:
        from stackscope.hardware.nvml import Nvml, RefusalError, UnavailableError
    except ImportError:
        return by_command()
    try:
        nvml = Nvml()
        major, minor = nvml.ask("nvmlDeviceGetCudaComputeCapability", nvml.ask("nvmlDeviceGetHandleByIndex", 0))
    except (RefusalError, UnavailableError):
        return by_command()
    nvml.shut_down()
    return f"{major}.{minor}"


def by_command() -> str | None:
    """The same by nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"(\d+)\.(\d+)\s*$", answer.stdout.partition("\n")[0])
    return found[0].strip() if found else None


def configure(folders: Folders, capability: str, environment: Mapping[str, str]) -> list[str]:
    """The command that prepares the build, for one chip and no other."""
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=environment.get("PATH")) else []
    return [
        *("cmake", "-S", str(folders.source), "-B", str(folders.build), *generator),
        *("-DCMAKE_BUILD_TYPE=Release", *[f"-D{name}=ON" for name in ON]),
        f"-DCMAKE_CUDA_ARCHITECTURES={capability.replace('.', '')}-real",
        *("-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN"),
        "-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON",  # for CUDA's own libraries
        *[f"-D{name}=OFF" for name in OFF],
        f"-DCMAKE_PROJECT_INCLUDE={INCLUDE}",
    ]


def compile_all(folders: Folders) -> list[str]:
    """The command that compiles, or goes on."""
    return ["cmake", "--build", str(folders.build), "--target", "llama", "--parallel", str(n_jobs())]


def n_jobs() -> int:
    """Compilers at once: one for each core that may be used, as far as memory goes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // MEMORY_PER_JOB))


def compiling(environment: Mapping[str, str], toolkit: Path = Path("/usr/local/cuda/bin")) -> dict[str, str]:
    """The environment of the compilers: CUDA's is found where it usually is, and CMake where pip installed it."""
    path = [part for part in environment.get("PATH", "").split(os.pathsep) if part]
    path += [str(folder) for folder in (toolkit, Path(sys.executable).parent) if folder.is_dir()]
    return {**environment, "PATH": os.pathsep.join(dict.fromkeys(path))}


def install(folders: Folders, capability: str, check: Sequence[str]) -> int:
    """Lay the libraries beside the binding, and ask them what they can do. Returns the exit status."""
    shutil.rmtree(folders.libraries, ignore_errors=True)
    folders.libraries.mkdir(parents=True)
    for path in sorted((folders.build / "bin").glob("lib*.so*")):
        shutil.copy2(path, folders.libraries / path.name, follow_symlinks=False)
    answer = subprocess.run(check, env=folders.environment(), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        say(f"The library does not load:\n{answer.stderr[-3000:]}")
        return 1
    facts: dict[str, Any] = json.loads(answer.stdout)
    gpus = [device for device in facts["devices"] if device["type"] == "gpu"]
    sizes = {path.name: path.stat().st_size for path in folders.libraries.iterdir() if not path.is_symlink()}
    folders.save("build", {"capability": capability, "facts": facts, "bytes": sizes})
    for gpu in gpus:
        say(f"{gpu['name']}: {gpu['description']}, {gpu.get('pci_id')}")
    if not gpus or not facts["gpu_offload"]:
        say("The library loads, but sees no GPU.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
