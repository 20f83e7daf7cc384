"""The options of experiments beside those of a run, for the command line to be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple


class Own(NamedTuple):
    """One option."""

    flag: str
    help: str
    kind: Any
    metavar: str | None = None
    """`None`: it is a switch."""
    default: Any = None


_FOLDER: Final = Own("--folder", "Where results go; one that has some is gone on with.", Path | None, "FOLDER")
_QUALITY: Final = Own(
    "--quality/--no-quality",
    "Hold weights and KV types against those of the baseline on a fixed text. [default: quality]",
    bool,
    default=True,
)
_JSON: Final = Own("--json", "Print JSON for machines.", bool, default=False)

ABLATE: Final[dict[str, Own]] = {
    "factors": Own(
        "--factors",
        "Settings to switch: speculation=draft,weights=Q8_0,draft_length=3:7.",
        str | None,
        "NAME=VALUE,…",
    ),
    "is_full": Own("--full", "Measure every combination, so that pairs are named.", bool, default=False),
    "blocks": Own("--blocks", "Exactly so many blocks (8, fewer or more as it takes).", int | None, "N"),
    "minutes": Own("--minutes", "Add no block that would end later (10).", float | None, "MINUTES"),
    "is_quick": Own("--quick", "Three blocks and fewer requests: wide intervals.", bool, default=False),
    "has_quality": _QUALITY,
    "folder": _FOLDER,
    "json": _JSON,
}
"""Of `ablate`, by the field of `AblateOptions`."""

SWEEP: Final[dict[str, Own]] = {
    "over": Own(
        "--over",
        "Axes: 'weights=Q8_0,Q4_K_M; kv_type=f16,q8_0'; with a file, beside its own.",
        str | None,
        "NAME=VALUES;…",
    ),
    "search": Own("--search", "Search with at most so many runs, instead of running everything.", int | None, "RUNS"),
    "objectives": Own(
        "--objectives",
        "What for, the main one first. [default: tokens_per_s,step_gap_p95,memory]",
        str | None,
        "NAMES",
    ),
    "constraints": Own("--constraints", "Limits: 'ttft_p95 < 200ms, memory < 2GB'.", str | None, "LIMITS"),
    "blocks": Own("--blocks", "How often everything runs, without --search. [default: 3]", int | None, "N"),
    "has_quality": _QUALITY,
    "folder": _FOLDER,
    "json": _JSON,
}
"""Of `sweep`, by the field of `SweepOptions`."""

HELP: Final = {
    "requests": "Requests that are measured in each run. [default: 12]",
    "concurrency": "Closed loop: requests in flight. [default: 1]",
}
"""Of options of a run that have other defaults in experiments."""

NOT_OF_RUNS: Final = frozenset({"duration", "record", "record_text", "json"})
"""Options of a run that experiments do not take: cells are compared on the same requests, and have a folder."""
