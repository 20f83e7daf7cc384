"""The panes of the live screen, one file each: pure functions of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.tui.panes.acceptance import AcceptancePane
from stackscope.tui.panes.anatomy import AnatomyPane
from stackscope.tui.panes.bandwidth import BandwidthPane
from stackscope.tui.panes.events import EventsPane
from stackscope.tui.panes.hardware import HardwarePane
from stackscope.tui.panes.idle_compute import IdleComputePane
from stackscope.tui.panes.prefix_cache import PrefixCachePane
from stackscope.tui.panes.requests import RequestsPane
from stackscope.tui.panes.text import TextPane
from stackscope.tui.panes.throughput import ThroughputPane
from stackscope.tui.panes.verdict import VerdictPane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.tui.pane import Pane

_ALL: Final[tuple[Pane, ...]] = (
    VerdictPane(),
    AnatomyPane(),
    IdleComputePane(),
    AcceptancePane(),
    PrefixCachePane(),
    BandwidthPane(),
    ThroughputPane(),
    HardwarePane(),
    EventsPane(),
    RequestsPane(),
    TextPane(),
)

PANES: Final[Mapping[str, Pane]] = {pane.id: pane for pane in _ALL}
"""By id, in the order of importance."""
