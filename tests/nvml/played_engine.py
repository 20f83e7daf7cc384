"""The real engine, computing on the processor, that says it computes on a played GPU and has it follow its steps."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stackscope.engine.devices import Device
from stackscope.engine.loop import Engine
from tests.nvml.loads import Card, Done, Load, Prices, put

if TYPE_CHECKING:
    from stackscope.engine.turn import Turn

ENGINE: Final = "tests.nvml.played_engine:PlayedEngine"
PERIOD_NS: Final = 50_000_000


class PlayedEngine(Engine):
    """Writes down every 50 ms what a GPU would have done meanwhile."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        card = Card.of(Path(os.environ["FAKE_NVML_SCENARIO"]))
        self.devices = (
            Device(name="CUDA0", description=card.name, type="gpu", pci_id=card.pci),
            *self.devices,
        )
        self._path = Path(os.environ["FAKE_NVML_LOAD"])
        self._load = Load(card, os.getpid())
        self._prices = Prices(self.config, self.model, self.draft)
        self._done = Done()
        self._kv_cells = 0
        self._told_ns = time.monotonic_ns()
        self._tell(self._told_ns)

    def step(self) -> Turn | None:
        """A step as ever; what it did is added up."""
        turn = super().step()
        if turn is None:
            return None
        if not self._prices.fit(self.config, self.model, self.draft):
            self._prices = Prices(self.config, self.model, self.draft)
        self._done.add(self._prices.of(turn.step))
        self._kv_cells = turn.step.kv_cells
        now_ns = time.monotonic_ns()
        if now_ns - self._told_ns >= PERIOD_NS:
            self._tell(now_ns)
        return turn

    def idle(self) -> None:
        """Nothing more is done for a while."""
        super().idle()
        self._tell(time.monotonic_ns())
        self._done = Done()
        self._tell(time.monotonic_ns())

    def _tell(self, now_ns: int) -> None:
        self._done.wall_ns = max(now_ns - self._told_ns, 1)
        put(self._path, self._load.answers(self._done, self._prices.weights + self._kv_cells * self._prices.kv_cell))
        self._told_ns, self._done = now_ns, Done()
