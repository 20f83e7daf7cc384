"""The stand-in for the driver's library, compiled once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.nvml.machine import Machine, compile_library

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a library each: that of a driver of today, and that of an old one."""
    return {
        "new": compile_library(tmp_path_factory.mktemp("driver")),
        "old": compile_library(tmp_path_factory.mktemp("old-driver"), "-DOLD_DRIVER"),
    }


@pytest.fixture
def machine(libraries: dict[str, Path], tmp_path: Path) -> Machine:
    """A machine whose GPUs a test describes."""
    return Machine(folder=tmp_path, library=libraries["new"])


@pytest.fixture
def old_machine(libraries: dict[str, Path], tmp_path: Path) -> Machine:
    """The same with a driver that lacks what came later."""
    return Machine(folder=tmp_path, library=libraries["old"])
