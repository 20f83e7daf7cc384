"""Holding configurations against a reference, as experiments do at their end: what fails is a note, not the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.errors import StackscopeError
from stackscope.experiments.quality import StoppedError, judge_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stackscope.toggles import EngineConfig


def judged_by(
    configs: Mapping[int, EngineConfig], reference: EngineConfig, is_stopping: Callable[[], bool]
) -> tuple[dict[int, dict[str, float]], list[str]]:
    """(figures by configuration, what the user should know)."""
    try:
        return judge_all(configs, reference, is_stopping=is_stopping), []
    except StoppedError:
        return {}, []
    except StackscopeError as error:
        return {}, [f"The answers could not be compared with the reference's: {error}"]
