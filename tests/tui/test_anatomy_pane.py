"""The step anatomy on few lines: which parts there are matters more than their milliseconds."""

from __future__ import annotations

from tests.tui.pane_words import words
from tests.tui.sessions import running


def test_on_two_lines_the_parts_stand_three_in_a_row() -> None:
    """In 80 columns and 24 rows: what would be summed up as others is told by name."""
    text = words("anatomy", running(), 76, 4)
    for part in ("P prefill 6.00 %", "D decode 38.0 %", "V verify 31.0 %", "d draft 14.2 %", "s sample 3.80 %"):
        assert part in text
    assert "others 7.00 %" in text
    more = words("anatomy", running(), 76, 7)
    assert "V verify" in more
    assert "4.84 ms" in more
