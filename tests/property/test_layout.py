"""The layout at every size: nothing overlaps, nothing sticks out, nothing is left free, and every pane has a page."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stackscope.tui.layout import LEAST_HEIGHT, LEAST_WIDTH, PANES, Layout, arranged

WIDTHS = st.integers(LEAST_WIDTH, 400)
HEIGHTS = st.integers(LEAST_HEIGHT, 150)


def all_pages(width: int, height: int, *, has_transport: bool) -> list[Layout]:
    first = arranged(width, height, has_transport=has_transport)
    return [arranged(width, height, page=n, has_transport=has_transport) for n in range(len(first.pages))]


@given(WIDTHS, HEIGHTS, st.booleans())
def test_every_cell_belongs_to_exactly_one(width: int, height: int, has_transport: bool) -> None:
    for layout in all_pages(width, height, has_transport=has_transport):
        for region in layout.regions.values():
            assert region.width > 0
            assert region.height > 0
        cells = Counter(
            (region.x + column, region.y + row)
            for region in layout.regions.values()
            for column in (0, region.width // 2, region.width - 1)
            for row in {0, region.height // 2, region.height - 1}
        )
        assert all(0 <= x < width and 0 <= y < height for x, y in cells)
        assert sum(region.width * region.height for region in layout.regions.values()) == width * height
        for name, one in layout.regions.items():
            for other_name, other in layout.regions.items():
                if name < other_name:
                    is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
                    is_above = one.y + one.height <= other.y or other.y + other.height <= one.y
                    assert is_beside or is_above, (name, other_name)


@given(WIDTHS, HEIGHTS, st.booleans())
def test_every_pane_is_on_exactly_one_page_and_shown_there(width: int, height: int, has_transport: bool) -> None:
    layouts = all_pages(width, height, has_transport=has_transport)
    # A recording has no text as it grew: the pane would only say so.
    expected = set(PANES) - ({"text"} if has_transport else set())
    assert sorted(pane for page in layouts[0].pages for pane in page) == sorted(expected)
    for n, layout in enumerate(layouts):
        assert layout.page == n
        assert [name for name in layout.regions if name in PANES] == list(layout.pages[n])
        assert all(layout.page_of(pane) == n for pane in layout.pages[n])
        assert {"header", "verdict", "toggles", "footer"} <= layout.regions.keys()
        assert ("transport" in layout.regions) is has_transport
        assert ("tabs" in layout.regions) is (len(layouts) > 1)
        assert ("event" in layout.regions) is ("events" not in layout.regions)


@given(WIDTHS, HEIGHTS, st.booleans())
def test_the_first_page_begins_with_the_step(width: int, height: int, has_transport: bool) -> None:
    first = all_pages(width, height, has_transport=has_transport)[0]
    assert first.regions["anatomy"].y == first.regions["verdict"].height + first.regions["toggles"].height + 1 + (
        1 if "tabs" in first.regions else 0
    )


@given(WIDTHS, HEIGHTS, st.integers(-5, 50))
def test_any_page_asked_for_is_one_that_there_is(width: int, height: int, page: int) -> None:
    layout = arranged(width, height, page=page)
    assert 0 <= layout.page < len(layout.pages)


@given(st.integers(0, 400), st.integers(0, 150))
def test_too_small_is_said_and_nothing_is_placed(width: int, height: int) -> None:
    layout = arranged(width, height)
    assert layout.is_too_small is (width < LEAST_WIDTH or height < LEAST_HEIGHT)
    assert layout.page_of("anatomy") == 0
