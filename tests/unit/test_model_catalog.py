"""Where models are, and what names stand for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from stackscope.errors import ModelFileError
from stackscope.model.catalog import bundled_draft, bundled_target, cache_folder, catalogue, folder_of, resolve


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(path: Path, n_bytes: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(n_bytes))
    return path


def test_the_bundled_files_are_those_of_the_model_card() -> None:
    card = (bundled_target().parent / "README.md").read_text(encoding="utf-8")
    for path in (bundled_target(), bundled_draft()):
        assert path.name in card
        assert hashlib.sha256(path.read_bytes()).hexdigest() in card


def test_the_cache_folder_is_the_variable_s_or_the_user_s(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == cache
    monkeypatch.setenv("STACKSCOPE_CACHE", "~/somewhere")
    assert cache_folder() == Path.home() / "somewhere"
    monkeypatch.setenv("STACKSCOPE_CACHE", "")
    assert cache_folder().name == "stackscope"


def test_what_is_there_is_listed_by_kind(cache: Path) -> None:
    assert [(entry.name, entry.kind) for entry in catalogue()] == [
        ("lab-draft-f16", "bundled"), ("lab-target-f16", "bundled"),
    ]  # fmt: skip
    put(folder_of("quantised") / "a-q4_0.gguf", 5)
    put(folder_of("inflated") / "b-200mb-f16.gguf")
    put(folder_of("downloaded") / "owner" / "repo" / "c.v1.GGUF")
    put(folder_of("downloaded") / "owner" / "repo" / ".d.gguf.0123.partial")
    put(folder_of("downloaded") / "owner" / "repo" / ".c.v1.GGUF.json")
    put(cache / "notes.gguf")
    rest = catalogue()[2:]
    assert [(entry.name, entry.kind) for entry in rest] == [
        ("a-q4_0", "quantised"),
        ("b-200mb-f16", "inflated"),
        ("owner/repo/.d.gguf.0123", "unfinished"),
        ("owner/repo/c.v1", "downloaded"),
    ]
    assert rest[0].bytes == 5


def test_names_and_paths(tmp_path: Path) -> None:
    quantised = put(folder_of("quantised") / "lab-target-q4_k_m.gguf")
    fetched = put(folder_of("downloaded") / "owner" / "repo" / "Model-Q8_0.gguf")
    assert resolve("lab-target-f16") == bundled_target()
    assert resolve("LAB-TARGET-Q4_K_M") == quantised
    assert resolve("model-q8_0") == resolve("owner/repo/Model-Q8_0") == fetched
    assert resolve(str(quantised)) == resolve(quantised) == quantised
    assert resolve("not/there.gguf") == Path("not/there.gguf")  # a path: whoever opens it says that it is missing
    here = put(tmp_path / "bare")
    assert resolve(here) == here


def test_names_that_fit_nothing_or_too_much() -> None:
    with pytest.raises(ModelFileError, match=r"no model nonsense.*lab-draft-f16, lab-target-f16"):
        resolve("nonsense")
    put(folder_of("downloaded") / "a" / "b" / "same.gguf")
    put(folder_of("downloaded") / "c" / "d" / "same.gguf")
    with pytest.raises(ModelFileError, match="several models"):
        resolve("same")
    assert resolve("c/d/same").parent.name == "d"


def test_an_unfinished_file_has_no_name() -> None:
    put(folder_of("inflated") / ".x.gguf.abc.partial")
    with pytest.raises(ModelFileError, match="no model"):
        resolve(".x.gguf.abc")
