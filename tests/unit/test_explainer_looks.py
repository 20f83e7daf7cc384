"""When the explainer works: names for the course of things, predictions for whoever looks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from stackscope.analysis.explainer import BREAK_EVENS_NS, RANKING_NS, Explainer
from stackscope.analysis.live.view import LiveView
from stackscope.analysis.whatif import breakevens
from stackscope.records import ConfigEvent, StepRecord
from stackscope.toggles import EngineConfig
from tests.unit.record_builders import SyntheticEngine, make_header

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

    from stackscope.analysis.whatif.breakevens import BreakEven
    from stackscope.analysis.whatif.predict import Predictor


def test_while_nobody_looks_it_names_and_predicts_nothing() -> None:
    explainer = Explainer()
    view = LiveView(explainer=explainer)
    view.write(make_header(config=EngineConfig(model="/models/synthetic-F16.gguf", threads=2)))
    now_ns = 0
    for record in SyntheticEngine(seed=1, slots=2, decode_ns=40_000_000).records(1_500):
        view.write(record)
        if isinstance(record, StepRecord):
            now_ns = record.end_ns
    view.catch_up()
    unseen = explainer.follow(0)
    assert unseen.naming.at_ns > 40_000_000_000
    assert unseen.stood
    assert unseen.ranked_at_ns is None
    seen = view.snapshot(now_ns).explanation
    assert seen is not None
    assert seen.ranked_at_ns == now_ns
    assert seen.ranking is not None


def test_break_evens_are_found_anew_after_a_while_and_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig(model="/models/synthetic-F16.gguf", threads=2)
    explainer, found = Explainer(), 0

    def all_in_parts(predictor: Predictor) -> Generator[None, None, tuple[BreakEven, ...]]:
        nonlocal found
        found += 1
        return (yield from breakevens.all_in_parts(predictor))

    monkeypatch.setattr("stackscope.analysis.explainer.all_in_parts", all_in_parts)
    explainer.write(make_header(config=config))
    records = SyntheticEngine(seed=1, slots=2, decode_ns=40_000_000).records(200)
    for record in itertools.islice(records, 100):
        explainer.write(record)
    at_ns, counted = RANKING_NS[1], []
    for _ in range(3):
        at_ns += RANKING_NS[1]
        explanation = explainer.explanation(at_ns)
        assert explanation.ranked_at_ns == at_ns
        assert explanation.ranking is not None
        assert explanation.ranking.break_evens
        counted.append(found)
    assert RANKING_NS[1] < BREAK_EVENS_NS < 2 * RANKING_NS[1]
    assert counted == [1, 1, 2]
    explainer.write(ConfigEvent(at_ns=at_ns, epoch=0, kind="live", changes={"seed": (0, 1)}, config=config))
    for record in records:
        explainer.write(record)
    explainer.explanation(at_ns + RANKING_NS[1])
    assert found == 3


def test_predictions_for_somebody_who_draws_come_in_parts() -> None:
    """A clock that takes a millisecond a candidate: no look spends more than it may, and all comes to the same."""
    config = EngineConfig(model="/models/synthetic-F16.gguf", threads=2)
    spent = itertools.count(0, 1_000_000)
    whole, parts = Explainer(cpu_ns=lambda: 0), Explainer(cpu_ns=spent.__next__, part_ns=10_000_000)
    records = [make_header(config=config), *SyntheticEngine(seed=1, slots=2, decode_ns=40_000_000).records(100)]
    for record in records:
        for explainer in (whole, parts):
            explainer.write(record)
    at_ns = RANKING_NS[1]
    expected = whole.explanation(at_ns)
    assert expected.ranking is not None
    n_looks, most = 0, 0
    found = parts.explanation(at_ns)
    while found.ranking is None:
        before = next(spent)
        n_looks += 1
        found = parts.explanation(at_ns + n_looks)
        most = max(most, next(spent) - before)
    assert n_looks >= 3
    assert most <= 14_000_000  # The part, and looks at the clock around it.
    assert found.ranked_at_ns == at_ns + 1  # The first look has named what limits.
    assert found.ranking is not None
    assert [one.label for one in found.ranking.singles] == [one.label for one in expected.ranking.singles]
    assert found.ranking.break_evens == expected.ranking.break_evens


def test_a_change_ends_predictions_that_are_being_made() -> None:
    config = EngineConfig(model="/models/synthetic-F16.gguf", threads=2)
    explainer = Explainer(cpu_ns=itertools.count(0, 1_000_000).__next__, part_ns=10_000_000)
    explainer.write(make_header(config=config))
    for record in SyntheticEngine(seed=1, slots=2, decode_ns=40_000_000).records(100):
        explainer.write(record)
    at_ns = RANKING_NS[1]
    assert explainer.explanation(at_ns).ranking is None
    explainer.write(ConfigEvent(at_ns=at_ns, epoch=1, kind="live", changes={"seed": (0, 1)}, config=config))
    for n in range(200):
        assert explainer.explanation(at_ns + n).ranking is None
