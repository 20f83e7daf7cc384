"""What newcomers read: its commands exist, with their options; links lead somewhere; words name real metrics."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import pytest
import typer

from stackscope.cli import app
from stackscope.options import OPTIONS, field_types

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent.parent
DOCUMENTS: Final = sorted([ROOT / "README.md", ROOT / "screenshots" / "README.md", *(ROOT / "docs").glob("*.md")])
WORDS: Final = ROOT / "docs" / "words.md"

TERMS: Final = (
    "target", "slot", "step", "forward", "prefill", "decode", "draft", "bonus token", "acceptance", "coverage", "a",
    "wasted rows", "block", "hit", "useful hit", "ttft", "tpot", "step gap", "goodput", "ledger", "ceiling",
    "idle compute", "verdict", "shadow", "prediction",
)  # fmt: skip
"""Words of the screen and of the summary that a newcomer may not know."""


def commands_in(text: str) -> Iterator[str]:
    """The command lines of a document: lines of its blocks of code, and what stands in backticks."""
    joined = text.replace("\\\n", " ")
    yield from re.findall(r"^(?: {4}|)((?:[A-Z_]+=\S+ )*stackscope(?: .*)?)$", joined, re.MULTILINE)
    yield from (" ".join(found.split()) for found in re.findall(r"`(stackscope\s[^`]+)`", joined))


def parts_of(command: str) -> list[str]:
    """Its words, without variables set before it, comments, and what a shell would do with its output."""
    words = shlex.split(command.partition(" | ")[0], comments=True)
    return words[words.index("stackscope") + 1 :]


def choices_of(flag: str) -> Any:
    """The texts that an option of a run takes, if it takes no others."""
    targets = next((option.targets for option in OPTIONS if flag == option.flags), ("",))
    kind = field_types().get(targets[0])
    return kind if get_origin(kind) is Literal else None


def problem_of(words: list[str]) -> str | None:
    """What the command line would not take of it. `None`: nothing."""
    command: Any = typer.main.get_command(app)
    while words and not words[0].startswith("-") and hasattr(command, "commands"):
        if words[0] not in command.commands:
            return f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    options = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for place, word in enumerate(words):
        if not re.match(r"--?[a-zA-Z]", word) or word in ("-h", "--help"):
            continue
        if word not in options:
            return f"{word} is no option of {command.name}"
        choices = get_args(choices_of(word))
        if choices and words[place + 1] not in choices:
            return f"{word} cannot be {words[place + 1]}"
    return None


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if path.stem != "architecture"], ids=lambda path: path.name
)
def test_every_command_can_be_typed(path: Path) -> None:
    found = {command: problem_of(parts_of(command)) for command in commands_in(path.read_text(encoding="utf-8"))}
    assert {command: problem for command, problem in found.items() if problem is not None} == {}


def test_commands_are_found_and_judged() -> None:
    text = "    X=1 stackscope run --slots 4   # four\n\n`stackscope\nnone`, `stackscope live --nope`\n"
    assert [problem_of(parts_of(command)) for command in commands_in(text)] == [
        None,
        "there is no command none",
        "--nope is no option of live",
    ]
    assert len(list(commands_in((ROOT / "README.md").read_text(encoding="utf-8")))) > 20
    assert problem_of(["run", "--speculation", "magic"]) == "--speculation cannot be magic"


def anchors_of(path: Path) -> set[str]:
    """The fragments that headings of a document answer to, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", path.read_text(encoding="utf-8"))
    for file, fragment in links:
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), file
        assert not fragment or fragment in anchors_of(target), (file, fragment)


def test_words_are_explained_and_name_metrics_that_there_are() -> None:
    text = WORDS.read_text(encoding="utf-8")
    metrics = set(
        re.findall(r"^### `(\w+)`$", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = re.findall(r"\(`(\w+)`\)", text)
    assert len(named) > 15
    assert set(named) <= metrics
    explained = {word.lower() for word in re.findall(r"\*\*([^*]+)\*\*", text)}
    assert set(TERMS) <= explained
