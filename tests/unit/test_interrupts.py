"""Signals as a wish: the first waits to be looked at, the second does not; what was ignored stays so."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands.interrupts import SIGNALS, Interrupts, told_when_interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
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
