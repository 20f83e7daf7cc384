"""`stackscope calibrate`: measure what this machine does at most with a model, and keep it for the sessions to come."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from stackscope.commands.still_bar import StillBar
from stackscope.errors import UsageError
from stackscope.experiments import protocol
from stackscope.experiments.calibrate import calibrate as measure
from stackscope.hardware import ceilings as cache
from stackscope.launch import with_models
from stackscope.model.variants import find_variants
from stackscope.report import ceilings as report
from stackscope.report import output

if TYPE_CHECKING:
    from stackscope.records.ceilings import Ceilings
    from stackscope.toggles import EngineConfig


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
    leaves out what is kept already, of any age and build, without a word; what a busy machine said is measured again.
    """
    if only_show and (is_full or with_variants or only_if_missing):
        raise UsageError("--show measures nothing, and the other options ask to.", remedy="Leave --show out.")
    config = with_models(config)
    if only_show:
        return _show_kept(config, json=json)
    budget = protocol.FULL if is_full else protocol.QUICK
    wanted = [config]
    if with_variants:
        others = [variant.path for variant in find_variants(config.model) if variant.path != config.model]
        wanted += [msgspec.structs.replace(config, model=path) for path in others]
    for each in wanted:
        if not only_if_missing or not cache.is_measured(each):
            _measure(each, budget, json=json)
    return 0


def _measure(config: EngineConfig, budget: protocol.Budget, *, json: bool) -> None:
    notes = [found.problem for found in cache.known() if found.problem is not None]
    with StillBar("loading", is_quiet=json) as bar:
        ceilings = measure(config, budget, progress=lambda message: bar.show(message.what, message.fraction))
    if not cache.store(ceilings):
        notes.append("Those from a quiet machine are kept, and these are not.")
    _print(ceilings, notes, json=json)


def _show_kept(config: EngineConfig, *, json: bool) -> int:
    """Print the newest ceilings that are kept for the configuration."""
    kept = [found.ceilings for found in cache.known() if found.ceilings is not None]
    fitting = [each for each in kept if each.conditions.hold_for(config)]
    if not fitting:
        names = sorted({each.conditions.model for each in kept})
        others = f" There are some for {', '.join(names)}." if names else ""
        raise UsageError(
            f"No ceilings of this configuration were measured.{others}", remedy="Measure them: stackscope calibrate"
        )
    newest = max(fitting, key=lambda each: datetime.fromisoformat(each.measured))
    notes = [] if newest.conditions.machine == cache.machine() else ["they are of another machine"]
    _print(newest, notes, json=json)
    return 0


def _print(ceilings: Ceilings, notes: list[str], *, json: bool) -> None:
    if json:
        document = {**msgspec.to_builtins(ceilings), "notes": notes}
        output.write(msgspec.json.encode(document).decode() + "\n")
        return
    output.show(partial(report.shown, ceilings, now=datetime.now().astimezone(), notes=notes))
