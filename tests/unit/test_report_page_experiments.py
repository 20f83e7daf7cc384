"""Reports of ablations, sweeps and comparisons: the page opens anywhere, and both forms say what the command says."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from stackscope.analysis.comparing import wording
from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.cli import app
from stackscope.experiments.comparing import compare
from stackscope.experiments.plan import Blocks
from stackscope.experiments.search_plan import SweepPlan
from stackscope.experiments.search_space import Axis, Value
from stackscope.experiments.state import NAME, StateFile
from stackscope.records import Estimate, Prediction
from stackscope.report import ablation, sweep
from stackscope.report.ablation_words import verdict
from stackscope.report.page import ablated
from stackscope.report.page.gather import gather
from stackscope.report.page.html import document_page, page
from stackscope.report.page.intervals import MOST_RANGE, Ratio, Ratios, ratios
from stackscope.report.page.markdown import markdown, plain
from stackscope.session.format import encode_all
from stackscope.session.reader import SessionReader
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import WorkloadSpec
from tests.unit.ablate_builders import plan, run, simulated
from tests.unit.page_checker import SVG, check, data_of
from tests.unit.test_compare_command import RUNS
from tests.unit.test_report_page_html import CHROMIUM, HOSTILE, opened, rows_of, words

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.experiments.plan import Plan
    from stackscope.experiments.state import CellRun

SINGLES: Final = (1.5, 1.3, 1.6)
WHOLE: Final = 0.86
"""Of the product, with everything on."""


def ablation_runs(of: Plan, n_blocks: int = 8) -> list[CellRun]:
    """Runs of which the speed-ups, and what gets lost together, are known."""
    truth = {
        cell: math.log(20)
        + sum(math.log(value) for index, value in enumerate(SINGLES) if cell >> index & 1)
        + (math.log(WHOLE) if cell == of.everything else 0)
        for cell in of.cells
    }
    return [
        run(
            one.block, one.cell, one.figures["tokens_per_s"], ttft_p50_ns=5e6, memory_bytes=4e8, host_share=0.1,
            **{"share.decode": 0.8, "share.draft": 0.05},
        )
        for one in simulated(of, truth, n_blocks, np.random.default_rng(0), run_sd=0.01)
    ]  # fmt: skip


def ablated_folder(tmp_path: Path, *, n_blocks: int = 8, is_full: bool = False) -> Path:
    of = plan(is_full=is_full)
    folder = tmp_path / "ablation"
    with StateFile.open(folder, "ablation", of) as state:
        for one in ablation_runs(of, n_blocks):
            state.add(one)
        state.predict(1, Prediction(at_ns=0, changes={}, tokens=Estimate(1.45, 1.3, 1.6)))
        for cell, agreement in ((0, 1.0), (1, 0.98)):
            state.judge(cell, {"greedy_agreement": agreement, "mean_kl": 0.0123 * cell})
    return folder


def swept_folder(tmp_path: Path) -> Path:
    """Weights × speculation, which each help, and together hurt."""
    of = SweepPlan(
        base=EngineConfig(model="f16.gguf", draft_model="draft.gguf"),
        axes=(
            Axis(name="weights", values=(Value(text="f16", fields={"model": "f16.gguf"}),
                                         Value(text="q8_0", fields={"model": "q8_0.gguf"}))),
            Axis(name="speculation", values=(Value(text="off", fields={"speculation": "off"}),
                                             Value(text="draft", fields={"speculation": "draft"}))),
        ),
        workload=WorkloadSpec(name="code", requests=11, concurrency=1),
        blocks=Blocks(first=4, least=4, is_adaptive=False, seconds=None),
    )  # fmt: skip
    random = np.random.default_rng(0)
    rates = {0: 20.0, 1: 26.0, 2: 30.0, 3: 22.0}
    folder = tmp_path / "sweep"
    with StateFile.open(folder, "sweep", of) as state:
        for block in range(4):
            for cell, rate in rates.items():
                state.add(run(block, cell, rate * math.exp(random.normal(0, 0.01)), step_gap_p95_ns=1e9 / rate,
                              memory_bytes=4e8 - 1e8 * (cell >= 2)))  # fmt: skip
    return folder


def recordings(tmp_path: Path, name: str = "slower") -> list[Path]:
    paths = []
    for letter, one in zip("abc", RUNS[name], strict=False):
        path = tmp_path / f"{letter}.jsonl"
        path.write_bytes(encode_all(one.records()))
        paths.append(path)
    return paths


def called(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def written(tmp_path: Path, *sources: Path) -> str:
    path = tmp_path / "out.html"
    done = called(*sources, "-o", path, "--replace")
    assert done.exit_code == 0, done.stderr
    return path.read_text(encoding="utf-8")


def told(*sources: Path) -> str:
    done = called(*sources)
    assert done.exit_code == 0, done.stderr
    return done.stdout


# An ablation


@pytest.mark.parametrize("is_full", [False, True])
def test_the_page_of_an_ablation_draws_what_it_found(is_full: bool, tmp_path: Path) -> None:
    root = check(written(tmp_path, ablated_folder(tmp_path, is_full=is_full)))
    charts = {
        (figure.get("id") or ""): figure for figure in root.iter("figure") if figure.find(f"{SVG}svg") is not None
    }
    assert list(charts) == ["speed-ups-0", "together-0", "together-1", "limits-0", "quality-0"]
    assert all(data_of(picture) for picture in root.iter(f"{SVG}svg"))
    n_cells = 8 if is_full else 5
    dots = list(charts["speed-ups-0"].iter(f"{SVG}circle"))
    assert len(dots) == n_cells - 1 + 1  # one is predicted
    n_combinations = 4 if is_full else 1
    assert len(list(charts["together-0"].iter(f"{SVG}circle"))) == 2 * n_combinations


def test_its_words_and_figures_are_those_of_the_command(tmp_path: Path) -> None:
    folder = ablated_folder(tmp_path)
    of = plan()
    from stackscope.commands.experiment_reports import stored_report

    report = stored_report(folder)
    assert isinstance(report, ablation.AblationReport)
    assert report.result is not None
    text, shown = told(folder), words(check(written(tmp_path, folder)))
    for sentence in verdict(report.result, of):
        assert plain(sentence) in text
        assert sentence in shown
    assert f"{WHOLE}"[:3] in verdict(report.result, of)[1]
    rows = rows_of(check(document_page(ablated.document(report))))
    (whole,) = report.result.interactions
    assert rows[whole.names][:3] == [
        ablation.interval_text(one, report.result.nominal) for one in (whole.measured, whole.product, whole.ratio)
    ]
    assert rows["1: weights=Q8_0"][2] == "1.45×"
    assert "lines are intervals, 95 % of what was measured and 90 % of predictions." in shown
    assert "98.0 %" in shown
    assert "0.0123 nats" in shown


def test_an_ablation_without_a_whole_block_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "young"
    with StateFile.open(folder, "ablation", plan()) as state:
        state.add(run(0, 0, 20.0))
    assert "No block is whole yet" in told(folder)
    assert "No block is whole yet" in words(check(written(tmp_path, folder)))


def test_the_file_will_do_as_well_as_its_folder(tmp_path: Path) -> None:
    folder = ablated_folder(tmp_path)
    assert told(folder / NAME) == told(folder)


# A sweep


def test_a_sweep_has_its_winner_and_the_pair_that_hurts(tmp_path: Path) -> None:
    folder = swept_folder(tmp_path)
    text, root = told(folder), check(written(tmp_path, folder))
    shown = words(root)
    from stackscope.commands.experiment_reports import stored_report

    report = stored_report(folder)
    assert isinstance(report, sweep.SweepReport)
    assert report.result.winner is not None
    command = sweep.run_line(report, report.result.winner.cell)
    assert command in shown
    (pair,) = report.result.pairs
    assert sweep.pair_text(pair) in shown
    assert plain(sweep.pair_text(pair)) in text
    assert len(list(root.iter(f"{SVG}svg"))) == 2


# A comparison


def test_several_recordings_are_held_against_the_first(tmp_path: Path) -> None:
    paths = recordings(tmp_path, "drafts")
    found = compare(paths)
    text, root = told(*paths), check(written(tmp_path, *paths))
    shown = words(root)
    assert len(found.versus) == 2
    for versus in found.versus:
        assert versus.sentence in shown
        assert plain(versus.sentence) in text
        assert versus.moved is not None
        assert wording.sentence(versus.moved) in shown
        assert plain(wording.sentence(versus.moved)) in text
        for one in versus.figures:
            assert plain(wording.cells(one).change) in text
    ids = {figure.get("id") for figure in root.iter("figure")}
    assert {"versus-b-0", "versus-c-0"} <= ids
    assert wording.ONE_RUN in shown


def test_what_forbids_a_verdict_is_told(tmp_path: Path) -> None:
    paths = recordings(tmp_path, "few")
    (versus,) = compare(paths).versus
    assert versus.verdict == "not comparable"
    for text in (words(check(written(tmp_path, *paths))), told(*paths).replace("\\", "")):
        for concern in versus.concerns:
            assert concern.text in text


def test_one_recording_is_compared_with_nothing(tmp_path: Path) -> None:
    (path, _) = recordings(tmp_path)
    sessions = [gather(SessionReader(path), ServiceLimits())]
    assert told(path) == markdown(sessions)
    assert "versus" not in page(sessions)


# Both forms


def test_every_row_of_a_table_has_the_same_cells(tmp_path: Path) -> None:
    for sources in ([ablated_folder(tmp_path)], [swept_folder(tmp_path)], recordings(tmp_path)):
        lines = told(*sources).split("\n")
        for before, line in zip(["", *lines], lines, strict=False):
            if line.startswith("|") and before.startswith("|"):
                n_cells = [len(re.findall(r"(?<!\\)\|", one)) for one in (before, line)]
                assert n_cells[0] == n_cells[1], line


def test_no_heading_says_what_the_one_above_it_says(tmp_path: Path) -> None:
    sources = [
        [ablated_folder(tmp_path, is_full=True)], [swept_folder(tmp_path)], recordings(tmp_path, "drafts"),
        recordings(tmp_path)[:1],
    ]  # fmt: skip
    for one in sources:
        below: dict[str, list[str]] = {}
        for line in told(*one).partition("<details>")[0].split("\n"):
            if line.startswith("## "):
                assert line[3:] not in below
                below[line[3:]] = []
            elif line.startswith("### "):
                below[list(below)[-1]].append(line[4:])
        assert len(below) > 2
        for heading, titles in below.items():
            assert len(titles) != 1, heading
            assert len({heading, *titles}) == len(titles) + 1


def test_nothing_in_a_plan_is_taken_for_markup(tmp_path: Path) -> None:
    of = plan()
    odd = of.factors[0]
    hostile = HOSTILE.replace("\ud800", "")
    from msgspec.structs import replace

    strange = replace(of, factors=(replace(odd, name=hostile, label=hostile), *of.factors[1:]))
    folder = tmp_path / "hostile"
    with StateFile.open(folder, "ablation", strange) as state:
        for one in ablation_runs(of):
            state.add(replace(one, notes=(hostile,)))
    check(written(tmp_path, folder))
    text = told(folder)
    assert re.findall(r"(?<!\\)<(/?\w+)", text) == []
    assert not re.search(r"https?://", text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "There is no recording in "),
        ("", "has no plan"),
        ("{}\n", "is not what an experiment left behind"),
        ('{"type":"plan","format":1,"kind":"ablation","stackscope":"0","plan":{}}\n', "cannot be used: "),
        ('{"type":"plan","format":9,"kind":"ablation","stackscope":"9","plan":{}}\n', "another version of Stackscope"),
        ('{"type":"plan","format":1,"kind":"dance","stackscope":"0","plan":{}}\n', "of the kind dance"),
    ],
)
def test_what_is_no_experiment_is_refused_in_a_sentence(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / NAME).write_text(content)
    done = called(tmp_path)
    assert done.exit_code == 8
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_experiment_stands_alone(tmp_path: Path) -> None:
    folder = ablated_folder(tmp_path)
    done = called(folder, *recordings(tmp_path))
    assert done.exit_code == 2
    assert "has a report of its own" in done.stderr


def test_a_report_is_not_written_over_the_experiment(tmp_path: Path) -> None:
    folder = ablated_folder(tmp_path)
    link = tmp_path / "out.md"
    link.symlink_to(folder / NAME)
    before = (folder / NAME).read_bytes()
    assert called(folder, "-o", link, "--replace").exit_code == 2
    assert (folder / NAME).read_bytes() == before


def test_an_interval_without_bounds_stays_on_the_chart() -> None:
    chart = ratios("t", "l", [Ratios(name="x", marks=(Ratio(style="c0", what="w", value=1.2, low=1e-30, high=1e30),))],
                   missing="none")  # fmt: skip
    numbers = [float(number) for number in re.findall(r'(?:cx|x1|x2)="([\d.]+)"', chart.content)]
    assert max(numbers) <= chart.width
    assert f"{MOST_RANGE * 10:g}" not in chart.content
    assert ratios("t", "l", [], missing="There is none.").lead == "There is none."


# In a browser


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_draws_every_chart_without_complaint(width: int, tmp_path: Path) -> None:
    pages = {
        "ablation": (written(tmp_path, ablated_folder(tmp_path)), 5),
        "factorial": (written(tmp_path, ablated_folder(tmp_path / "all", is_full=True)), 5),
        "sweep": (written(tmp_path, swept_folder(tmp_path)), 2),
        "comparison": (written(tmp_path, *recordings(tmp_path, "drafts")), 12),
    }
    for name, (text, n_charts) in pages.items():
        folder = tmp_path / f"browser-{name}"
        folder.mkdir()
        found, complaints = opened(text, folder, width=width)
        assert complaints == ""
        assert found["requests"] == []
        assert len(found["charts"]) >= n_charts
        for chart in found["charts"]:
            assert chart["width"] > 200, chart
            assert chart["drawn"] > 0, chart
            assert chart["outside"] == [], chart
        assert found["wide"] <= width
        assert name == "comparison" or width < 1200 or found["cut"] == []
