"""`stackscope calibrate`: measure what this machine does at most with a model, and keep it for the sessions to come."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope import units
from stackscope.commands.interrupts import told_when_interrupted
from stackscope.commands.kept_ceilings import aside, of_damaged, of_other_versions
from stackscope.commands.still_bar import StillBar
from stackscope.errors import UsageError
from stackscope.experiments import protocol
from stackscope.experiments.calibrate import calibrate as measure
from stackscope.hardware import ceilings as cache
from stackscope.hardware.best import with_best
from stackscope.hardware.quiet import CALM_SHARE, Neighbours
from stackscope.launch import with_models
from stackscope.model.variants import find_variants
from stackscope.report import ceilings as report
from stackscope.report import output

if TYPE_CHECKING:
    from stackscope.records.ceilings import Ceilings
    from stackscope.toggles import EngineConfig

BUSY_NS: Final = 3_600_000_000_000
"""What a busy machine said is not measured again before, unless it is quiet by now."""
LOOK_S: Final = 1.0
"""How long to look whether it is: clocks tick by 10 ms, which is 1 % of it."""


def calibrate(
    config: EngineConfig,
    *,
    is_full: bool = False,
    only_show: bool = False,
    with_variants: bool = False,
    only_if_missing: bool = False,
    json: bool = False,
) -> int:
    """Measure, print and keep the ceilings of a configuration, or print what is kept. Raises `StackscopeError`.

    `with_variants` does the same for the other files of the same model, and prints each in turn; `only_if_missing`
    leaves out what is kept already, of any age and build, without a word; what a busy machine said is measured again
    when it is quiet, or after an hour.
    """
    if only_show and (is_full or with_variants or only_if_missing):
        raise UsageError("--show measures nothing, and the other options ask to.", remedy="Leave --show out.")
    config = with_models(config)
    if only_show:
        return _show_kept(config, json=json)
    cache.require_place()
    budget = protocol.FULL if is_full else protocol.QUICK
    wanted = [config]
    if with_variants:
        others = [variant.path for variant in find_variants(config.model) if variant.path != config.model]
        wanted += [msgspec.structs.replace(config, model=path) for path in others]
    if only_if_missing:
        wanted = [each for each in wanted if _is_wanted(each)]
    stored: list[str] = []
    for each in wanted:
        kept = f"what was measured of {', '.join(stored)} is kept, nothing else" if stored else "nothing was stored"
        with told_when_interrupted(f"{kept}."):
            _measure(each, budget, json=json)
        stored.append(Path(each.model).name)
    return 0


def _is_wanted(config: EngineConfig) -> bool:
    """Whether to measure what may have been measured; where the machine is too busy for it, that is said.

    A machine that is always busy would otherwise be measured at every start, and never to any effect.
    """
    kept = cache.kept_for(config)
    if not kept or cache.is_measured(config):
        return not kept
    age_ns = min(cache.age_ns(each, datetime.now().astimezone()) for each in kept)
    if age_ns > BUSY_NS or is_quiet_now():
        return True
    print(
        f"stackscope: not measured again: this machine was busy {units.duration(age_ns)} ago and still is."
        " Without ceilings, verdicts say less; `stackscope calibrate` measures all the same.",
        file=sys.stderr,
    )
    return False


def is_quiet_now() -> bool:
    """Whether others leave the machine alone for a moment. Where a system does not say, they are taken to."""
    share = Neighbours([]).watch(partial(time.sleep, LOOK_S))
    return share is None or share < CALM_SHARE


def _measure(config: EngineConfig, budget: protocol.Budget, *, json: bool) -> None:
    with StillBar("loading", is_quiet=json) as bar:
        ceilings = measure(config, budget, progress=lambda message: bar.show(message.what, message.fraction))
    notes = aside()
    ceilings = with_best(ceilings, cache.load(ceilings.conditions).ceilings)
    if not cache.store(ceilings):
        notes.append("Those from a quiet machine are kept, and these are not.")
    _print(ceilings, notes, json=json)


def _show_kept(config: EngineConfig, *, json: bool) -> int:
    """Print the newest ceilings that are kept for the configuration."""
    found = list(cache.known())
    kept = [each.ceilings for each in found if each.ceilings is not None]
    fitting = [each for each in kept if each.conditions.hold_for(config)]
    if not fitting:
        names = sorted({each.conditions.model for each in kept})
        told = [f"There are some for {', '.join(names)}."] if names else []
        told += [f"{each}." for each in of_other_versions(found)]
        told += [] if (damage := of_damaged(found)) is None else [f"{damage}."]
        raise UsageError(
            " ".join(["No ceilings of this configuration were measured.", *told]),
            remedy="Measure them: stackscope calibrate",
        )
    newest = max(fitting, key=lambda each: datetime.fromisoformat(each.measured))
    notes = [] if newest.conditions.machine == cache.machine() else ["they are of another machine"]
    _print(newest, notes, json=json)
    return 0


def _print(ceilings: Ceilings, notes: list[str], *, json: bool) -> None:
    if json:
        document = {**msgspec.to_builtins(ceilings), "notes": notes}
        output.write_json(document)
        return
    output.show(partial(report.shown, ceilings, now=datetime.now().astimezone(), notes=notes))
