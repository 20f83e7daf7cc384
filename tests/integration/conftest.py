"""What every integration test gets: all cores, and models that take long to make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration import affinity  # before any test imports the inference library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _all_cores() -> Iterator[None]:
    """Other tests, and the processes they start, may use every core, whatever the engine of this one was bound to."""
    yield
    affinity.release()


@pytest.fixture(scope="session")
def lab_200_mb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab target inflated to 200 MB: a forward of 512 rows takes seconds."""
    from stackscope.model.catalog import bundled_target
    from stackscope.model.inflate import inflate

    return inflate(bundled_target(), 200, output=tmp_path_factory.mktemp("inflated") / "lab-200mb.gguf").path
