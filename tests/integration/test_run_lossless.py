"""Speculation through the command line: the same text as without, on the lab pair and on its inflated copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.model.inflate import inflate
from stackscope.records import RequestRecord
from stackscope.session.reader import SessionReader
from tests.integration.cli_support import run_json

pytestmark = pytest.mark.engine

REQUESTS: Final = 24
TRAFFIC: Final = ("--workload", "code", "--concurrency", "4", "--max-tokens", "24", "--requests", str(REQUESTS))


def outputs_of(document: dict[str, Any]) -> dict[int, str]:
    records = SessionReader(Path(document["recording"]))
    return {r.id: r.output or "" for r in records if isinstance(r, RequestRecord)}


def served(folder: Path, *options: str | Path) -> tuple[dict[str, Any], dict[int, str]]:
    """(figures, texts by request) of a run."""
    document = run_json(*TRAFFIC, *options, "--record", f"{folder}/", "--record-text")
    return document, outputs_of(document)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return served(tmp_path_factory.mktemp("plain"))[1]


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[int, str]]:
    return served(tmp_path_factory.mktemp("drafted"), "--speculation", "draft", "--draft-length", "4")


def n_different(a: dict[int, str], b: dict[int, str]) -> int:
    assert a.keys() == b.keys() == set(range(REQUESTS))
    return sum(a[number] != b[number] for number in a)


def test_look_up_leaves_greedy_text_alone(plain: dict[int, str], tmp_path: Path) -> None:
    figures, texts = served(tmp_path, "--speculation", "ngram", "--draft-length", "5")
    assert figures["tokens_per_forward"] > 1.1
    assert n_different(plain, texts) <= 1  # A near tie may fall the other way in a batch of another size.


def test_a_draft_model_leaves_greedy_text_alone(
    plain: dict[int, str], drafted: tuple[dict[str, Any], dict[int, str]]
) -> None:
    figures, texts = drafted
    assert figures["tokens_per_forward"] > 1.5
    assert figures["draft_forwards"] > 0
    assert n_different(plain, texts) <= 1


def inflated_accepts_as_the_plain_one(
    path: Path, megabytes: int, drafted: tuple[dict[str, Any], dict[int, str]], folder: Path
) -> None:
    """The copy answers as the target does, so the draft is accepted as often; each token just costs more."""
    options = ("--model", path, "--draft", bundled_draft(), "--speculation", "draft", "--draft-length", "4")
    figures, texts = served(folder, *options)
    plain, expected = drafted
    assert n_different(expected, texts) <= 1
    assert figures["acceptance_rate"] == pytest.approx(plain["acceptance_rate"], abs=0.02)
    assert figures["tokens_per_forward"] == pytest.approx(plain["tokens_per_forward"], rel=0.03)
    grown = megabytes * 1e6 / bundled_target().stat().st_size
    target_bytes = figures["weight_bytes_per_token"] / plain["weight_bytes_per_token"]
    assert 0.5 * grown < target_bytes < grown  # The draft's share has not grown.


def test_a_target_of_200_mb_accepts_as_the_plain_one(
    lab_200_mb: Path, drafted: tuple[dict[str, Any], dict[int, str]], tmp_path: Path
) -> None:
    inflated_accepts_as_the_plain_one(lab_200_mb, 200, drafted, tmp_path)


@pytest.mark.slow
def test_a_target_of_1_gb_accepts_as_the_plain_one(
    drafted: tuple[dict[str, Any], dict[int, str]], tmp_path: Path
) -> None:
    path = inflate(bundled_target(), 1_000, output=tmp_path / "lab-1gb.gguf").path
    inflated_accepts_as_the_plain_one(path, 1_000, drafted, tmp_path)
    path.unlink()
