"""The command line: what it accepts, what it hands on, how it fails, and that its help is instant."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from stackscope import __version__, errors
from stackscope.cli import app
from stackscope.commands.compare import BROKEN
from stackscope.errors import EngineDiedError, ModelFileError, StackscopeError
from stackscope.options import OPTIONS
from stackscope.session.writer import SessionWriter
from stackscope.verbs.base import GONE
from tests.unit.record_builders import make_header, synthetic_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.config import RunOptions

HEAVY = ("numpy", "llama_cpp", "rich", "huggingface_hub", "psutil", "zstandard", "jinja2", "stackscope.engine")
"""What a verb imports when it runs, and `--help` never does."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """The options that reached the body of `run`, which does nothing else here."""
    received: list[RunOptions] = []

    def body(options: RunOptions) -> int:
        received.append(options)
        return 0

    replace_body(monkeypatch, body)
    return received


def replace_body(monkeypatch: pytest.MonkeyPatch, body: Callable[[RunOptions], int]) -> None:
    module = types.ModuleType("stackscope.commands.run")
    module.run = body  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def invoke(*arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_version() -> None:
    assert invoke("--version") == (0, f"stackscope {__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("live",)])
def test_without_a_terminal_the_live_screen_says_so_and_is_a_run(
    served: list[RunOptions], words: tuple[str, ...]
) -> None:
    from stackscope.config import RunOptions

    code, out, err = invoke(*words)
    assert (code, out) == (0, "")
    assert err == "stackscope: no live screen, because standard output is no terminal; this is `stackscope run`.\n"
    assert served == [RunOptions()]


def test_live_takes_the_options_of_a_run(served: list[RunOptions]) -> None:
    assert invoke("live", "--slots", "4", "--requests", "3", "--theme", "light", "--no-record")[0] == 0
    [options] = served
    assert (options.engine.slots, options.workload.requests, options.output.record) == (4, 3, False)
    assert options.screen.theme == "light"


def test_a_recording_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    code, out, err = invoke("replay", str(tmp_path / "none.jsonl.zst"))
    assert (code, out) == (8, "")
    assert err.startswith("stackscope: ")
    assert "does not exist" in err


def test_replay_without_a_terminal_prints_the_summary(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with SessionWriter(path, make_header(workload={"text": "code · closed loop"})) as writer:
        for record in synthetic_session(50)[1:-1]:
            writer.write(record)
    code, out, err = invoke("replay", str(path))
    assert code == 0
    assert err.startswith("stackscope: no live screen, because ")
    assert "code · closed loop" in out
    assert "It has no end mark" in out


def test_help_lists_every_option_with_its_default() -> None:
    code, out, _ = invoke("run", "--help")
    assert code == 0
    for option in OPTIONS:
        assert option.flags.split("/")[0] in out
    assert "[default: 8]" in out
    assert "[default: --unified-kv]" in out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['stackscope', 'run', '--help']\n"
        "from stackscope.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"
    assert "--speculation" in done.stdout


def test_ctrl_c_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    command = [sys.executable, "-m", "stackscope", "run"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("option", ["--model", "--draft", "--workload", "--record", "--config"])
def test_a_path_that_cannot_even_be_looked_at_is_one_sentence(option: str, tmp_path: Path) -> None:
    """As for a folder that only others may enter, which a test run by root could not make."""
    code, _, err = invoke("run", option, str(tmp_path / ("x" * 300 + ".gguf")))
    assert code not in (0, 70)
    assert err.startswith("stackscope: ")
    assert "File name too long" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["run", "--help"], ["models", "list"], ["models", "list", "--json"]]
)
def test_output_that_cannot_be_written_is_one_sentence_and_fails_once(words: list[str]) -> None:
    command = [sys.executable, "-X", "dev", "-m", "stackscope", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "stackscope: The result cannot be written to standard output: No space left on device. "
        "Free some space, or send it elsewhere.\n",
    )


@pytest.mark.parametrize("columns", ["0", "00", ""])
def test_a_width_of_nothing_is_no_width(columns: str) -> None:
    """Terminals without a size (of serial lines, of some editors) say 0."""
    command = [sys.executable, "-m", "stackscope", "models", "list"]
    environment = {**os.environ, "COLUMNS": columns}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "size" in done.stdout


def test_options_reach_the_run(served: list[RunOptions]) -> None:
    code, out, err = invoke(
        *("run", "--slots", "4", "--speculation", "ngram", "--no-prefix-cache", "--split-kv", "--kv-type", "q8_0"),
        *("--tensor-split", "3,1", "--temperature", "0.5", "--requests", "3", "--prompt-tokens", "8..16", "--json"),
        *("--no-record", "--seed", "5"),
    )
    assert (code, out, err) == (0, "", "")
    [options] = served
    engine = options.engine
    assert (engine.slots, engine.speculation, engine.prefix_cache, engine.unified_kv) == (4, "ngram", False, False)
    assert (engine.kv_type_k, engine.kv_type_v, engine.tensor_split) == ("q8_0", "q8_0", (3.0, 1.0))
    assert options.workload.sampling.temperature == 0.5
    assert (options.workload.requests, str(options.workload.prompt_tokens)) == (3, "8..16")
    assert (options.output.json, options.output.record) == (True, False)
    assert {engine.seed, options.workload.seed, options.workload.sampling.seed} == {5}


def test_nothing_given_is_nothing_set(served: list[RunOptions]) -> None:
    from stackscope.config import RunOptions

    assert invoke("run")[0] == 0
    assert served == [RunOptions()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--slots", "four"), "stackscope: --slots must be a whole number, not 'four'.\n"),
        (
            ("run", "--tensor-split", "a,b"),
            "stackscope: --tensor-split must be numbers separated by commas, not 'a,b'.\n",
        ),
        (
            ("run", "--workload", "chta"),
            "stackscope: --workload: there is no workload or file 'chta'. Did you mean chat?\n",
        ),
        (("run", "--config", "/no/such.toml"), "No such file or directory"),
        (
            ("run", "--speculation", "on"),
            "stackscope: --speculation must be one of off, ngram, draft, mtp, not 'on'.\n",
        ),
        (("live", "--kv-type", "q9"), "stackscope: --kv-type must be one of f32, f16, "),
        (
            ("--causal-probes",),
            "stackscope: --causal-probes stands before the command, and options belong to the command."
            " Write it after that: stackscope live --causal-probes.\n",
        ),
        (("--no-shadows", "live"), "Write it after that: stackscope live --no-shadows.\n"),
        (("--slotz", "4"), "No such option: --slotz"),
        (("run", "--slotz", "4"), "No such option: --slotz"),
        (("juggle",), "No such command 'juggle'"),
    ],
)
def test_a_wrong_option_is_a_usage_error(served: list[RunOptions], arguments: tuple[str, ...], message: str) -> None:
    code, out, err = invoke(*arguments)
    assert (code, out, served) == (2, "", [])
    assert message in err


def test_a_negative_number_is_a_value(served: list[RunOptions]) -> None:
    assert invoke("run", "--gpu-layers", "-1")[0] == 0
    assert served[0].engine.gpu_layers == -1


def test_a_failure_is_one_line_and_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(_: RunOptions) -> int:
        raise ModelFileError("There is no file x.gguf.", remedy="Check the spelling.")

    replace_body(monkeypatch, body)
    assert invoke("run") == (3, "", "stackscope: There is no file x.gguf. Check the spelling.\n")


def test_a_dead_engine_ends_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(_: RunOptions) -> int:
        raise EngineDiedError("The engine process aborted.", last_lines=("GGML_ASSERT(x) failed",))

    replace_body(monkeypatch, body)
    code, _, err = invoke("run")
    assert code == EngineDiedError.exit_code
    assert "GGML_ASSERT(x) failed" in err


def test_the_exit_code_of_the_run_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_body(monkeypatch, lambda _: 17)
    assert invoke("run")[0] == 17


def test_an_interruption_is_130_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(_: RunOptions) -> int:
        raise KeyboardInterrupt

    replace_body(monkeypatch, body)
    assert invoke("run") == (130, "", "")


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(_: RunOptions) -> int:
        raise ZeroDivisionError

    replace_body(monkeypatch, body)
    result = CliRunner().invoke(app, ["run"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_reader_that_has_gone_ends_it_quietly() -> None:
    # `true` reads nothing and is gone before anything is written; the pause of starting Python makes sure of that.
    script = f'set -o pipefail; "{sys.executable}" -m stackscope doctor --json | true; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.strip() == "1"


def test_models_without_a_verb_lists_them() -> None:
    code, out, err = invoke("models", "list", "--json")
    assert (code, err) == (0, "")
    assert {entry["kind"] for entry in json.loads(out)} == {"bundled"}
    assert "lab-target-f16" in invoke("models")[1]


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "stackscope", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"stackscope {__version__}\n")


def test_a_terminal_without_the_characters_gets_others() -> None:
    command = [sys.executable, "-m", "stackscope", "doctor"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120)
    assert done.stderr == b""
    assert b"ascii: ? and ? may not show" in done.stdout


def test_every_exit_code_is_documented_and_none_is_another_s() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
    told = {int(number) for number in re.findall(r"^\| (\d+) \| ", guide, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StackscopeError)]
    codes = [kind.exit_code for kind in kinds]
    assert told == {0, GONE, BROKEN, *codes}
    assert len(set(codes)) == len(codes)
