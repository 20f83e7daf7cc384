"""What a comparison says in words: no reason that is not the reason, and nothing that its table contradicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.analysis.comparing.comparison import compare_digests
from tests.unit.compare_sessions import Run

if TYPE_CHECKING:
    from stackscope.analysis.comparing.comparison import Versus


def versus(b: Run, a: Run | None = None) -> Versus:
    return compare_digests([(Run() if a is None else a).digest(), b.digest()]).versus[0]


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ({"name": "copy-ngram"}, "the workloads are not the same, which may be all of it"),
        ({"seed": 7}, "the workloads are not the same, which may be all of it"),
        ({"requests": 30}, "the workloads are not the same, which may be all of it"),
        ({}, "as after a run that left its prefixes behind"),
    ],
)
def test_prefixes_were_left_behind_only_where_the_same_was_asked(there: dict[str, object], says: str) -> None:
    found = versus(Run(noise=2, hit=0.66, workload=there))
    (text,) = [one.text for one in found.concerns if one.kind == "hit rate"]
    assert text.startswith("A found 0 % of the prompt tokens in its prefix cache, B 66.0 %")
    assert says in text
    assert ("left its prefixes behind" in text) == (there == {})
    assert found.verdict == "not comparable"
