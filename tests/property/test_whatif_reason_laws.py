"""Laws of the reasons of combinations: each part is credited with what it does itself, and no term is told twice."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from stackscope.analysis.whatif.moves import NAMES
from stackscope.analysis.whatif.predict import Predictor
from tests.property.test_whatif_laws import Changes, points, singles

if TYPE_CHECKING:
    from stackscope.analysis.whatif.working_point import WorkingPoint

_CLAIM: Final = re.compile(
    r"^(?P<subject>.*?)(?P<how> together| alone)* (?:cuts?|raises?|leaves?) "
    rf"(?P<term>{'|'.join(NAMES.values())}) (?:from|at) .* (?:a step|per token)$"
)
_CACHE: Final = re.compile(r"(?:^|, )(?P<term>prefill) (?:falls|rises|stays) ")
_OWN: Final[dict[str, frozenset[str]]] = {
    "-bit weights": frozenset({"weights", "head", "prefill"}),
    "a KV cache in": frozenset({"attention", "prefill"}),
    "attention not fused": frozenset({"attention", "prefill"}),
    "a KV cache for each sequence": frozenset(NAMES) - {"sample", "host"},
    "thread": frozenset(NAMES),
}
"""What the settings that a subject stands for can change."""


def clauses(reason: str) -> list[str]:
    return (reason[:1].lower() + reason[1:].removesuffix(".")).split("; ")


def halves(clause: str) -> list[str]:
    """What a change makes better and what it makes worse, each with its subject."""
    claim, (first, *rest) = _CLAIM.match(clause), clause.split(" but ")
    subject = "" if claim is None else claim["subject"]
    return [first, *(f"{subject} {one}" for one in rest)]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(points(), st.lists(singles, min_size=2, max_size=3))
def test_no_term_is_told_twice_and_none_of_what_cannot_change_it(point: WorkingPoint, several: list[Changes]) -> None:
    together: Changes = {name: value for one in several for name, value in one.items()}
    assume(len(together) == sum(map(len, several)))
    predictor = Predictor(point)
    prediction = predictor.predict(together)
    assume(prediction.tokens is not None)
    told = clauses(prediction.reason)
    alone = [predictor.predict(one) for one in several]
    assume(all(one.tokens is not None for one in alone))
    by_themselves = {half for one in alone for clause in clauses(one.reason) for half in halves(clause)}
    claims = [claim for clause in told if (claim := _CLAIM.match(clause)) is not None]
    terms = Counter(claim["term"] for claim in claims) + Counter(m["term"] for c in told if (m := _CACHE.search(c)))
    assert not [term for term, n in terms.items() if n > 1]
    assert sum(" rather than " in clause and " take" in clause for clause in told) <= 1
    for claim in claims:
        key = next(key for key, name in NAMES.items() if name == claim["term"])
        subjects = [own for words, own in _OWN.items() if words in claim["subject"]]
        assert subjects
        assert all(key in own for own in subjects)
        if " together" not in claim.group():
            assert claim.group().replace(" alone ", " ", 1) in by_themselves
