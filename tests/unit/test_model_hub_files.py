"""Which file of the Hub a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.errors import UsageError
from stackscope.model.hub_files import HubFile, parse, place_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b/c.gguf", HubFile("a/b", "c.gguf", "main")),
        ("a/b/sub/c d (1).GGUF", HubFile("a/b", "sub/c d (1).GGUF", "main")),
        ("https://huggingface.co/a/b/resolve/main/c.gguf?download=true", HubFile("a/b", "c.gguf", "main")),
        ("https://hub.example/a/b/blob/v1.0/sub/c%20d.gguf", HubFile("a/b", "sub/c d.gguf", "v1.0")),
        ("a/b/c-00001-of-00001.gguf", HubFile("a/b", "c-00001-of-00001.gguf", "main")),
    ],
)
def test_names(name: str, expected: HubFile) -> None:
    assert parse(name) == expected


def test_a_revision_given_wins() -> None:
    assert parse("a/b/c.gguf", revision="dev").revision == "dev"
    assert parse("https://h/a/b/resolve/main/c.gguf", revision="dev").revision == "dev"


@pytest.mark.parametrize(
    "name",
    [
        "", "c.gguf", "a/b", "a/b/", "/a/b/c.gguf", "a//b/c.gguf", "a/b/../c.gguf", "a/b/./c.gguf", "a/b\\c/d.gguf",
        "a/b/c\0.gguf", "https://huggingface.co/a/b", "https://", "a/b/C:/d.gguf",
    ],
)  # fmt: skip
def test_what_names_no_file(name: str) -> None:
    with pytest.raises(UsageError, match="OWNER/REPO/FILE"):
        parse(name)


def test_files_that_are_no_whole_model() -> None:
    with pytest.raises(UsageError, match=r"not a \.gguf file"):
        parse("a/b/config.json")
    with pytest.raises(UsageError, match="one of 3 parts"):
        parse("a/b/c-00002-of-00003.gguf")


def test_the_place_is_under_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path))
    assert place_of(parse("a/b/sub/c.gguf")) == tmp_path / "downloaded" / "a" / "b" / "sub" / "c.gguf"
