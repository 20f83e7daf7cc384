"""The summary of a run, as it looks: against stored texts, and by the rules that hold for every one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rich.text import Text

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.report.layout import SUBSTITUTES, aligned, bar, columns, encodable, hang, row
from stackscope.report.text import summary
from tests.unit.report_sessions import SESSIONS, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = Path(__file__).parent.parent / "golden"
UPDATE: Final = "UPDATE_GOLDEN"
"""Environment variable that has the stored texts written anew, to be read before they are committed."""


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", sorted(SESSIONS))
def test_it_looks_as_stored(name: str, width: int) -> None:
    shown = summary(SESSIONS[name](), min(width, 100)).plain + "\n"
    path = GOLDEN / f"summary-{name}-{width}.txt"
    if os.environ.get(UPDATE):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def lines_of(name: str, width: int) -> Iterator[str]:
    return iter(summary(SESSIONS[name](), width).plain.split("\n"))


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("name", sorted(SESSIONS))
def test_lines_keep_to_the_width_without_trailing_spaces(name: str, width: int) -> None:
    for line in lines_of(name, width):
        assert line == line.rstrip()
        is_path = line.startswith("recording")  # One word: to be copied, not to be broken.
        assert len(line) <= width or is_path, line


@pytest.mark.parametrize("name", sorted(SESSIONS))
def test_no_width_breaks_a_word_or_a_number_from_its_unit(name: str) -> None:
    report = SESSIONS[name]()
    words = set(summary(report, 1_000).plain.replace("·", " ").split())
    for width in range(24, 100, 7):
        narrow = summary(report, width).plain.replace("·", " ")
        for word in narrow.split():
            assert word in words or set(word) <= set("█▏▎▍▌▋▊▉"), word
        assert not any(line.lstrip().startswith(("% ", "ms ", "MB ")) for line in narrow.split("\n"))
        assert "%" not in {line.strip() for line in narrow.split("\n")}


def test_numbers_and_their_words_agree() -> None:
    shown = summary(SESSIONS["interrupted"](), 80).plain
    assert "1 reached its limit · 2 were cancelled" in shown
    assert "1 step cut short" in shown
    assert "interrupted after 459 ms · 51 steps" in shown  # 51 steps of 9 ms


def test_requests_within_their_limits_are_told_where_limits_are_set() -> None:
    ttft, both = ServiceLimits(ttft_ns=90_000_000 + 11_500), ServiceLimits(ttft_ns=10**9, tpot_ns=9_000_000)
    assert "\nin time       50 % within a TTFT of 90.0 ms · 3.33 req/s\n" in summary(whole(ttft), 80).plain
    assert (
        "\nin time       100 % within a TTFT of 1 s and a TPOT of 9 ms · 6.67 req/s\n" in summary(whole(both), 80).plain
    )
    assert "in time" not in summary(whole(), 80).plain


def test_colour_is_never_the_only_sign() -> None:
    """What is coloured says in words what the colour says: without it the text is the same."""
    text = summary(SESSIONS["rebuilt"](), 80)
    coloured = {str(span.style): text.plain[span.start : span.end] for span in text.spans if span.style}
    assert coloured.keys() == {"bold", "dim", "cyan", "yellow"}
    notes = [line for line in text.plain.split("\n") if line.startswith("note ")]
    assert notes[-1] == "note          MTP is refused: this engine has none."


# The pieces


def test_phrases_are_kept_whole_while_a_line_holds_them() -> None:
    made = row("label", ["one two", "three", "four five six"], 30).plain
    assert made == "label         one two · three\n              four five six"


def test_a_phrase_longer_than_the_line_breaks_between_words_only() -> None:
    made = hang(Text("> "), ["It took 12.5 s longer than ever"], 14).plain
    assert made == "> It took\n  12.5 s\n  longer than\n  ever"
    assert hang(Text(), ["/a/path/without/end"], 8).plain == "/a/path/without/end"


def test_styles_stay_with_their_words() -> None:
    made = row("a", [Text("strong", style="red"), "weak"], 80)
    assert [(made.plain[s.start : s.end].strip(), s.style) for s in made.spans if s.style] == [
        ("a", "bold"), ("strong", "red"),
    ]  # fmt: skip


def test_columns_line_up() -> None:
    assert columns(["x", "long"], [["alpha", "1"], ["b", "22"]]) == ["x      long", "alpha     1", "b        22"]


def test_figures_line_up_by_number_and_unit() -> None:
    assert aligned(["85.8 ms", "1.27 s", "1.66 s*", "-", "2 min 05 s"]) == [
        "85.8 ms", "1.27 s ", "1.66 s*", "-   ", "2 min 05 s",
    ]  # fmt: skip
    assert aligned(["24", "1,414"]) == ["24", "1,414"]


@pytest.mark.parametrize(
    ("share", "width", "expected"),
    [(0.0, 4, ""), (1.0, 4, "████"), (0.5, 4, "██"), (1e-9, 4, "▏"), (0.28125, 4, "█▏"), (1.7, 2, "██"), (-1.0, 2, "")],
)
def test_bars_count_in_eighths(share: float, width: int, expected: str) -> None:
    assert bar(share, width) == expected  # 0.28125 × 4 × 8 = 9 eighths


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "latin-1", "utf-8"])
def test_characters_that_an_encoding_lacks_are_replaced(encoding: str) -> None:
    for name in SESSIONS:
        text = summary(SESSIONS[name](), 80).plain
        assert "?" not in encodable(text, encoding).encode(encoding, "replace").decode(encoding)
    assert encodable("".join(SUBSTITUTES), "utf-8") == "".join(SUBSTITUTES)


# Standard output

PRINT = (
    "from functools import partial\n"
    "from stackscope.report import output\n"
    "from stackscope.report.text import summary\n"
    "from tests.unit.report_sessions import SESSIONS\n"
    "output.show(partial(summary, SESSIONS['whole']()))\n"
)


def printed(**environment: str) -> bytes:
    inherited = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"}}
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env={**inherited, **environment}, capture_output=True, check=True, timeout=60
    )
    assert done.stderr == b""
    return done.stdout


def test_piped_it_is_plain_text_for_80_columns() -> None:
    expected = (GOLDEN / "summary-whole-80.txt").read_text(encoding="utf-8")
    assert printed(COLUMNS="80", PYTHONIOENCODING="utf-8").decode() == expected
    ascii_only = printed(COLUMNS="80", PYTHONIOENCODING="ascii")
    assert ascii_only.decode("ascii") == encodable(expected, "ascii")


def test_colour_is_the_terminal_s_and_the_user_s_to_refuse() -> None:
    coloured = printed(FORCE_COLOR="1", TERM="xterm", COLUMNS="80")
    assert b"\x1b[36m" in coloured
    refused = printed(FORCE_COLOR="1", NO_COLOR="1", TERM="xterm", COLUMNS="80")
    assert b"\x1b[36m" not in refused
    assert b"\x1b[1m" in refused  # bold is no colour
