"""The engine in the tests' own process waits and is bound to cores as it is in a process of its own.

OpenMP reads its environment when the inference library is loaded, so this stands before any test imports that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.engine.openmp import child_environment, usable_cores

if TYPE_CHECKING:
    from pathlib import Path

usable_cores()  # Before the library binds this thread to one of them.
os.environ.update(child_environment(os.environ))

CORES: Final = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


@pytest.fixture(autouse=True)
def _all_cores() -> None:
    """Processes that a test starts may use every core, although an engine has bound this one's main thread."""
    if CORES is not None:
        os.sched_setaffinity(0, CORES)


@pytest.fixture(scope="session")
def lab_200_mb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab target inflated to 200 MB: a forward of 512 rows takes seconds."""
    from stackscope.model.catalog import bundled_target
    from stackscope.model.inflate import inflate

    return inflate(bundled_target(), 200, output=tmp_path_factory.mktemp("inflated") / "lab-200mb.gguf").path
