"""What the engine's environment says about spinning and binding, and what the machine says about its cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.engine import openmp
from stackscope.engine.openmp import child_environment, default_spins, parse_cpu_list, usable_cores, within_quota
from stackscope.errors import UsageError

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


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (0.1, 1), (1.0, 1), (1.5, 2), (4.0, 4), (9.0, 4)])
def test_a_quota_leaves_as_many_cores_as_it_can_keep_busy(quota: float | None, cores: int) -> None:
    assert within_quota(4, quota) == cores


@pytest.mark.skipif(not ALLOWED, reason="no affinity on this system")
@pytest.mark.parametrize("quota", [0.5, 1.0])
def test_no_more_cores_are_used_than_the_quota_keeps_busy(monkeypatch: pytest.MonkeyPatch, quota: float) -> None:
    monkeypatch.setattr(openmp, "cpu_quota", lambda: quota)
    assert usable_cores.__wrapped__() == 1


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
