"""Sweeps and searches: spaces, goals, and a machine with known speeds on which the best has to be found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from stackscope.errors import UsageError
from stackscope.experiments import search_results as results
from stackscope.experiments.plan import Blocks
from stackscope.experiments.search import EXPLORING, Search
from stackscope.experiments.search_goals import Goals, pareto, parse_constraints, parse_objectives
from stackscope.experiments.search_plan import SweepPlan, read_sweep
from stackscope.experiments.search_space import configurations, parse_axes, split_axes
from stackscope.experiments.state import CellRun
from stackscope.records import Estimate, Prediction
from stackscope.report import sweep as report
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.integration.cli_support import ROOT
from tests.unit.sweep_machine import Machine, machine, run_on

if TYPE_CHECKING:
    from pathlib import Path

BASE = EngineConfig(model="f16.gguf", draft_model="draft.gguf", prefix_cache=False)
SPEED = Goals(objectives=("tokens_per_s",))


def weights(kind: str) -> str:
    return f"{kind.lower()}.gguf"


def searched(
    of: Machine,
    seed: int,
    *,
    budget: int = 25,
    guess_sd: float | None = None,
    goals: Goals = SPEED,
    race_speed: float = 1.0,
) -> tuple[float, list[CellRun]]:
    """(the speed of what a search found ÷ that of the best, its runs); guesses stray by as much, each by itself.

    `race_speed`: that of the machine during the race ÷ before it.
    """
    random = np.random.default_rng(1_000 + seed)
    drift = random.normal(0, 0.03, 100)
    drift[:EXPLORING] += math.log(race_speed)
    guesses = None
    if guess_sd is not None:
        guesses = {
            "tokens_per_s": {
                cell: rate * math.exp(random.normal(0, guess_sd)) for cell, rate in enumerate(of.tokens_per_s)
            }
        }
    search = Search(of.places, goals, budget=budget, seed=seed, guesses=guesses)
    runs: list[CellRun] = []
    while (pick := search.next(runs)) is not None:
        runs.append(run_on(of, pick.block, pick.cell, random, drift.tolist()))
    best = search.best(runs)
    assert best is not None
    return of.tokens_per_s[best] / max(of.tokens_per_s), runs


@pytest.mark.parametrize("guess_sd", [None, 0.1])
@pytest.mark.parametrize("goals", [SPEED, Goals()])
def test_a_search_finds_the_best_of_ninety_with_twenty_five_runs(guess_sd: float | None, goals: Goals) -> None:
    of = machine()
    assert len(of.places) == 90
    # Two of them are within 3 % of the best, and the worst has a twelfth of its speed.
    assert sum(rate >= 0.97 * max(of.tokens_per_s) for rate in of.tokens_per_s) == 2
    found = [searched(of, seed, guess_sd=guess_sd, goals=goals) for seed in range(20)]
    assert max(len(runs) for _, runs in found) <= 25
    assert sum(share >= 0.97 for share, _ in found) >= 19


@pytest.mark.parametrize("race_speed", [0.5, 2.0])
@pytest.mark.parametrize("guess_sd", [None, 0.1])
def test_a_machine_that_changes_before_the_race_changes_nothing_of_what_is_found(
    guess_sd: float | None, race_speed: float
) -> None:
    of = machine()
    found = [searched(of, seed, guess_sd=guess_sd, goals=Goals(), race_speed=race_speed) for seed in range(20)]
    assert sum(share >= 0.97 for share, _ in found) >= 19
    for seed, (_, runs) in enumerate(found):
        best = Search(of.places, Goals(), budget=25, seed=seed).best(runs)
        assert best in {run.cell for run in runs if run.block != EXPLORING}


def test_a_search_never_takes_more_runs_than_it_may() -> None:
    for budget in (4, 5, 9, 17, 40):
        _, runs = searched(machine(), 3, budget=budget)
        assert len(runs) <= budget


def test_a_search_goes_on_as_it_would_have() -> None:
    of = machine()
    _, runs = searched(of, 5)
    search = Search(of.places, SPEED, budget=25, seed=5)
    for n in range(len(runs)):
        pick = search.next(runs[:n])
        assert pick is not None
        assert (pick.block, pick.cell) == (runs[n].block, runs[n].cell)
    assert search.next(runs) is None


def test_the_race_halves_and_every_block_of_it_is_whole() -> None:
    _, runs = searched(machine(), 1)
    blocks: dict[int, list[int]] = {}
    for run in runs:
        blocks.setdefault(run.block, []).append(run.cell)
    exploring = blocks.pop(EXPLORING)
    assert len(exploring) == len(set(exploring))
    sizes = [len(blocks[block]) for block in sorted(blocks)]
    assert sizes[0] >= 4
    assert sizes == sorted(sizes, reverse=True)
    for before, after in zip(sorted(blocks), sorted(blocks)[1:], strict=False):
        assert set(blocks[after]) <= set(blocks[before])


def test_what_cannot_run_is_left_alone_and_what_is_refused_is_not_raced() -> None:
    of = machine()
    fastest = max(range(90), key=lambda cell: of.tokens_per_s[cell])
    search = Search(of.places, SPEED, budget=25, seed=0, refused=[fastest])
    random, drift = np.random.default_rng(0), [0.0] * 100
    runs: list[CellRun] = []
    while (pick := search.next(runs)) is not None:
        assert pick.cell != fastest
        run = run_on(of, pick.block, pick.cell, random, drift)
        if of.places[pick.cell][0] == 2:
            run = CellRun(block=pick.block, cell=pick.cell, refusal="no room")
        runs.append(run)
    refused = [run.cell for run in runs if run.refusal is not None]
    assert len(refused) == len(set(refused))
    best = search.best(runs)
    assert best is not None
    assert best not in refused


def test_constraints_hold_for_what_is_found() -> None:
    of = machine()
    limit = Goals(objectives=("tokens_per_s",), constraints=parse_constraints("step_gap_p95 < 60ms"))
    able = [rate for rate, gap in zip(of.tokens_per_s, of.step_gap_ms, strict=True) if gap < 60]
    assert max(able) < 0.9 * max(of.tokens_per_s)
    good = 0
    for seed in range(10):
        random, drift = np.random.default_rng(seed), [0.0] * 100
        search = Search(of.places, limit, budget=25, seed=seed)
        runs: list[CellRun] = []
        while (pick := search.next(runs)) is not None:
            runs.append(run_on(of, pick.block, pick.cell, random, drift))
        best = search.best(runs)
        assert best is not None
        good += of.step_gap_ms[best] < 62 and of.tokens_per_s[best] >= 0.9 * max(able)
    assert good >= 9


# Spaces


def test_drafts_have_lengths_only_where_there_are_drafts() -> None:
    axes = parse_axes(split_axes("speculation=off,draft; draft_length=2,3,7; kv_type=f16,q8_0"), weights)
    space = configurations(BASE, axes)
    assert len(space) == 2 * (1 + 3)
    assert [one.label for one in space[:2]] == ["speculation=off kv_type=f16", "speculation=off kv_type=q8_0"]
    assert len({one.config for one in space}) == len(space)
    assert space[-1].config.draft_length == 7
    assert (space[-1].config.kv_type_k, space[-1].config.kv_type_v) == ("q8_0", "q8_0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing to sweep"),
        ("kv_type", "has no values"),
        ("kv_type=", "has no values"),
        ("kv_type=f16,f16", "value twice"),
        ("kv_type=f16,q8_0; kv_type_k=f16,q8_0", "both set kv_type_k"),
        ("kv_tpye=f16", "Did you mean kv_type"),
        ("slots=1", "only one configuration"),
    ],
)
def test_a_space_that_makes_no_sense_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        configurations(BASE, parse_axes(split_axes(text), weights))


def test_the_sweeps_that_ship_can_be_read() -> None:
    folder = ROOT / "profiles" / "sweeps"
    sizes = {}
    for path in sorted(folder.glob("*.toml")):
        sizes[path.stem] = len(configurations(BASE, parse_axes(read_sweep(path).axes, weights)))
    assert sizes == {"drafts": 42, "eight": 8}


@pytest.mark.parametrize(
    "content",
    [
        "axes = 3",
        "[axes]\nkv_type = 'f16'",
        "what = 1\n[axes]",
        "[axes",
        "",
        pytest.param("x = " + "[" * 99_999, id="deep"),
    ],
)
def test_a_file_that_is_no_sweep_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"broken\.toml"):
        read_sweep(path)


# Goals


def test_limits_are_read_in_their_units() -> None:
    found = parse_constraints("ttft_p95 < 200ms, memory<1.5GB, tokens_per_s > 30, agreement > 99%")
    assert [(one.figure, one.relation, one.limit) for one in found] == [
        ("ttft_p95_ns", "<", 2e8),
        ("memory_bytes", "<", 1.5e9),
        ("tokens_per_s", ">", 30.0),
        ("greedy_agreement", ">", 0.99),
    ]
    assert found[0].holds({"ttft_p95_ns": 1.9e8}) is True
    assert found[0].holds({"ttft_p95_ns": 2.1e8}) is False
    assert found[0].holds({}) is None


@pytest.mark.parametrize("text", ["ttft_p95", "ttft_p95 < 200 parsecs", "nothing < 3", "memory < 0", "memory < -1GB"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_constraints(text)


def test_the_pareto_set_has_what_nothing_beats() -> None:
    goals = Goals(
        objectives=parse_objectives("tokens_per_s,step_gap_p95"), constraints=parse_constraints("memory < 9B")
    )
    figures = {
        0: {"tokens_per_s": 10.0, "step_gap_p95_ns": 5.0, "memory_bytes": 1.0},
        1: {"tokens_per_s": 20.0, "step_gap_p95_ns": 9.0, "memory_bytes": 1.0},
        2: {"tokens_per_s": 15.0, "step_gap_p95_ns": 9.0, "memory_bytes": 1.0},
        3: {"tokens_per_s": 99.0, "step_gap_p95_ns": 1.0, "memory_bytes": 9.5},
        4: {"tokens_per_s": 99.0, "memory_bytes": 1.0},
        5: {"tokens_per_s": 10.0, "step_gap_p95_ns": 5.0, "memory_bytes": 1.0},
    }
    assert pareto(figures, goals) == [0, 1, 5]


# Results


def plan(text: str, *, budget: int | None = None, n_blocks: int = 4) -> SweepPlan:
    return SweepPlan(
        base=BASE,
        axes=parse_axes(split_axes(text), weights),
        workload=WorkloadSpec(name="code", requests=11, concurrency=1),
        goals=SPEED,
        budget=budget,
        blocks=Blocks(first=n_blocks, least=n_blocks, is_adaptive=False, seconds=None),
    )


def runs_of(rates: dict[int, float], n_blocks: int) -> list[CellRun]:
    random = np.random.default_rng(0)
    return [
        CellRun(block=block, cell=cell, figures={"tokens_per_s": rate * math.exp(random.normal(0, 0.004))})
        for block in range(n_blocks)
        for cell, rate in rates.items()
    ]


def test_a_pair_that_helps_alone_and_hurts_together_is_found() -> None:
    of = plan("weights=F16,Q4_K_M; speculation=off,draft; kv_type=f16,q8_0")
    space = of.configurations
    rate = {"off": {"f16.gguf": 20.0, "q4_k_m.gguf": 50.0}, "draft": {"f16.gguf": 30.0, "q4_k_m.gguf": 40.0}}
    rates = {
        cell: rate[one.config.speculation][one.config.model] * (1.1 if one.config.kv_type_k == "q8_0" else 1.0)
        for cell, one in enumerate(space)
    }
    found = results.analyse(of, runs_of(rates, 6), {})
    assert [(pair.one, pair.other) for pair in found.pairs] == [("weights=Q4_K_M", "speculation=draft")] * 2
    assert {pair.context for pair in found.pairs} == {
        "weights=F16 speculation=off kv_type=f16",
        "weights=F16 speculation=off kv_type=q8_0",
    }
    assert found.pairs[0].over_best.ratio == pytest.approx(0.8, rel=0.02)
    assert found.n_pairs == 6
    assert found.winner is not None
    assert found.winner.label == "weights=Q4_K_M speculation=off kv_type=q8_0"
    assert [one.text for one in found.why] == ["weights=Q4_K_M", "kv_type=q8_0"]
    assert found.why[1].alone is not None
    assert found.why[1].alone.ratio == pytest.approx(1.1, rel=0.01)


def test_a_search_says_what_each_setting_brings_by_all_runs_together() -> None:
    of = plan("weights=F16,Q4_K_M; speculation=off,draft; kv_type=f16,q8_0", budget=10)
    rates = {
        cell: 20.0
        * (2.0 if one.config.model == "q4_k_m.gguf" else 1.0)
        * (1.5 if one.config.speculation == "draft" else 1.0)
        * (0.8 if one.config.kv_type_k == "q8_0" else 1.0)
        for cell, one in enumerate(of.configurations)
    }
    search, runs = results.search_of(of, {}), list[CellRun]()
    random = np.random.default_rng(4)
    while (pick := search.next(runs)) is not None:
        rate = rates[pick.cell] * math.exp(random.normal(0, 0.01))
        runs.append(CellRun(block=pick.block, cell=pick.cell, figures={"tokens_per_s": rate}, duration_ns=10**9))
    found = results.analyse(of, runs, {})
    assert found.winner is not None
    assert found.winner.label == "weights=Q4_K_M speculation=draft kv_type=f16"
    brought = {one.text: one.fitted for one in found.why if one.fitted is not None}
    assert {text: one.value for text, one in brought.items()} == {
        "weights=Q4_K_M": pytest.approx(2.0, rel=0.1),
        "speculation=draft": pytest.approx(1.5, rel=0.1),
    }
    assert all(one.low > 1.0 for one in brought.values())
    assert brought["weights=Q4_K_M"].holds(2.0)
    assert brought["speculation=draft"].holds(1.5)


def test_a_setting_whose_other_value_never_ran_is_not_said_to_bring_anything() -> None:
    """What is predicted of it is no measurement, and the mean of other predictions even less."""
    of = plan("weights=F16,Q4_K_M; speculation=off,draft", budget=10)
    drafted = [cell for cell, one in enumerate(of.configurations) if one.config.speculation == "draft"]
    runs = [
        CellRun(block=block, cell=cell, figures={"tokens_per_s": 20.0 + 10.0 * cell + block}, duration_ns=10**9)
        for block in range(4)
        for cell in drafted
    ]
    found = results.analyse(of, runs, {"tokens_per_s": {drafted[0]: 1.9, 0: 1.0}})
    brought = {one.text: one.fitted for one in found.why}
    assert brought["weights=Q4_K_M"] is not None
    assert brought["speculation=draft"] is None


def test_where_settings_multiply_no_pair_hurts() -> None:
    of = plan("weights=F16,Q4_K_M; speculation=off,draft")
    found = results.analyse(of, runs_of({0: 20.0, 1: 30.0, 2: 40.0, 3: 60.0}, 6), {})
    assert (found.pairs, found.n_pairs) == ((), 1)


def test_the_report_has_the_winners_command_line() -> None:
    of = plan("weights=F16,Q4_K_M; speculation=off,draft; kv_type=f16,q8_0")
    rates = {cell: 20.0 + cell for cell in range(8)}
    found = report.SweepReport(plan=of, result=results.analyse(of, runs_of(rates, 3), {}), folder=ROOT)
    text = " ".join(report.shown(found, 100).plain.split())
    assert (
        "stackscope run --model q4_k_m.gguf --draft draft.gguf --requests 11 --concurrency 1 --speculation draft "
        "--no-prefix-cache --kv-type q8_0"
    ) in text
    assert "weights=Q4_K_M speculation=draft kv_type=q8_0" in text
    lines = report.shown(found, 80).plain.split("\n")
    assert all(len(line) <= 80 for line in lines if str(ROOT) not in line)
    document = report.document(found)
    assert document["winner"] == 7
    assert len(document["rows"]) == 8
    msgspec.json.encode(document)


def test_predictions_guide_only_where_at_least_half_were_made() -> None:
    ratio = Estimate(1.5, 1.4, 1.6)
    some = {1: Prediction(at_ns=0, changes={}, tokens=ratio), 2: Prediction(at_ns=0, changes={}, reason="not known")}
    assert results.guesses_of(some, 4) == {"tokens_per_s": {0: 1.0, 1: 1.5}}
    assert results.guesses_of(some, 5) == {}
