"""The traffic of experiments where none is described: runs of some seconds, the same number of tokens in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from stackscope.workload.spec import WorkloadSpec

DEFAULTS: Final[dict[str, object]] = {"concurrency": "1", "ignore_eos": True}
"""Options of a run that are others here: every cell generates the same number of tokens, one request at a time."""

REQUESTS, QUICK_REQUESTS = 12, 8
"""That are measured in each run. Shadows need eight requests, and fifty rounds of drafts, to predict from."""
PROMPT: Final = Length.uniform(96, 192)
"""Of the code workload; prompts of its files are prefixes of one another."""
DOCUMENTS: Final = 2
OUTPUT: Final = Length.fixed(32)


def with_lengths(workload: WorkloadSpec) -> WorkloadSpec:
    """The workload with lengths that make a run of some seconds, where none were given."""
    changes: dict[str, Any] = {}
    if workload.name is not None and workload.output_tokens is None:
        changes["output_tokens"] = OUTPUT
    if workload.name == "code":
        changes["prompt_tokens"] = PROMPT if workload.prompt_tokens is None else workload.prompt_tokens
        changes["documents"] = DOCUMENTS if workload.documents is None else workload.documents
    return msgspec.structs.replace(workload, **changes)
