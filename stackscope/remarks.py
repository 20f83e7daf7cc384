"""What was asked for on the command line and will do nothing: said at the start, for it is no fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackscope.toggles import EngineConfig
    from stackscope.workload.spec import WorkloadSpec

TRUNCATIONS: Final = ("top_k", "top_p", "min_p")


def without_effect(origins: Mapping[str, str], workload: WorkloadSpec, engine: EngineConfig) -> tuple[str, ...]:
    """A sentence for each kind of setting that changes nothing. `origins` are what was set, and by which option."""
    found: list[str] = []
    cut = [origins[key] for field in TRUNCATIONS if (key := f"sampling.{field}") in origins]
    if cut and workload.sampling.is_greedy:
        found.append(f"At temperature 0 the likeliest token is taken: {_has(cut)} no effect.")
    load = origins.get("workload.concurrency")
    if load is not None and workload.is_open_loop:
        found.append(f"Requests arrive by the clock, however many are in flight: {_has([load])} no effect.")
    share = origins.get("engine.shadow_share")
    if share is not None and not engine.shadows:
        found.append(f"Shadows are off: {_has([share])} no effect.")
    return tuple(found)


def _has(names: list[str]) -> str:
    *most, last = names
    return f"{last} has" if not most else f"{', '.join(most)} and {last} have"
