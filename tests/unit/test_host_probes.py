"""The host's optional readings, below a made-up root: values, rates, and the reason for each that is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stackscope.hardware import host_traffic
from stackscope.hardware.host_perf import RefusedError, open_counter
from stackscope.hardware.host_power import FOR_ROOT, NONE, PackagePower
from stackscope.hardware.host_probes import NO_ENGINE, HostProbes
from stackscope.hardware.host_rates import FIRST, Rate
from stackscope.hardware.host_traffic import DramTraffic, Uncore, bytes_of_a_count, configuration, cores_of
from stackscope.hardware.host_waits import NO_PRESSURE, NO_SWAP, Waits, waits_of

SECOND = 1_000_000_000
PAGE = os.sysconf("SC_PAGE_SIZE")
STAT = "17 (a ) thread) S 1 17 17 0 -1 4194560 5000 0 {faults} 0 90 10 0 0 20 0 3 0 12345 1000000 2000 "


class Machine:
    """Files where the kernel's would be."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def power(self, *microjoules: int) -> None:
        """Counters of packages, each of which begins anew at 1,000,000."""
        for index, amount in enumerate(microjoules):
            folder = f"sys/class/powercap/intel-rapl:{index}"
            self.write(f"{folder}/name", f"package-{index}\n")
            self.write(f"{folder}/max_energy_range_uj", "1000000\n")
            self.write(f"{folder}/energy_uj", f"{amount}\n")
            self.write(f"{folder}:0/name", "core\n")
            self.write(f"{folder}:0/energy_uj", "77\n")

    def monitored(self, *totals: object) -> None:
        """What resctrl counts, by domain."""
        for index, total in enumerate(totals):
            self.write(f"sys/fs/resctrl/mon_data/mon_L3_{index:02}/mbm_total_bytes", f"{total}\n")

    def controller(self, index: int = 0, *, read: str = "event=0x04,umask=0x03", cpumask: str = "0") -> Path:
        """A memory controller as Intel's server driver describes it."""
        folder = f"sys/bus/event_source/devices/uncore_imc_{index}"
        files = {
            "type": 14 + index, "cpumask": cpumask, "format/event": "config:0-7", "format/umask": "config:8-15",
            "events/cas_count_read": read, "events/cas_count_write": "event=0x04,umask=0x0c",
        }  # fmt: skip
        for name in ("read", "write"):
            files |= {f"events/cas_count_{name}.scale": "6.103515625e-5", f"events/cas_count_{name}.unit": "MiB"}
        for name, text in files.items():
            self.write(f"{folder}/{name}", f"{text}\n")
        return self.root / folder

    def process(self, *switches: int, pid: int = 17, faults: int = 0) -> None:
        """A process with a thread for each count of lost cores."""
        self.write(f"proc/{pid}/stat", STAT.format(faults=faults))
        for thread, n in enumerate(switches):
            text = f"Name:\tx\nvoluntary_ctxt_switches:\t99\nnonvoluntary_ctxt_switches:\t{n}\n"
            self.write(f"proc/{pid}/task/{pid + thread}/status", text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestRate:
    def test_growth_per_second(self) -> None:
        rate = Rate()
        assert [rate.update(0, 10), rate.update(SECOND // 2, 20), rate.update(SECOND, 20)] == [None, 20.0, 0.0]

    def test_a_counter_that_begins_anew(self) -> None:
        rate, other = Rate(modulus=100), Rate()
        assert [rate.update(0, 90), rate.update(SECOND, 10)] == [None, 20.0]
        assert [other.update(0, 90), other.update(SECOND, 10), other.update(2 * SECOND, 15)] == [None, None, 5.0]

    def test_a_gap_is_no_growth(self) -> None:
        rate = Rate()
        assert [rate.update(0, 1), rate.update(SECOND, None), rate.update(2 * SECOND, 9)] == [None, None, None]
        assert rate.update(2 * SECOND, 10) is None


class TestPower:
    def test_packages_are_summed_and_their_parts_left_out(self, machine: Machine) -> None:
        machine.power(100_000, 900_000)
        power = PackagePower(machine.root)
        assert power.absence is None
        assert power.read(0) is None
        machine.power(600_000, 150_000)
        assert power.read(SECOND) == pytest.approx(0.5 + 0.25)

    def test_without_counters_nobody_tells(self, machine: Machine) -> None:
        assert PackagePower(machine.root).absence == NONE
        machine.write("sys/class/powercap/intel-rapl:0/name", "psys\n")
        assert PackagePower(machine.root).absence == NONE

    def test_what_only_root_may_read_says_so(self, machine: Machine) -> None:
        machine.power(1)
        (machine.root / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
        (machine.root / "sys/class/powercap/intel-rapl:0/energy_uj").mkdir()  # not even root can read that
        power = PackagePower(machine.root)
        assert power.absence == FOR_ROOT
        assert power.read(0) is power.read(SECOND) is None


class Counted:
    """A counter that the test moves."""

    def __init__(self) -> None:
        self.count = 0.0
        self.is_closed = False

    def read(self) -> float:
        return self.count

    def close(self) -> None:
        self.is_closed = True


class Opened:
    """Opens counters, and remembers which."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.counters: dict[tuple[int, int, int], Counted] = {}
        self._refuses = refuses

    def __call__(self, type: int, config: int, core: int) -> Counted:
        if self._refuses and self.counters:
            raise RefusedError("EACCES")
        counter = self.counters[type, config, core] = Counted()
        return counter


class TestTraffic:
    def test_resctrl_comes_first_and_its_domains_are_summed(self, machine: Machine) -> None:
        machine.monitored(1000, 2000)
        machine.controller()
        traffic = DramTraffic(machine.root, open=Opened())
        assert (traffic.absence, traffic.name) == (None, host_traffic.RESCTRL)
        assert traffic.read(0) is None
        machine.monitored(1500, 2500)
        assert traffic.read(SECOND) == 1000.0
        machine.monitored(1500, "Unavailable")
        assert traffic.read(2 * SECOND) is None
        traffic.close()

    def test_controllers_are_counted_on_each_socket(self, machine: Machine) -> None:
        machine.controller(0, cpumask="0,28")
        machine.controller(1, cpumask="0,28")
        opened = Opened()
        traffic = DramTraffic(machine.root, open=opened)
        assert (traffic.absence, traffic.name) == (None, host_traffic.UNCORE)
        assert sorted(opened.counters) == sorted(
            (type, config, core) for type in (14, 15) for config in (0x304, 0xC04) for core in (0, 28)
        )
        assert traffic.read(0) is None
        for counter in opened.counters.values():
            counter.count += 1000
        assert traffic.read(SECOND) == pytest.approx(8 * 1000 * 64)
        traffic.close()
        assert all(counter.is_closed for counter in opened.counters.values())

    def test_a_kernel_that_refuses_one_counter_leaves_none_open(self, machine: Machine) -> None:
        machine.controller()
        opened = Opened(refuses=True)
        traffic = DramTraffic(machine.root, open=opened)
        assert traffic.absence is not None
        assert "the kernel does not let it read them (perf)" in traffic.absence.reason
        assert "perf_event_paranoid" in (traffic.absence.remedy or "")
        assert [counter.is_closed for counter in opened.counters.values()] == [True]
        assert (traffic.read(0), traffic.name) == (None, None)

    def test_nothing_to_count_with_has_both_reasons(self, machine: Machine) -> None:
        absence = DramTraffic(machine.root).absence
        assert absence is not None
        assert absence.reason == (
            "the processor does not monitor its memory bandwidth (resctrl), and the kernel describes no counters of "
            "memory controllers (perf)"
        )
        assert absence.remedy is None

    def test_a_processor_that_could_be_asked_has_a_remedy(self, machine: Machine) -> None:
        machine.write("proc/cpuinfo", "flags\t\t: fpu cqm cqm_mbm_total\n")
        absence = DramTraffic(machine.root).absence
        assert absence is not None
        assert absence.reason.startswith("resctrl is not mounted, and")
        assert absence.remedy == "As root: mount -t resctrl resctrl /sys/fs/resctrl"

    def test_events_in_a_form_that_is_not_known_are_left_alone(self, machine: Machine) -> None:
        for index, event in enumerate(("event=0x104", "event=x", "thresh=1", "")):
            device = machine.controller(index, read=event)
            assert configuration(device, "cas_count_read") is None
        assert configuration(device, "cas_count_write") == 0xC04
        machine.write(f"{device.relative_to(machine.root)}/events/cas_count_write.unit", "furlongs\n")
        assert bytes_of_a_count(device, "cas_count_write") is None
        machine.write(f"{device.relative_to(machine.root)}/events/cas_count_read.scale", "much\n")
        assert bytes_of_a_count(device, "cas_count_read") is None

    @pytest.mark.parametrize(
        ("mask", "cores"), [("0", [0]), ("0,28", [0, 28]), ("0-2", [0, 1, 2]), ("", []), ("x", []), ("1-x", [])]
    )
    def test_lists_of_cores(self, mask: str, cores: list[int]) -> None:
        assert cores_of(mask) == cores

    def test_a_counter_of_the_real_kernel_counts_or_is_refused(self, machine: Machine) -> None:
        """The processor's clock, a software event (type 1, configuration 0), takes the same way as a controller's."""
        device = machine.controller(read="event=0,umask=0")
        for name, text in (("type", "1"), ("events/cas_count_write", "event=0,umask=0")):
            machine.write(f"{device.relative_to(machine.root)}/{name}", text)
        uncore = Uncore(machine.root, open_counter)
        if uncore.absence is not None:
            assert uncore.absence == host_traffic.NOT_ALLOWED
            assert uncore.total() is None
            return
        first = uncore.total()
        assert first is not None
        assert sum(range(100_000)) > 0
        second = uncore.total()
        assert second is not None
        assert second > first
        uncore.close()
        assert uncore.total() is None


class TestWaits:
    def test_faults_and_the_switches_of_all_threads(self, machine: Machine) -> None:
        machine.process(3, 0, 4, faults=12)
        assert waits_of(machine.root, 17) == Waits(major_faults=12, involuntary_switches=7)

    def test_a_process_that_is_gone_or_says_nothing(self, machine: Machine) -> None:
        assert waits_of(machine.root, 17) is None
        machine.process(faults=1)
        assert waits_of(machine.root, 17) is None
        machine.write("proc/17/stat", "17 (x) Z")
        assert waits_of(machine.root, 17) is None

    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system has no /proc")
    def test_this_process(self) -> None:
        found = waits_of(Path("/"), os.getpid())
        assert found is not None
        assert found.involuntary_switches >= 0


class TestProbes:
    def test_everything_that_is_told(self, machine: Machine) -> None:
        machine.write("proc/pressure/io", "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00\n")
        machine.write("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
        machine.write("proc/meminfo", "MemTotal: 10 kB\nSwapTotal:       4096 kB\nSwapFree:        1024 kB\n")
        machine.write("proc/vmstat", "pgpgin 5\npswpin 10\npswpout 20\n")
        machine.power(0)
        machine.monitored(0)
        machine.process(5, faults=1)
        probes = HostProbes(machine.root)
        assert set(probes.absences().values()) == {None}
        values, unknown = probes.read(17, 0)
        assert values["io_pressure"] == 0.015
        assert values["memory_pressure"] == 0.0
        assert values["swap_used_bytes"] == 3072 * 1024
        rates = [name for name in values if name.endswith(("_per_s", "_w"))]
        assert unknown == dict.fromkeys(rates, FIRST)
        machine.write("proc/vmstat", "pswpin 11\npswpout 22\n")
        machine.power(500_000)
        machine.monitored(10**9)
        machine.process(15, faults=3)
        values, unknown = probes.read(17, 2 * SECOND)
        assert unknown == {}
        assert values["swap_bytes_per_s"] == 1.5 * PAGE
        assert values["package_power_w"] == 0.25
        assert values["dram_bytes_per_s"] == 5e8
        assert values["major_faults_per_s"] == 1.0
        assert values["involuntary_switches_per_s"] == 5.0
        probes.close()

    def test_everything_that_is_missing_has_its_reason(self, machine: Machine) -> None:
        probes = HostProbes(machine.root)
        values, unknown = probes.read(None, 0)
        assert set(values.values()) == {None}
        assert set(unknown) == set(values)
        assert unknown["io_pressure"] == NO_PRESSURE.reason
        assert unknown["swap_used_bytes"] == unknown["swap_bytes_per_s"] == NO_SWAP.reason
        assert unknown["package_power_w"] == NONE.reason
        assert unknown["major_faults_per_s"] == NO_ENGINE
        assert all(absence is not None for absence in probes.absences().values())

    def test_another_engine_begins_anew(self, machine: Machine) -> None:
        machine.process(5, pid=17)
        machine.process(500, pid=18)
        probes = HostProbes(machine.root)
        probes.read(17, 0)
        assert probes.read(17, SECOND)[0]["involuntary_switches_per_s"] == 0.0
        values, unknown = probes.read(18, 2 * SECOND)
        assert values["involuntary_switches_per_s"] is None
        assert unknown["involuntary_switches_per_s"] == FIRST
        assert probes.read(19, 3 * SECOND)[1]["major_faults_per_s"] == "this system does not tell it"

    def test_the_pressure_is_that_of_the_own_control_group(self, machine: Machine) -> None:
        machine.write("proc/self/cgroup", "0::/here\n")
        machine.write("proc/pressure/io", "some avg10=50.00 avg60=0.00 avg300=0.00 total=7\n")
        machine.write("sys/fs/cgroup/here/io.pressure", "some avg10=2.00 avg60=0.00 avg300=0.00 total=7\n")
        assert HostProbes(machine.root).read(None, 0)[0]["io_pressure"] == 0.02
