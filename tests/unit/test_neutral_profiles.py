"""What is shipped tells nothing of the machine that it was made on but its processor: no absolute path is in it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

from stackscope.session.reader import read_session
from tests.tui.recordings import write

ROOT: Final = Path(__file__).parents[2]
PROFILES: Final = ROOT / "profiles"
SCRIPT: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "scripts" / "neutral_profiles.py"))
ABSOLUTE, main, plain = SCRIPT["ABSOLUTE"], SCRIPT["main"], SCRIPT["plain"]
SHIPPED: Final = sorted(
    path
    for path in PROFILES.rglob("*")
    if path.is_file() and "recorded" not in path.relative_to(PROFILES).parts and path.suffix != ".md"
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(PROFILES)))
def test_no_shipped_file_holds_an_absolute_path(path: Path) -> None:
    content = plain(path) if path.suffix == ".zst" else path.read_bytes()
    assert content
    assert ABSOLUTE.findall(content) == []


def test_there_is_something_shipped() -> None:
    assert len(SHIPPED) > 20


def test_nothing_but_the_paths_of_models_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl.zst"
    lines = b'{"model":"/home/me/deep er/x-F16.gguf","host":"a/b","q":"\\"/"}\n'
    lines += b'{"changes":["/tmp/a.gguf","C:\\\\m\\\\b.gguf"]}\n'
    path.write_bytes(zstandard.ZstdCompressor().compress(lines))
    assert main([str(path)]) == 0
    assert plain(path) == b'{"model":"x-F16.gguf","host":"a/b","q":"\\"/"}\n{"changes":["a.gguf","b.gguf"]}\n'
    assert "3 paths" in capsys.readouterr().out
    before = path.read_bytes()
    assert main([str(path)]) == 0
    assert path.read_bytes() == before


def test_what_comes_out_is_the_same_recording(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.zst", steps=50)
    before = read_session(path)
    main([str(path)])
    after = read_session(path)
    assert (after.steps, after.requests, after.footer, after.truncated) == (
        before.steps, before.requests, before.footer, None,
    )  # fmt: skip


def test_a_path_of_another_kind_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b'{"file":"/home/me/x.jsonl","division":"a/b"}\n'))
    assert main([str(path)]) == 1
    assert 'still holds "/home/me/x.jsonl"' in capsys.readouterr().err
