"""What a played GPU answers while an engine works: a load that follows from the engine's own steps and ledgers."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.ledger import Ledger
from stackscope.hardware import peaks
from stackscope.hardware.gpu_use import pci_id
from stackscope.hardware.peaks import Peak
from tests.nvml.scenarios import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from stackscope.records import DraftForward, ModelSummary, StepRecord
    from stackscope.toggles import EngineConfig
    from tests.nvml.machine import Scenario

IDLE_W: Final = 70.0
IDLE_SHARE_OF_CLOCK: Final = 0.2
WARM_C: Final = 34.0
HOT_C: Final = 50.0
"""Above `WARM_C`, at full power."""
WARMING_NS: Final = 20e9
CUDA_BYTES: Final = GIB // 2
"""What a process holds of a GPU before it has loaded anything."""
FLOPS_PER_BYTE: Final = 20.0
"""A played GPU computes so many FLOPs in the time that it moves a byte, so that both show with a small model."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU that is played, as its scenario describes it."""

    index: int
    name: str
    pci: str
    peak: float
    """Bytes per second."""
    limit_w: float
    sm_clock: float
    memory_total: int

    @classmethod
    def of(cls, scenario: Path, index: int = 0) -> Card:
        """Read from a scenario's file. Raises `ValueError` for a GPU of which no peak is told."""
        lines = (line.partition(" = ") for line in scenario.read_text(encoding="utf-8").splitlines())
        told = {key.removeprefix(f"gpu.{index}."): value for key, _, value in lines if key.startswith(f"gpu.{index}.")}
        peak = peaks.from_clock(told["name"], int(told.get("memory_clock_max", 0)), int(told.get("bus_bits", 0)))
        place = pci_id(told["pci"])
        if not isinstance(peak, Peak) or place is None:
            raise ValueError(f"{told['name']} cannot be played: {peak}.")
        return cls(
            index=index,
            name=told["name"],
            pci=place,
            peak=peak.bytes_per_s,
            limit_w=float(told["power_limit_mw"]) / 1e3,
            sm_clock=float(told["sm_clock"]),
            memory_total=int(told["memory_total"]),
        )


class Done(msgspec.Struct, kw_only=True):
    """What an engine did in a stretch of time."""

    wall_ns: int = 0
    forward_ns: int = 0
    """In forwards, of target and draft model."""
    bytes: float = 0.0
    flops: float = 0.0

    def add(self, other: Done) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Prices:
    """What the steps of one configuration cost."""

    def __init__(self, config: EngineConfig, model: ModelSummary, draft: ModelSummary | None) -> None:
        self._target = Ledger(model, config.kv_type_k, config.kv_type_v)
        self._draft = None if draft is None else Ledger(draft, config.kv_type_k, config.kv_type_v)
        self.weights = model.tensor_bytes + (0 if draft is None else draft.tensor_bytes)
        """Bytes in memory."""
        self.kv_cell = self._target.kv_bytes_per_token
        self._models = (model, draft)
        self._config = config

    def fit(self, config: EngineConfig, model: ModelSummary, draft: ModelSummary | None) -> bool:
        """Whether they are those of this configuration."""
        return self._config is config and self._models == (model, draft)

    def of(self, step: StepRecord) -> Done:
        """One step."""
        target = self._target.account(step)
        done = Done(
            wall_ns=step.duration_ns,
            forward_ns=step.phases.decode + (step.phases.draft if step.draft else 0),
            bytes=target.exact.total + target.expected.total,
            flops=target.flops.total,
        )
        done.add(self._drafting(step.draft))
        return done

    def _drafting(self, forwards: Iterable[DraftForward]) -> Done:
        if self._draft is None:
            return Done()
        account = self._draft.account_draft(forwards)
        return Done(bytes=account.exact.total + account.expected.total, flops=account.flops.total)


class Load:
    """The state of a played GPU."""

    def __init__(self, card: Card, pid: int) -> None:
        """`pid` is the process that uses it."""
        self.card = card
        self._pid = pid
        self._energy_mj = 5_000_000.0
        self._temperature = WARM_C

    def answers(self, done: Done, memory: int) -> Scenario:
        """What the driver says after a stretch in which this was done, with so many bytes in use."""
        card = self.card
        wall_s = done.wall_ns / 1e9
        if wall_s <= 0:
            raise ValueError("nothing can have been done in no time")
        busy = min(1.0, done.forward_ns / done.wall_ns)
        dram = min(1.0, done.bytes / wall_s / card.peak)
        tensor = min(1.0, done.flops / wall_s / (card.peak * FLOPS_PER_BYTE))
        watts = IDLE_W + (card.limit_w - IDLE_W) * (0.25 * busy + 0.5 * dram + 0.25 * tensor)
        self._energy_mj += watts * wall_s * 1e3
        wanted = WARM_C + HOT_C * watts / card.limit_w
        self._temperature += (wanted - self._temperature) * (1 - math.exp(-done.wall_ns / WARMING_NS))
        clock = card.sm_clock * (1.0 if busy > 0.01 else IDLE_SHARE_OF_CLOCK)
        sent = done.bytes / wall_s / 5e4 / (1 << 20)
        told = {
            "gpu_samples": round(100 * busy),
            "memory_samples": round(100 * min(busy, 1.4 * dram)),
            "gpu_percent": round(100 * busy),
            "memory_percent": round(100 * min(busy, 1.4 * dram)),
            "sm_clock": round(clock),
            "power_mw": round(1e3 * watts),
            "energy_mj": round(self._energy_mj),
            "temperature": round(self._temperature),
            "throttle": "0x0" if busy > 0.01 else "0x1",
            "memory_used": min(card.memory_total, CUDA_BYTES + memory),
            "processes": f"{self._pid}:{min(card.memory_total, CUDA_BYTES + memory)}",
            "gpm_2": f"{100 * max(busy * 0.9, dram):.3f}",
            "gpm_3": f"{50 * busy:.3f}",
            "gpm_5": f"{100 * tensor:.3f}",
            "gpm_10": f"{100 * dram:.3f}",
            "gpm_20": f"{sent:.4f}",
            "gpm_21": f"{2 * sent:.4f}",
        }
        return {f"gpu.{card.index}.{name}": value for name, value in told.items()}


def put(path: Path, answers: Mapping[str, object]) -> None:
    """Put a file in the place of the one that the fake library reads, whole at any moment."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text("".join(f"{key} = {value}\n" for key, value in answers.items()), encoding="utf-8")
    os.replace(fresh, path)  # noqa: PTH105 - what it does is in the name
