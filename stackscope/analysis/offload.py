"""Whether a configuration computes on a GPU, by what the library says of itself: then processor readings say little."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stackscope.toggles import EngineConfig

_BACKENDS: Final = re.compile(r"\b(?:CUDA|ROCm|HIP|Vulkan|Metal|MTL|SYCL|CANN|MUSA|OpenCL)\d*\b|\boffloads to\b")
"""Backends as the library's features name them, their devices (`CUDA0`), and how Stackscope adds those without any."""


def has_gpu(library: str | None) -> bool:
    """Whether a library, by its description, can compute on a GPU. False also where it is not known."""
    return library is not None and _BACKENDS.search(library) is not None


def computes_on_gpu(library: str | None, config: EngineConfig) -> bool:
    """Whether layers are on a GPU: then the forwards' threads mostly wait for it, and σ says nothing of them."""
    return config.gpu_layers != 0 and has_gpu(library)
