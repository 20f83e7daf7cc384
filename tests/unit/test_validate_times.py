"""Times of steps in the validation: learned from some blocks of a sweep, and asked of others that came later."""

from __future__ import annotations

import pytest

from benchmarks.validate import figures, measuring, score_time
from benchmarks.validate.measuring import Asked
from benchmarks.validate.reading import divided
from tests.unit.validate_sessions import MS, Session


def test_times_are_predicted_from_the_first_part_only() -> None:
    """A machine that takes 5 ms and 1 ms for each row: seen at 1, 2, 4 and 8 rows, asked about 3, and again about 8."""
    session = Session()
    for batch in (1, 2, 4, 8, 3, 8):
        session.block()
        session.steps(300, (5 + batch) * MS, batch=batch)
    recording = divided(session.records)
    [again] = score_time.foretold_blocks(recording, Asked((0, 1, 2, 3), (5,)))
    within = again.steps
    assert again.stretch is recording.stretches[5]
    [[_, held_out]] = score_time.foretold_blocks(recording, Asked((0, 1, 2, 3), (4,)))
    assert len(within) > 50
    assert figures.quantile([one.error for one in within], 0.5)[0] == pytest.approx(0.0, abs=0.02)
    assert figures.quantile([one.error for one in held_out], 0.5)[0] == pytest.approx(0.0, abs=0.10)


def test_a_machine_that_changes_between_the_parts_is_an_error() -> None:
    session = Session()
    for batch, factor in ((1, 1), (2, 1), (4, 1), (8, 1), (3, 1), (8, 2)):
        session.block()
        session.steps(200, factor * (5 + batch) * MS, batch=batch)
    [[_, within]] = score_time.foretold_blocks(divided(session.records), Asked((0, 1, 2, 3), (5,)))
    assert (figures.quantile([one.error for one in within], 0.5).value or 0) > 0.4


def test_a_drift_of_the_machine_is_told_beside_the_error_of_the_model() -> None:
    """A machine that becomes slower by 1 % a block."""
    session = Session()
    for number, batch in enumerate(batch for one in measuring.PASSES for batch in one):
        session.block()
        session.steps(200, round((1 + 0.01 * number) * (5 + batch) * MS), batch=batch)
    recording, roles = divided(session.records), measuring.SWEEP

    def median(*parts: Asked) -> float:
        found = score_time.foretold_blocks(recording, *parts)
        return figures.quantile([step.error for one in found for step in one.steps], 0.5).value or 0.0

    assert median(*roles.in_range) < 0.04
    assert median(roles.halves) > 0.07
    assert score_time.foretold_blocks(recording, Asked((0,), (18,))) == []  # a session that ended early


def test_parts_of_a_sweep_are_of_the_same_batches_and_nothing_is_learned_from_the_future() -> None:
    batches = [batch for one in measuring.PASSES for batch in one]
    roles = measuring.SWEEP
    assert sum(len(one.blocks) for one in roles.in_range) == 8
    for one in (*roles.in_range, roles.halves):
        assert {batches[i] for i in one.learned} == {batches[i] for i in one.blocks} == set(measuring.LEARNED)
    for one in (*roles.in_range, roles.held_out, roles.halves):
        assert max(one.learned) < min(one.blocks)
    asked = {i for one in roles.in_range for i in one.blocks}
    assert not asked & {i for one in (*roles.in_range, roles.held_out) for i in one.learned}
    assert tuple(batches[i] for i in roles.held_out.blocks) == measuring.HELD_OUT
    sweeps = [one for one in measuring.SCENARIOS if one.name.endswith("batches")]
    assert len(sweeps) == 2
    for scenario in sweeps:
        assert [block.settings for block in scenario.blocks] == [{"slots": batch} for batch in batches]
        assert scenario.workload.concurrency == max(batches)
