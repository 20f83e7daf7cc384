"""A played GPU follows the work of an engine: what is written down, and what the driver then answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.toggles import EngineConfig
from tests.nvml.loads import CUDA_BYTES, Card, Done, Load, Prices
from tests.nvml.machine import written
from tests.nvml.play import CARDS
from tests.nvml.scenarios import driver, gb10, h100
from tests.unit.fake_engine import SUMMARY
from tests.unit.record_builders import make_step

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nvml.machine import Machine

GB = 10**9
CARD = Card(
    index=0, name="A GPU", pci="0000:01:00.0", peak=100e9, limit_w=270.0, sm_clock=1000.0, memory_total=8 * GB
)  # fmt: skip


def test_every_card_that_is_played_can_be_read(tmp_path: Path) -> None:
    for name, scenario in CARDS.items():
        card = Card.of(written(scenario, tmp_path / name))
        assert card.pci == "0000:1b:00.0"
        assert card.peak == pytest.approx(25.6e9 if name in ("small", "four") else 3352.32e9)
    with pytest.raises(ValueError, match="cannot be played: the driver tells no memory clock"):
        Card.of(written({**driver(1), **gb10(power_limit_mw=1)}, tmp_path / "gb10"))


def test_a_stretch_of_work_is_what_the_driver_tells_of_it() -> None:
    load = Load(CARD, pid=99)
    done = Done(wall_ns=10**9, forward_ns=800_000_000, bytes=50e9, flops=500e9)
    told = load.answers(done, memory=GB)
    assert told["gpu.0.gpm_10"] == "50.000"
    assert told["gpu.0.gpm_5"] == "25.000"
    assert told["gpu.0.gpu_samples"] == 80
    assert told["gpu.0.power_mw"] == 70_000 + round(200_000 * (0.25 * 0.8 + 0.5 * 0.5 + 0.25 * 0.25))
    assert told["gpu.0.processes"] == f"99:{GB + CUDA_BYTES}"
    idle = load.answers(Done(wall_ns=10**9), memory=GB)
    assert (idle["gpu.0.gpm_10"], idle["gpu.0.throttle"], idle["gpu.0.sm_clock"]) == ("0.000", "0x1", 200)
    assert int(str(idle["gpu.0.energy_mj"])) == int(str(told["gpu.0.energy_mj"])) + 70_000
    with pytest.raises(ValueError, match="no time"):
        load.answers(Done(), memory=GB)


def test_no_more_is_told_than_there_can_be() -> None:
    told = Load(CARD, pid=1).answers(Done(wall_ns=10, forward_ns=20, bytes=1e9, flops=1e15), memory=100 * GB)
    assert (told["gpu.0.gpm_10"], told["gpu.0.gpm_5"], told["gpu.0.gpu_samples"]) == ("100.000", "100.000", 100)
    assert told["gpu.0.memory_used"] == CARD.memory_total
    assert told["gpu.0.power_mw"] == 270_000


def test_a_step_is_priced_by_the_ledgers_of_both_models() -> None:
    config = EngineConfig()
    step = make_step()
    plain, both = Prices(config, SUMMARY, None), Prices(config, SUMMARY, SUMMARY)
    target = Ledger(SUMMARY).account(step)
    assert plain.of(step).bytes == target.exact.total > 0
    assert plain.of(step).wall_ns == step.duration_ns
    assert both.weights == 2 * plain.weights == 2 * SUMMARY.tensor_bytes
    assert plain.fit(config, SUMMARY, None)
    assert not plain.fit(msgspec.structs.replace(config), SUMMARY, None)
    assert not plain.fit(config, SUMMARY, SUMMARY)


def test_the_driver_answers_what_was_last_written_down(machine: Machine) -> None:
    load = Load(CARD, pid=4242)
    busy = load.answers(Done(wall_ns=10**9, forward_ns=10**9, bytes=75e9), memory=GB)
    idle = load.answers(Done(wall_ns=10**9), memory=0)
    rounds = tuple({key: str(value) for key, value in answers.items()} for answers in (busy, busy, idle))
    readings = machine.read({**driver(1), **h100()}, (0.0, 1.0, 2.0), loads=rounds)
    gpus = [reading.gpus[0] for reading in readings if reading.gpus]
    assert [gpu.dram_share for gpu in gpus] == [None, 0.75, 0.0]
    assert [gpu.utilisation for gpu in gpus] == [1.0, 1.0, 0.0]
    assert [gpu.memory_used_bytes for gpu in gpus] == [GB + CUDA_BYTES, GB + CUDA_BYTES, CUDA_BYTES]
    # What is not in the load is answered by the scenario.
    assert {gpu.memory_clock_mhz for gpu in gpus} == {2619.0}
