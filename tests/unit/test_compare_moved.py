"""Where the time of a step moved without a time model: never to a part whose bytes are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from stackscope.analysis.comparing import moved as moving
from stackscope.analysis.comparing import wording
from stackscope.analysis.comparing.collecting import Collector
from stackscope.analysis.comparing.comparison import compare_digests
from stackscope.records import StepRecord
from tests.unit import timing_machines
from tests.unit.compare_sessions import CAPABILITIES, Run
from tests.unit.record_builders import make_header, make_model

if TYPE_CHECKING:
    from stackscope.analysis.comparing.digest import Digest
    from stackscope.analysis.comparing.moved import Moved

EVEN = Run(spread=0.0)


def moved(a: Digest, b: Digest) -> Moved:
    found = compare_digests([a, b]).versus[0].moved
    assert found is not None
    return found


def changes(found: Moved) -> dict[str, float]:
    """By part of the forward; they sum to its own change."""
    for side in ("a_ns", "b_ns"):
        forward = next(one for one in found.phases if one.name == "decode")
        assert sum(getattr(one, side) for one in found.decode) == pytest.approx(getattr(forward, side))
    return {one.name: one.change_ns for one in found.decode}


def starved(run: Run, share: float) -> Digest:
    collector = Collector("x")
    for record in run.records():
        if isinstance(record, StepRecord):
            lost = round(record.phases.decode / share)
            phases = msgspec.structs.replace(record.phases, decode=lost)
            collector.take([msgspec.structs.replace(record, phases=phases, cpu_ns=round(2 * share * lost))])
        else:
            collector.take([record])
    return collector.digest()


def test_more_rows_at_the_same_bytes_are_no_weights() -> None:
    """Drafts quadruple the rows of a forward. It takes longer by 40 µs for each of them, and reads what it read."""
    found = moved(EVEN.digest(), Run(spread=0.0, drafted=3, config={"speculation": "draft"}).digest())
    parts = changes(found)
    assert parts["more rows"] > 0.05e6
    assert max(abs(parts[name]) for name in ("weights", "head", "KV")) < 0.05 * parts["more rows"]
    assert "of which more rows +" in wording.sentence(found)
    assert "weights" not in wording.sentence(found)
    assert "more rows (arithmetic)" in found.split


def test_and_the_other_way_round() -> None:
    drafts = Run(spread=0.0, drafted=3, config={"speculation": "draft"})
    there, back = changes(moved(EVEN.digest(), drafts.digest())), changes(moved(drafts.digest(), EVEN.digest()))
    assert back == {name: pytest.approx(-change) for name, change in there.items()}


def test_what_neither_bytes_nor_rows_explain_is_not_split() -> None:
    """The same work, every forward longer by a millisecond."""
    found = moved(EVEN.digest(), Run(spread=0.0, base_ns=6e6).digest())
    parts = changes(found)
    assert parts["not split further"] == pytest.approx(1e6, rel=1e-3)
    assert parts["weights"] == pytest.approx(0.0, abs=1.0)
    assert parts["head"] == pytest.approx(0.0, abs=1.0)
    assert "of which not split further +1 ms" in wording.sentence(found)


def test_rows_explain_no_more_than_they_grew() -> None:
    drafts = Run(spread=0.0, drafted=3, base_ns=60e6, config={"speculation": "draft"})
    parts = {one.name: one for one in moved(EVEN.digest(), drafts.digest()).decode}
    reading = sum(parts[name].b_ns for name in ("weights", "head", "KV", "other"))
    rows = [run.digest().total("rows") / run.digest().total("forwards") for run in (EVEN, drafts)]
    assert parts["more rows"].b_ns == pytest.approx(reading * (rows[1] / rows[0] - 1))
    assert parts["not split further"].b_ns > 0


@pytest.mark.parametrize("other", [{"header": {"device": "another"}}, {"config": {"threads": 1}}], ids=str)
def test_on_another_machine_or_with_other_threads_rows_explain_nothing(other: dict[str, dict[str, Any]]) -> None:
    config = {"speculation": "draft", **other.get("config", {})}
    run = Run(spread=0.0, drafted=3, header=other.get("header", {}), config={})
    head = run.head()
    assert head.config is not None
    collector = Collector("x")
    collector.take([msgspec.structs.replace(head, config=msgspec.structs.replace(head.config, **config))])
    collector.take(list(run.records())[1:])
    parts = changes(moved(EVEN.digest(), collector.digest()))
    assert "more rows" not in parts
    assert parts["not split further"] > 0


def test_weights_of_half_the_bytes_are_what_moved() -> None:
    """From 4 ms for 19 MB to half of both: the reading goes by the bytes, and nothing else is named."""
    whole = make_model()
    tensors = tuple(msgspec.structs.replace(one, bytes=one.bytes // 2) for one in whole.tensors)
    half = msgspec.structs.replace(whole, tensors=tensors, tensor_bytes=whole.tensor_bytes // 2)
    how: dict[str, Any] = {"spread": 0.0, "cached_ns": 0.0, "row_ns": 0.0}
    there = Run(base_ns=2e6, header={"model": half}, **how)
    found = moved(Run(base_ns=4e6, **how).digest(), there.digest())
    parts = changes(found)
    reading = parts["weights"] + parts["head"]
    assert reading == pytest.approx(-2e6, rel=0.2)  # The KV, a sixth of it all, has not halved.
    assert reading + parts["not split further"] == pytest.approx(-2e6, rel=0.01)
    assert "of which weights -" in wording.sentence(found)


def test_what_lost_cores_took_is_a_part_of_its_own() -> None:
    """Half as fast because half of the cores were away: that is all that moved."""
    found = moved(starved(EVEN, 0.98), starved(EVEN, 0.49))
    parts = changes(found)
    assert parts["waiting for cores"] == pytest.approx(sum(parts.values()), rel=1e-3)
    assert "of which waiting for cores +" in wording.sentence(found)
    assert found.split.endswith("Waiting for cores is what its threads did not run of it, and measured.")
    assert "waiting for cores" not in changes(moved(starved(EVEN, 0.98), starved(EVEN, 0.95)))


def test_lost_cores_are_no_weights_for_the_time_model_either() -> None:
    machine = timing_machines.Machine()
    header = make_header(
        model=machine.model, config=timing_machines.CONFIG, ceilings=machine.calibrated(), capabilities=CAPABILITIES
    )

    def digest(share: float) -> Digest:
        collector = Collector("x")
        collector.take([header])
        for step in machine.traffic(400, seed=1):
            lost = round(step.phases.decode / share)
            phases = msgspec.structs.replace(step.phases, decode=lost)
            collector.take([msgspec.structs.replace(step, phases=phases, cpu_ns=round(2 * share * lost))])
        return collector.digest()

    found = moved(digest(0.98), digest(0.49))
    assert found.split.startswith("The forward is divided by the time model")
    parts = changes(found)
    assert parts["waiting for cores"] == pytest.approx(sum(parts.values()), rel=1e-3)


def test_cells_that_are_only_passed_over_are_not_all_idle_prefixes() -> None:
    """The term has those of other running sequences in it, with which a cache that is off has cells as well."""
    assert moving.BY_TERMS["resident"] == "others' cells"


def test_who_was_not_calibrated_is_named() -> None:
    machine = timing_machines.Machine()

    def digest(**header: Any) -> Digest:
        collector = Collector("x")
        head = make_header(
            model=machine.model, config=timing_machines.CONFIG, capabilities=CAPABILITIES, **header
        )  # fmt: skip
        collector.take([head, *machine.traffic(100, seed=1)])
        return collector.digest()

    calibrated, bare = digest(ceilings=machine.calibrated()), digest()
    elsewhere = digest(other_ceilings=(machine.calibrated(),))
    none = "the machine had not been calibrated (stackscope calibrate before recording)"
    other = "the machine had been calibrated for other configurations only (stackscope calibrate before recording)"
    for a, b, says in (
        (bare, calibrated, f"The time model says nothing of A: {none}."),
        (calibrated, elsewhere, f"The time model says nothing of B: {other}."),
        (bare, bare, f"The time model says nothing of A and B: {none}."),
        (elsewhere, bare, f"The time model says nothing of A: {other}; of B: {none}."),
    ):
        assert moved(a, b).split.endswith(says)
