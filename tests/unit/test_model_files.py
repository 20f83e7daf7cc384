"""Files that are whole or not there, and names of types."""

from __future__ import annotations

import errno
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import ModelFileError, StackscopeError, UsageError
from stackscope.model.files import cannot_write, require_new, require_room, whole_file
from stackscope.model.ftypes import FILE_TYPES, NEED_IMPORTANCE_MATRIX, canonical, name_of, split_type

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """Files of this process and its children end at so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "new" / "m.gguf"
    with whole_file(output, needs=5) as temporary:
        temporary.write_bytes(b"whole")
        assert not output.exists()
    assert output.read_bytes() == b"whole"
    assert [path.name for path in output.parent.iterdir()] == ["m.gguf"]
    plain = tmp_path / "plain"
    plain.touch()
    assert output.stat().st_mode == plain.stat().st_mode  # not mkstemp's, which only its owner can read


@pytest.mark.parametrize("failure", [RuntimeError("no"), KeyboardInterrupt(), ModelFileError("no")])
def test_nothing_is_left_of_a_failure_and_an_earlier_file_stays(tmp_path: Path, failure: BaseException) -> None:
    output = tmp_path / "m.gguf"
    output.write_bytes(b"earlier")

    def write_half() -> None:
        with whole_file(output, needs=5) as temporary:
            temporary.write_bytes(b"half")
            raise failure

    with pytest.raises(type(failure)):
        write_half()
    assert output.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [output]


def test_parts_that_a_killed_writer_left_are_cleared_and_those_being_written_are_not(tmp_path: Path) -> None:
    output = tmp_path / "m.gguf"
    (tmp_path / ".m.gguf.killed.partial").write_bytes(b"half")
    (tmp_path / ".m2.gguf.other.partial").write_bytes(b"half")
    with whole_file(output, needs=5) as first, whole_file(output, needs=5) as second:
        assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name, ".m2.gguf.other.partial"}


def test_a_file_that_may_not_grow_is_one_sentence(tmp_path: Path) -> None:
    output = tmp_path / "m.gguf"
    with (
        pytest.raises(ModelFileError, match="beyond the limit for one file") as caught,
        largest_file(1000),
        whole_file(output, needs=9) as temporary,
    ):
        temporary.write_bytes(bytes(5000))
    assert "ulimit -f" in str(caught.value.remedy)
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_noticed_before_writing(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"needs 1\.00 EB"):
        require_room(tmp_path / "m.gguf", 10**18)
    with pytest.raises(ModelFileError, match="free"), whole_file(tmp_path / "m.gguf", needs=10**18):
        raise AssertionError("nothing may be written")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelFileError, match="cannot be written"), whole_file(tmp_path / "file" / "m.gguf", needs=1):
        raise AssertionError("nothing may be written")


def test_other_errors_keep_their_reason(tmp_path: Path) -> None:
    error = cannot_write(tmp_path / "m", OSError(errno.EROFS, "Read-only file system"), needs=1)
    assert "Read-only file system" in error.message


def test_outputs_that_are_in_the_way(tmp_path: Path) -> None:
    source, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    source.touch()
    require_new(other, source=source, replace=False)
    other.touch()
    require_new(other, source=source, replace=True)
    with pytest.raises(UsageError, match="there already"):
        require_new(other, source=source, replace=False)
    with pytest.raises(UsageError, match="the source itself"):
        require_new(source, source=source, replace=True)
    with pytest.raises(UsageError, match="is a folder"):
        require_new(tmp_path, source=source, replace=True)


@pytest.mark.parametrize(
    ("written", "canonical_name"),
    [
        ("Q4_K_M", "Q4_K_M"),
        ("q4_k_m", "Q4_K_M"),
        (" q8_0 ", "Q8_0"),
        ("Q4-K-M", "Q4_K_M"),
        ("q4_k", "Q4_K_M"),
        ("bf16", "BF16"),
    ],
)
def test_types_are_named_freely(written: str, canonical_name: str) -> None:
    assert canonical(written) == canonical_name


@pytest.mark.parametrize("name", sorted(NEED_IMPORTANCE_MATRIX))
def test_types_that_need_an_importance_matrix(name: str) -> None:
    with pytest.raises(UsageError, match="importance matrix"):
        canonical(name.lower())


def test_types_that_do_not_exist_or_cannot_be_made() -> None:
    with pytest.raises(UsageError, match=r"no type Q9_9.*Q4_K_M"):
        canonical("Q9_9")
    with pytest.raises(StackscopeError, match="converted"):
        canonical("NVFP4")


def test_numbers_of_types() -> None:
    assert name_of(15) == "Q4_K_M"
    assert name_of(1024) is None
    assert name_of(None) is None
    assert len(set(FILE_TYPES.values())) == len(FILE_TYPES)


@pytest.mark.parametrize(
    ("stem", "parts"),
    [
        ("lab-target-f16", ("lab-target", "-f16")),
        ("Model.Q4_K_M", ("Model", ".Q4_K_M")),
        ("model-IQ4_XS", ("model", "-IQ4_XS")),
        ("model", ("model", "")),
        ("f16", ("f16", "")),
    ],
)
def test_the_type_at_the_end_of_a_name(stem: str, parts: tuple[str, str]) -> None:
    assert split_type(stem) == parts


def test_a_limit_on_the_size_of_a_file_is_not_called_a_full_disk(tmp_path: Path) -> None:
    error = cannot_write(tmp_path / "m", OSError(errno.EFBIG, "File too large"), needs=30_000_000)
    assert "(30.0 MB) would grow beyond the limit for one file; nothing was kept. Raise the limit (ulimit -f)" in str(
        error
    )
    assert "room" not in str(error)
