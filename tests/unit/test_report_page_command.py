"""`stackscope report` and `stackscope export` as commands: what they write, where, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from stackscope.cli import app
from tests.unit.page_checker import check

CHAT: Final = str(Path(__file__).parents[2] / "profiles" / "chat.jsonl.zst")
COPY: Final = str(Path(__file__).parents[2] / "profiles" / "copy-ngram.jsonl.zst")


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_without_a_path_it_is_markdown_on_standard_output() -> None:
    done = called("report", CHAT)
    assert done.exit_code == 0
    assert done.stdout.startswith("# Stackscope: chat.jsonl.zst\n")
    assert done.stderr == ""
    verdict = done.stdout.partition("## What limited it")[2].partition("\n## ")[0]
    named = called("replay", CHAT).stdout.partition("limited by")[2].split("\n")[0].partition(" · ")[0].strip()
    assert f"| limited by | {named} · " in verdict


@pytest.mark.parametrize("name", ["out.md", "out.MD", "out.markdown"])
def test_a_name_says_what_is_written(name: str, tmp_path: Path) -> None:
    done = called("report", CHAT, COPY, "-o", str(tmp_path / name))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"stackscope: wrote {tmp_path / name}.\n"
    assert (tmp_path / name).read_text(encoding="utf-8") == called("report", CHAT, COPY).stdout


def test_html_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.html"
    assert called("report", CHAT, COPY, "-o", str(path), "--ttft-limit", "100").exit_code == 0
    first = path.read_text(encoding="utf-8")
    check(first)
    assert "goodput" in first
    again = called("report", CHAT, "-o", str(path))
    assert again.exit_code == 2
    assert again.stderr == f"stackscope: {path} exists already. Give another name, or --replace to write over it.\n"
    assert called("report", CHAT, "-o", str(path), "--replace").exit_code == 0
    assert path.read_text(encoding="utf-8") != first
    assert [entry.name for entry in path.parent.iterdir()] == ["out.html"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("report", CHAT, "-o", "out.pdf"), 2, "out.pdf tells by its name neither HTML nor Markdown."),
        (("report", *[CHAT] * 9), 2, "More than 8 recordings do not fit beside each other. Give fewer."),
        (("report", "nowhere.jsonl.zst"), 8, "nowhere.jsonl.zst does not exist."),
        (("report", CHAT, "--ttft-limit", "0"), 2, "--ttft-limit must be a number above 0, not '0'."),
        (("report",), 2, "Missing argument"),
        (("export", CHAT, "--to", "xml", "-o", "x"), 2, "Invalid value for '--to': 'xml' is not one of"),
        (("export", CHAT, "--to", "csv"), 2, "Missing option '--output'"),
        (("export", "nowhere.jsonl.zst", "--to", "csv", "-o", "x"), 8, "nowhere.jsonl.zst does not exist."),
        (("export", __file__, "--to", "json", "-o", "x"), 8, "is not a Stackscope session"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    done = called(*arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not any(Path(name).exists() for name in ("out.pdf", "x"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [("report",), ("export", "--to", "json")])
def test_a_recording_is_never_written_over(verb: tuple[str, ...], tmp_path: Path) -> None:
    recording, link = tmp_path / "mine.md", tmp_path / "link.md"
    recording.write_bytes(Path(CHAT).read_bytes())
    link.symlink_to(recording)
    for path in (recording, link):
        done = called(*verb, str(recording), "-o", str(path), "--replace")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == f"stackscope: {path} is the recording itself. Give another name for what is made of it.\n"
    assert recording.read_bytes() == Path(CHAT).read_bytes()


def test_an_export_says_what_it_wrote(tmp_path: Path) -> None:
    done = called("export", CHAT, "--to", "csv", "-o", str(tmp_path / "out"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith(f"stackscope: wrote {tmp_path / 'out'}: 277 steps, ")
    assert "24 requests" in done.stderr


def test_a_recording_that_was_cut_off_is_exported_and_says_so(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.zst"
    cut.write_bytes(Path(CHAT).read_bytes()[:15_000])
    done = called("export", str(cut), "--to", "perfetto", "-o", str(tmp_path / "out.json.gz"))
    assert done.exit_code == 0
    assert f"stackscope: {cut}: It has no end mark" in done.stderr
