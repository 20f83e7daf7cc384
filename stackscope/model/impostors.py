"""What a file is when it is not a GGUF model, told from its first bytes, so that the sentence can name the mistake."""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX_BYTES: Final = 512
"""How much of a file's beginning is looked at."""


class Impostor(NamedTuple):
    """A kind of file that ends up under the name of a model."""

    kind: str
    """Completes "X is ..."."""
    remedy: str


_FETCH_AGAIN: Final = "Download the file itself again, for example with: stackscope models get OWNER/REPO/FILE.gguf."
_OLD_FORMAT: Final = Impostor(
    "in a format that llama.cpp read before August 2023", "Get a GGUF version of the model, or convert it anew."
)
_NOT_MODEL_WEIGHTS: Final = "Convert the model with llama.cpp's convert_hf_to_gguf.py, or get a GGUF version of it."

_MAGICS: Final = (
    (
        b"version https://git-lfs",
        Impostor("a Git LFS pointer: the clone left the model itself out", "Run: git lfs pull."),
    ),
    (b"lmgg", _OLD_FORMAT),
    (b"ggml", _OLD_FORMAT),
    (b"fmgg", _OLD_FORMAT),
    (b"ggmf", _OLD_FORMAT),
    (b"tjgg", _OLD_FORMAT),
    (b"ggjt", _OLD_FORMAT),
    (b"algg", Impostor("a LoRA adapter in the format before GGUF", "Name the base model; adapters are not supported.")),
    (b"ggla", Impostor("a LoRA adapter in the format before GGUF", "Name the base model; adapters are not supported.")),
    (b"PK\x03\x04", Impostor("a zip archive (PyTorch checkpoints are zip archives too)", _NOT_MODEL_WEIGHTS)),
    (b"\x80\x02", Impostor("a Python pickle, perhaps an old PyTorch checkpoint", _NOT_MODEL_WEIGHTS)),
    (b"\x80\x04", Impostor("a Python pickle", _NOT_MODEL_WEIGHTS)),
    (b"\x1f\x8b", Impostor("compressed with gzip", "Unpack it with gunzip.")),
    (b"\x28\xb5\x2f\xfd", Impostor("compressed with zstd", "Unpack it with unzstd.")),
    (b"\xfd7zXZ", Impostor("compressed with xz", "Unpack it with unxz.")),
    (b"7z\xbc\xaf", Impostor("a 7-Zip archive", "Unpack it.")),
    (b"Rar!", Impostor("a RAR archive", "Unpack it.")),
    (b"\x89HDF", Impostor("an HDF5 file", _NOT_MODEL_WEIGHTS)),
)


def impostor(prefix: bytes) -> Impostor:
    """What a file that does not begin with "GGUF" is. `prefix` is its beginning, at most `PREFIX_BYTES` long."""
    if not prefix:
        return Impostor("empty", _FETCH_AGAIN)
    for magic, found in _MAGICS:
        if prefix.startswith(magic):
            return found
    text = prefix.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        return Impostor("a web page: the download was answered with a login or an error page", _FETCH_AGAIN)
    if prefix[8:9] == b"{" and int.from_bytes(prefix[:8], "little") < 1 << 32:
        return Impostor("a safetensors file", _NOT_MODEL_WEIGHTS)
    if text.startswith((b"{", b"[")):
        return Impostor("JSON text: perhaps the server's error message", _FETCH_AGAIN)
    if not any(prefix):
        return Impostor(
            "full of zero bytes at its beginning: the download reserved the space and stopped", _FETCH_AGAIN
        )
    if _is_text(prefix):
        return Impostor("a text file", _FETCH_AGAIN)
    return Impostor('not a GGUF file (it does not begin with "GGUF")', _FETCH_AGAIN)


def _is_text(prefix: bytes) -> bool:
    try:
        text = prefix.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(prefix) - 4:  # otherwise a character is only cut by the end of the prefix
            return False
        text = prefix[: error.start].decode("utf-8")
    return all(c.isprintable() or c.isspace() for c in text)
