"""What stands over the screen: whatever it is, the keys that leave every program leave this one."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Result = TypeVar("Result")

LEAVING: list[BindingType] = [Binding("ctrl+q", "app.quit", show=False), Binding("ctrl+c", "app.help_quit", show=False)]
"""Textual keeps the keys of the app from what is modal."""


class Modal(ModalScreen[Result]):
    """A dialog, a menu, or something to be read."""

    BINDINGS: ClassVar[list[BindingType]] = LEAVING
