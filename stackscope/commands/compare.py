"""`stackscope compare`: recorded sessions against each other, and limits for machines that decide by them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from stackscope.analysis.comparing.comparison import MOST_SESSIONS, compare_digests
from stackscope.analysis.comparing.judging import judge
from stackscope.analysis.comparing.thresholds import conditions
from stackscope.errors import UsageError
from stackscope.experiments.comparing import digests
from stackscope.report import compare as report
from stackscope.report import output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackscope.analysis.comparing.comparison import Compared, Comparison, Versus
    from stackscope.analysis.comparing.digest import Digest
    from stackscope.analysis.comparing.judging import Judged
    from stackscope.analysis.comparing.moved import Part
    from stackscope.analysis.comparing.thresholds import Condition

BROKEN: Final = 1
"""Exit status when a limit of `--fail-if` is broken beyond its interval."""


def compare(
    recordings: Sequence[Path], *, fail_if: Sequence[str] = (), warmup_s: float = 0.0, anyway: bool = False,
    json: bool = False,
) -> int:  # fmt: skip
    """Print the comparison; the exit status. Raises `UsageError`, and `SessionFileError` for a file."""
    limits = [condition for text in fail_if for condition in conditions(text)]
    if len(recordings) < 2:
        raise UsageError("There is nothing to compare with.", remedy="Give two recordings or more.")
    if len(recordings) > MOST_SESSIONS:
        raise UsageError(f"More than {MOST_SESSIONS} recordings are not compared.", remedy="Give fewer.")
    if not 0 <= warmup_s < float("inf"):
        raise UsageError("--warmup is a number of seconds.", remedy="Write --warmup 5.")
    found = digests(recordings, warmup_ns=round(warmup_s * 1e9))
    comparison = compare_digests(found, anyway=anyway)
    if limits and not anyway:
        _require_comparable(comparison)
    judged = _judged(limits, found, comparison)
    if json:
        output.write_json(document(comparison, judged))
    else:
        output.show(partial(report.shown, comparison, judged))
    return BROKEN if any(one.outcome == "broken" for one in judged) else 0


def _require_comparable(comparison: Comparison) -> None:
    """Refuse to judge sessions that differ in other things than what is judged. Raises `UsageError`."""
    for versus in comparison.versus:
        if not versus.is_comparable:
            raise UsageError(
                f"--fail-if cannot be judged: {versus.sentence}",
                remedy="Record both under the same conditions, or judge them --anyway.",
            )


def _judged(limits: Sequence[Condition], found: Sequence[Digest], comparison: Comparison) -> list[Judged]:
    return [
        judge(condition, found[0], digest, versus.letters, is_same_work=versus.is_same_work)
        for digest, versus in zip(found[1:], comparison.versus, strict=True)
        for condition in limits
    ]


def document(comparison: Comparison, judged: Sequence[Judged] = ()) -> dict[str, object]:
    """The same for machines: times in ns, ratios are of the other session to the first, unknown is null."""
    return {
        "sessions": [msgspec.to_builtins(facts) for facts in comparison.sessions],
        "versus": [_of_versus(versus) for versus in comparison.versus],
        "fail_if": [msgspec.to_builtins(one) for one in judged],
    }


def _of_versus(versus: Versus) -> dict[str, object]:
    moved = versus.moved
    return {
        "letters": list(versus.letters),
        "verdict": versus.verdict,
        "sentence": versus.sentence,
        "headline": versus.headline,
        "is_comparable": versus.is_comparable,
        "is_same_work": versus.is_same_work,
        "concerns": [msgspec.to_builtins(one) for one in versus.concerns],
        "differences": [msgspec.to_builtins(one) for one in versus.differences],
        "figures": {one.name: _of_figure(one) for one in versus.figures},
        "moved": None
        if moved is None
        else {
            "step": _of_part(moved.step),
            "phases": [_of_part(one) for one in moved.phases],
            "decode": [_of_part(one) for one in moved.decode],
            "split": moved.split,
        },
    }


def _of_figure(one: Compared) -> dict[str, object]:
    return {**msgspec.to_builtins(one), "standing": one.standing}


def _of_part(part: Part) -> dict[str, object]:
    return {**msgspec.to_builtins(part), "change_ns": part.change_ns, "token_change_ns": part.token_change_ns}
