"""Calibration on the lab pair: complete, plausible, kept, and found again by a session; and what may go wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stackscope.engine import openmp
from stackscope.engine.process import child_environment
from stackscope.errors import EngineDiedError, ModelFileError
from stackscope.experiments.calibrate import calibrate
from stackscope.experiments.protocol import Budget, Progress
from stackscope.hardware import ceilings as cache
from stackscope.hardware.credible import why_incredible
from stackscope.launch import with_models
from stackscope.records.ceilings import CURVE_ROWS
from stackscope.session.reader import read_session
from stackscope.toggles import EngineConfig
from tests.integration.cli_support import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.records import Header
    from stackscope.records.ceilings import Ceilings, Conditions

SHORT = Budget(curves_s=3.0, contexts_s=1.0, rebuilds_s=0.3, most=2)


@pytest.fixture(scope="module")
def found() -> Ceilings:
    said: list[Progress] = []
    measured = calibrate(with_models(EngineConfig()), SHORT, progress=said.append)
    assert [message.fraction for message in said] == sorted(message.fraction for message in said)
    assert said
    assert why_incredible(measured) is None
    return measured


def conditions_of(header: Header) -> Conditions:
    """What a session would look its ceilings up by."""
    assert header.config is not None
    assert header.config.threads is not None
    waiting = openmp.described(child_environment(os.environ, header.config.threads))
    return cache.conditions(header.config, library=header.library or "", threads=header.config.threads, waiting=waiting)


def disturbance(found: Ceilings) -> float:
    """By how much beside others what takes longer than a time slice may seem slower than what does not."""
    return 1.0 if found.is_quiet else 5.0


@pytest.mark.engine
def test_the_curve_is_complete_and_rises(found: Ceilings) -> None:
    assert tuple(time.rows for time in found.forwards) == CURVE_ROWS
    assert all(time.outputs == (time.rows if time.rows <= 64 else 1) for time in found.forwards)
    assert all(time.rows % time.sequences == 0 for time in found.forwards)
    by_rows = {time.rows: time.ns.value for time in found.forwards}
    # No absolute speeds: but 512 rows take longer than one, and less than one by one.
    assert by_rows[1] < by_rows[512] < disturbance(found) * 512 * by_rows[1]


@pytest.mark.engine
def test_rates_are_plausible_against_each_other(found: Ceilings) -> None:
    assert {f"reading {'memory' if read.place == 'memory' else 'the cache'}" for read in found.reads} | {
        what for what in found.unknown if what.startswith("reading ")
    } == {"reading memory", "reading the cache"}
    assert all(read.bytes_per_s.value > 0 for read in found.reads)
    [kind] = found.types
    assert kind.type == "f16"
    # Beside others, samples may differ too much for a figure.
    assert (kind.vector_flops_per_s is None) == ("f16 matrices × 1" in found.unknown)
    assert (kind.matrix_flops_per_s is None) == ("f16 matrices × 512" in found.unknown)
    if kind.vector_flops_per_s is not None and kind.matrix_flops_per_s is not None:
        assert disturbance(found) * kind.matrix_flops_per_s.value > kind.vector_flops_per_s.value
    assert found.compute is not None
    assert found.bandwidth is not None
    assert found.compute.value > 0
    assert found.bandwidth.value >= max(read.bytes_per_s.value for read in found.reads)


@pytest.mark.engine
def test_everything_else_is_there_or_has_a_reason(found: Ceilings) -> None:
    assert (found.fits_cache, found.draft_fits_cache) == (True, True)
    assert [time.rows for time in found.draft_forwards] == [1, 2, 4, 8, 16]
    assert found.draft == "lab-draft-f16.gguf"
    assert found.contexts[0].cached == 0
    assert len({time.cached for time in found.contexts}) > 1
    assert {(time.rows, time.outputs) for time in found.contexts} >= {(1, 1), (4, 4)}
    assert max(time.others for time in found.contexts) == max(time.cached for time in found.contexts)
    by_depth = {time.cached: time.ns.n for time in found.contexts if (time.rows, time.others) == (1, 0)}
    assert min(by_depth.values()) >= 2  # Every depth was gone back to.
    assert (found.context_ns_per_token is None) == ("context" in found.unknown)
    assert (found.fixed_ns is None) == ("fixed cost" in found.unknown)
    assert found.rebuild_ns is not None
    assert found.load_ns is not None
    assert found.handoff is not None
    assert found.handoff.tokens in {time.cached for time in found.contexts}
    assert found.foreign_share is not None
    assert found.duration_ns > 0


@pytest.mark.engine
def test_a_session_with_the_same_models_and_threads_has_them(found: Ceilings, tmp_path: Path) -> None:
    assert cache.store(found)
    for arguments, ceilings in (((), found), (("--threads", "1"), None)):
        recording = tmp_path / f"{len(arguments)}.jsonl.zst"
        done = run("--requests", "1", "--max-tokens", "2", "--record", recording, *arguments)
        assert done.returncode == 0, done.stderr
        header = read_session(recording).header
        if ceilings is not None:
            assert conditions_of(header) == found.conditions
            assert cache.file_of(found.conditions).is_file(), done.stdout
        assert header.ceilings == ceilings
        assert header.other_ceilings == (() if ceilings == found else (found,))
    cache.file_of(found.conditions).write_text("{")
    done = run("--requests", "1", "--max-tokens", "2", "--no-record")
    assert (done.returncode, "is damaged and is not used:" in " ".join(done.stdout.split())) == (0, True)


@pytest.mark.engine
def test_what_is_kept_can_be_shown(found: Ceilings) -> None:
    cache.store(found)
    command = [sys.executable, "-m", "stackscope", "calibrate", "--show"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.startswith("lab-target-f16.gguf")
    printed = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(printed.stdout)["conditions"]["threads"] == found.conditions.threads
    none = subprocess.run([*command, "--threads", "1"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert none.returncode == 2
    assert "No ceilings of this configuration were measured. There are some for lab-target-f16.gguf." in none.stderr


@pytest.mark.engine
def test_a_model_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "no-model.gguf"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ModelFileError):
        calibrate(EngineConfig(model=str(path)), SHORT, progress=lambda _: None)


def test_a_process_that_dies_is_told_with_its_last_words() -> None:
    dying = ("-c", "import os, sys; print('the end', file=sys.stderr, flush=True); os.abort()")
    with pytest.raises(EngineDiedError, match="SIGABRT") as failure:
        calibrate(with_models(EngineConfig()), SHORT, progress=lambda _: None, worker=dying)
    assert failure.value.last_lines == ("the end",)


def test_the_threads_wait_as_those_of_the_engine() -> None:
    names = ("GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_PLACES", "GGML_NO_BACKTRACE")
    telling = f"import os, sys; [print(os.environ.get(name), file=sys.stderr) for name in {names}]; sys.exit(3)"
    config = with_models(EngineConfig())
    with pytest.raises(EngineDiedError) as failure:
        calibrate(config, SHORT, progress=lambda _: None, worker=("-c", telling))
    wanted = child_environment(os.environ, config.threads)
    assert failure.value.last_lines == tuple(str(wanted.get(name)) for name in names)
    assert wanted["GGML_NO_BACKTRACE"] == "1"


@pytest.mark.engine
def test_a_small_context_of_another_shape_says_what_it_cannot_hold() -> None:
    config = EngineConfig(context_tokens=256, kv_type_k="q8_0", kv_type_v="q8_0", unified_kv=False, threads=1)
    found = calibrate(
        with_models(config), Budget(curves_s=2.0, contexts_s=2.0, rebuilds_s=0.1, most=1), progress=lambda _: None
    )
    assert found.unknown["forward of 512"] == "the context holds fewer tokens"
    assert max(time.rows for time in found.forwards) <= 256
    assert found.contexts[-1].cached in (64, 128, 192)
    assert found.conditions.hold_for(with_models(config))
