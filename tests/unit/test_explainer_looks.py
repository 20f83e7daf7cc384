"""When the explainer works: names for the course of things, predictions for whoever looks."""

from __future__ import annotations

from stackscope.analysis.explainer import Explainer
from stackscope.analysis.live.view import LiveView
from stackscope.records import StepRecord
from stackscope.toggles import EngineConfig
from tests.unit.record_builders import SyntheticEngine, make_header


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
