"""What the engine's environment says about spinning and binding, and what the machine says about its cores."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine import openmp
from stackscope.engine.openmp import child_environment, cpu_quota, default_spins, parse_cpu_list, usable_cores
from stackscope.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

CORES = usable_cores()
ALLOWED = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
"""As the tests found it: an engine in their own process binds its thread."""
BINDING = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"} if sys.platform == "linux" and CORES > 1 else {}


def test_the_team_of_all_cores_spins_and_is_bound() -> None:
    expected = {"HOME": "/root", "GOMP_SPINCOUNT": str(default_spins()), **BINDING}
    assert child_environment({"HOME": "/root"}) == expected
    assert child_environment({"HOME": "/root"}, CORES) == expected
    assert child_environment({"HOME": "/root"}, CORES + 3) == expected


@pytest.mark.skipif(CORES < 2, reason="one core")
def test_a_smaller_team_is_left_free_to_move() -> None:
    assert child_environment({}, CORES - 1) == {"GOMP_SPINCOUNT": str(default_spins())}


def test_the_environment_given_is_not_changed() -> None:
    environ = {"HOME": "/root"}
    child_environment(environ)
    assert environ == {"HOME": "/root"}


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"])
def test_how_the_user_wants_to_wait_is_respected(name: str) -> None:
    assert child_environment({name: "7"}) == {name: "7", **BINDING}


@pytest.mark.parametrize("name", ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"])
def test_where_the_user_wants_the_threads_is_respected(name: str) -> None:
    assert child_environment({name: "0"}) == {name: "0", "GOMP_SPINCOUNT": str(default_spins())}


def test_our_own_variable_is_stronger_than_the_library_s() -> None:
    chosen = child_environment({"STACKSCOPE_SPIN": "500", "GOMP_SPINCOUNT": "7"})
    assert chosen["GOMP_SPINCOUNT"] == "500"
    assert child_environment({"STACKSCOPE_SPIN": "0"})["GOMP_SPINCOUNT"] == "0"


def test_the_user_can_have_the_library_s_own_ways() -> None:
    environ = {"STACKSCOPE_SPIN": "library", "HOME": "/root"}
    assert child_environment(environ) == environ


@pytest.mark.parametrize("wish", ["many", "-1", "1.5", "1e4"])
def test_a_wish_that_is_no_count_is_refused(wish: str) -> None:
    with pytest.raises(UsageError, match="STACKSCOPE_SPIN"):
        child_environment({"STACKSCOPE_SPIN": wish})


def test_an_empty_wish_is_none() -> None:
    assert child_environment({"STACKSCOPE_SPIN": " "})["GOMP_SPINCOUNT"] == str(default_spins())


@pytest.mark.parametrize(
    ("text", "cpus"), [("0\n", {0}), ("0-3", {0, 1, 2, 3}), ("0,4\n", {0, 4}), ("0-1,8-9", {0, 1, 8, 9})]
)
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@given(st.sets(st.integers(0, 1023), min_size=1))
def test_any_set_of_cpus_written_out_reads_back(cpus: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, cpus))) == cpus


@pytest.mark.parametrize("text", ["", "a", "1-", "-"])
def test_what_is_no_cpu_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list(text)


def groups(root: Path, own: str, limits: dict[str, str]) -> Path:
    """A machine's files: this process in group `own`, and `cpu.max` of some groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for group, limit in limits.items():
        folder = root / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(limit)
    return root


class TestQuota:
    def test_none_where_nothing_is_told(self, tmp_path: Path) -> None:
        assert cpu_quota(tmp_path) is None
        assert cpu_quota(groups(tmp_path, "1:cpu:/\n", {})) is None  # Version 1 only.

    def test_none_where_there_is_no_limit(self, tmp_path: Path) -> None:
        assert cpu_quota(groups(tmp_path, "0::/a\n", {"a": "max 100000\n"})) is None

    def test_a_container_sees_its_limit_at_the_root(self, tmp_path: Path) -> None:
        assert cpu_quota(groups(tmp_path, "0::/\n", {"": "150000 100000\n"})) == 1.5

    def test_the_tightest_of_a_group_and_those_above_counts(self, tmp_path: Path) -> None:
        limits = {"a": "200000 100000", "a/b": "max 100000", "a/b/c": "400000 100000"}
        assert cpu_quota(groups(tmp_path, "0::/a/b/c\n", limits)) == 2.0

    def test_a_file_that_says_nothing_sensible_limits_nothing(self, tmp_path: Path) -> None:
        assert cpu_quota(groups(tmp_path, "0::/\n", {"": "?\n"})) is None


@pytest.mark.skipif(not ALLOWED, reason="no affinity on this system")
def test_the_cores_are_those_of_the_affinity_mask_and_the_first_answer_stays() -> None:
    script = f"""
import os
os.sched_setaffinity(0, {{{min(ALLOWED)}}})
from stackscope.engine.openmp import usable_cores
assert usable_cores() == 1
os.sched_setaffinity(0, {ALLOWED!r})
assert usable_cores() == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert 1 <= CORES <= len(ALLOWED)


def test_the_spin_is_longer_where_one_is_shorter() -> None:
    assert default_spins() in {openmp.SPINS, openmp.SPINS_WITHOUT_PAUSE}
    assert openmp.SPINS < openmp.SPINS_WITHOUT_PAUSE
