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

    def all_of(predictor: Predictor) -> tuple[BreakEven, ...]:
        nonlocal found
        found += 1
        return genuine(predictor)

    genuine = breakevens.all_of
    monkeypatch.setattr("stackscope.analysis.explainer.all_of", all_of)
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
