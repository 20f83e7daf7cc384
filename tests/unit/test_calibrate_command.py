"""`stackscope calibrate` and what `doctor` and the screen make of its result, without an engine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

from stackscope.analysis.live.view import LiveView
from stackscope.cli import app
from stackscope.commands import calibrate as verb
from stackscope.commands.examined_ceilings import of_ceilings
from stackscope.experiments import protocol
from stackscope.hardware import ceilings as cache
from stackscope.model.catalog import bundled_target
from stackscope.records import ConfigEvent
from tests.unit.ceilings_builders import ceilings, conditions
from tests.unit.record_builders import make_header
from tests.unit.test_doctor import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stackscope.records.ceilings import Ceilings
    from stackscope.toggles import EngineConfig

NOW = datetime(2026, 10, 1, 14, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EngineConfig, protocol.Budget]]:
    """What was asked to be measured; the answer is that of a target that was busy on the second call."""
    asked: list[tuple[EngineConfig, protocol.Budget]] = []

    def measure(
        config: EngineConfig, budget: protocol.Budget, *, progress: Callable[[protocol.Progress], None]
    ) -> Ceilings:
        progress(protocol.Progress(what="synthetic", fraction=0.5))
        asked.append((config, budget))
        is_quiet = len(asked) == 1
        return ceilings(is_quiet=is_quiet, foreign_share=0.0 if is_quiet else 0.8)

    monkeypatch.setattr(verb, "measure", measure)
    return asked


def invoke(*arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    result = CliRunner().invoke(app, ["calibrate", *arguments])
    return result.exit_code, result.stdout, result.stderr


def own(**changes: object) -> Ceilings:
    """Ceilings of the bundled target on this machine."""
    file = bundled_target().stat()
    given = conditions(
        model=bundled_target().name, model_bytes=file.st_size, model_mtime_ns=file.st_mtime_ns,
        machine=cache.machine(), library=FACTS.description,
    )  # fmt: skip
    return ceilings(conditions=msgspec.structs.replace(given, **changes))


def test_what_is_there_is_not_measured_again(measured: list[tuple[EngineConfig, protocol.Budget]]) -> None:
    assert invoke("--if-missing")[0] == 0
    assert len(measured) == 1  # Its answer is of another model: the bundled one stays missing.
    cache.store(own())
    assert invoke("--if-missing") == (0, "", "")
    assert len(measured) == 1
    cache.store(own(model_mtime_ns=1, threads=7))  # Another file of that name.
    assert invoke("--if-missing", "--threads", "7")[0] == 0
    assert measured[-1][0].threads == 7


def busy(minutes: float) -> Ceilings:
    """Ceilings that others disturbed so long ago."""
    moment = datetime.now().astimezone() - timedelta(minutes=minutes)
    measured = moment.isoformat(timespec="seconds")
    return msgspec.structs.replace(own(), is_quiet=False, foreign_share=0.8, measured=measured)


@pytest.mark.parametrize(("minutes", "is_quiet", "n"), [(5, True, 1), (61, False, 1), (5, False, 0), (59, False, 0)])
def test_what_a_busy_machine_said_is_measured_again_when_it_is_quiet_or_after_an_hour(
    minutes: float, is_quiet: bool, n: int, measured: list[tuple[EngineConfig, protocol.Budget]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(verb, "is_quiet_now", lambda: is_quiet)
    cache.store(busy(minutes))
    code, out, err = invoke("--if-missing")
    assert (code, len(measured)) == (0, n)
    if n:
        assert "synthetic.gguf" in out
    else:
        assert out == ""
        assert err.startswith(f"stackscope: not measured again: this machine was busy {minutes:.0f} min 0")
        assert err.count("\n") == 1


def test_what_nobody_knows_to_have_been_busy_is_not_measured_again(
    measured: list[tuple[EngineConfig, protocol.Budget]],
) -> None:
    cache.store(msgspec.structs.replace(busy(120), foreign_share=None))  # it would not say at the second time either
    assert invoke("--if-missing") == (0, "", "")
    assert measured == []


@pytest.mark.parametrize(("after", "says"), [(0, "nothing was stored."), (1, "what was measured of {} is kept")])
def test_ctrl_c_says_what_was_stored(
    after: int, says: str, measured: list[tuple[EngineConfig, protocol.Budget]], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    def interrupted(*arguments: Any, **_: Any) -> Ceilings:
        if len(measured) == after:
            raise KeyboardInterrupt
        measured.append((arguments[0], arguments[1]))
        return ceilings()

    monkeypatch.setattr(verb, "measure", interrupted)
    paths = [tmp_path / name for name in ("a-F16.gguf", "b-F16.gguf")]
    for path in paths:
        path.write_bytes(bundled_target().read_bytes())
    code, _, err = invoke("--variants", "--model", str(paths[0]))
    assert code == 130
    assert err.startswith(f"stackscope: interrupted: {says.format('a-F16.gguf')}")
    assert err.count("\n") == 1


def test_variants_are_measured_after_the_model_itself(
    measured: list[tuple[EngineConfig, protocol.Budget]], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a-F16.gguf", "b-F16.gguf")]
    for path in paths:
        path.write_bytes(bundled_target().read_bytes())
    code, out, _ = invoke("--variants", "--model", str(paths[1]), "--threads", "1")
    assert code == 0
    assert out.count("synthetic.gguf") == len(measured)
    asked = [config.model for config, _ in measured]
    assert asked[0] == str(paths[1])
    assert set(asked) == {str(path) for path in (*paths, bundled_target())}
    assert {config.threads for config, _ in measured} == {1}


def test_showing_measures_nothing(measured: list[tuple[EngineConfig, protocol.Budget]]) -> None:
    for option in ("--full", "--variants", "--if-missing"):
        code, _, err = invoke("--show", option)
        assert code == 2
        assert "--show measures nothing" in err
    assert measured == []


def test_options_reach_the_measurement(measured: list[tuple[EngineConfig, protocol.Budget]]) -> None:
    code, out, err = invoke("--threads", "1", "--kv-type", "q8_0", "--full")
    assert (code, err) == (0, "")
    assert out.startswith("synthetic.gguf")
    [(config, budget)] = measured
    assert (config.threads, config.kv_type_k, config.kv_type_v) == (1, "q8_0", "q8_0")
    assert config.model == str(bundled_target())
    assert budget == protocol.FULL
    assert invoke("--json")[0] == 0
    assert measured[1][1] == protocol.QUICK


def test_a_busy_result_is_shown_but_does_not_replace_a_quiet_one(
    measured: list[tuple[EngineConfig, protocol.Budget]],
) -> None:
    assert "note" not in invoke()[1]
    code, out, _ = invoke()
    assert code == 0
    assert "others took 80.0 % of a CPU" in out
    assert "note          Those from a quiet machine are kept, and these are not." in out
    assert cache.load(conditions()).ceilings == ceilings(foreign_share=0.0)
    assert len(measured) == 2


def test_a_damaged_file_is_told_and_measured_over(measured: list[tuple[EngineConfig, protocol.Budget]]) -> None:
    cache.store(ceilings())
    cache.file_of(conditions()).write_text("{")
    code, out, _ = invoke("--json")
    assert (code, len(measured)) == (0, 1)
    [note] = json.loads(out)["notes"]
    assert "is damaged and is not used: " in note
    assert cache.load(conditions()) == cache.Found(ceilings(foreign_share=0.0))


def test_what_is_kept_is_shown_with_its_age(measured: list[tuple[EngineConfig, protocol.Budget]]) -> None:
    code, _, err = invoke("--show")
    assert (code, err) == (
        2,
        "stackscope: No ceilings of this configuration were measured. Measure them: stackscope calibrate\n",
    )
    cache.store(own())
    code, out, _ = invoke("--show")
    assert code == 0
    assert " ago · quick" in out
    assert "another machine" not in out
    cache.store(msgspec.structs.replace(own(machine="elsewhere"), measured="2026-10-02T12:00:00+00:00"))
    assert "they are of another machine" in invoke("--show")[1]
    code, _, err = invoke("--show", "--threads", "1")
    assert code == 2
    assert f"There are some for {bundled_target().name}." in err
    assert invoke("--show", "--full")[0] == 2
    assert measured == []


# The doctor


def test_the_doctor_says_what_is_known_and_how_to_know_it() -> None:
    [check] = of_ceilings(bundled_target(), FACTS, named=None, now=NOW)
    assert (check.holds, check.value) == (False, f"not measured for {bundled_target().name}")
    assert check.remedy == "Measure them, when the machine is quiet: stackscope calibrate"
    assert not check.is_needed
    cache.store(own())
    [check] = of_ceilings(bundled_target(), FACTS, named="lab-target-f16", now=NOW)
    assert (check.holds, check.remedy) == (True, None)
    assert check.value == (
        f"{bundled_target().name} reaches at most 60.0 GB/s and 66.0 GFLOP/s on 2 threads; measured 2 h 05 min ago"
    )


def test_the_doctor_trusts_no_other_build_no_busy_machine_and_no_damaged_file() -> None:
    cache.store(own(library="another"))
    [check] = of_ceilings(bundled_target(), FACTS, named="x", now=NOW)
    assert check.holds is False
    assert check.value.endswith("; by another build of the inference library")
    assert check.remedy == "Measure them, when the machine is quiet: stackscope calibrate --model x"
    [check] = of_ceilings(bundled_target(), None, named=None, now=NOW)
    assert check.holds  # nobody says which build this is
    cache.file_of(own(library="another").conditions).write_text("{")
    damaged, missing = of_ceilings(bundled_target(), FACTS, named=None, now=NOW)
    assert "is damaged and is not used: " in damaged.value
    assert missing.value.startswith("not measured")
    cache.store(own(machine="elsewhere"))
    assert [check.value for check in of_ceilings(bundled_target(), FACTS, named=None, now=NOW)][1:] == [missing.value]


# The screen


def test_the_screen_holds_a_session_against_its_ceilings_while_they_are_true() -> None:
    header = make_header()
    assert header.config is not None
    config = msgspec.structs.replace(header.config, model="/models/synthetic.gguf", threads=2)
    view = LiveView()
    view.write(msgspec.structs.replace(header, config=config, ceilings=ceilings()))
    shown = view.snapshot(0)
    assert (shown.compute_ceiling, shown.bandwidth_ceiling) == (66e9, 60e9)
    fewer = msgspec.structs.replace(config, threads=1)
    view.write(ConfigEvent(at_ns=1, epoch=1, kind="live", changes={"threads": (2, 1)}, config=fewer))
    shown = view.snapshot(2)
    assert (shown.compute_ceiling, shown.bandwidth_ceiling) == (None, None)
    view.write(header)
    assert view.snapshot(3).compute_ceiling is None
