"""Themes: contrast that can be read, parts that the colour-blind can tell apart, and a style for every meaning."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.live import snapshot
from stackscope.tui import theme
from tests.tui.colours import DEFICIENCIES, distance, lab

if TYPE_CHECKING:
    from stackscope.tui.theme import Kind

OWN: Final[tuple[Kind, ...]] = ("dark", "light")
"""Those whose background is ours, so that contrast can be told."""


def colour_of(kind: Kind, name: str) -> str:
    found = theme.style(kind, name).color
    assert found is not None
    assert found.triplet is not None
    return found.triplet.hex


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("name", theme.TEXT_STYLES)
def test_text_can_be_read(kind: Kind, name: str) -> None:
    base, style = theme.BASES[kind], theme.style(kind, name)
    if style.bgcolor is not None:
        assert style.bgcolor.triplet is not None
        assert theme.contrast(colour_of(kind, name), style.bgcolor.triplet.hex) >= 4.5
        return
    for back in (base.background, base.surface):
        assert theme.contrast(colour_of(kind, name), back) >= 4.5


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("part", theme.PARTS)
def test_names_upon_parts_can_be_read(kind: Kind, part: str) -> None:
    style = theme.style(kind, f"part.{part}.label")
    assert style.bgcolor is not None
    assert style.bgcolor.triplet is not None
    assert style.bgcolor.triplet.hex == colour_of(kind, f"part.{part}")
    assert theme.contrast(colour_of(kind, f"part.{part}.label"), style.bgcolor.triplet.hex) >= 4.5


@pytest.mark.parametrize("kind", OWN)
def test_what_charts_are_made_of_can_be_seen(kind: Kind) -> None:
    back = theme.BASES[kind].background
    assert theme.contrast(colour_of(kind, "chart"), back) >= 4.5
    assert theme.contrast(colour_of(kind, "mark"), back) >= 3
    assert theme.contrast(colour_of(kind, "mark.inside"), colour_of(kind, "chart")) >= 1.7
    assert theme.contrast(colour_of(kind, "chart"), colour_of(kind, "spare")) >= 3
    assert theme.contrast(colour_of(kind, "chart"), colour_of(kind, "track")) >= 3
    for part in theme.PARTS:
        least = 1.4 if part == "idle" else 2.2  # what is idle recedes
        assert theme.contrast(colour_of(kind, f"part.{part}"), back) >= least, part


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("kind", OWN)
def test_parts_are_apart_for_everybody(kind: Kind, deficiency: str) -> None:
    """All of them by five times what is just noticed, and those that lie side by side by far more."""
    colours = {part: colour_of(kind, f"part.{part}") for part in theme.PARTS}
    all_pairs = {(a, b): distance(colours[a], colours[b], deficiency) for a, b in combinations(theme.PARTS, 2)}
    assert {pair: round(far) for pair, far in all_pairs.items() if far < 10} == {}
    beside = {(a, b): all_pairs[a, b] for a, b in pairwise(theme.PARTS)}
    assert {pair: round(far) for pair, far in beside.items() if far < 18} == {}


@pytest.mark.parametrize("kind", OWN)
def test_neighbours_differ_in_lightness(kind: Kind) -> None:
    """So that they stay apart where colours are not seen at all."""
    lightness = [lab(colour_of(kind, f"part.{part}"))[0] for part in theme.PARTS]
    assert min(abs(one - other) for one, other in pairwise(lightness)) >= 9


def test_distances_are_those_of_the_literature() -> None:
    assert lab("#ffffff") == pytest.approx((100, 0, 0), abs=0.1)
    assert lab("#ff0000") == pytest.approx((53.2, 80.1, 67.2), abs=0.3)
    assert distance("#000000", "#ffffff") == pytest.approx(100, abs=0.1)
    # A red and a green of the same lightness, far apart for most and hardly for deuteranopes.
    assert distance("#c04000", "#6a7a00") > 40
    assert distance("#c04000", "#6a7a00", "deuteranopia") < 20
    assert theme.contrast("#000000", "#ffffff") == pytest.approx(21)


def test_every_theme_has_a_style_for_every_meaning() -> None:
    wanted = {
        *theme.TEXT_STYLES, *theme.GRAPHIC_STYLES,
        *(f"part.{part}" for part in theme.PARTS), *(f"part.{part}.label" for part in theme.PARTS),
    }  # fmt: skip
    for kind, styles in theme.STYLES.items():
        assert set(styles) == wanted, kind
    assert theme.PARTS == snapshot.PARTS


def test_no_colour_means_no_colour() -> None:
    for name in theme.STYLES["mono"]:
        for composed in (name, f"{name} on chart"):
            style = theme.style("mono", composed)
            assert style.color is None
            assert style.bgcolor is None


def test_sixteen_colours_are_the_terminals_own() -> None:
    for name in theme.STYLES["ansi"]:
        style = theme.style("ansi", name)
        for colour in (style.color, style.bgcolor):
            assert colour is None or colour.is_default or (colour.is_system_defined and colour.number is not None)


def test_two_meanings_in_one_cell() -> None:
    style = theme.style("dark", "part.verify on part.draft")
    assert style.color == theme.style("dark", "part.verify").color
    assert style.bgcolor == theme.style("dark", "part.draft").color
