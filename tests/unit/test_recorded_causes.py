"""The recordings of `profiles/causes`: each came from the real engine under one fault, and names its cause."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.validate.score_naming import named
from record_causes import MOST_BYTES, NOT_SHIPPED, chosen, file_name
from stackscope.analysis.diagnosis.gather import WINDOW_NS
from stackscope.analysis.explainer import Explainer, unhurried
from stackscope.engine.allowances import Allowances
from stackscope.records import Mark, StepRecord
from stackscope.session.reader import SessionReader

if TYPE_CHECKING:
    from stackscope.analysis.explainer import Explanation
    from stackscope.records import Cause

FOLDER: Final = Path(__file__).parents[2] / "profiles" / "causes"
EVERY: Final[dict[str, Cause | None]] = {name: cause for name, (_, cause) in chosen().items()}
WANTED: Final = {name: cause for name, cause in EVERY.items() if name not in NOT_SHIPPED}

needs_recordings = pytest.mark.skipif(not FOLDER.is_dir(), reason="there are no recordings beside these tests")


def test_a_cause_has_a_file_and_a_healthy_engine_has_one_too() -> None:
    assert len(WANTED) >= 16
    assert EVERY.keys() > NOT_SHIPPED
    assert "healthy" in WANTED
    assert all(name == file_name(cause) for name, cause in WANTED.items())
    assert file_name("KV and attention") == "kv-and-attention"


@needs_recordings
def test_all_of_them_are_there() -> None:
    assert {path.name.removesuffix(".jsonl.zst") for path in FOLDER.iterdir()} == WANTED.keys()


@needs_recordings
@pytest.mark.parametrize("name", WANTED)
def test_each_names_its_cause(name: str) -> None:
    path = FOLDER / f"{name}.jsonl.zst"
    records = list(SessionReader(path))
    assert named(records).name == WANTED[name]
    assert path.stat().st_size < MOST_BYTES


@cache
def explained(name: str) -> tuple[Explanation, list[StepRecord]]:
    """What its summary says, and its steps."""
    explainer, steps = Explainer(rules=Allowances(2), cpu_ns=unhurried), []
    for record in SessionReader(FOLDER / f"{name}.jsonl.zst"):
        explainer.write(record)
        if isinstance(record, StepRecord):
            steps.append(record)
    return explainer.final(steps[-1].end_ns), steps


@needs_recordings
@pytest.mark.parametrize("name", WANTED)
def test_each_says_its_cause_first_in_its_summary(name: str) -> None:
    stood = [one.naming.name for one in explained(name)[0].stood]
    assert stood[:1] == ([] if WANTED[name] is None else [WANTED[name]])


@needs_recordings
@pytest.mark.parametrize("name", WANTED)
def test_what_the_time_model_says_of_each_is_not_of_its_first_step(name: str) -> None:
    """The first step is made cold: its sampling alone took up to a millisecond, where later ones take 10 µs."""
    explanation, steps = explained(name)
    lately = [step for step in steps if step.start_ns > steps[-1].end_ns - WINDOW_NS]
    measured = sum(step.phases.sample for step in lately) / len(lately)
    assert dict(explanation.terms)["sample"] < 2.0 * measured


@needs_recordings
@pytest.mark.parametrize("name", WANTED)
def test_no_reason_denies_what_is_predicted(name: str) -> None:
    """As `KV f16 +4.7 %`, and that it would hardly change a step."""
    ranking = explained(name)[0].ranking
    for one in () if ranking is None else ranking.singles:
        if "would hardly change" in one.prediction.reason and one.prediction.tokens is not None:
            assert abs(one.prediction.tokens.value - 1.0) < 0.02, one.prediction.reason


@needs_recordings
@pytest.mark.parametrize("name", WANTED)
def test_none_holds_a_label(name: str) -> None:
    records = list(SessionReader(FOLDER / f"{name}.jsonl.zst"))
    labels = {record.label for record in records if isinstance(record, Mark)}
    assert all(label.split(" ")[0] == "block" for label in labels)
