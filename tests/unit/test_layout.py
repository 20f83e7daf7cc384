"""What is where at the sizes that people have."""

from __future__ import annotations

import pytest

from stackscope.tui.layout import PANES, SHORT_NAMES, Region, arranged


def test_a_small_terminal_shows_first_what_matters_most() -> None:
    layout = arranged(80, 24)
    assert layout.pages[0] == ("anatomy", "acceptance", "throughput")
    assert layout.regions["verdict"] == Region(0, 1, 80, 5)  # A sentence on two lines, and what to do.
    assert layout.regions["anatomy"] == Region(0, 9, 80, 6)
    assert layout.regions["event"] == Region(0, 22, 80, 1)
    assert ("requests", "text") in layout.pages


def test_a_recording_on_a_small_terminal_has_the_same_first_page() -> None:
    layout = arranged(80, 24, has_transport=True)
    assert layout.pages[0] == ("anatomy", "acceptance", "throughput")
    assert layout.regions["transport"] == Region(0, 22, 80, 1)
    assert layout.regions["verdict"] == Region(0, 1, 80, 5)  # As live: the line is one of toggles, which are not used.
    assert layout.regions["toggles"] == Region(0, 6, 80, 1)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("height", [*range(16, 22), 24])
def test_the_verdict_has_a_line_each_for_what_limits_what_it_is_not_and_what_would_help(
    width: int, height: int
) -> None:
    """In the least of terminals, too: none has room for a second row of panes instead."""
    layout = arranged(width, height)
    assert layout.regions["verdict"].height == 5
    pane = next(name for name in PANES if name in layout.regions)
    assert layout.regions[pane].height >= 6


def test_a_usual_terminal_shows_all_but_the_requests_at_once() -> None:
    layout = arranged(120, 40)
    assert [set(PANES) - set(layout.pages[0]), *layout.pages[1:]] == [{"requests", "text"}, ("requests", "text")]
    assert {layout.regions[name].y for name in ("acceptance", "prefix", "bandwidth")} == {18}
    assert "event" not in layout.regions
    assert layout.regions["toggles"].height == 2  # Where all of them fit.


def test_a_large_terminal_shows_everything() -> None:
    layout = arranged(200, 60)
    assert len(layout.pages) == 1
    assert "tabs" not in layout.regions


def test_every_pane_has_a_name_for_the_line_of_pages() -> None:
    assert SHORT_NAMES.keys() == set(PANES)
