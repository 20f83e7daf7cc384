"""Made-up windows of evidence for the namer, and what it makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackscope.analysis.diagnosis.evidence import Batching, Evidence, Times
from stackscope.analysis.diagnosis.judge import judge
from stackscope.analysis.diagnosis.naming import Namer, Naming, choose
from stackscope.analysis.timing.terms import Terms
from stackscope.records import Estimate
from tests.diagnosis_machine import MS, S

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOSE = Estimate(0.3, 0.28, 0.32)


def window(at_s: float = 10.0, forwards: float = 100, **parts: float) -> Evidence:
    """Forwards of 10 ms each, all weights unless `parts` (ms per step) say otherwise; `terms` follow what is measured.

    Parts are names of terms, and of phases: `commit`, `sample`, `other`, `idle`, `excess`.
    """
    n, given = int(forwards), {"weights": 10.0, **parts}
    terms = {name: given.pop(name) for name in Terms._fields[:6] if name in given}
    excess = given.pop("excess", 0.0)
    forward = sum(terms.values()) + excess
    scaled = {name: n * MS * value for name, value in given.items()}
    return Evidence(
        at_ns=round(at_s * S),
        steps=n,
        forwards=n,
        times=Times(forward=n * MS * forward, **scaled),
        terms=Terms(**{name: n * MS * value for name, value in terms.items()}),
        is_reference_calm=True,
        rows_share=CLOSE,
        attention_share=CLOSE,
        batching=Batching(rows=n, outputs=n, passes=n, least_passes=n, cached=1000.0),
    )


def named(evidence: Evidence) -> tuple[str | None, str]:
    choice = choose(evidence, judge(evidence))
    return choice.name, choice.sentence


def follow(namer: Namer, evidence: Sequence[Evidence]) -> list[Naming]:
    return [namer.update(one) for one in evidence]
