"""What is imported when somebody goes there: the screens beside the live one, and the commands of the palette."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.command import Provider
    from textual.screen import Screen


def steps() -> Screen[Any]:
    """Single steps."""
    from stackscope.tui.screens.steps import StepsScreen

    return StepsScreen()


def explain() -> Screen[Any]:
    """The evidence behind the verdict."""
    from stackscope.tui.screens.explain import ExplainScreen

    return ExplainScreen()


def sessions() -> Screen[Any]:
    """Recordings."""
    from stackscope.tui.screens.sessions import SessionsScreen

    return SessionsScreen()


def commands() -> type[Provider]:
    """Everything that can be done, by name."""
    from stackscope.tui.palette import StackscopeCommands

    return StackscopeCommands


OTHERS: Final[Mapping[str, Callable[[], Screen[Any]]]] = {"steps": steps, "explain": explain, "sessions": sessions}
"""Screens by their mode."""
