"""No file content, however cut or damaged, gets more than a sentence out of the reader; and what is whole is read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stackscope.errors import ModelFileError
from stackscope.model.catalog import bundled_draft
from stackscope.model.header import ArrayInFile, read_header
from stackscope.model.spec import load_spec
from stackscope.model.suitability import require_text_model
from tests.unit.gguf_builder import Tensor, Value, gguf_bytes
from tests.unit.tiny_models import TINY

UNHURRIED: Final = settings(deadline=None)
"""A busy machine may take its time over a file."""

SMALL: Final = {name: gguf_bytes(*make()) for name, make in TINY.items()}
DRAFT: Final = bundled_draft().read_bytes()
HEADER_BYTES: Final = read_header(bundled_draft()).data_offset

SCRATCH: Final = tempfile.TemporaryDirectory(prefix="stackscope-header-")
"""One folder for all examples; the interpreter removes it."""


def written(content: bytes) -> Path:
    path = Path(SCRATCH.name) / f"model-{os.getpid()}.gguf"
    path.write_bytes(content)
    return path


def verdict(content: bytes) -> str | None:
    """The sentence about a file, or None when it is a whole model. Anything but a sentence is a failure."""
    found: ModelFileError | None = None
    try:
        require_text_model(read_header(written(content)))
    except ModelFileError as error:
        found = error
    if found is None:
        return None
    assert "\n" not in str(found)
    assert found.message.endswith(".")
    return found.message


@UNHURRIED
@given(st.integers(0, HEADER_BYTES))
def test_a_cut_inside_the_header_is_refused(length: int) -> None:
    assert verdict(DRAFT[:length]) is not None


@UNHURRIED
@given(st.integers(HEADER_BYTES, len(DRAFT) - 1))
def test_a_cut_inside_the_tensors_is_refused(length: int) -> None:
    """The draft's last tensor fills its place: not one byte may be missing."""
    assert "cut short" in str(verdict(DRAFT[:length]))


@UNHURRIED
@given(st.sampled_from(sorted(SMALL)), st.data())
def test_a_cut_anywhere_in_any_kind_of_model_is_refused(name: str, data: st.DataObject) -> None:
    whole = SMALL[name]
    assert verdict(whole) is None
    assert verdict(whole[: data.draw(st.integers(0, len(whole) - 1))]) is not None


@UNHURRIED
@given(st.integers(0, HEADER_BYTES - 1), st.binary(min_size=1, max_size=16))
def test_damage_in_the_header_is_a_sentence_or_harmless(position: int, damage: bytes) -> None:
    verdict(DRAFT[:position] + damage + DRAFT[position + len(damage) :])


@UNHURRIED
@given(
    st.integers(8, HEADER_BYTES - 8),
    st.sampled_from([0, 1, 255, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
)
def test_absurd_numbers_in_the_header_are_a_sentence_or_harmless(position: int, number: int) -> None:
    verdict(DRAFT[:position] + number.to_bytes(8, "little") + DRAFT[position + 8 :])


@UNHURRIED
@given(st.binary(max_size=200))
def test_noise_is_refused(content: bytes) -> None:
    assert verdict(content) is not None


@UNHURRIED
@given(st.binary(max_size=200))
def test_noise_behind_a_magic_is_refused(content: bytes) -> None:
    assert verdict(b"GGUF\x03\0\0\0" + content) is not None


NAMES: Final = st.text(min_size=1, max_size=20)
NUMBERS: Final = st.integers(-(1 << 31), (1 << 32) - 1)
SCALARS: Final = st.booleans() | NUMBERS | st.text(max_size=50) | st.floats(width=32, allow_nan=False)
ARRAYS: Final = (
    st.lists(st.text(max_size=9), max_size=9)
    | st.lists(st.booleans(), max_size=9)
    | st.lists(st.integers(0, 99), max_size=9)
)
SHAPES: Final = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)


@UNHURRIED
@given(
    st.dictionaries(NAMES.filter(lambda name: name != "general.alignment"), SCALARS | ARRAYS, max_size=8),
    st.dictionaries(st.text(min_size=1, max_size=15), SHAPES, max_size=5),
)
def test_whatever_is_written_is_read(metadata: dict[str, Value], shapes: dict[str, tuple[int, ...]]) -> None:
    tensors = [Tensor(name, shape) for name, shape in shapes.items()]
    content = gguf_bytes(metadata, tensors)
    header = read_header(written(content))
    assert list(header.metadata) == list(metadata)
    for key, value in metadata.items():
        found = header.metadata[key]
        if isinstance(value, list):
            assert isinstance(found, ArrayInFile)
            assert found.n_elements == len(value)
        else:
            assert found == value
    assert [(t.name, t.shape, t.bytes) for t in header.tensors] == [(t.name, t.shape, t.bytes) for t in tensors]
    assert b"".join(content[pair.start : pair.end] for pair in header.pairs) in content


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(SMALL)), st.data())
def test_damage_that_python_lets_pass_is_a_sentence_of_the_library_s_or_harmless(
    name: str, data: st.DataObject
) -> None:
    """The whole way, through the library's own reader in its process and the geometry."""
    whole = SMALL[name]
    position = data.draw(st.integers(24, 4000))
    damage = data.draw(st.binary(min_size=1, max_size=8))
    path = written(whole[:position] + damage + whole[position + len(damage) :])
    with contextlib.suppress(ModelFileError):
        load_spec(path)
