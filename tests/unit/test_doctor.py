"""The doctor: what it says of builds and machines, each with its remedy, and that no library can take it down."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.commands import doctor as verb
from stackscope.commands import examinations
from stackscope.commands.examinations import Check, LibraryFacts, ask_library, in_range
from stackscope.commands.folder_examinations import _folder, of_folders
from stackscope.errors import LibraryError
from stackscope.hardware.host import Host
from stackscope.model.catalog import bundled_target
from stackscope.model.spec import load_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

FACTS = LibraryFacts(
    library_version="0.3.36",
    llama_version="0.5.0",
    system_info="CPU : AVX2 = 1 | FMA = 1 | OPENMP = 1 |",
    gpu_offload=False,
    devices=(),
    max_sequences=256,
    mmap=True,
    mlock=True,
    rpc=False,
    build_dir="/lib",
)
MACHINE = Host(
    system="Linux",
    machine="x86_64",
    processor="A CPU",
    instructions=frozenset({"avx2", "fma"}),
    cores_logical=8,
    cores_physical=4,
    cores_allowed=6,
    cores_quota=1.5,
    memory_total=16 * 10**9,
    memory_limit=None,
    memory_available=8 * 10**9,
    gpus=(),
)


def named(checks: Iterable[Check], name: str) -> Check:
    [found] = [check for check in checks if check.name == name]
    return found


def answering(text: str) -> list[str]:
    """A command that prints what the library's process would."""
    return [sys.executable, "-c", f"print({text!r})"]


def library(**changes: object) -> tuple[Check, ...]:
    return tuple(examinations.of_library(msgspec.structs.replace(FACTS, **changes), MACHINE))


def test_a_cpu_build_calls_an_idle_gpu_expected_and_says_how_to_use_it() -> None:
    machine = msgspec.structs.replace(MACHINE, gpus=("nvidia",))
    check = named(examinations.of_library(FACTS, machine), "GPU offload")
    assert check.holds is False
    assert check.value == "CPU backend only; --gpu-layers has no effect, and an idle GPU (nvidia) is what to expect"
    assert check.remedy is not None
    assert 'CMAKE_ARGS="-DGGML_CUDA=on"' in check.remedy
    assert not check.is_needed


def test_a_gpu_build_is_not_credited_with_what_was_not_seen() -> None:
    checks = library(gpu_offload=True)
    assert named(checks, "GPU offload").holds
    assert named(checks, "Flash attention").holds is None


def test_every_no_about_a_build_has_a_remedy() -> None:
    poor = library(mmap=False, mlock=False, system_info="CPU : AVX2 = 0 |")
    names = {check.name for check in poor if check.holds is False}
    assert names == {"Instructions", "GPU offload", "OpenMP", "Memory mapping", "Memory locking", "Remote workers"}
    assert all(check.remedy for check in poor if check.holds is False)


@pytest.mark.parametrize("code", ["import os; os.abort()", "print('{}')", "raise SystemExit(3)"])
def test_every_no_of_a_report_has_a_remedy(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a library, a driver and a model that are none."""
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path))
    asked = [sys.executable, "-c", code]
    silent = [sys.executable, "-c", "pass"]
    verb.doctor(json=True, model="no such model", library_command=asked, gpu_command=silent)
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {"Library", "NVIDIA driver", "Model"} <= {check["name"] for check in checks if check["holds"] is False}
    assert [check for check in checks if check["holds"] is False and not check["remedy"]] == []


def test_a_build_that_leaves_instructions_unused_is_named() -> None:
    assert named(library(), "Instructions").holds
    machine = msgspec.structs.replace(MACHINE, instructions=frozenset({"avx2", "fma", "avx512f"}))
    check = named(examinations.of_library(FACTS, machine), "Instructions")
    assert (check.holds, check.value) == (False, "uses AVX2, FMA; this processor also has AVX512")
    assert check.remedy is not None


def test_a_build_without_openmp_is_named() -> None:
    assert named(library(), "OpenMP").holds
    assert named(library(system_info="CPU : AVX2 = 1 |"), "OpenMP").holds is False


def test_the_cores_say_what_limits_them() -> None:
    value = named(examinations.of_machine(MACHINE), "Cores").value
    assert "4 physical, 8 logical; this process may use 6; the container grants the time of 1.50" in value


def test_a_model_says_what_a_sequence_and_the_default_context_cost() -> None:
    model = load_spec(bundled_target()).summary()
    checks = tuple(examinations.of_model(model, MACHINE))
    # 4,096 tokens × 4 bytes of f32
    assert named(checks, "A sequence id").value == "costs 16.4 kB: an output row of 4,096 logits, 4 B each"
    # 6 layers × 2 KV heads × 64 × 2 bytes × (K and V) = 3,072 B per cell; 8 slots × 2,048 cells; 16 × (8 + 1) rows:
    # 16,384 × 3,072 + 144 × 16,384 = 52,690,944
    context = named(checks, "Default context")
    assert context.value == "52.7 MB beside the weights: 16,384 KV cells of 3.07 kB, 144 output rows"
    assert context.holds
    poor = msgspec.structs.replace(MACHINE, memory_available=60 * 10**6)
    assert named(examinations.of_model(model, poor), "Default context").holds is False


def test_the_library_answers_through_a_process() -> None:
    assert ask_library(answering(msgspec.json.encode(FACTS).decode())) == FACTS


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("raise SystemExit(3)", "does not say why"),
        ("import sys; print('one\\ntwo\\n', file=sys.stderr); sys.exit(1)", "does not load: two"),
        ("print('gibberish')", "does not understand"),
        ("print('{}')", "does not understand"),
        ("", "does not understand"),
    ],
)
def test_a_library_that_fails_is_a_sentence(code: str, message: str) -> None:
    with pytest.raises(LibraryError, match=message):
        ask_library([sys.executable, "-c", code])


def test_a_command_that_cannot_run_is_a_sentence() -> None:
    with pytest.raises(LibraryError, match="cannot be asked"):
        ask_library(["/no/such/program"])


def test_a_refusal_of_the_binding_arrives_without_its_traceback() -> None:
    code = "from stackscope.errors import LibraryError\nraise LibraryError('It is too old.', remedy='Update it.')"
    with pytest.raises(LibraryError) as caught:
        ask_library([sys.executable, "-c", code])
    assert caught.value.message == "The inference library does not load: It is too old. Update it."


def test_the_report_is_complete_without_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    code = verb.doctor(json=True, library_command=[sys.executable, "-c", "import os; os.abort()"])
    report = json.loads(capsys.readouterr().out)
    assert code == LibraryError.exit_code
    assert (report["ok"], report["library"]) == (False, None)
    failed = {check["name"] for check in report["checks"] if check["holds"] is False and check["is_needed"]}
    assert failed == {"Library"}
    assert {"Python", "Memory", "Recordings", "A sequence id"} <= {check["name"] for check in report["checks"]}


def test_for_people_every_remedy_follows_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = verb.doctor(library_command=answering(msgspec.json.encode(FACTS).decode()))
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[-1] == "Stackscope can run here."
    [at] = [index for index, line in enumerate(lines) if line.startswith("  no  GPU offload")]
    assert any(line.strip().startswith("-> With a GPU") for line in lines[at : at + 3])


def test_a_model_that_is_none_is_told_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>")
    code = verb.doctor(model=str(page), library_command=answering(msgspec.json.encode(FACTS).decode()))
    out = capsys.readouterr().out
    assert code == 1
    assert "  no  Model" in out
    assert out.endswith("Stackscope cannot run here yet: see the lines marked no.\n")


def test_a_folder_that_cannot_be_written_to_has_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check = _folder("Recordings", lambda: file / "below", "Give another.")
    assert (check.holds, check.remedy) == (False, "Give another.")
    assert _folder("Recordings", lambda: tmp_path / "not" / "yet", "Give another.").holds


@pytest.mark.parametrize(
    ("version", "conditions", "fits"),
    [
        ("0.3.36", "<0.3.37,>=0.3.36", True),
        ("0.3.37", "<0.3.37,>=0.3.36", False),
        ("0.3.9", ">=0.3.36", False),
        ("2", ">=2.0", True),
        ("2.0.0", "==2", True),
        ("2.10", ">2.9", True),
        ("1.0rc1", "!=1.0", False),
        ("1.5", "", True),
    ],
)
def test_versions_are_compared_number_by_number(version: str, conditions: str, fits: bool) -> None:
    assert in_range(version, conditions) is fits


@pytest.mark.engine
def test_the_real_library_answers() -> None:
    facts = ask_library()
    assert facts.max_sequences == 256
    assert Path(facts.build_dir).is_dir()


def test_settings_that_cannot_be_looked_at_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a home that only another user may enter, which a test run by root could not make."""
    home = tmp_path / ("x" * 300)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("STACKSCOPE_CACHE", str(home))
    _, models, settings = of_folders()
    assert models.holds  # as if it could be made: only making it would tell
    assert not settings.holds
    assert settings.remedy == "Give a file with STACKSCOPE_CONFIG."
    assert "File name too long" in settings.value
