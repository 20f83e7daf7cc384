"""Drivers that are absent, broken, old, slow, or lose a GPU: one sentence, and everything else goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.hardware.nvml_gpm import FIELDS
from tests.nvml.scenarios import GIB, a10, driver, h100, mig

if TYPE_CHECKING:
    from stackscope.hardware.gpu_probe import GpuReading
    from stackscope.records import GpuSample
    from tests.nvml.machine import Machine

NOT_FOR_LONG: Final = 20
"""Calls that a GPU answers before it is lost: enough to open it and read some of a round."""


def only(reading: GpuReading) -> GpuSample:
    assert reading.gpus is not None
    [found] = reading.gpus
    return found


def several(reading: GpuReading) -> tuple[GpuSample, ...]:
    assert reading.gpus is not None
    return reading.gpus


@pytest.mark.parametrize(
    ("code", "problem", "remedy"),
    [
        (18, "The NVIDIA driver was updated while it ran, and its library no longer matches it (NVML 18).", "Reboot."),
        (
            9,
            "The NVIDIA driver is installed but not loaded (NVML 9).",
            "Load it with modprobe nvidia, or reboot.",
        ),
        (
            4,
            "The NVIDIA driver does not answer: it needs more rights (NVML 4).",
            "See what nvidia-smi says.",
        ),
        (
            777,
            "The NVIDIA driver does not answer: the driver refuses (NVML 777).",
            "See what nvidia-smi says.",
        ),
    ],
)
def test_a_driver_that_does_not_start_is_one_sentence(machine: Machine, code: int, problem: str, remedy: str) -> None:
    """Case 51: versions that do not match, a driver that is not loaded, and other failures to start."""
    for reading in machine.read({**driver(1), **h100(), "library.nvmlInitWithFlags": code}, (0, 100)):
        assert reading.gpus is None
        assert (reading.problem, reading.remedy) == (problem, remedy)
        assert reading.reason == f"{problem} {remedy}"


def test_a_driver_that_cannot_count_is_one_sentence(machine: Machine) -> None:
    [reading] = machine.read({**driver(1), "library.nvmlDeviceGetCount_v2": 999}, (0,))
    assert reading.gpus is None
    assert reading.problem == "The driver does not count its GPUs: the driver reports an unknown error (NVML 999)."


def test_without_a_library_there_are_no_gpus(bare_machine: Machine) -> None:
    """Case 51: the library is absent."""
    [reading] = bare_machine.read({}, (0,))
    assert reading.gpus == ()
    assert reading.problem == "There is no NVIDIA driver here: libnvidia-ml.so.1 is not found."
    assert reading.remedy == "With an NVIDIA GPU, install its driver; in a container, start that with --gpus all."


def test_a_driver_without_gpus_is_no_problem(machine: Machine) -> None:
    [reading] = machine.read(driver(0), (0,))
    assert (reading.gpus, reading.problem) == ((), None)


def test_one_gpu_that_does_not_open_takes_nothing_from_the_others(machine: Machine) -> None:
    """Case 50: the third of four fails, and the fourth has no fan."""
    scenario = {**driver(4), **a10(0), **a10(1), **a10(2), **a10(3, nvmlDeviceGetFanSpeed=3)}
    scenario["gpu.2.nvmlDeviceGetHandleByIndex_v2"] = "999,999,0"
    first, soon, at_30_s, at_90_s = machine.read(scenario, (0, 1, 30, 90))
    for reading in (first, soon, at_30_s):
        gpus = several(reading)
        assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
        assert [gpu.power_w for gpu in gpus] == [150, 150, None, 150]
        assert [gpu.fan_share for gpu in gpus] == [0.45, 0.45, None, None]
        assert (gpus[2].name, gpus[2].is_lost) == ("GPU 2", False)
        assert gpus[2].why("power_w") == "the driver reports an unknown error (NVML 999)"
        assert gpus[3].why("fan_share") == "this GPU or its driver does not support it (NVML 3)"
    # The second try is 30 s after the first, the third 60 s after that.
    back = several(at_90_s)[2]
    assert (back.name, back.power_w) == ("NVIDIA A10", 150)


def test_a_lost_gpu_is_not_touched_again_until_the_library_starts_afresh(machine: Machine) -> None:
    """Case 49: every further call on the old handle would end the process."""
    scenario = {**driver(2), **h100(0), **h100(1, calls_until_lost=NOT_FOR_LONG, back_at_initialisation=3)}
    readings = machine.read(scenario, (0, 1, 2, 29, 31, 40, 95, 96))
    for reading in readings[:-2]:
        well, lost = several(reading)
        assert well.power_w == pytest.approx(412.345)
        assert lost.is_lost
        assert lost.uuid == "GPU-00000001-aaaa-bbbb-cccc-dddddddddddd"
        assert lost.name == "NVIDIA H100 80GB HBM3"
        assert lost.power_w is None
        assert lost.why("power_w") == "the GPU fell off the bus (NVML 15)"
    for reading in readings[-2:]:
        assert [gpu.is_lost for gpu in several(reading)] == [False, False]
        assert [gpu.power_w for gpu in several(reading)] == [pytest.approx(412.345)] * 2
    assert [gpu.is_gpm_live for gpu in several(readings[-1])] == [True, True]


def test_a_gpu_may_be_lost_at_any_call(machine: Machine) -> None:
    """As many GPUs as a round has calls, each lost at another of them."""
    n_gpus = 48
    scenario = driver(n_gpus + 1) | a10(n_gpus)
    for index in range(n_gpus):
        scenario |= h100(index, calls_until_lost=index)
    *_, before, after = machine.read(scenario, (0, 0.2, 1.2, 1.4, 60))
    for reading in (before, after):
        gpus = several(reading)
        assert len(gpus) == n_gpus + 1
        assert all(gpu.why("power_w") == "the GPU fell off the bus (NVML 15)" for gpu in gpus if gpu.is_lost)
        assert gpus[n_gpus].power_w == 150
    # Four rounds were more calls than any of them had.
    assert {gpu.index for gpu in several(before) if not gpu.is_lost} == {n_gpus}


def test_a_lost_gpu_takes_its_instances_along(machine: Machine) -> None:
    first, second = machine.read({**driver(1), **mig(nvmlDeviceGetPowerUsage="0,15")}, (0, 1))
    assert len(several(first)) == 3
    assert only(second).is_lost


def test_a_gpu_that_needs_a_reset_is_as_good_as_lost(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **h100(nvmlDeviceGetPowerUsage=16)}, (0,))[0])
    assert found.is_lost
    assert found.why("power_w") == "the GPU needs a reset (NVML 16)"


def test_a_library_that_does_not_start_again_is_tried_again(machine: Machine) -> None:
    scenario = {**driver(2), **h100(0, calls_until_lost=NOT_FOR_LONG, back_at_initialisation=2), **a10(1)}
    scenario["library.nvmlInitWithFlags"] = "0,9,0"
    _, at_31_s, at_95_s = machine.read(scenario, (0, 31, 95))
    reason = "The NVIDIA driver is installed but not loaded (NVML 9)."
    assert [gpu.why("power_w") for gpu in several(at_31_s)] == [reason, reason]
    assert [gpu.power_w for gpu in several(at_95_s)] == [pytest.approx(412.345), 150]


def test_gpm_that_is_claimed_and_then_fails_is_not_asked_again(machine: Machine) -> None:
    """Case 60: support is claimed, and the sample fails."""
    scenario = {**driver(1), **h100(nvmlGpmSampleGet="3,abort")}
    for reading in machine.read(scenario, (0, 0.2, 0.4, 30)):
        found = only(reading)
        assert found.is_gpm_live is False
        assert found.dram_share is None
        reason = "the driver claims GPM, but a sample fails: this GPU or its driver does not support it (NVML 3)"
        assert {found.why(field) for field in ("is_gpm_live", "dram_share", "sm_active")} == {reason}
        assert found.utilisation is not None
    assert found.pcie_read_bytes_per_s == pytest.approx(8e9 / 30)  # from the counter instead


def test_gpm_that_fails_in_passing_is_tried_again_later(machine: Machine) -> None:
    scenario = {**driver(1), **h100(nvmlGpmSampleGet="0,0,27,0")}
    readings = [only(r) for r in machine.read(scenario, (0, 0.2, 0.4, 9, 10.5, 10.7))]
    assert [found.is_gpm_live for found in readings] == [None, True, False, False, False, True]
    assert readings[2].why("dram_share") == "the driver is not ready (NVML 27)"
    assert readings[5].dram_share == pytest.approx(0.759)


def test_gpm_without_the_rights_says_which(machine: Machine) -> None:
    found = only(machine.read({**driver(1), **h100(nvmlGpmSampleGet=4)}, (0,))[0])
    assert "NVreg_RestrictProfilingToAdminUsers=0" in (found.why("dram_share") or "")


def test_each_metric_has_a_status_of_its_own(machine: Machine) -> None:
    """Case 60: not a number, refused, and out of range."""
    scenario = {**driver(1), **h100(gpm_10="nan", gpm_status_5=3, gpm_2=250, gpm_3=100.4, gpm_status_60=15)}
    found = only(machine.read(scenario, (0, 0.2))[1])
    assert found.is_gpm_live
    assert not found.is_lost
    assert found.dram_share is None
    assert found.dram_bytes_per_s is None
    assert found.why("dram_share") == "GPM has no value for it (NaN)"
    assert found.why("tensor_active") == "this GPU or its driver does not support it (NVML 3)"
    assert found.why("sm_active") == "GPM answers 250, which cannot be"
    assert found.occupancy == 1.0


def test_gpm_samples_are_never_too_close(machine: Machine) -> None:
    """Case 60: at ticks of 50 ms every second or third takes a sample, and the others keep what is known."""
    scenario = {**driver(1), **h100(gpm_10="10,20,30,40,50", nvmlGpmSampleGet="0,0,0,0,abort")}
    times = (0, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45)
    shares = [only(r).dram_share for r in machine.read(scenario, times)]
    assert shares == [None, None, None, *[pytest.approx(0.1)] * 3, *[pytest.approx(0.2)] * 3, pytest.approx(0.3)]


def test_a_base_from_long_ago_is_not_compared_with(machine: Machine) -> None:
    found = [only(r) for r in machine.read({**driver(1), **h100(gpm_10="10,20")}, (0, 0.2, 60, 60.2))]
    assert [sample.dram_share for sample in found] == [None, 0.1, 0.1, pytest.approx(0.2)]


def test_an_old_driver_is_asked_the_old_way(old_machine: Machine) -> None:
    old_machine.run_process(12)
    found = only(old_machine.read({**driver(1), **h100(processes=f"12:{GIB}")}, (0, 1))[1])
    assert found.temperature_c == 47
    assert found.throttle == ("power cap", "temperature (by software)")
    assert (found.processes, found.process_memory_bytes) == (1, GIB)
    assert found.is_gpm_live is False
    reasons = {found.why(field) for field in FIELDS if not field.startswith("pcie")}
    assert reasons == {"the driver is too old for GPM (NVML 13)"}
    assert found.pcie_read_bytes_per_s == pytest.approx(8e9)


def test_an_old_binding_is_asked_the_old_way(machine: Machine) -> None:
    missing = (
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlGpmQueryDeviceSupport",
        "NVMLLibraryMismatchError",
        "nvmlDeviceGetFieldValues",
    )
    found = only(machine.read({**driver(1), **h100()}, (0, 1), without=missing)[1])
    assert found.temperature_c == 47
    assert found.throttle == ("power cap", "temperature (by software)")
    assert found.processes == 0
    assert found.why("dram_share") == "the installed nvidia-ml-py is too old: it has no nvmlGpmQueryDeviceSupport"
    assert found.why("throttled") == "the installed nvidia-ml-py is too old: it has no nvmlDeviceGetFieldValues"


def test_what_is_refused_for_good_is_not_asked_again_at_once(machine: Machine) -> None:
    scenario = {**driver(1), **h100(nvmlDeviceGetPowerUsage="3,0")}
    found = [only(r) for r in machine.read(scenario, (0, 1, 59, 61))]
    assert [sample.power_w for sample in found] == [None, None, None, pytest.approx(412.345)]


PRINT_READING: Final = "from stackscope.hardware.nvml_gpus import Gpus; print(Gpus().read().reason)"


@pytest.mark.parametrize("content", ["", "class NVMLError(Exception): pass\n", None])
def test_another_package_of_that_name_is_detected(machine: Machine, content: str | None) -> None:
    """`pynvml` up to 11.5 is a package that hides the module of nvidia-ml-py."""
    folder = machine.folder / "site"
    folder.mkdir()
    if content is None:
        (folder / "pynvml.py").write_text("raise ImportError\n")
    else:
        (folder / "pynvml").mkdir()
        (folder / "pynvml" / "__init__.py").write_text(content)
    environment = machine.environment({**driver(1), **h100()})
    environment["PYTHONPATH"] = f"{folder}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", PRINT_READING], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    if content is None:
        assert done.stdout.startswith("GPU readings need the package nvidia-ml-py, which is not installed.")
        assert "pip install nvidia-ml-py" in done.stdout
    else:
        assert done.stdout.startswith("The package pynvml hides the one that GPU readings need, nvidia-ml-py.")
        assert "pip uninstall pynvml" in done.stdout


SHELL: Final = """
import sys, warnings
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pynvml":
            warnings.warn("The pynvml package is deprecated. Please install nvidia-ml-py instead.", FutureWarning)
sys.meta_path.insert(0, Finder())
"""


def test_the_shell_package_does_not_write_on_the_screen(machine: Machine) -> None:
    """`pynvml` from 12 on warns whoever imports the module, the right one too."""
    folder = machine.folder / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHELL)
    environment = machine.environment({**driver(1), **h100()})
    environment["PYTHONPATH"] = f"{folder}:{environment['PYTHONPATH']}"

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
        )

    assert "FutureWarning" in run("import pynvml").stderr
    done = run(PRINT_READING)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_slow_driver_delays_its_own_thread_alone(machine: Machine) -> None:
    """Case 58: every call sleeps for 500 ms."""
    done = machine.run("tests.nvml.slow", scenario={**driver(1), **h100(), "all.sleep_ms": 500})
    assert done.returncode == 0, done.stderr
    longest_ms, looks, answered = done.stdout.split()
    assert int(looks) > 100
    assert float(longest_ms) < 100
    assert answered == "False"
