"""What doctor says of the host's readings: each that is missing has a reason and a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.commands.host_examinations import NAMES, of_host

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_host_that_tells_nothing_has_a_reason_for_everything(tmp_path: Path) -> None:
    checks = list(of_host(tmp_path))
    assert [check.name for check in checks] == list(NAMES.values())
    assert all(check.holds is False and check.remedy and not check.is_needed for check in checks)
    told = {check.name: check.value for check in checks}
    assert told["Package power"] == "none: neither processor nor virtual machine tells it (RAPL)"
    assert told["Quota throttling"] == "none: no control group counts it"


def test_what_there_is_is_told_and_no_counter_stays_open(tmp_path: Path) -> None:
    for kind in ("cpu", "io", "memory"):
        write(tmp_path, f"proc/pressure/{kind}", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    write(tmp_path, "proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n")
    write(tmp_path, "proc/vmstat", "pswpin 0\npswpout 0\n")
    write(tmp_path, "sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "7\n")
    told = {check.name: (check.holds, check.value) for check in of_host(tmp_path)}
    assert told["I/O pressure"] == (True, "who waits for a disk")
    assert told["Swap"] == (True, "space in use, and what moves")
    assert told["Engine process"][0] is True
    assert told["DRAM traffic"] == (True, "by memory-bandwidth monitoring (resctrl)")
    assert told["Package power"][0] is False


def test_what_root_could_allow_has_its_command(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/powercap/intel-rapl:0/name", "package-0\n")
    write(tmp_path, "proc/cpuinfo", "flags : cqm_mbm_total\n")
    remedies = {check.name: check.remedy for check in of_host(tmp_path)}
    assert remedies["Package power"] == "As root: chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
    assert remedies["DRAM traffic"] == "As root: mount -t resctrl resctrl /sys/fs/resctrl"
