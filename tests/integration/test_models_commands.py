"""What the `models` verbs print: at 80 columns for people, as JSON for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from stackscope.commands import models
from stackscope.errors import ModelFileError, UsageError
from stackscope.model.catalog import bundled_draft, bundled_target, folder_of
from stackscope.model.spec import load_spec
from tests.unit.gguf_builder import write_gguf
from tests.unit.tiny_models import TINY, llama, write_tiny

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "cache"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What went to stdout, stripped on the right; nothing may have gone to stderr, which is for narration."""
    out, err = capsys.readouterr()
    assert err == ""
    return [line.rstrip() for line in out.splitlines()]


def test_the_list(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    models.list_models()
    assert lines(capsys) == [
        "model           kind        size",
        "lab-draft-f16   bundled  1.96 MB",
        "lab-target-f16  bundled  11.7 MB",
        "",
        f"Variants and downloads are kept in {cache}",
    ]


def test_the_list_names_what_is_unfinished(capsys: pytest.CaptureFixture[str]) -> None:
    part = folder_of("downloaded") / "a" / "b" / ".c.gguf.0123.partial"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(2000))
    models.list_models()
    shown = lines(capsys)
    assert any("unfinished  2.00 kB" in line for line in shown)
    assert "command is given again" in shown[-1]


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    models.list_models(json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"name": "lab-draft-f16", "kind": "bundled", "path": str(bundled_draft()), "bytes": 1_964_896}
    assert second["path"] == str(bundled_target())


def test_showing_the_lab_target(capsys: pytest.CaptureFixture[str]) -> None:
    """Embedding 4096 × 256 × 2 bytes = 2.10 MB of 11.5 MB: 18.2 %."""
    models.show("lab-target-f16")
    shown = lines(capsys)
    assert shown[0] == "stackscope-lab-target"
    labels = ("size", "architecture", "parameters", "vocabulary", "context", "attention")
    # By label, not by line: a long path of the checkout takes several.
    facts = dict(line.split(maxsplit=1) for line in shown if line.startswith(labels) and not line.endswith("%"))
    assert facts == {
        "size": "11.7 MB, F16",
        "architecture": "llama: 6 layers, width 256",
        "parameters": "5.77 M, head tied to the embedding",
        "vocabulary": "4,096 tokens, gpt2 tokenizer, no chat template",
        "context": "2,048 tokens",
        "attention": "4 heads on 2 KV (2 to 1), key 64, value 64",
    }
    words = [line.split() for line in shown]
    assert ["KV", "cache", "3.07", "kB", "per", "token", "at", "F16"] in words
    assert ["weights", "type", "parameters", "bytes", "share"] in words
    assert ["embedding", "f16", "1.05", "M", "2.10", "MB", "18.2", "%"] in words


def test_showing_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    models.show(bundled_target(), json=True)
    shown = json.loads(capsys.readouterr().out)
    spec = load_spec(bundled_target())
    assert shown["parameters"] == spec.parameters
    assert shown["tensor_bytes"] + shown["padding_bytes"] == shown["file_bytes"] - shown["data_offset"]
    assert shown["kv_bytes_per_token_f16"] == 3072
    assert len(shown["layers"]) == 6
    assert sum(t["bytes"] for t in shown["tensors"]) == spec.tensor_bytes
    assert shown["chat_template"] is None


EXPECTED = {
    "gemma3": "wwwwwFw  (w windowed, F full attention)",
    "gpt-oss": "wFwF  (w windowed, F full attention)",
    "lfm2": "rFr  (r recurrent, F full attention)",
    "mamba": "state",
    "deepseek2": "4 heads on one compressed key of 48 (MLA)",
    "qwen3moe": "2 of 8 per token",
}


@pytest.mark.parametrize("architecture", sorted(TINY))
def test_showing_every_kind_of_model_fits_80_columns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    models.show(write_tiny(tmp_path, architecture))
    shown = lines(capsys)
    assert max(len(line) for line in shown) <= 80
    if architecture in EXPECTED:
        assert any(EXPECTED[architecture] in line for line in shown)


def test_in_a_pipe_a_path_stays_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / ("a folder with a name " * 6).strip()
    folder.mkdir()
    path = write_tiny(folder, "llama")
    models.show(path)
    shown = lines(capsys)
    assert shown[1].split(maxsplit=1) == ["file", str(path)]
    assert max(len(line) for line in shown[2:]) <= 120  # what follows is no wider for it


def test_names_are_text_and_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = llama()
    name = "a [red]model[/red] :smile: \x1b[31m 世界"
    models.show(write_gguf(tmp_path / "m.gguf", made.metadata | {"general.name": name}, made.tensors))
    first = lines(capsys)[0]
    assert "[red]model[/red] :smile:" in first
    assert "世界" in first
    assert "\x1b" not in first  # a file's name for itself does not colour the terminal


@pytest.mark.engine
def test_quantising(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    models.quantise("lab-draft-f16", "q4_k_m")
    path, size, *fallbacks = lines(capsys)
    assert path == str(cache / "quantised" / "lab-draft-q4_k_m.gguf")
    assert size == "Q4_K_M, 979 kB: 49.8 % of 1.96 MB"
    assert fallbacks[0] == "q5_0 instead of q4_K: blk.0.attn_k.weight (rows of 128) and 11 more"
    assert fallbacks[1] == "q8_0 instead of q6_K: blk.1.attn_v.weight (rows of 128) and 1 more"
    models.quantise("lab-draft-q4_k_m", "Q8_0", requantise=True, json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["type"], shown["source_bytes"], shown["fallbacks"]) == ("Q8_0", 978_816, [])
    assert shown["bytes"] == (cache / "quantised" / "lab-draft-q8_0.gguf").stat().st_size


@pytest.mark.engine
def test_inflating(capsys: pytest.CaptureFixture[str], cache: Path, tmp_path: Path) -> None:
    """A step of 256 takes 2 layers × 3 × 256 × 128 × 2 bytes = 393 kB; 1,792 is 5.5 steps above 384."""
    models.inflate("lab-draft-f16", 4)
    path, size = lines(capsys)
    assert path == str(cache / "inflated" / "lab-draft-4mb-f16.gguf")
    assert size == "4.13 MB, from 1.96 MB: feed-forward width 1,792 instead of 384; it answers the same"
    models.inflate("lab-draft-f16", 4, output=tmp_path / "x.gguf", json=True)
    assert json.loads(capsys.readouterr().out) == {
        "path": str(tmp_path / "x.gguf"),
        "source_bytes": 1_964_896,
        "width_before": 384,
        "width": 1792,
        "bytes": (tmp_path / "x.gguf").stat().st_size,
    }


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: models.show("nothing-of-the-kind"), ModelFileError),
        (lambda: models.show("/no/such/file.gguf"), ModelFileError),
        (lambda: models.quantise("lab-target-f16", "Q7"), UsageError),
        (lambda: models.quantise("lab-target-f16", "IQ2_XXS"), UsageError),
        (lambda: models.inflate("lab-target-f16", 1), UsageError),
        (lambda: models.get("no-file"), UsageError),
    ],
)
def test_failures_are_sentences(
    capsys: pytest.CaptureFixture[str], call: Callable[[], None], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert lines(capsys) == []
