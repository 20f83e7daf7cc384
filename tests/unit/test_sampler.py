"""Sampling a machine that is made up, file by file, and this one: what is read, what is not, and when."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from stackscope.hardware.gpu_probe import GpuReading
from stackscope.hardware.procfs import Kernel, throttled_share
from stackscope.hardware.sampler import FIRST, PERIOD_NS, UNTOLD, Sampler
from stackscope.records import GpuSample, HardwareSample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STAT = "cpu  {user} 0 {system} {idle} {wait} 0 0 0 7 7\ncpu0 1 2 3 4 5 6 7 0 0 0\ncpu1 1 2 3 4 5 6 7 0 0 0\nintr 1 2\n"
PROCESS = "{pid} (a (b) c) {state} 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 3 0 {started} 999 {pages} 0 0\n"
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Machine:
    """A machine that says what the test has it say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/stat", STAT.format(user=100, system=100, idle=700, wait=100))
        self.write("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:    6000 kB\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def process(self, *, pid: int = 7, user: int = 30, started: int = 55, state: str = "S") -> None:
        text = PROCESS.format(pid=pid, user=user, system=12, started=started, pages=1_000, state=state)
        self.write(f"proc/{pid}/stat", text)

    def sampler(self, *, pid: int | None = None, gpus: Gpus | None = None) -> Sampler:
        return Sampler(lambda _: None, clock=lambda: 5, pid=pid, gpus=gpus, root=self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Gpus:
    """A probe with a ready answer."""

    def __init__(self, reading: GpuReading) -> None:
        self._reading = reading
        self.is_closed = False

    def read(self) -> GpuReading:
        return self._reading

    def close(self) -> None:
        self.is_closed = True


class TestHost:
    def test_busy_is_what_is_neither_idle_nor_waiting_since_the_reading_before(self, machine: Machine) -> None:
        sampler = machine.sampler()
        first = sampler.sample()
        assert (first.cpu_percent, first.cores, first.unknown["cpu_percent"]) == (None, 2, FIRST)
        machine.write("proc/stat", STAT.format(user=130, system=110, idle=740, wait=120))
        assert sampler.sample().cpu_percent == 40  # 40 of 100 ticks
        machine.write("proc/stat", STAT.format(user=130, system=110, idle=790, wait=110))
        assert sampler.sample().cpu_percent == 0
        machine.write("proc/stat", "nonsense")
        unreadable = sampler.sample()
        assert (unreadable.cpu_percent, unreadable.cores, unreadable.unknown["cpu_percent"]) == (None, None, UNTOLD)

    def test_memory_is_the_machines_or_what_the_container_allows(self, machine: Machine) -> None:
        sample = machine.sampler().sample()
        assert (sample.memory_available_bytes, sample.memory_total_bytes) == (6_000 * 1024, 8_000 * 1024)
        machine.write("sys/fs/cgroup/memory.max", "5000000")
        machine.write("sys/fs/cgroup/memory.current", "2000000")
        sample = machine.sampler().sample()
        assert (sample.memory_available_bytes, sample.memory_total_bytes) == (3_000_000, 5_000_000)
        machine.remove("proc/meminfo")
        sample = machine.sampler().sample()
        assert (sample.memory_available_bytes, sample.memory_total_bytes) == (3_000_000, 5_000_000)

    def test_a_limit_that_changes_is_seen_after_a_few_readings(self, machine: Machine) -> None:
        machine.write("sys/fs/cgroup/memory.max", "5000000")
        sampler = machine.sampler()
        assert sampler.sample().memory_total_bytes == 5_000_000
        machine.write("sys/fs/cgroup/memory.max", "4000000")
        assert {sampler.sample().memory_total_bytes for _ in range(8)} == {5_000_000, 4_000_000}

    def test_pressure_is_that_of_the_own_control_group_where_it_is_measured(self, machine: Machine) -> None:
        machine.write("proc/pressure/cpu", "some avg10=12.50 avg60=1 avg300=1 total=9\nfull avg10=1.00 avg60=0\n")
        assert machine.sampler().sample().cpu_pressure == 0.125
        machine.write("proc/self/cgroup", "0::/outer/inner\n")
        machine.write("sys/fs/cgroup/outer/cpu.pressure", "some avg10=3.00 avg60=0.00 avg300=0.00 total=1\n")
        assert machine.sampler().sample().cpu_pressure == 0.03
        machine.write("sys/fs/cgroup/outer/inner/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
        assert machine.sampler().sample().cpu_pressure == 0

    def test_throttling_is_counted_since_the_reading_before(self, machine: Machine) -> None:
        machine.write("proc/self/cgroup", "0::/box\n")
        machine.write("sys/fs/cgroup/box/cpu.stat", "usage_usec 5\nnr_periods 100\nnr_throttled 50\n")
        sampler = machine.sampler()
        first = sampler.sample()
        assert (first.throttled_share, first.unknown["throttled_share"]) == (None, FIRST)
        assert sampler.sample().throttled_share == 0
        machine.write("sys/fs/cgroup/box/cpu.stat", "usage_usec 6\nnr_periods 110\nnr_throttled 53\n")
        assert sampler.sample().throttled_share == 0.3

    def test_the_tightest_level_and_either_version_of_control_groups_count(self) -> None:
        before = {"a": (0, 0), "b": (5, 10)}
        assert throttled_share(before, {"a": (1, 10), "b": (8, 20)}) == 0.3
        assert throttled_share(before, {"b": (5, 10)}) == 0
        assert throttled_share(before, {}) is None
        assert throttled_share({}, {"a": (50, 100)}) == 0  # it appeared just now

    def test_version_1_counts_too(self, machine: Machine) -> None:
        machine.write("proc/self/cgroup", "4:cpu,cpuacct:/box\n")
        machine.write("sys/fs/cgroup/cpu/box/cpu.stat", "nr_periods 10\nnr_throttled 5\nthrottled_time 9\n")
        assert list(Kernel(machine.root, frozenset()).throttling().values()) == [(5, 10)]

    def test_the_clock_is_the_mean_of_the_cores(self, machine: Machine) -> None:
        for core, kilohertz in enumerate((1_000_000, 3_000_000, 9_000_000)):
            machine.write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{kilohertz}\n")
        assert Kernel(machine.root, frozenset({0, 1})).frequency_mhz() == 2_000

    def test_a_nominal_clock_is_no_reading_and_said_to_be_nominal(self, machine: Machine) -> None:
        machine.write("proc/cpuinfo", "cpu MHz\t\t: 2596.138\nflags\t\t: fpu hypervisor tsc\n")
        sample = machine.sampler().sample()
        assert sample.frequency_mhz is None
        assert sample.unknown["frequency_mhz"] == (
            "no driver tells it (cpufreq), as in most virtual machines; "
            "the 2,596 MHz of /proc/cpuinfo are nominal, and not measured"
        )
        machine.write("proc/cpuinfo", "cpu MHz\t\t: 2596.138\nflags\t\t: fpu tsc aperfmperf\n")
        assert machine.sampler().sample().unknown["frequency_mhz"] == "no driver tells it (cpufreq)"
        machine.remove("proc/cpuinfo")
        assert machine.sampler().sample().unknown["frequency_mhz"] == "no driver tells it (cpufreq)"

    def test_what_nobody_tells_is_unknown_and_says_why(self, machine: Machine) -> None:
        machine.remove("proc/meminfo")
        sample = machine.sampler().sample()
        missing = {name for name in HardwareSample.__struct_fields__ if getattr(sample, name) is None}
        assert missing - sample.unknown.keys() == {"recorder_cpu_ns"}
        assert sample.unknown.keys() <= missing


class TestEngine:
    def test_a_process_is_read_whatever_its_name(self, machine: Machine) -> None:
        machine.process()
        sample = machine.sampler(pid=7).sample()
        assert (sample.rss_bytes, sample.engine_cpu_ns) == (1_000 * PAGE, 42 * TICK_NS)
        assert not {"rss_bytes", "engine_cpu_ns"} & sample.unknown.keys()

    @pytest.mark.parametrize(("started", "state"), [(56, "S"), (55, "Z")], ids=["another", "a zombie"])
    def test_one_that_has_ended_is_no_longer_read(self, machine: Machine, started: int, state: str) -> None:
        machine.process()
        sampler = machine.sampler(pid=7)
        assert sampler.sample().rss_bytes is not None
        machine.process(started=started, state=state)
        ended = sampler.sample()
        assert (ended.rss_bytes, ended.engine_cpu_ns) == (None, None)
        assert ended.unknown["rss_bytes"] == ended.unknown["engine_cpu_ns"] == "the engine process has ended"
        machine.process()
        assert sampler.sample().rss_bytes is None

    def test_the_next_one_is_watched(self, machine: Machine) -> None:
        machine.process(pid=8, user=100)
        sampler = machine.sampler()
        assert sampler.sample().unknown["rss_bytes"] == "there is no engine process"
        sampler.watch(8)
        assert sampler.sample().engine_cpu_ns == 112 * TICK_NS

    def test_a_real_process_until_it_ends(self) -> None:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        sampler = Sampler(lambda _: None, clock=lambda: 0, pid=child.pid)
        rss = sampler.sample().rss_bytes
        assert rss is not None
        assert rss > 10_000
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
        assert sampler.sample().rss_bytes is None
        child.communicate()
        assert sampler.sample().unknown["rss_bytes"] == "the engine process has ended"


class TestGpus:
    def test_without_a_driver_there_are_none(self, machine: Machine) -> None:
        sample = machine.sampler().sample()
        assert sample.gpus == ()
        assert "gpus" not in sample.unknown

    def test_those_that_nobody_reads_are_not_none(self, machine: Machine) -> None:
        machine.write("proc/driver/nvidia/version", "NVRM")
        sample = machine.sampler().sample()
        assert (sample.gpus, sample.unknown["gpus"]) == (None, "nobody reads them")

    def test_they_are_what_the_probe_says(self, machine: Machine) -> None:
        gpu = GpuSample(uuid="GPU-1", name="A GPU")
        assert machine.sampler(gpus=Gpus(GpuReading(gpus=(gpu,)))).sample().gpus == (gpu,)
        failed = machine.sampler(gpus=Gpus(GpuReading(problem="It does not answer.", remedy="Load it."))).sample()
        assert (failed.gpus, failed.unknown["gpus"]) == (None, "It does not answer. Load it.")

    def test_those_of_another_maker_are_not_none(self, machine: Machine) -> None:
        machine.write("dev/kfd", "")
        sample = machine.sampler(gpus=Gpus(GpuReading(gpus=(), problem="There is no NVIDIA driver here."))).sample()
        assert (sample.gpus, sample.unknown["gpus"]) == (None, "nobody reads those of amd")
        gpu = GpuSample(uuid="GPU-1", name="A GPU")
        assert machine.sampler(gpus=Gpus(GpuReading(gpus=(gpu,)))).sample().gpus == (gpu,)

    def test_the_probe_is_closed_with_the_sampler(self, machine: Machine) -> None:
        gpus = Gpus(GpuReading())
        machine.sampler(gpus=gpus).close()
        assert gpus.is_closed


class Clock(threading.Event):
    """A clock that moves when somebody waits, and says that it is time to stop after a number of waits."""

    def __init__(self, *, waits: int) -> None:
        super().__init__()
        self.now_ns = 100
        self._left = waits
        self.delays_ns: Iterator[int] = iter(())
        """By how much each wait takes longer than asked."""

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_ns += round(timeout * 1e9) + next(self.delays_ns, 0)
        self._left -= 1
        return self._left < 0


class TestThread:
    def test_samples_are_a_period_apart_whatever_they_cost(self) -> None:
        clock = Clock(waits=3)
        taken: list[HardwareSample] = []

        def take(sample: HardwareSample) -> None:
            taken.append(sample)
            clock.now_ns += 7_000_000

        Sampler(take, clock=clock, stopping=clock).run()
        assert [sample.at_ns for sample in taken] == [100 + n * PERIOD_NS for n in range(4)]
        assert {sample.late_ns for sample in taken} == {0}

    def test_lateness_is_told_and_what_was_missed_is_left_out(self) -> None:
        clock = Clock(waits=3)
        clock.delays_ns = iter((30_000_000, 2 * PERIOD_NS + 1))
        taken: list[HardwareSample] = []
        Sampler(taken.append, clock=clock, stopping=clock).run()
        assert [(sample.at_ns - 100, sample.late_ns) for sample in taken] == [
            (0, 0),
            (PERIOD_NS + 30_000_000, 30_000_000),
            (4 * PERIOD_NS + 1, 2 * PERIOD_NS + 1),
            (5 * PERIOD_NS, 0),
        ]

    def test_what_goes_wrong_ends_the_thread_and_is_raised_in_the_end(self) -> None:
        def take(_: HardwareSample) -> None:
            raise RuntimeError("a bug")

        sampler = Sampler(take, clock=lambda: 0)
        sampler.start()
        sampler.join()
        with pytest.raises(RuntimeError, match="a bug"):
            sampler.close()

    def test_it_runs_beside_others_until_it_is_closed(self) -> None:
        taken: list[HardwareSample] = []
        enough = threading.Event()

        def take(sample: HardwareSample) -> None:
            taken.append(sample)
            if len(taken) == 3:
                enough.set()

        ticks = iter(range(10**6))
        sampler = Sampler(take, clock=lambda: next(ticks), period_ns=1, pid=os.getpid(), recorder_cpu_ns=lambda: 17)
        sampler.start()
        assert enough.wait(10)
        sampler.close()
        assert not sampler.is_alive()
        assert sampler.failure is None
        sample = taken[-1]
        assert sample.recorder_cpu_ns == 17
        for reading in (sample.rss_bytes, sample.own_cpu_ns, sample.memory_total_bytes, sample.cost_ns):
            assert reading is not None
            assert reading > 0

    def test_closing_one_that_never_began_is_nothing(self) -> None:
        Sampler(lambda _: None, clock=lambda: 0).close()
