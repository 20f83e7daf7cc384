"""Stage what is missing, score what is there, and print one table: `python -m benchmarks.validate`.

Takes 33 minutes on a quiet machine with two cores, `--quick` six. A run that was ended goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.common import machine
from benchmarks.validate import measuring, naming
from benchmarks.validate.models import Models
from benchmarks.validate.printing import printed
from benchmarks.validate.scoring import Scores
from benchmarks.validate.stage import stage
from benchmarks.validate.state import Folder
from stackscope.errors import StackscopeError
from stackscope.hardware.quiet import QUIET_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.validate.scenarios import Scenario

EVERY: Final = (*measuring.SCENARIOS, *measuring.TAU, *naming.SCENARIOS)
BUILD: Final = Path(__file__).parents[2] / ".build"
"""Where recordings and models are kept, out of git's sight."""


def chosen(*, is_quick: bool, names: Sequence[str]) -> list[Scenario]:
    """What a run consists of. Raises `SystemExit` for a name that there is not."""
    unknown = set(names) - {one.name for one in EVERY}
    if unknown:
        raise SystemExit(
            f"There is no scenario {', '.join(sorted(unknown))}. There are: {', '.join(s.name for s in EVERY)}"
        )
    return [one for one in EVERY if (one.name in names if names else one.is_quick or not is_quick)]


def stage_all(folder: Folder, scenarios: Sequence[Scenario], models: Models, *, calibrates: bool) -> None:
    """Record what is not there yet."""
    possible = [one for one in scenarios if models.has(one.stand)]
    left = folder.left(possible)
    if calibrates and left:
        models.calibrate(left)
    for number, scenario in enumerate(left, 1):
        began = time.monotonic()
        try:
            staged = stage(scenario, models, folder.place(scenario, EVERY))
        except StackscopeError as error:
            print(f"{number:3d}/{len(left)}  {scenario.name}: {error}", flush=True)
            continue
        folder.keep(scenario, staged)
        noise = "" if staged.foreign is None or staged.foreign < QUIET_SHARE else f"  NOT QUIET ({staged.foreign:.2f})"
        print(f"{number:3d}/{len(left)}  {scenario.name}  {time.monotonic() - began:.0f} s{noise}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one dose of each fault, and few toggles")
    parser.add_argument("--folder", type=Path, help="where recordings are kept")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="stage only this scenario")
    parser.add_argument("--score-only", action="store_true", help="stage nothing")
    parser.add_argument("--no-calibration", action="store_true", help="measure no ceilings beforehand")
    args = parser.parse_args()
    path = args.folder or BUILD / ("validate-quick" if args.quick else "validate")
    folder = Folder(path, is_quick=args.quick, machine=machine())
    if not args.score_only:
        scenarios = chosen(is_quick=args.quick, names=args.only)
        stage_all(folder, scenarios, Models(path), calibrates=not args.no_calibration)
    print(printed(Scores(folder).all(), folder.state))
    return 0


def ended() -> int:
    """The exit status, also where it is told to stop."""
    try:
        return main()
    except KeyboardInterrupt:
        print("Interrupted: what was staged is kept, and the same command goes on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(ended())
