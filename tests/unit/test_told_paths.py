"""What is said when all went well: paths in it move no terminal, and workers talk as they always do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from stackscope.commands.interrupts import Interrupted, keeping
from stackscope.commands.live import _take_leave
from tests.unit.test_cli import invoke

if TYPE_CHECKING:
    from collections.abc import Callable

STORY = Path(__file__).parents[2] / "profiles" / "story.jsonl.zst"
NAME = "a\x1b[31mb"


def test_live_names_recordings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tally: Any = SimpleNamespace(began_ns=None, ended_ns=None, score=None)
    runner: Any = SimpleNamespace(failures=SimpleNamespace(told=lambda: [NAME]), recordings=[tmp_path / NAME])
    _take_leave(tally, runner)
    said = capsys.readouterr().out
    assert said.count("a\N{REPLACEMENT CHARACTER}[31mb") == 3
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        lambda path: ("report", str(STORY), "-o", f"{path}.md"),
        lambda path: ("export", str(STORY), "--to", "json", "-o", f"{path}.json"),
    ],
)
def test_what_was_written_is_named(arguments: Callable[[Path], tuple[str, ...]], tmp_path: Path) -> None:
    status, _, said = invoke(*arguments(tmp_path / NAME))
    assert status == 0
    assert "wrote" in said
    assert "a\N{REPLACEMENT CHARACTER}[31mb" in said
    assert "\x1b" not in said


def test_how_to_go_on_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(Interrupted), keeping(tmp_path / NAME, "ablate"):
        raise KeyboardInterrupt
    assert "\x1b" not in capsys.readouterr().err


def test_the_encoding_of_the_streams_is_not_that_of_workers() -> None:
    code = "from stackscope.commands.streams import open_standard_streams; open_standard_streams(); "
    code += "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONIOENCODING": "utf-16"}, capture_output=True, check=True
    )
    assert done.stdout == b"1\n"
