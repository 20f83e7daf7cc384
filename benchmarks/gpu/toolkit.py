"""What of CUDA's toolkit has to be pointed out to CMake, because it is not where CMake looks."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BESIDE: Final = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
"""Where a toolkit has its libraries."""
SYSTEM: Final = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu"))
LIBRARIES: Final = ("cublas", "cublasLt")


def installed_packages() -> list[Path]:
    """Where pip puts NVIDIA's libraries."""
    found = find_spec("nvidia")
    return [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]


def cublas_options(
    compiler: str | None, links: Path, packages: Sequence[Path], system: Sequence[Path] = SYSTEM
) -> list[str]:
    """CMake's options that name cuBLAS, where the toolkit of CUDA's compiler has none but a Python package does.

    The package's library lacks the name that a linker looks for, so `links` becomes a folder of links to it. Empty: the
    toolkit has it, or nobody does, which CMake then says.
    """
    if compiler is None:
        return []
    root = Path(compiler).resolve().parent.parent
    if any((folder / "libcublas.so").exists() for folder in (*(root / part for part in BESIDE), *system)):
        return []
    whole = next((lib for place in packages for lib in sorted(place.glob("*/lib/libcublas.so.*"))), None)
    if whole is None:
        return []
    links.mkdir(parents=True, exist_ok=True)
    options = [f"-DCMAKE_CUDA_FLAGS=-isystem {whole.parent.parent / 'include'}"]
    for name in LIBRARIES:
        versioned = whole.with_name(whole.name.replace("libcublas", f"lib{name}"))
        for link in (links / f"lib{name}.so", links / versioned.name):
            link.unlink(missing_ok=True)
            link.symlink_to(versioned)
        options.append(f"-DCUDA_{name}_LIBRARY={links / f'lib{name}.so'}")
    return options
