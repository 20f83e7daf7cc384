"""Signals as a wish: the first waits to be looked at, the second does not; what was ignored stays so."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands import interrupts as module
from stackscope.commands.interrupts import SIGNALS, Interrupted, Interrupts, keeping, raising, told_when_interrupted
from stackscope.errors import EngineDiedError, SessionFileError
from stackscope.session.paths import ELSEWHERE
from stackscope.verbs.base import reporting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "BURST_S", 0.0)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_is_noted_and_the_second_interrupts(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        assert interrupts.received is None
        signal.raise_signal(number)
        assert interrupts.received is number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.received is number


def test_a_burst_is_one_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 10.0
    monkeypatch.setattr(module, "BURST_S", 0.25)
    monkeypatch.setattr(module, "_bursts", module._Bursts(lambda: now_s))
    with Interrupts() as interrupts:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):  # As `timeout` sends them, and a terminal.
            signal.raise_signal(number)
            now_s += 0.05
        assert interrupts.received is signal.SIGTERM
    with raising():
        signal.raise_signal(signal.SIGINT)  # Still the same burst, after the loop has ended in order.
        now_s += 0.2
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS)
def test_where_nothing_looks_at_it_a_signal_is_an_exception_that_a_verb_tells(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, reporting():
        signal.raise_signal(number)
    assert ended.value.exit_code == 128 + number
    how = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert capsys.readouterr().err == ("" if number == signal.SIGINT else f"stackscope: {how}.\n")
    with pytest.raises(typer.Exit) as ended, reporting(), told_when_interrupted(lambda: "all is kept."):
        signal.raise_signal(number)
    assert ended.value.exit_code == 128 + number
    assert capsys.readouterr().err == f"stackscope: {how}: all is kept.\n"


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module_name", ["typer", "stackscope.verbs.models"])
def test_a_signal_while_modules_are_imported_is_told(number: signal.Signals, module_name: str) -> None:
    """Before there is a verb, when nothing has been begun."""
    raising_on_import = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module_name!r}:\n"
        f"            signal.raise_signal({int(number)})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from stackscope.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", raising_on_import], capture_output=True, text=True, timeout=60)
    told = "" if number == signal.SIGINT else f"stackscope: ended by {number.name}.\n"
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", told)


def test_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.received is None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_elsewhere_than_in_the_main_thread_it_does_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def enter() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_became_of_it_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), told_when_interrupted("nothing was written."):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "stackscope: interrupted: nothing was written.\n"
    with told_when_interrupted("nothing was written."):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("models", "inflate", "lab-target-f16", "200"), "stackscope.model.inflate.inflate"),
        (("models", "quantise", "lab-target-f16", "Q8_0"), "stackscope.model.quantise.quantise"),
        (("models", "get", "owner/repo/file.gguf"), "stackscope.model.download.fetch"),
        (("ablate", "--blocks", "2", "--folder", "{}/new"), "stackscope.model.inflate.inflate"),
        (("sweep", "--over", "slots=1,2", "--folder", "{}/new"), "stackscope.model.inflate.inflate"),
        (("learn", "1", "-o", "{}/x.json"), "stackscope.model.inflate.inflate"),
        (("ablate", "--model", "lab-target-f16", "--factors", "slots=4", "--folder", "{}/new"),
         "stackscope.commands.ablate.conduct"),
        (("sweep", "--model", "lab-target-f16", "--over", "slots=1,2", "--folder", "{}/new"),
         "stackscope.commands.sweep.conduct"),
    ],
)  # fmt: skip
def test_every_command_that_takes_its_time_says_what_ctrl_c_leaves(
    arguments: tuple[str, ...], body: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(body, interrupted)
    done = CliRunner().invoke(app, [argument.format(tmp_path) for argument in arguments])
    assert done.exit_code == 130
    told = done.stderr.splitlines()[-1]
    assert told.startswith("stackscope: interrupted: ")
    assert ("--folder" in told) == body.endswith("conduct")


@pytest.mark.parametrize("kind", ["ablate", "sweep"])
def test_an_engine_that_dies_in_an_experiment_does_not_hide_how_to_go_on(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def died(*_: object, **__: object) -> None:
        raise EngineDiedError("The engine died.", remedy="Report it.", last_lines=("ouch",))

    monkeypatch.setattr(f"stackscope.commands.{kind}.conduct", died)
    what = ("--factors", "slots=4") if kind == "ablate" else ("--over", "slots=1,2")
    folder = tmp_path / "a folder"
    done = CliRunner().invoke(app, [kind, "--model", "lab-target-f16", *what, "--folder", str(folder)])
    assert done.exit_code == EngineDiedError.exit_code
    assert f"Report it. Finished runs are kept. Go on with them: stackscope {kind} --folder '{folder}'" in done.stderr
    assert "ouch" in done.stderr


def test_a_recording_that_cannot_be_kept_names_the_folder_and_how_to_go_on(tmp_path: Path) -> None:
    remedy = f"Raise the limit (ulimit -f), or record elsewhere with {ELSEWHERE}."
    with pytest.raises(SessionFileError) as raised, keeping(tmp_path, "ablate"):
        raise SessionFileError("It would grow too large.", remedy=remedy)
    assert raised.value.remedy == (
        "Raise the limit (ulimit -f), or record elsewhere with another --folder. "
        f"Finished runs are kept. Go on with them: stackscope ablate --folder {tmp_path}"
    )
