"""Files that are no intact GGUF file: a sentence and a remedy for each, before native code sees them."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest

from stackscope.errors import ModelFileError
from stackscope.model.catalog import bundled_draft
from stackscope.model.header import ArrayInFile, read_header
from stackscope.model.suitability import require_text_model
from tests.unit.gguf_builder import STRING, U32, U64, Tensor, Typed, Value, gguf_bytes, keys, text, write_gguf
from tests.unit.tiny_models import llama

if TYPE_CHECKING:
    from pathlib import Path

WEIGHT = Tensor("token_embd.weight", (4, 8))


class Refusal(NamedTuple):
    """What was said of a file, without its path, which pytest names after the test's parameters."""

    message: str
    remedy: str | None


def refusal(path: Path, content: bytes) -> Refusal:
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        require_text_model(read_header(path))
    message = caught.value.message
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert "\n" not in str(caught.value)
    return Refusal(message.removeprefix(str(path)), caught.value.remedy)


@pytest.mark.parametrize(
    ("content", "says", "remedy"),
    [
        (b"", "is empty", "Download"),
        (b"<html><body>Sign in", "web page", "Download"),
        (b"\xef\xbb\xbf \n<!DOCTYPE html>", "web page", "Download"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer", "git lfs pull"),
        (b"ggjt", "before August 2023", "GGUF version"),
        (b"tjgg\x03\0\0\0", "before August 2023", "GGUF version"),
        (b"lmgg" + bytes(64), "before August 2023", "GGUF version"),
        (b"fmgg" + bytes(64), "before August 2023", "GGUF version"),
        (b"algg" + bytes(64), "LoRA adapter", "base model"),
        (b"PK\x03\x04" + bytes(64), "zip archive", "Convert"),
        (b"\x80\x02" + bytes(64), "pickle", "Convert"),
        (struct.pack("<Q", 20) + b'{"__metadata__":{}}', "safetensors", "Convert"),
        (b'{"error":"Repository not found"}', "JSON", "Download"),
        (b"Not Found", "text file", "Download"),
        (b"\x1f\x8b\x08" + bytes(9), "gzip", "gunzip"),
        (bytes(4096), "zero bytes", "Download"),
        (b"\xde\xad\xbe\xef" * 9, "not a GGUF file", "Download"),
        (b"GG", "cut short", "Download"),
        (b"GGUF", "cut short", "Download"),
        (b"GGUF\x03\0\0\0\x01", "cut short", "Download"),
    ],
)
def test_what_is_not_gguf_says_what_it_is(tmp_path: Path, content: bytes, says: str, remedy: str) -> None:
    error = refusal(tmp_path / "model.gguf", content)
    assert says in error.message
    assert error.remedy is not None
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("version", "says"),
    [(0, "version 0"), (1, "version 1"), (4, "version 4"), (3 << 24, "big-endian"), (2 << 24, "big-endian")],
)
def test_versions_that_cannot_be_read(tmp_path: Path, version: int, says: str) -> None:
    assert says in refusal(tmp_path / "m.gguf", gguf_bytes(keys("llama"), [WEIGHT], version=version)).message


@pytest.mark.parametrize("version", [2, 3])
def test_versions_that_can(tmp_path: Path, version: int) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf", keys("llama"), [WEIGHT], version=version))
    assert header.version == version


def test_a_file_that_is_cut_names_the_tensor_and_the_share(tmp_path: Path) -> None:
    whole = bundled_draft().read_bytes()
    error = refusal(tmp_path / "m.gguf", whole[: len(whole) * 9 // 10])
    assert "1.77 MB of 1.96 MB" in error.message  # 0.9 × 1,964,896 bytes
    assert "(90.0 %)" in error.message
    assert "blk." in error.message


def test_a_cut_of_one_byte_shows(tmp_path: Path) -> None:
    """The last tensor takes 4 × 8 × 4 = 128 bytes and needs no padding."""
    whole = gguf_bytes(keys("llama"), [WEIGHT])
    assert "cut short" in refusal(tmp_path / "m.gguf", whole[:-1]).message
    assert read_header(write_gguf(tmp_path / "w.gguf", keys("llama"), [WEIGHT])).file_bytes == len(whole)


def test_only_the_padding_behind_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    whole = gguf_bytes(keys("llama"), [Tensor("a", (3,))])  # 12 bytes, padded to 32
    path.write_bytes(whole[:-20])
    assert read_header(path).tensors[0].bytes == 12
    assert "cut short" in refusal(path, whole[:-21]).message


def _kv(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def _file(pairs: list[bytes], tensors: list[bytes] | None = None, *, tail: bytes = bytes(1 << 16)) -> bytes:
    tensors = tensors or []
    return b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors) + tail


def _info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}qiQ", len(shape), *shape, kind, offset)


ARCHITECTURE = _kv("general.architecture", STRING, text("llama"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GGUF" + struct.pack("<Iqq", 3, -1, 0) + bytes(64), "-1 tensors"),
        (b"GGUF" + struct.pack("<Iqq", 3, 0, 1 << 40) + bytes(64), "metadata entries"),
        (b"GGUF" + struct.pack("<Iqq", 3, 1 << 62, 0) + bytes(64), "tensors"),
        (_file([_kv("", U32, bytes(4))]), "key is empty"),
        (_file([ARCHITECTURE, ARCHITECTURE]), "twice"),
        (_file([_kv("a", 13, bytes(4))]), "unknown type 13"),
        (_file([_kv("a", 9, struct.pack("<IQ", 9, 1))]), "unknown type 9"),
        (_file([_kv("a", 9, struct.pack("<IQ", STRING, 1 << 30))]), "claims a list"),
        (_file([_kv("a", 9, struct.pack("<IQ", STRING, 1000))], tail=bytes(7999)), "cut short"),
        (_file([_kv("a", 9, struct.pack("<IQ", U32, 1 << 62))]), "cut short"),
        (_file([_kv("a", STRING, struct.pack("<Q", 1 << 63))]), "cut short"),
        (_file([_kv("general.alignment", U32, struct.pack("<I", 48))]), "power of two"),
        (_file([_kv("general.alignment", U32, struct.pack("<I", 0))]), "power of two"),
        (_file([_kv("general.alignment", U64, struct.pack("<Q", 32))]), "power of two"),
        (_file([ARCHITECTURE], [_info("a", (1, 1, 1, 1, 1), 0, 0)]), "5 dimensions"),
        (_file([ARCHITECTURE], [_info("a", (-4,), 0, 0)]), "shape"),
        (_file([ARCHITECTURE], [_info("a", (1 << 40, 1 << 40), 0, 0)]), "shape"),
        (_file([ARCHITECTURE], [_info("a", (100,), 12, 0)]), "multiple of 256"),
        (_file([ARCHITECTURE], [_info("a", (4,), -7, 0)]), "impossible type"),
        (_file([ARCHITECTURE], [_info("a", (4,), 4, 0)]), "no longer reads"),
        (_file([ARCHITECTURE], [_info("a", (4,), 33, 0)]), "no longer reads"),
        (_file([ARCHITECTURE], [_info("a", (4,), 43, 0)]), "newer than"),
        (_file([ARCHITECTURE], [_info("a", (4,), 0, 0), _info("a", (4,), 0, 32)]), "twice"),
        (_file([ARCHITECTURE], [_info("a", (4,), 0, 0), _info("b", (4,), 0, 64)]), "lies at 64"),
        (_file([ARCHITECTURE], [_info("a", (4,), 0, 1 << 63)]), "lies at"),
        (_file([ARCHITECTURE], [_info("x" * 64, (4,), 0, 0)]), "text of 64 bytes"),
        (_file([ARCHITECTURE], [_info("a", (1 << 40,), 0, 0)]), "cut short"),
    ],
)
def test_damage(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refusal(tmp_path / "m.gguf", content).message


def test_an_absurd_list_of_texts_in_a_sparse_file_does_not_hang(tmp_path: Path) -> None:
    """2³² empty strings would take a quarter of an hour to walk."""
    path = tmp_path / "m.gguf"
    path.write_bytes(_file([_kv("a", 9, struct.pack("<IQ", STRING, 1 << 32))], tail=b""))
    os.truncate(path, 1 << 38)
    with pytest.raises(ModelFileError, match="claims a list"):
        read_header(path)


def test_parts_of_a_file_ask_to_be_joined(tmp_path: Path) -> None:
    whole = gguf_bytes(keys("llama"), [WEIGHT])
    first, second = tmp_path / "m.gguf.part1of2", tmp_path / "m.gguf-split-b"
    assert "one part" in refusal(first, whole[:-9]).message
    assert "m.gguf" in str(refusal(second, b"\x91" * 99).remedy)


def test_missing_folders_and_pipes(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="There is no file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        read_header(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):  # opening it would wait for ever
        read_header(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_header("a\0b")


def test_a_name_that_is_not_utf8_can_be_shown(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/m\xff.gguf"
    with pytest.raises(ModelFileError) as caught:
        read_header(os.fsdecode(path))
    caught.value.message.encode()


def test_a_name_that_would_break_the_line_is_replaced(tmp_path: Path) -> None:
    tensors = [Tensor("a\nb\x1b[2J", (4,)), Tensor("a\nb\x1b[2J", (4,))]
    path = tmp_path / "m.gguf"
    assert "\x1b" not in refusal(path, gguf_bytes(keys("llama"), tensors)).message
    assert "\x1b" not in refusal(path, gguf_bytes(keys("a\x1bb", pooling_type=1), [WEIGHT])).message


def test_values_of_every_type_are_read(tmp_path: Path) -> None:
    values: dict[str, Value] = {
        "u8": Typed(0, 200), "i8": Typed(1, -3), "u16": Typed(2, 60000), "i16": Typed(3, -300), "u32": 7, "i32": -7,
        "f32": 0.5, "bool": True, "text": "Grüße, 世界 🙂", "u64": Typed(10, 1 << 60), "i64": Typed(11, -1),
        "f64": Typed(12, 0.1),
    }  # fmt: skip
    metadata = read_header(write_gguf(tmp_path / "m.gguf", values)).metadata
    plain = {key: value.value if isinstance(value, Typed) else value for key, value in values.items()}
    assert metadata == plain


def test_bytes_of_quantised_tensors(tmp_path: Path) -> None:
    """64 × 3 weights: 6 blocks of 32 at q4_0 (18 bytes each); 512 weights: 2 blocks of 256 at q6_K (210 bytes each)."""
    tensors = [Tensor("a", (64, 3), "q4_0"), Tensor("b", (256, 2), "q6_K"), Tensor("c", (5,), "f16")]
    found = read_header(write_gguf(tmp_path / "m.gguf", keys("llama"), tensors)).tensors
    assert [(t.bytes, t.offset, t.elements) for t in found] == [(108, 0, 192), (420, 128, 512), (10, 128 + 448, 5)]


def test_arrays_stay_in_the_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"texts": ["ab", "", "c"], "numbers": [1, 2, 3], "none": []})
    texts, numbers, none = read_header(path).metadata.values()
    assert isinstance(texts, ArrayInFile)
    assert isinstance(numbers, ArrayInFile)
    assert isinstance(none, ArrayInFile)
    assert (texts.n_elements, texts.end - texts.start) == (3, 3 * 8 + 3)
    assert path.read_bytes()[numbers.start : numbers.end] == struct.pack("<III", 1, 2, 3)
    assert none.n_elements == 0


def test_the_alignment_of_the_file_is_used(tmp_path: Path) -> None:
    tensors = [Tensor("a", (3,)), Tensor("b", (3,))]
    path = write_gguf(tmp_path / "m.gguf", keys("llama") | {"general.alignment": 128}, tensors, alignment=128)
    header = read_header(path)
    assert header.data_offset % 128 == 0
    assert [t.offset for t in header.tensors] == [0, 128]


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (keys("clip"), "mmproj"),
        (keys("llama") | {"general.type": "mmproj"}, "mmproj"),
        (keys("llama") | {"general.type": "adapter"}, "LoRA adapter"),
        ({"general.type": "imatrix"}, "importance matrix"),
        (keys("bert"), "embedding model"),
        (keys("nomic-bert-moe"), "embedding model"),
        (keys("gemma-embedding"), "embedding model"),
        (keys("t5encoder"), "embedding model"),
        (keys("qwen3", pooling_type=3), "embedding model"),
        (keys("llama", attention__causal=False), "embedding model"),
        (keys("t5"), "encoder-decoder"),
        (keys("dream"), "diffusion language model"),
        (keys("eagle3"), "draft head"),
        (keys("wavtokenizer-dec"), "speech model"),
        (keys("flux"), "image or video model"),
        ({}, "what architecture it is"),
        ({"general.architecture": 7}, "what architecture it is"),
    ],
)
def test_other_kinds_of_gguf_files(tmp_path: Path, metadata: dict[str, Value], says: str) -> None:
    error = refusal(tmp_path / "m.gguf", gguf_bytes(metadata, [WEIGHT]))
    assert says in error.message
    assert error.remedy is not None


def test_a_vocabulary_alone_is_no_model(tmp_path: Path) -> None:
    assert "no weights" in refusal(tmp_path / "m.gguf", gguf_bytes(keys("llama"))).message


def test_causal_models_with_pooling_switched_off_are_fine(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", keys("qwen3", pooling_type=0, attention__causal=True), [WEIGHT])
    assert require_text_model(read_header(path)) == "qwen3"


@pytest.mark.parametrize(
    ("name", "count"), [("m.gguf", 3), ("m-00001-of-00003.gguf", None), ("m-00002-of-00003.gguf", 3)]
)
def test_split_models_ask_to_be_merged(tmp_path: Path, name: str, count: int | None) -> None:
    metadata: dict[str, Value] = keys("llama") if count is None else {"split.count": Typed(2, count)}
    error = refusal(tmp_path / name, gguf_bytes(metadata, [WEIGHT]))
    assert "one of 3 parts" in error.message
    assert "llama-gguf-split --merge" in str(error.remedy)


def test_a_split_into_one_part_is_whole(tmp_path: Path) -> None:
    metadata = keys("llama") | {"split.count": Typed(2, 1)}
    path = write_gguf(tmp_path / "m-00001-of-00001.gguf", metadata, [WEIGHT])
    assert require_text_model(read_header(path)) == "llama"


def test_a_tiny_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = llama()
    header = read_header(write_gguf(tmp_path / "m.gguf", made.metadata, made.tensors))
    assert [(t.name, t.shape, t.bytes) for t in header.tensors] == [(t.name, t.shape, t.bytes) for t in made.tensors]
