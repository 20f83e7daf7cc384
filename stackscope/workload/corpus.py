"""The text that ships with the package: Python modules, documents with questions, conversations."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Final

import msgspec

CORPUS_VERSION: Final = 1
"""Part of what a seed means; stands in the session header."""

_BOUNDARY = re.compile(r"^(?:class|def|@)", re.MULTILINE)
_LICENCE = "LICENSE.txt"


class Document(msgspec.Struct, frozen=True):
    title: str
    text: str
    questions: tuple[str, ...]


class Topic(msgspec.Struct, frozen=True):
    turns: tuple[str, ...]


class Chats(msgspec.Struct, frozen=True):
    system: str
    names: tuple[str, ...]
    places: tuple[str, ...]
    follow_ups: tuple[str, ...]
    """Messages that continue any conversation."""
    topic: tuple[Topic, ...]


class _Documents(msgspec.Struct, frozen=True):
    document: tuple[Document, ...]


@cache
def modules() -> tuple[str, ...]:
    """Python sources, ordered by name."""
    folder = resources.files(__package__) / "data" / "code"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".txt") and entry.name != _LICENCE)
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def documents() -> tuple[Document, ...]:
    return msgspec.convert(_load("documents.toml"), _Documents).document


@cache
def chats() -> Chats:
    return msgspec.convert(_load("chats.toml"), Chats)


@cache
def words() -> tuple[str, ...]:
    """Distinct short words, sorted: what a prompt that shares nothing can begin with."""
    found = {word for document in documents() for word in re.findall(r"\b[a-z]{3,5}\b", document.text)}
    return tuple(sorted(found))


@cache
def boundaries(module: int) -> tuple[int, ...]:
    """Character positions in a module at which a class or a function begins, the module's own beginning first."""
    return (0, *(match.start() for match in _BOUNDARY.finditer(modules()[module]) if match.start() > 0))


def code_file(number: int, n_chars: int, order: tuple[int, ...]) -> str:
    """A Python source of at least `n_chars` characters; files of different numbers differ from early on.

    The first files are the modules in the given order, the next ones begin at later definitions of them. A file that is
    too short goes on with the modules after it, and over again.
    """
    lap, place = divmod(number, len(order))
    module = order[place]
    starts = boundaries(module)
    start = starts[lap % len(starts)]
    # Where a module has fewer definitions than there are laps, a heading keeps the files apart.
    heading = f"# part {lap // len(starts)}\n" if lap >= len(starts) else ""
    parts = [heading, modules()[module][start:]]
    total = len(heading) + len(parts[1])
    while total < n_chars:
        place = (place + 1) % len(order)
        parts.append("\n\n" + modules()[order[place]])
        total += len(parts[-1])
    return "".join(parts)


def code_passage(module: int, place: float, n_chars: int) -> str:
    """`n_chars` characters of source, from the beginning of the line `place` (0 to 1) of the way into a module."""
    texts = modules()
    text = texts[module]
    start = text.rfind("\n", 0, int(place * len(text))) + 1
    passage = text[start : start + n_chars]
    while len(passage) < n_chars:
        module = (module + 1) % len(texts)
        passage += texts[module][: n_chars - len(passage)]
    return passage


def document_text(number: int, n_chars: int) -> tuple[str, Document]:
    """A document of at least `n_chars` characters under a title of its own, and the document that it begins with."""
    library = documents()
    first = library[number % len(library)]
    edition = number // len(library)
    title = first.title if edition == 0 else f"{first.title} (edition {edition + 1})"
    parts = [f"{title}\n\n{first.text.strip()}\n"]
    total = len(parts[0])
    place = number
    while total < n_chars:
        place += 1
        other = library[place % len(library)]
        parts.append(f"\nAppendix {len(parts)}. {other.title}\n\n{other.text.strip()}\n")
        total += len(parts[-1])
    return "".join(parts), first


def _load(name: str) -> object:
    return tomllib.loads((resources.files(__package__) / "data" / name).read_text(encoding="utf-8"))
