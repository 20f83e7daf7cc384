"""Scenarios with one cause each, in doses, and placebos with none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.validate.scenarios import FAULTY, Block, Fault, Scenario, between, calm_then, fixed, steady
from stackscope.workload.spec import Length, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.validate.scenarios import Neighbour, Stand
    from stackscope.records import Cause

CALM_S: Final = 3.0
FAULT_S: Final = 8.5
DECODING: Final = fixed("code", 64, 192, 1)
"""One request at a time, nearly all of it decoding."""


def _doses(
    family: str, cause: Cause | None, doses: Sequence[float], make: Any, *, also_right: frozenset[Cause] = frozenset()
) -> list[Scenario]:
    """One scenario for each dose; the one in the middle belongs to the short run too."""
    made = []
    for index, dose in enumerate(doses):
        fields: dict[str, Any] = {"workload": DECODING, **make(dose)}
        made.append(
            Scenario(
                name=f"{family} {dose:g}",
                goal="naming",
                family=family,
                dose=float(index + 1),
                cause=cause,
                also_right=also_right,
                is_quick=index == len(doses) // 2,
                **fields,
            )
        )
    return made


def _neighbour(stand: Stand, kind: Neighbour, duty: float, **settings: Any) -> dict[str, Any]:
    blocks = between(CALM_S, FAULT_S, Fault(kind, duty))
    return {"stand": stand, "settings": settings, "blocks": blocks}


def _delayed(engine: str, delay_ms: float) -> dict[str, Any]:
    blocks = (Block(seconds=CALM_S), Block(seconds=FAULT_S))
    return {"stand": "small", "engine": FAULTY + engine, "delay_ms": delay_ms, "blocks": blocks}


def _arrivals(factor: float) -> dict[str, Any]:
    workload = fixed("code", 96, 48, 4)
    blocks = calm_then(CALM_S, FAULT_S, rate_factor=factor)
    return {"stand": "small", "workload": workload, "settings": {"slots": 4}, "blocks": blocks}


def _squeezed(tokens: float) -> dict[str, Any]:
    """Questions about eight documents of 512 tokens, and a cache that holds a part of them."""
    workload = WorkloadSpec(
        name="rag", concurrency=2, documents=8, shared_tokens=512, prompt_tokens=Length.fixed(24),
        output_tokens=Length.fixed(12), ignore_eos=True,
    )  # fmt: skip
    settings = {"slots": 2, "cache_tokens": int(tokens)}
    return {"stand": "small", "workload": workload, "settings": settings, "blocks": steady(FAULT_S + CALM_S)}


def _corrupted(acceptance: float) -> dict[str, Any]:
    """Drafts of seven tokens that are accepted this often; a smaller dose is a better draft."""
    settings = {"speculation": "draft", "draft_length": 7, "synthetic_acceptance": acceptance}
    return {"stand": "lab", "settings": settings, "blocks": steady(FAULT_S)}


def _own_draft(length: float) -> dict[str, Any]:
    """The target as its own draft model: everything is accepted, and a drafted token costs a whole forward."""
    settings = {"speculation": "draft", "draft_length": int(length)}
    return {"stand": "twins", "settings": settings, "blocks": steady(FAULT_S)}


def _long_context(tokens: float) -> dict[str, Any]:
    """Eight requests about one document, which the first computes: what is left is decoding behind a long context."""
    workload = WorkloadSpec(
        name="rag", concurrency=1, documents=1, shared_tokens=int(tokens), prompt_tokens=Length.fixed(24),
        output_tokens=Length.fixed(400), ignore_eos=True,
    )  # fmt: skip
    # The document is computed at some 200 tokens/s or more; requests that came meanwhile would compute it as well.
    blocks = (Block(seconds=tokens / 150), Block(seconds=2.0, concurrency=8), Block(seconds=FAULT_S))
    settings = {"slots": 8, "context_tokens": 20480, "token_budget": 512}
    return {"stand": "gemma", "workload": workload, "settings": settings, "blocks": blocks}


def _idle_prefixes(tokens: float) -> dict[str, Any]:
    """Prompts that never come again, of which the cache keeps so many tokens: every forward scans their cells."""
    settings = {"cache_tokens": int(tokens), "context_tokens": 40960, "cache_paths": 200, "slots": 1}
    workload = fixed("unique", 500, 100, 1)
    blocks = (Block(seconds=2.0 + tokens / 2500), Block(seconds=FAULT_S))
    return {"stand": "small", "workload": workload, "settings": settings, "blocks": blocks}


def _long_prompts(tokens: float) -> dict[str, Any]:
    workload = fixed("unique", int(tokens), 24, 6)
    settings = {"slots": 6, "prefix_cache": False, "token_budget": 256}
    return {"stand": "small", "workload": workload, "settings": settings, "blocks": steady(FAULT_S)}


def _ragged(concurrency: float) -> dict[str, Any]:
    """Split KV and drafts of unequal lengths: equal numbers of rows go into a pass."""
    settings = {"unified_kv": False, "speculation": "ngram", "draft_length": 7, "adaptive_draft": True, "slots": 8}
    workload = WorkloadSpec(
        name="copy", concurrency=int(concurrency), prompt_tokens=Length.uniform(24, 120),
        output_tokens=Length.fixed(96), ignore_eos=True,
    )  # fmt: skip
    return {"stand": "lab", "workload": workload, "settings": settings, "blocks": steady(FAULT_S)}


def _batched(stand: Stand, concurrency: float) -> dict[str, Any]:
    """Requests that all begin at once and outlast the session: after the prompts, nothing but decoding."""
    workload = fixed("code", 32, 480, int(concurrency))
    blocks = (Block(seconds=CALM_S), Block(seconds=FAULT_S))
    return {"stand": stand, "workload": workload, "settings": {"slots": 32}, "blocks": blocks}


def _causes() -> list[Scenario]:
    starved: frozenset[Cause] = frozenset({"CPU starvation"})
    return [
        *_doses("bandwidth hog", "external bandwidth contention", (0.25, 0.5, 1.0),
                lambda duty: _neighbour("lab", "bandwidth", duty, threads=1)),
        *_doses("compute hog", "CPU starvation", (0.25, 0.5, 1.0), lambda duty: _neighbour("lab", "compute", duty)),
        # From inside, a process that is stopped and one that gets no core look the same, but for the quota's counters.
        *_doses("stopped", "throttle", (0.25, 0.5, 0.75), lambda duty: _neighbour("lab", "stop", duty),
                also_right=starved),
        *_doses("slow sampler", "sampling", (1.0, 2.0, 4.0), lambda ms: _delayed("SlowSampler", ms)),
        *_doses("slow scheduler", "host scheduling", (1.0, 2.0, 4.0), lambda ms: _delayed("SlowScheduler", ms)),
        *_doses("arrivals", "queueing", (1.5, 2.0, 4.0), _arrivals),
        *_doses("cache squeeze", "cache thrash", (2048, 1024, 600), _squeezed),
        *_doses("corrupted draft", "low acceptance", (0.2, 0.1, 0.0), _corrupted),
        *_doses("draft = target", "draft overhead", (3, 5, 7), _own_draft),
        *_doses("long context", "KV and attention", (11264, 13312, 15360), _long_context),
        *_doses("idle prefixes", "resident-prefix tax", (8192, 16384, 32768), _idle_prefixes),
        *_doses("long prompts", "prefill interference", (300, 500, 800), _long_prompts),
        *_doses("ragged", "batch fragmentation", (3, 5, 7), _ragged),
        *_doses("batch", "compute", (8, 16, 32), lambda n: _batched("lab", n)),
    ]  # fmt: skip


def _placebo(name: str, *, is_quick: bool = False, **fields: Any) -> Scenario:
    given: dict[str, Any] = {"workload": DECODING, "blocks": steady(FAULT_S), **fields}
    return Scenario(name=name, goal="naming", family="placebo", is_quick=is_quick, **given)


def _placebos() -> list[Scenario]:
    drafting = {"speculation": "draft", "draft_length": 3}
    return [
        _placebo("lab alone", stand="lab", is_quick=True),
        _placebo("lab, four", stand="lab", workload=fixed("code", 64, 128, 4)),
        _placebo("lab, quantised", stand="lab-q8"),
        _placebo("lab with drafts", stand="lab", settings=drafting),
        _placebo("gemma alone", stand="gemma", is_quick=True),
        _placebo("gemma, four", stand="gemma", workload=fixed("code", 64, 128, 4)),
        _placebo("small alone", stand="small"),
        _placebo("small, eight", stand="small", workload=fixed("code", 64, 128, 8)),
        _placebo("a hog that sleeps", **_neighbour("lab", "bandwidth", 0.0, threads=1)),
        _placebo("another that sleeps", is_quick=True, **_neighbour("lab", "compute", 0.0)),
        _placebo("never stopped", **_neighbour("lab", "stop", 0.0)),
        _placebo("delayed by nothing", **_delayed("SlowSampler", 0.0)),
        _placebo("arrivals with room", **_arrivals(0.3)),
    ]


SCENARIOS: Final = (*_causes(), *_placebos())
