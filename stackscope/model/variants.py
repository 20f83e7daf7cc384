"""Files with the weights of the same model: bundled ones, cached ones, and those beside it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, TypeAlias

from stackscope.errors import LibraryError, ModelFileError
from stackscope.model.catalog import catalogue
from stackscope.model.ftypes import name_of, split_type
from stackscope.model.header import ArrayInFile, Header, read_header
from stackscope.model.spec import load_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stackscope.records import ModelSummary

Shape: TypeAlias = tuple[str, int, tuple[tuple[str, object], ...], tuple[tuple[str, tuple[int, ...]], ...]]
"""Architecture, length of the vocabulary, hyperparameters, and the shape of every tensor of the layers."""


@dataclass(frozen=True)
class Variant:
    """A file with the weights of the same model."""

    path: str
    label: str
    """The type of its weights, or its name where that does not tell it apart."""
    bytes: int


MOST_SIBLINGS: Final = 64
"""Files beside the model that are looked at: a folder of thousands is an archive."""


def weights_label(path: str) -> str:
    """The type of weights that a file's name ends with, or else its name."""
    stem = PurePath(path).stem
    return split_type(stem)[1][1:].upper() or stem


def find_variants(model: Path | str, is_wanted: Callable[[], bool] = lambda: True) -> tuple[Variant, ...]:
    """Variants of a model, itself among them, the largest first. Reads headers: 0.1 s each with a large vocabulary.

    A file that cannot be read, or that is no model, is none. Empty when the model itself is not. `is_wanted` is asked
    before each file, and ends it.
    """
    own = Path(model)
    try:
        shape = _shape(read_header(own))
    except ModelFileError:
        return ()
    headers = []
    for path in _candidates(own):
        if not is_wanted():
            break
        try:
            header = read_header(path)
        except ModelFileError:
            continue
        if _shape(header) == shape:
            headers.append(header)
    return _labelled(headers, own)


def summaries(paths: Iterable[str]) -> dict[str, ModelSummary]:
    """What files consist of, by their paths; one that cannot be read is left out."""
    found = {}
    for path in paths:
        with suppress(ModelFileError, LibraryError):
            found[path] = load_spec(path).summary()
    return found


def _candidates(own: Path) -> Iterable[Path]:
    """Files worth a look, each once, the model under its own name."""
    known = [entry.path for entry in catalogue() if entry.kind != "unfinished"]
    try:
        beside = sorted(path for path in own.parent.iterdir() if path.suffix.lower() == ".gguf")[:MOST_SIBLINGS]
    except OSError:
        beside = []  # The model could be read, its folder cannot.
    found = {path.resolve(): path for path in (*known, *beside, own)}
    return found.values()


def _shape(header: Header) -> Shape:
    metadata = header.metadata
    architecture = str(metadata.get("general.architecture"))
    tokens = metadata.get("tokenizer.ggml.tokens")
    layers = {tensor.name: tensor.shape for tensor in header.tensors if tensor.name.startswith("blk.")}
    numbers = {
        key: value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.") and not isinstance(value, ArrayInFile)
    }
    n_tokens = tokens.n_elements if isinstance(tokens, ArrayInFile) else 0
    return (architecture, n_tokens, tuple(sorted(numbers.items())), tuple(sorted(layers.items())))


def _labelled(headers: Iterable[Header], own: Path) -> tuple[Variant, ...]:
    """As variants, by the type of their weights where that tells them apart, else by name."""
    found = []
    for header in headers:
        number = header.metadata.get("general.file_type")
        label = name_of(number if isinstance(number, int) else None) or weights_label(str(header.path))
        path = own if header.path.resolve() == own.resolve() else header.path
        found.append(Variant(path=str(path), label=label, bytes=header.file_bytes))
    found.sort(key=lambda variant: (-variant.bytes, variant.path))
    for name in (lambda path: path.stem, str):
        often = Counter(variant.label for variant in found)
        found = [v if often[v.label] == 1 else Variant(v.path, name(Path(v.path)), v.bytes) for v in found]
    return tuple(found)
