"""The `stackscope run` that serves a configuration the traffic it was measured under."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from stackscope import units
from stackscope.config import DEFAULT_REQUESTS, DEFAULT_WORKLOAD
from stackscope.experiments.plan import warmup_requests
from stackscope.options import OPTIONS, field_defaults

if TYPE_CHECKING:
    import msgspec

    from stackscope.experiments.plan import Limits
    from stackscope.options import Option
    from stackscope.toggles import EngineConfig
    from stackscope.workload.spec import WorkloadSpec


def command_line(config: EngineConfig, workload: WorkloadSpec, limits: Limits) -> str:
    """The command with everything that is not its default: without the traffic, it would run something else."""
    defaults = field_defaults() | {"workload.name": DEFAULT_WORKLOAD, "workload.requests": DEFAULT_REQUESTS}
    given = _given(config, workload, limits)
    words = ["stackscope", "run"]
    covered: set[str] = set()
    for option in OPTIONS:
        fields = [target for target in option.targets if target in given]
        if not fields or covered.issuperset(fields):
            continue
        values = {given[name] for name in fields}
        if len(values) > 1 and _is_refined(option):
            continue
        value = given[fields[0]]
        if value is None or value == defaults[fields[0]]:
            continue
        covered.update(fields)
        words += _spelled(option.flags, value)
    return shlex.join(words)


def warmup_told(workload: WorkloadSpec) -> str:
    """What of the traffic of that command is in no figure of the experiment, in a phrase."""
    n = warmup_requests(workload)
    first = "its first request warms up" if n == 1 else f"its first {units.count(n)} requests warm up"
    return f"{first}, which no figure here counts"


def _given(config: EngineConfig, workload: WorkloadSpec, limits: Limits) -> dict[str, Any]:
    """The value of every field that a run may be given, by `section.field`."""
    sections: dict[str, msgspec.Struct] = {"engine": config, "workload": workload, "sampling": workload.sampling}
    given = {
        f"{section}.{field}": getattr(struct, field)
        for section, struct in sections.items()
        for field in struct.__struct_fields__
    }
    if workload.name is None:
        given["workload.name"] = workload.path
    given |= {
        f"limits.{name}_ms": None if limit is None else limit / 1e6
        for name, limit in (("ttft", limits.ttft_ns), ("tpot", limits.tpot_ns))
    }
    return given


def _is_refined(option: Option) -> bool:
    """Other options set its fields one by one, as those of K and V do."""
    return any(other is not option and set(other.targets) < set(option.targets) for other in OPTIONS)


def _spelled(flags: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flags.split("/")[0 if value else 1]]
    if isinstance(value, tuple):
        return [flags, ",".join(f"{share:g}" for share in value)]
    return [flags, str(value).removesuffix(".0") if isinstance(value, float) else str(value)]
