"""Whether a draft's tokens mean the same to the target: the first difference is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.errors import ModelFileError
from stackscope.model.catalog import bundled_draft, bundled_target
from stackscope.model.spec import load_spec
from stackscope.model.tokens import tokenizer_difference
from tests.unit.gguf_builder import Tensor, Value, keys, write_gguf
from tests.unit.tiny_models import EXTRA_TOKENS, byte_alphabet, tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [*EXTRA_TOKENS, *byte_alphabet()]


def model(folder: Path, name: str, metadata: dict[str, Value]) -> Path:
    return write_gguf(folder / name, keys("llama") | metadata, [Tensor("token_embd.weight", (4, 4))])


def difference(folder: Path, target: dict[str, Value], draft: dict[str, Value]) -> str | None:
    return tokenizer_difference(model(folder, "target.gguf", target), str(model(folder, "draft.gguf", draft)))


def test_the_lab_pair_speaks_the_same() -> None:
    assert tokenizer_difference(bundled_target(), bundled_draft()) is None
    assert tokenizer_difference(load_spec(bundled_target()), load_spec(bundled_draft())) is None


def test_equal_vocabularies(tmp_path: Path) -> None:
    assert difference(tmp_path, tokenizer(), tokenizer()) is None


def test_one_changed_token_of_the_same_length(tmp_path: Path) -> None:
    assert len(TOKENS[202].encode()) == len("Ω".encode()) == 2
    changed = [*TOKENS[:202], "Ω", *TOKENS[203:]]
    found = difference(tmp_path, tokenizer(), tokenizer(changed))
    assert found == f"Token 202 is {TOKENS[202]!r} in the target and 'Ω' in the draft."


def test_two_swapped_tokens(tmp_path: Path) -> None:
    """The lists then differ in order only; the first id that differs is named."""
    swapped = list(TOKENS)
    swapped[40], swapped[200] = swapped[200], swapped[40]
    assert str(difference(tmp_path, tokenizer(), tokenizer(swapped))).startswith("Token 40 is ")


def test_two_hundred_tokens_more(tmp_path: Path) -> None:
    longer = [*TOKENS, *(f"more{i}" for i in range(200))]
    found = difference(tmp_path, tokenizer(longer), tokenizer())
    assert found == "The target's vocabulary has 458 tokens, the draft's 258; they differ from id 258 on."


def test_another_type(tmp_path: Path) -> None:
    found = difference(tmp_path, tokenizer(), tokenizer(model="llama"))
    assert found == "The target's tokenizer is of type gpt2, the draft's of type llama."


@pytest.mark.parametrize(
    ("key", "name"), [("bos_token_id", "beginning-of-sequence"), ("eos_token_id", "end-of-sequence")]
)
def test_other_special_ids(tmp_path: Path, key: str, name: str) -> None:
    found = difference(tmp_path, tokenizer(), tokenizer() | {f"tokenizer.ggml.{key}": 9})
    assert found is not None
    assert name in found
    assert "and 9 in the draft" in found


def test_an_id_that_only_one_file_states_is_no_difference(tmp_path: Path) -> None:
    """Files leave out what is the tokenizer's default."""
    assert difference(tmp_path, tokenizer(eot_token_id=5), tokenizer()) is None


def test_a_model_without_a_vocabulary(tmp_path: Path) -> None:
    bare: dict[str, Value] = {"tokenizer.ggml.model": "gpt2"}
    assert difference(tmp_path, tokenizer(), bare) == "The draft's file holds no vocabulary to compare."
    assert difference(tmp_path, bare, tokenizer()) == "The target's file holds no vocabulary to compare."
    numbers = tokenizer() | {"tokenizer.ggml.tokens": [1, 2, 3]}
    assert difference(tmp_path, tokenizer(), numbers) == "The draft's file holds no vocabulary to compare."


def test_a_vocabulary_of_megabytes_that_differs_at_its_end(tmp_path: Path) -> None:
    many = [f"token number {i:06d}" for i in range(120_000)]
    found = difference(tmp_path, tokenizer(many), tokenizer([*many[:-1], "token number x99999"]))
    assert str(found).startswith("Token 119999 is ")


def test_a_broken_draft_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "draft.gguf").write_bytes(b"<html>")
    with pytest.raises(ModelFileError, match="web page"):
        tokenizer_difference(bundled_target(), tmp_path / "draft.gguf")
