"""Record one session for each cause that can be staged here, and a healthy one, on the real engine.

The scenarios are those of the validation (`benchmarks/validate/naming.py`), one dose of each; nothing in a recording
says what was staged. `tests/unit/test_recorded_causes.py` has each of them named.

    python scripts/record_causes.py                    # all that are missing, into profiles/causes
    python scripts/record_causes.py --only "compute hog" --replace
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.validate import naming  # noqa: E402 - found beside the folder of this script
from benchmarks.validate.models import Models  # noqa: E402
from benchmarks.validate.score_naming import named  # noqa: E402
from benchmarks.validate.stage import stage  # noqa: E402
from stackscope.hardware.quiet import QUIET_SHARE  # noqa: E402
from stackscope.session.reader import SessionReader  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.validate.scenarios import Scenario
    from stackscope.records import Cause

NATURAL: Final[dict[str, Cause | None]] = {
    "lab alone": "weight bandwidth",
    "gemma alone": "LM head",
    "arrivals with room": None,
}
"""Scenarios without a fault, and what then limits: the last has too little to do for anything to limit it."""
NOT_SHIPPED: Final = frozenset({"external-bandwidth-contention"})
"""On the machine of the recordings that ship, a neighbour that reads memory took less than a tenth of the time at any
dose, and was not named for it."""
HEALTHY: Final = "healthy"
LONGER: Final = 2.0
"""Times as long as in the validation a fault is there, so that its cause is what stood longest in the recording."""
MOST_BYTES: Final = 1_000_000
"""Of a recording that ships."""


def file_name(cause: Cause | None) -> str:
    """What a cause's recording is called, without its ending."""
    return HEALTHY if cause is None else cause.lower().replace(" ", "-")


def chosen() -> dict[str, tuple[Scenario, Cause | None]]:
    """By the name of the file: the scenario, the middle dose of each fault, and what is to be named."""
    found: dict[str, tuple[Scenario, Cause | None]] = {}
    for scenario in naming.SCENARIOS:
        if scenario.cause is not None and scenario.is_quick:
            found[file_name(scenario.cause)] = lasting(scenario.ending_with_fault), scenario.cause
        elif scenario.name in NATURAL:
            found[file_name(NATURAL[scenario.name])] = scenario, NATURAL[scenario.name]
    return found


def lasting(scenario: Scenario) -> Scenario:
    """The same with a longer last block, where that is not all there is."""
    *before, last = scenario.blocks
    if not before:
        return scenario
    longer = msgspec.structs.replace(last, seconds=LONGER * last.seconds)
    return msgspec.structs.replace(scenario, blocks=(*before, longer))


def record(scenario: Scenario, wanted: Cause | None, models: Models, path: Path) -> str:
    """Record a scenario; what is to be said of the recording."""
    staged = stage(scenario, models, path)
    size = path.stat().st_size
    said = named(list(SessionReader(path))).name
    problems = [f"not {wanted or 'nothing'}"] if said != wanted else []
    problems += [f"more than {MOST_BYTES:,} bytes"] if size > MOST_BYTES else []
    problems += ["others were busy"] if staged.foreign is None or staged.foreign > QUIET_SHARE else []
    return f"{size:,} bytes, names {said or 'nothing'}" + "".join(f"; PROBLEM: {one}" for one in problems)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "profiles" / "causes")
    parser.add_argument("--only", action="append", default=[], metavar="CAUSE", help="as in the name of its file")
    parser.add_argument("--replace", action="store_true", help="record again what is there")
    parser.add_argument("--no-calibration", action="store_true", help="measure no ceilings beforehand")
    args = parser.parse_args(arguments)
    every = chosen()
    unknown = set(args.only) - every.keys()
    if unknown:
        sys.exit(f"There is no {', '.join(sorted(unknown))}. There are: {', '.join(every)}.")
    models = Models(ROOT / ".build" / "validate")
    models.folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: one for name, one in every.items() if not args.only or name in args.only}
    if not args.no_calibration:
        models.calibrate([scenario for scenario, _ in wanted.values()])
    for name, (scenario, cause) in wanted.items():
        path = args.folder / f"{name}.jsonl.zst"
        if path.exists() and not args.replace:
            continue
        path.unlink(missing_ok=True)
        print(f"{name}: {record(scenario, cause, models, path)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
