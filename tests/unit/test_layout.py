"""What is where at the sizes that people have."""

from __future__ import annotations

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
