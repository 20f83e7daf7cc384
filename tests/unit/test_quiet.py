"""CPU time that others took: read from the kernel's figures, less our own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stackscope.hardware.quiet import Neighbours, Waiting, machine_ticks, pressure, process_ticks, waited_us

if TYPE_CHECKING:
    from pathlib import Path

STAT = "cpu  700 90 300 99999 561 5 3 602 44 0\ncpu0 1 2 3\n"
OWN = "{pid} (a name) with (brackets)) S 1 1 1 0 -1 4194304 100 0 0 0 {user} {system} {ended} 2 20 0 9 0 1\n"


def test_processor_time_is_read_from_the_kernels_figures() -> None:
    # user + nice + system + irq + softirq + steal; idle, waiting for disks and guests (in user already) are not.
    assert machine_ticks(STAT) == 700 + 90 + 300 + 5 + 3 + 602
    own = OWN.format(pid=12, user=30, system=4, ended=7)
    assert process_ticks(own) == 34
    assert process_ticks(own, with_ended=True) == 34 + 7 + 2


def test_foreign_time_is_what_neither_this_process_nor_its_children_took(tmp_path: Path) -> None:
    def write(machine: int, own: int, child: int | None, ended: int) -> None:
        (tmp_path / "self").mkdir(exist_ok=True)
        (tmp_path / "12").mkdir(exist_ok=True)
        (tmp_path / "stat").write_text(f"cpu  {machine} 0 0 0 0 0 0 0 0 0\n")
        (tmp_path / "self" / "stat").write_text(OWN.format(pid=1, user=own, system=0, ended=ended))
        (tmp_path / "12" / "stat").unlink(missing_ok=True)
        if child is not None:
            (tmp_path / "12" / "stat").write_text(OWN.format(pid=12, user=child, system=0, ended=0))

    watcher = Neighbours([12], proc=tmp_path)
    write(machine=1_000, own=100, child=200, ended=0)
    assert watcher.foreign_ticks() == 1_000 - 100 - 200 - 2  # 2 were an earlier child's
    # 500 more in all: 50 are ours, 100 the child's, which has ended meanwhile, and 350 others'.
    write(machine=1_500, own=150, child=None, ended=300)
    assert watcher.foreign_ticks() == 698 + 350


def test_foreign_time_is_a_share_of_one_processor(tmp_path: Path) -> None:
    watcher = Neighbours([], proc=tmp_path)
    assert watcher.watch(lambda: None) is None  # nothing there says anything
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").write_text(OWN.format(pid=1, user=0, system=0, ended=0))
    ticks = iter([1_000, 1_000, 1_000, 999])
    begun_ns = time.monotonic_ns()

    def tick() -> None:
        (tmp_path / "stat").write_text(f"cpu  {next(ticks)} 0 0 0 0 0 0 0 0 0\n")

    tick()
    assert watcher.watch(tick) == 0
    tick()
    assert watcher.watch(tick) == 0  # clocks that tick can differ by one, and less than nothing is nothing
    ticks = iter([0, 10_000])
    tick()
    share = watcher.watch(tick)
    # 10,000 ticks of 10 ms within what has passed since.
    assert share is not None
    assert share >= 1e11 / (time.monotonic_ns() - begun_ns)


def test_pressure_is_that_of_the_last_ten_seconds() -> None:
    text = (
        "some avg10=97.72 avg60=97.26 avg300=92.28 total=2984932885\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    assert pressure(text) == 97.72
    assert pressure("") is None
    assert waited_us(text) == 2_984_932_885
    assert waited_us("") is None


def test_waiting_is_a_share_of_the_stretch(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    waiting = Waiting(path)
    waiting.begin()
    assert waiting.share() is None  # nobody says

    def write(total: int) -> None:
        path.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n")

    write(5_000)
    waiting.begin()
    assert waiting.share() == 0
    begun_ns = time.monotonic_ns()
    waiting.begin()
    write(5_001)
    share = waiting.share()
    # One microsecond within what has passed since.
    assert share is not None
    assert 1_000 / (time.monotonic_ns() - begun_ns) <= share <= 1
    waiting.begin()
    write(10**15)
    assert waiting.share() == 1  # no more than all of it
