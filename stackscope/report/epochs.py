"""The epochs of a run whose configuration changed, side by side: what was switched, and what came of it."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from rich.text import Text

from stackscope import units
from stackscope.analysis.metrics import counts, latency, load, speculation
from stackscope.options import OPTIONS
from stackscope.report.layout import LABEL_WIDTH, aligned, columns, hang
from stackscope.toggles import changed_fields

if TYPE_CHECKING:
    from stackscope.analysis.summary import EpochSummary, RunResult
    from stackscope.toggles import EngineConfig, Setting

HEADER: Final = ("epoch", "ran", "out", "A", "TPOT")
CHANGES_WIDTH: Final = 30
"""Cells that what was changed needs beside the figures; with fewer it stands below them."""


def epochs(result: RunResult, width: int) -> list[Text]:
    """A line for each epoch, in the order in which they ran; none when there was only one."""
    if not result.epochs:
        return []
    figures = zip(*(_figures(epoch) for epoch in result.epochs), strict=True)
    rows = list(zip(map(_number, result.epochs), *map(aligned, map(list, figures)), strict=True))
    head, *lines = columns(HEADER, rows, first_width=LABEL_WIDTH - 2)
    is_narrow = len(head) + 2 + CHANGES_WIDTH > width
    if is_narrow:
        head, *lines = columns(HEADER, rows)
    told = [Text(head if is_narrow else f"{head}  changed", style="bold")]
    before: EngineConfig | None = None
    for line, epoch in zip(lines, result.epochs, strict=True):
        changed = changes(before, epoch.config)
        before = epoch.config
        if is_narrow:
            told += [Text(line.rstrip()), hang(Text("  "), changed, width)]
        else:
            told.append(hang(Text(f"{line}  "), changed, width))
    return told


def _number(epoch: EpochSummary) -> str:
    return units.count(epoch.number)


def _figures(epoch: EpochSummary) -> tuple[str, ...]:
    pace = epoch[latency.TimePerOutputToken]
    return (
        units.duration(epoch[counts.WallTime]),
        units.token_rate(epoch[load.OutputRate]),
        units.number(epoch[speculation.TokensPerForward]),
        units.duration(None if pace is None else pace.p50),
    )


def changes(before: EngineConfig | None, after: EngineConfig | None) -> list[str]:
    """What a configuration changes against the one before, setting by setting. `None`: not known."""
    if after is None:
        return [units.UNKNOWN]
    if before is None:
        return ["as started"]
    found = changed_fields(before, after)
    return [f"{named(name)} {spelled(old)} → {spelled(new)}" for name, (old, new) in found.items()] or ["nothing"]


def named(setting: str) -> str:
    """A setting's name as on the command line, without the dashes."""
    flags = (option.flags for option in OPTIONS if option.targets == (f"engine.{setting}",))
    return next(flags, setting).split("/")[0].removeprefix("--")


def spelled(setting: Setting) -> str:
    """The value of a setting as text, exactly; of a path, the file's name."""
    match setting:
        case None:
            return "auto"
        case bool():
            return "on" if setting else "off"
        case int() | float():
            return units.exact(setting)
        case tuple():
            return ",".join(map(units.exact, setting)) or "auto"
    return PurePath(setting).stem if "/" in setting or setting.endswith(".gguf") else setting
