"""Without colours: what is drawn has none, whether `NO_COLOR` asks for that or the theme was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.tui.live_apps import Screen

if TYPE_CHECKING:
    import pytest
    from textual.strip import Strip

    from stackscope.tui.theme import Kind

SCREENS: Final = ("1", "2", "3", "4", "question_mark")
"""Keys to every screen, and to the help."""
INPUTS: Final = ("escape", "1", "m", "escape", "ctrl+p")
"""Keys from there to a dialog and the palette, where a cursor blinks."""


def drawn(kind: Kind, keys: tuple[str, ...] = SCREENS) -> list[list[Strip]]:
    """The lines of the screen after each key."""
    found: list[list[Strip]] = []

    async def act(screen: Screen) -> None:
        for key in keys:
            await screen.press(key)
            await screen.app.workers.wait_for_complete()
            await screen.pilot.pause()
            found.append(screen.app.screen._compositor.render_strips())

    Screen(kind=kind, kinds=("dark", "mono")).run(act)
    return found


def colours(strips: list[Strip]) -> set[str]:
    """The colours that are painted, but for the terminal's own."""
    styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
    both = [colour for style in styles for colour in (style.color, style.bgcolor)]
    return {colour.name for colour in both if colour is not None and not colour.is_default}


def test_no_colour_is_painted_and_the_theme_is_what_no_color_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    asked = drawn("mono", SCREENS + INPUTS)
    assert [colours(strips) for strips in asked] == [set()] * len(asked)
    monkeypatch.delenv("NO_COLOR")
    assert drawn("mono") == asked[: len(SCREENS)]


def test_an_empty_wish_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the convention has it: the colours of the theme are drawn, and no greys in their place."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    wanted = [colours(strips) for strips in drawn("dark")]
    monkeypatch.setenv("NO_COLOR", "")
    assert [colours(strips) for strips in drawn("dark")] == wanted


def test_what_is_selected_is_seen_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(screen: Screen) -> None:
        await screen.press("ctrl+p", *"kvq8")
        await screen.until(lambda: "q8_0 (rebuild)" in screen.text)
        await screen.press("down")
        await screen.until(lambda: "KV cache type: q8_0 (rebuild)" in reversed_text(screen))

    Screen(kind="mono").run(act)


def reversed_text(screen: Screen) -> str:
    parts = [part for strip in screen.app.screen._compositor.render_strips() for part in strip]
    return "".join(part.text for part in parts if part.style is not None and part.style.reverse)
