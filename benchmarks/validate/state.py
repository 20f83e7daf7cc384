"""What has been staged so far, in a folder that a killed run is taken up from: recordings with numbers, and a list."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.session.format import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.validate.scenarios import Scenario

LIST: Final = "state.json"
VERSION: Final = 2
"""Of the scenarios: recordings of other ones are not to be mixed with these."""


class Staged(msgspec.Struct, frozen=True):
    """A recording that is whole."""

    recording: str
    """Name of the file, which says nothing about what is in it."""
    foreign: float | None
    """Share of one CPU that others took, the fault aside. `None`: this system does not say."""


class State(msgspec.Struct):
    """Which scenarios have been staged. Written as a whole after each."""

    version: int = VERSION
    seed: int = 0
    """Of the order in which scenarios are staged."""
    is_quick: bool = False
    machine: str = ""
    staged: dict[str, Staged] = {}


class Folder:
    """The folder of a run."""

    def __init__(self, path: Path, *, is_quick: bool = False, machine: str = "") -> None:
        """Take up what is there. Raises `SystemExit` when it is of another kind."""
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.state = State(is_quick=is_quick, machine=machine)
        if self._list.exists():
            try:
                self.state = msgspec.json.decode(self._list.read_bytes(), type=State)
            except msgspec.MsgspecError as error:
                raise SystemExit(f"{self._list} is damaged ({error}). Use another folder.") from error
            if (self.state.version, self.state.is_quick) != (VERSION, is_quick):
                raise SystemExit(f"{path} holds a run of another kind. Use another folder.")

    @property
    def _list(self) -> Path:
        return self.path / LIST

    def left(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """What is still to be staged, in an order that is random but the same after every restart."""
        order = random.Random(self.state.seed).sample(range(len(scenarios)), len(scenarios))
        return [scenarios[i] for i in order if scenarios[i].name not in self.state.staged]

    def place(self, scenario: Scenario, scenarios: Sequence[Scenario]) -> Path:
        """Where to record a scenario; what a run that was killed left there is removed."""
        order = random.Random(self.state.seed + 1).sample(range(len(scenarios)), len(scenarios))
        names = [one.name for one in scenarios]
        path = self.path / f"{order[names.index(scenario.name)]:03d}{SUFFIX}"
        path.unlink(missing_ok=True)
        return path

    def keep(self, scenario: Scenario, staged: Staged) -> None:
        """Note that a recording is whole."""
        self.state.staged[scenario.name] = staged
        draft = self._list.with_suffix(".part")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(self.state), indent=1))
        os.replace(draft, self._list)  # noqa: PTH105 - Path.replace says less about being atomic

    def recording(self, name: str) -> Path | None:
        """The recording of a scenario. `None`: it has not been staged, or its file is gone."""
        staged = self.state.staged.get(name)
        path = None if staged is None else self.path / staged.recording
        return path if path is not None and path.exists() else None
