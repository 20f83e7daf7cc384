"""The models that scenarios run on, made once and kept beside the recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.common import gemma
from stackscope.experiments import protocol
from stackscope.experiments.calibrate import calibrate
from stackscope.hardware import ceilings
from stackscope.launch import with_models
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.model.inflate import inflate
from stackscope.model.quantise import quantise
from stackscope.toggles import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.validate.scenarios import Scenario, Stand

MEGABYTES: Final = 200.0


class Models:
    """Files by stand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._gemma = gemma()

    def has(self, stand: Stand) -> bool:
        return stand != "gemma" or self._gemma is not None

    def of(self, stand: Stand) -> tuple[str, str | None]:
        """(target, draft model)."""
        if stand == "gemma":
            return str(self._gemma), None
        if stand == "small":
            return str(bundled_target()), str(bundled_draft())
        if stand == "lab-q8":
            return str(self._quantised()), str(bundled_draft())
        return str(self._inflated()), str(self._inflated() if stand == "twins" else bundled_draft())

    def _inflated(self) -> Path:
        path = self.folder / f"lab-target-{MEGABYTES:.0f}mb-f16.gguf"
        if not path.exists():
            inflate(bundled_target(), MEGABYTES, output=path)
        return path

    def _quantised(self) -> Path:
        path = self.folder / f"lab-target-{MEGABYTES:.0f}mb-q8_0.gguf"
        if not path.exists():
            quantise(self._inflated(), "q8_0", output=path)
        return path

    def calibrate(self, scenarios: Sequence[Scenario]) -> None:
        """Measure what this machine does at most with each target, once; the sessions carry it in their headers."""
        for stand in sorted({one.stand for one in scenarios} - {"twins"}):
            target, draft = self.of(stand)
            config = with_models(EngineConfig(model=target, draft_model=draft))
            if not ceilings.is_measured(config):
                print(f"calibrating {stand}", flush=True)
                ceilings.store(calibrate(config, protocol.QUICK, progress=lambda _: None))
