"""Whether two models speak the same tokens, compared in the files, before either is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeGuard

from stackscope import units
from stackscope.errors import ModelFileError
from stackscope.model import cursor as c
from stackscope.model.files import open_model, shown
from stackscope.model.header import ArrayInFile, Header, Value, read_header

if TYPE_CHECKING:
    from stackscope.model.spec import ModelSpec

_COMPARED_BYTES: Final = 1 << 20

_SPECIAL: Final = {
    "bos_token_id": "beginning-of-sequence token",
    "eos_token_id": "end-of-sequence token",
    "eot_token_id": "end-of-turn token",
}


def tokenizer_difference(target: Path | str | ModelSpec, draft: Path | str | ModelSpec) -> str | None:
    """Why a draft model's tokens do not mean the same to the target, as a sentence; `None` when they do.

    Compares the tokenizer's type, the number of tokens, the special ids that both files state, and every token's text,
    naming the first id that differs. Takes 0.2 s on two 262k vocabularies. Raises `ModelFileError` for a file that is
    not an intact GGUF file.
    """
    ours, theirs = (read_header(m if isinstance(m, str | Path) else m.path) for m in (target, draft))
    a, b = ours.metadata, theirs.metadata
    kinds = [metadata.get("tokenizer.ggml.model") for metadata in (a, b)]
    if kinds[0] != kinds[1]:
        return f"The target's tokenizer is of type {kinds[0]}, the draft's of type {kinds[1]}."
    lists = [metadata.get("tokenizer.ggml.tokens") for metadata in (a, b)]
    first, second = lists
    if not _is_texts(first):
        return "The target's file holds no vocabulary to compare."
    if not _is_texts(second):
        return "The draft's file holds no vocabulary to compare."
    if first.n_elements != second.n_elements:
        sizes = f"{units.count(first.n_elements)} tokens, the draft's {units.count(second.n_elements)}"
        return (
            f"The target's vocabulary has {sizes}; they differ from id {min(first.n_elements, second.n_elements)} on."
        )
    for key, name in _SPECIAL.items():
        ids = [metadata.get(f"tokenizer.ggml.{key}") for metadata in (a, b)]
        if None not in ids and ids[0] != ids[1]:
            return f"The {name} is {ids[0]} in the target and {ids[1]} in the draft."
    try:
        return _first_different_text(ours, first, theirs, second)
    except c.CutShortError:
        changed = f"{shown(ours.path)} or {shown(theirs.path)}"
        raise ModelFileError(f"{changed} changed while it was read.", remedy="Try again.") from None


def _is_texts(value: Value | None) -> TypeGuard[ArrayInFile]:
    return isinstance(value, ArrayInFile) and value.type == c.STRING


def _first_different_text(ours: Header, first: ArrayInFile, theirs: Header, second: ArrayInFile) -> str | None:
    with open_model(ours.path) as a, open_model(theirs.path) as b:
        if _same_bytes(a, first, b, second):
            return None
        left = c.Cursor(a, first.end, position=first.start)
        right = c.Cursor(b, second.end, position=second.start)
        for token in range(first.n_elements):
            texts = left.string(), right.string()
            if texts[0] != texts[1]:
                one, other = (text.decode("utf-8", "replace") for text in texts)
                return f"Token {token} is {one!r} in the target and {other!r} in the draft."
    return None


def _same_bytes(a: BinaryIO, first: ArrayInFile, b: BinaryIO, second: ArrayInFile) -> bool:
    """Whether both lists are stored as the same bytes: what equal vocabularies are, and much quicker to see."""
    remaining = first.end - first.start
    if remaining != second.end - second.start:
        return False
    a.seek(first.start)
    b.seek(second.start)
    while remaining > 0:
        n_bytes = min(remaining, _COMPARED_BYTES)
        if a.read(n_bytes) != b.read(n_bytes):
            return False
        remaining -= n_bytes
    return True
