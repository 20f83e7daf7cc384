"""Characters that nobody sees: gone from everything that is shown, and as escapes in JSON."""

from __future__ import annotations

import json
import unicodedata
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from stackscope.characters import harmless, harmless_json
from stackscope.records import Mark
from stackscope.report import output
from stackscope.report.page.markdown import plain
from stackscope.report.page.svg import escaped
from tests.unit.test_export_perfetto import events_of

TURNED: Final = "model\u202egpj.fug\u202c"
"""Shown as it is, it ends in `guf.jpg`."""


@pytest.mark.parametrize(
    "character",
    [
        "\x00",
        "\x1b",
        "\x9b",
        "\u061c",
        "\u200b",
        "\u200e",
        "\u202a",
        "\u202e",
        "\u2066",
        "\u2069",
        "\ufeff",
        "\U000e0041",
        "\ud800",
        "\u2028",
    ],
)
def test_what_is_not_seen_is_replaced(character: str) -> None:
    assert harmless(f"a{character}b") == "a\ufffdb"


@pytest.mark.parametrize(
    "text", ["über 5 µs", "שלום", "e\u0301", "\U0001f469\u200d\U0001f4bb", "می\u200cخواهم", "a\N{NO-BREAK SPACE}b"]
)
def test_what_is_seen_or_joins_what_is_seen_stays(text: str) -> None:
    assert harmless(text) == text


@given(st.text())
def test_nothing_turns_directions_and_the_length_stays(text: str) -> None:
    found = harmless(text)
    assert len(found) == len(text)
    assert harmless(found) == found
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not any(unicodedata.bidirectional(one) in turning for one in found)
    assert not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in found)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_says_the_same(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    shown = harmless_json(text)
    assert json.loads(shown) == value
    assert harmless(shown, keep="\n") == shown


def test_all_that_shows_a_text_takes_it_through_there(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(lambda _: Text(TURNED))
    output.write_json({"name": TURNED})
    written = capsys.readouterr().out
    (event,) = [e for e in events_of(Mark(at_ns=1, label=TURNED)) if e["ph"] == "i"]
    for shown in (written, plain(TURNED), escaped(TURNED), event["name"]):
        assert "\u202e" not in shown
        assert "\u202c" not in shown
    assert json.loads(written.splitlines()[1]) == {"name": TURNED}
