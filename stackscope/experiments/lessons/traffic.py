"""The traffic of lessons: closed loops of some seconds, the same tokens in every cell, warm-up included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.experiments.plan import with_warmup
from stackscope.workload.spec import Length, WorkloadSpec

if TYPE_CHECKING:
    from stackscope.workload.spec import BuiltIn


def traffic(
    name: BuiltIn,
    requests: int,
    *,
    output: int,
    concurrency: int = 1,
    prompt: Length | None = None,
    shared: int | None = None,
    documents: int | None = None,
) -> WorkloadSpec:
    """So many requests that are measured, and one for each in flight before them. Outputs have this length exactly."""
    return with_warmup(
        WorkloadSpec(
            name=name,
            requests=max(requests, 2),
            concurrency=concurrency,
            prompt_tokens=prompt,
            output_tokens=Length.fixed(output),
            shared_tokens=shared,
            documents=documents,
            ignore_eos=True,
        )
    )


def completions(*, is_quick: bool) -> WorkloadSpec:
    """Code completions, one at a time: some prefill, mostly decoding."""
    return traffic("code", 3 if is_quick else 5, output=32, prompt=Length.uniform(64, 128), documents=2)


def decoding(concurrency: int, *, is_quick: bool) -> WorkloadSpec:
    """Hardly anything but decoding, so many at a time."""
    requests = concurrency if concurrency > 3 else 2 if is_quick else 4
    return traffic("code", requests, output=24, concurrency=concurrency, prompt=Length.fixed(16), documents=2)
