"""What is asked of an ablation: settings and their values, cells, traffic, and what became of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stackscope.errors import UsageError
from stackscope.experiments.cells import config_of, label_of, masks, names_of, parse_factors, weights_file
from stackscope.experiments.plan import difference, warmup_requests, with_warmup
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.unit.ablate_builders import CACHE, SPECULATION, WEIGHTS, plan

if TYPE_CHECKING:
    from pathlib import Path

BASE = EngineConfig(model="f16.gguf", draft_model="draft.gguf")


def parsed(*texts: str, base: EngineConfig = BASE) -> dict[str, tuple[dict[str, object], dict[str, object]]]:
    found = parse_factors(texts, base, lambda kind: f"{kind.lower()}.gguf")
    return {factor.name: (dict(factor.off), dict(factor.on)) for factor in found}


def test_settings_are_off_by_what_off_means_for_them() -> None:
    assert parsed("speculation=draft", "weights=Q8_0", "prefix_cache=on", "draft-length=7", "kv_type=q8_0") == {
        "speculation": ({"speculation": "off"}, {"speculation": "draft"}),
        "weights": ({"model": "f16.gguf"}, {"model": "q8_0.gguf"}),
        "prefix_cache": ({"prefix_cache": False}, {"prefix_cache": True}),
        "draft_length": ({"draft_length": 3}, {"draft_length": 7}),
        "kv_type": ({"kv_type_k": "f16", "kv_type_v": "f16"}, {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}),
    }


def test_a_value_before_a_colon_is_the_one_off_and_settings_can_go_together() -> None:
    assert parsed("draft_length=3:7", "weights=Q4_0:Q8_0", "speculation=ngram+slots=4:8") == {
        "draft_length": ({"draft_length": 3}, {"draft_length": 7}),
        "weights": ({"model": "q4_0.gguf"}, {"model": "q8_0.gguf"}),
        "speculation+slots": ({"speculation": "off", "slots": 4}, {"speculation": "ngram", "slots": 8}),
    }


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["speculation"], "no setting with a value"),
        (["speculation="], "no setting with a value"),
        (["speculation=off"], "changes nothing"),
        (["slots=8"], "changes nothing"),
        (["slots=many"], "a whole number"),
        (["speculatoin=draft"], "Did you mean speculation"),
        (["temperature=1"], "no setting temperature of the engine"),
        (["draft_length=2", "draft_length=4"], "both change draft_length"),
        ([], "nothing to switch"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parsed(*texts)


def test_cells_are_the_baseline_each_alone_and_all_together() -> None:
    assert masks(3, is_full=False) == (0, 1, 2, 4, 7)
    assert masks(1, is_full=False) == (0, 1)
    assert masks(2, is_full=False) == masks(2, is_full=True) == (0, 1, 2, 3)
    assert masks(3, is_full=True) == tuple(range(8))
    with pytest.raises(UsageError, match="64 cells"):
        masks(6, is_full=True)


def test_a_cell_has_every_setting_on_or_off() -> None:
    factors = (WEIGHTS, CACHE, SPECULATION)
    baseline, both = config_of(BASE, factors, 0), config_of(BASE, factors, 0b101)
    assert (baseline.model, baseline.prefix_cache, baseline.speculation) == ("f16.gguf", False, "off")
    assert (both.model, both.prefix_cache, both.speculation) == ("q8_0.gguf", False, "draft")
    assert label_of(factors, 0) == "baseline"
    assert label_of(factors, 0b101) == "weights=Q8_0, speculation=draft"
    assert names_of(factors, 0b101) == "weights × speculation"


def test_requests_that_warm_up_are_added_to_those_that_are_measured() -> None:
    workload = with_warmup(WorkloadSpec(name="code", requests=10, concurrency=3))
    assert (workload.requests, warmup_requests(workload)) == (13, 3)


@pytest.mark.parametrize("asked", [{"duration_s": 5.0}, {"requests": 10, "duration_s": 5.0}, {"requests": 1}, {}])
def test_traffic_of_another_length_in_every_cell_is_refused(asked: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        with_warmup(WorkloadSpec(name="code", **asked))  # type: ignore[arg-type]


def test_a_difference_between_plans_is_named_by_its_place() -> None:
    before = {"blocks": {"first": 8}, "factors": [{"label": "a=1"}], "is_full": False}
    after = {"blocks": {"first": 4}, "factors": [{"label": "a=1"}, {"label": "b=2"}], "is_full": False}
    assert difference(before, after) == ["blocks.first: 8, now 4", "factors: a=1, now a=1 b=2"]
    assert difference(before, before) == []


def test_the_plan_knows_its_cells() -> None:
    one = plan(WEIGHTS, SPECULATION)
    assert (one.cells, one.everything, one.label(3)) == ((0, 1, 2, 3), 3, "weights=Q8_0, speculation=draft")


def test_weights_of_the_models_own_type_are_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "lab-f16.gguf"
    source.write_bytes(b"source")
    assert weights_file(source, "f16") == (source, True)
    made, is_there = weights_file(source, "q8_0")
    assert (made, is_there) == (tmp_path / "cache" / "quantised" / "lab-q8_0.gguf", False)
    made.parent.mkdir(parents=True)
    made.write_bytes(b"variant")
    assert weights_file(source, "q8_0") == (made, True)
