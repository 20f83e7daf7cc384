"""What limits a recorded run, as the namer says most of the time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.diagnosis.follower import namings
from stackscope.errors import StackscopeError
from stackscope.session.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.analysis.diagnosis.naming import Naming

EVERY_NS: Final = 500_000_000
"""Between two looks of the namer: runs last some seconds, and a name has to stand for two."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What the namer says of a run."""

    name: str | None
    """`None`: it names nothing."""
    share: float | None = None
    """Of the wall time."""
    sentence: str = ""
    shares: dict[str, float] = {}
    """Of the wall time by cause, largest first."""


def limit_of(recording: Path) -> Limit:
    """What the namer calls the limit of a run most of the time, with the mean shares of those looks."""
    try:
        seen = list(namings(Replay(recording).records(), EVERY_NS))
    except StackscopeError:
        return Limit(name=None, sentence="The recording cannot be read.")
    names = Counter(naming.name for naming in seen if naming.name is not None)
    if not names:
        sentence = seen[-1].sentence if seen else "No step has run."
        return Limit(name=None, sentence=sentence, shares=dict(seen[-1].shares) if seen else {})
    name = names.most_common(1)[0][0]
    looks = [naming for naming in seen if naming.name == name]
    known = [naming.share for naming in looks if naming.share is not None]
    return Limit(
        name=name,
        share=sum(known) / len(known) if known else None,
        sentence=looks[-1].sentence,
        shares=_mean_shares(looks),
    )


def _mean_shares(looks: Sequence[Naming]) -> dict[str, float]:
    """Of the wall time by cause, on average, the largest first; a cause that a look does not list had no time in it."""
    total: dict[str, float] = {}
    for naming in looks:
        for cause, share in naming.shares:
            total[cause] = total.get(cause, 0.0) + share / len(looks)
    return dict(sorted(total.items(), key=lambda item: -item[1]))
