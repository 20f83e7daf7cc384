"""Power of the processor packages, from the energy counters that Linux shows under powercap (RAPL).

Source: Documentation/power/powercap/powercap.rst of the kernel. Since 2020 only root may read them by default, because
fine readings give secrets away (CVE-2020-8694).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from stackscope.hardware.host_rates import Absence, Rate
from stackscope.hardware.procfs import text_of

if TYPE_CHECKING:
    from pathlib import Path

NONE: Final = Absence("neither processor nor virtual machine tells it (RAPL)")
FOR_ROOT: Final = Absence(
    "only root may read it (RAPL)", "As root: chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
)
_PACKAGE: Final = re.compile(r"intel-rapl:\d+")
"""Of AMD processors too; what stands behind another colon is a part of a package."""


class PackagePower:
    """Mean power since the reading before, of all packages together."""

    def __init__(self, root: Path) -> None:
        folder = root / "sys/class/powercap"
        zones = sorted(path for path in folder.glob("intel-rapl:*") if _PACKAGE.fullmatch(path.name))
        packages = [zone for zone in zones if text_of(str(zone / "name")).startswith("package")]
        self._counters = [str(zone / "energy_uj") for zone in packages]
        self._rates = [Rate(_number(str(zone / "max_energy_range_uj"))) for zone in packages]
        self.absence: Final = self._find_absence()

    def _find_absence(self) -> Absence | None:
        """Why there is none. `None`: there is."""
        if not self._counters:
            return NONE
        is_open = all(os.access(path, os.R_OK) and _number(path) is not None for path in self._counters)
        return None if is_open else FOR_ROOT

    def read(self, now_ns: int) -> float | None:
        """Watts. `None`: it was read for the first time, or cannot be."""
        if self.absence is not None:
            return None
        # Each counter is read, whatever the others say: its next rate begins here.
        powers = [rate.update(now_ns, _number(path)) for rate, path in zip(self._rates, self._counters, strict=True)]
        known = [power for power in powers if power is not None]
        return sum(known) / 1e6 if known and len(known) == len(powers) else None


def _number(path: str) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None
