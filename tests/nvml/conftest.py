"""The stand-in for the driver's library, compiled once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.nvml.machine import Driver, Machine, compile_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    """A driver of today, one of years ago, and none."""
    found = {
        "new": Driver(compile_library(tmp_path_factory.mktemp("driver"))),
        "old": Driver(compile_library(tmp_path_factory.mktemp("old-driver"), "-DOLD_DRIVER")),
        "none": Driver(None),
    }
    yield found
    for driver in found.values():
        driver.close()


@pytest.fixture
def machine(drivers: dict[str, Driver], tmp_path: Path) -> Machine:
    """A machine whose GPUs a test describes."""
    return Machine(tmp_path, drivers["new"])


@pytest.fixture
def old_machine(drivers: dict[str, Driver], tmp_path: Path) -> Machine:
    """The same with a driver that lacks what came later."""
    return Machine(tmp_path, drivers["old"])


@pytest.fixture
def bare_machine(drivers: dict[str, Driver], tmp_path: Path) -> Machine:
    """A machine without a driver."""
    return Machine(tmp_path, drivers["none"])
