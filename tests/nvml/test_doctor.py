"""What `doctor` says of GPUs: what there is with its figures, and every "no" with a reason and a remedy."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from stackscope.commands import gpu_examinations
from stackscope.commands.gpu_examinations import ask_gpus, of_gpus
from stackscope.hardware import host
from tests.nvml.scenarios import a10, driver, gb10, h100, mig

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.commands.examinations import Check
    from tests.nvml.machine import Machine, Scenario

H100 = "GPU 0, NVIDIA H100 80GB HBM3"


@pytest.fixture
def examined(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Examination:
    return Examination(machine, monkeypatch)


class Examination:
    """Doctor's questions on a machine with these GPUs."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._machine = machine
        self._patch = monkeypatch

    def __call__(self, scenario: Scenario, **environment: str) -> list[Check]:
        wanted = self._machine.environment(scenario, **environment)
        for name in ("LD_LIBRARY_PATH", "FAKE_NVML_SCENARIO", "PYTHONPATH", *environment):
            self._patch.setenv(name, wanted[name])
        found = list(of_gpus(ask_gpus(), host.look()))
        assert all(check.remedy for check in found if check.holds is False)
        assert not any(check.is_needed for check in found)
        return found


def values(checks: list[Check], name: str) -> list[tuple[bool | None, str]]:
    return [(check.holds, check.value) for check in checks if check.name == name]


def test_an_h100_has_live_gpm_and_its_peak(machine: Machine) -> None:
    done = machine.run("stackscope", "doctor", scenario={**driver(1), **h100(gpm_gap_ms=100)}, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    at = lines.index(H100)
    assert "  ok  GPM               live: SM, tensor, occupancy, DRAM bandwidth, PCIe, NVLink" in lines[at:]
    assert "  ok  Peak bandwidth    3,352 GB/s, 2,619 MHz × 5,120 bit × 2 ÷ 8; rated at 3,350 GB/s" in lines[at:]
    assert any(line.startswith("  ok  NVIDIA driver     version 570.86.15") for line in lines)


def test_json_has_the_readings_too(machine: Machine) -> None:
    done = machine.run("stackscope", "doctor", "--json", scenario={**driver(1), **h100(gpm_gap_ms=100)})
    report = json.loads(done.stdout)
    [gpu] = report["gpus"]["reading"]["gpus"]
    assert (gpu["is_gpm_live"], gpu["peak_bytes_per_s"]) == (True, 3_352_320_000_000)
    # The rates of counters need two looks a second apart, and doctor takes them.
    assert set(gpu["unknown"]) <= {"fan_share", "is_used", "engine_memory_bytes"}


def test_every_missing_reading_is_under_its_reason(examined: Examination) -> None:
    found = examined({**driver(1), **a10(processes="999999:5")})
    assert [holds for holds, _ in values(found, "GPM")] == [False]
    [(_, missing)] = values(found, "Not read")
    assert missing == (
        "memory temperature, throttling over time, PCIe traffic: this GPU or its driver does not support it (NVML 3)"
    )
    assert [holds for holds, _ in values(found, "Process ids")] == [False]


def test_a_gpu_that_fails_has_a_line_of_its_own(examined: Examination) -> None:
    found = examined({**driver(2), **a10(0), **a10(1), "gpu.1.nvmlDeviceGetHandleByIndex_v2": 15})
    [failed] = [check for check in found if check.topic == "GPU 1"]
    assert failed.value == "none: the GPU fell off the bus (NVML 15)"
    assert "Xid" in (failed.remedy or "")
    assert values(found, "Peak bandwidth") == [(True, "600 GB/s, 6,251 MHz × 384 bit × 2 ÷ 8")]


def test_unified_memory_asks_for_the_bandwidth(examined: Examination) -> None:
    found = examined({**driver(1), **gb10()})
    [memory] = values(found, "Memory")
    assert memory[1].endswith("the machine's own, shared with the processor")
    [peak] = [check for check in found if check.name == "Peak bandwidth"]
    assert peak.holds is False
    assert "STACKSCOPE_GPU_BANDWIDTH" in (peak.remedy or "")
    stated = examined({**driver(1), **gb10()}, STACKSCOPE_GPU_BANDWIDTH="273")
    assert values(stated, "Peak bandwidth") == [(True, "273 GB/s, stated by STACKSCOPE_GPU_BANDWIDTH")]


def test_a_bandwidth_that_is_none_is_told(examined: Examination) -> None:
    [check] = examined({**driver(1), **gb10()}, STACKSCOPE_GPU_BANDWIDTH="much")
    assert check.value == "STACKSCOPE_GPU_BANDWIDTH must be a number of GB/s, not 'much'."


def test_mig_instances_are_listed_with_what_is_their_own(examined: Examination) -> None:
    found = examined({**driver(1), **mig(), "gpu.0.gpm_gap_ms": 100})
    topics = list(dict.fromkeys(check.topic for check in found))
    assert topics[2].startswith("GPU 0, NVIDIA H100 80GB HBM3 MIG 1g.10gb, MIG-00000000")
    assert values(found, "Other readings") == [(None, "none: it is read for the whole GPU, not for an instance")] * 2
    one = [check for check in found if check.topic == topics[2] and check.name == "GPM"]
    assert one[0].value.startswith("live: SM, DRAM bandwidth; not tensor, occupancy, PCIe, NVLink: ")


def test_a_hidden_gpu_is_said_to_be(examined: Examination) -> None:
    found = examined({**driver(1), **a10()}, CUDA_VISIBLE_DEVICES="")
    assert values(found, "Use") == [(None, "CUDA_VISIBLE_DEVICES hides it from the engine")]


@pytest.mark.parametrize(
    ("scenario", "value", "remedy"),
    [
        ({"library.nvmlInitWithFlags": 18}, "no longer matches it (NVML 18)", "Reboot."),
        ({"library.nvmlInitWithFlags": 9}, "not loaded (NVML 9)", "modprobe nvidia"),
        ({"library.nvmlInitWithFlags": "abort"}, "ended the process that asked it (SIGABRT)", "nvidia-smi"),
        (driver(0), "the driver sees none", "nvidia-smi"),
    ],
)
def test_a_driver_in_trouble_is_one_line(examined: Examination, scenario: Scenario, value: str, remedy: str) -> None:
    last = examined(scenario)[-1]
    assert last.holds is False
    assert value in last.value
    assert remedy in (last.remedy or "")


def test_a_machine_without_a_driver_says_so(bare_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", bare_machine.environment({})["PYTHONPATH"])
    [check] = of_gpus(ask_gpus(), host.look())
    assert (check.holds, check.is_needed) == (False, False)
    assert check.value == "There is no NVIDIA driver here: libnvidia-ml.so.1 is not found."


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("print('gibberish')", "cannot be asked: no answer came"),
        ("raise ValueError('broken')", "cannot be asked: ValueError: broken"),
        ("import os; os.abort()", "ended the process that asked it (SIGABRT)"),
    ],
)
def test_a_process_that_gives_no_answer_is_a_sentence(code: str, problem: str) -> None:
    reading = ask_gpus([sys.executable, "-c", code]).reading
    assert reading.gpus is None
    assert problem in (reading.problem or "")


def test_a_program_that_cannot_run_is_a_sentence() -> None:
    assert "cannot be asked: No such file" in (ask_gpus(["/no/such/program"]).reading.problem or "")


def test_the_package_of_the_modules_name_is_pointed_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As its metadata tells, beside which the right package may be installed too."""
    folder = tmp_path / "pynvml-11.4.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 11.4.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [check] = gpu_examinations._other_package()
    assert check.value == "pynvml 11.4.1 is installed beside nvidia-ml-py, which it hides or warns about"
    assert "pip uninstall pynvml" in (check.remedy or "")
