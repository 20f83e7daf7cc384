"""What engines had of their cores, and where that decides how they compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackscope.analysis.metrics import time
from stackscope.analysis.offload import computes_on_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.comparing.digest import Digest

STARVED: Final = 0.80
"""CPU share below which others' work decides how fast an engine is: threads that wait for each other have more."""
STATE_POINTS: Final = 0.10
"""Shares of time in which something held the machine up are alike where they differ by less."""


def cpu_shares(digests: Sequence[Digest]) -> list[float | None]:
    """The share of each one's threads that really ran. `None`: not known. On a GPU, threads only wait for it: as soon
    as one of them computes there, it tells nothing of any."""
    if any(_is_on_gpu(digest) for digest in digests):
        return [None] * len(digests)
    return [digest[time.CpuShare] for digest in digests]


def is_starved(shares: Sequence[float | None]) -> bool:
    """At least one of them lost more of its cores than threads lose to each other."""
    return any(share < STARVED for share in shares if share is not None)


def is_apart(shares: Sequence[float | None]) -> bool:
    """One of them had noticeably less of its cores than the other."""
    known = [share for share in shares if share is not None]
    return len(known) > 1 and max(known) - min(known) >= STATE_POINTS


def _is_on_gpu(digest: Digest) -> bool:
    config = digest.header.config
    return config is not None and computes_on_gpu(digest.header.library, config)
