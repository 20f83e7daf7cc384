"""What a comparison says in words: no reason that is not the reason, and nothing that its table contradicts."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import pytest

from stackscope.analysis.comparing import comparison, wording
from stackscope.analysis.comparing.collecting import Collector
from stackscope.analysis.comparing.comparison import Compared, compare_digests
from stackscope.analysis.comparing.differences import Difference
from stackscope.analysis.statistics import Interval
from stackscope.report.compare import difference
from stackscope.tui.compared import differences
from stackscope.tui.lines import plain
from stackscope.tui.look import UNICODE
from tests.unit.compare_sessions import Run

if TYPE_CHECKING:
    from stackscope.analysis.comparing.comparison import Versus
    from stackscope.analysis.comparing.digest import Digest


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


def beginning(run: Run, n: int, **cut: str) -> Digest:
    """The first records of a session, without its end."""
    collector = Collector("part")
    collector.take(islice(run.records(), n))
    return collector.digest(**cut)


CUT: Final = {"truncated": "It has no end mark."}


def test_a_recording_that_is_cut_off_has_left_no_prefixes_behind() -> None:
    long = Run(noise=2, hit=0.66, lengths=(300, 30))
    whole, part = Run(lengths=(300, 24)).digest(), beginning(long, 300, **CUT)
    texts = {one.kind: one for one in compare_digests([whole, part]).versus[0].concerns}
    assert not texts["hit rate"].is_barrier
    assert texts["hit rate"].text.endswith("B 66.0 %: B is cut off, which may be all of it.")
    assert texts["output lengths"].text.endswith("30.0 in B: B is cut off, which may be why.")
    both = {one.kind: one.text for one in compare_digests([beginning(Run(), 200, **CUT), part]).versus[0].concerns}
    assert both["hit rate"].endswith("A and B are cut off, which may be all of it.")


def test_a_run_that_went_on_for_longer_has_left_no_prefixes_behind() -> None:
    """Neither says how many requests there are to be: one was stopped after ten."""
    endless: dict[str, object] = {"requests": None}
    found = versus(Run(noise=2, hit=0.66, requests=10, workload=endless), Run(workload=endless))
    (hits,) = [one for one in found.concerns if one.kind == "hit rate"]
    assert hits.text.endswith("B 66.0 %: they served 60 and 10 requests, which may be all of it.")
    assert hits.is_barrier


def test_one_recording_twice_is_pointed_out() -> None:
    def said(a: Digest, b: Digest) -> list[str]:
        return [one.text for one in compare_digests([a, b]).versus[0].concerns if one.kind == "same recording"]

    run = Run()
    assert said(run.digest(), run.digest("copy.jsonl")) == ["A and B are the same recording."]
    assert said(run.digest(), beginning(run, 300, **CUT)) == ["B is the beginning of A: they are one recording."]
    assert said(beginning(run, 300, **CUT), run.digest()) == ["A is the beginning of B: they are one recording."]
    assert said(run.digest(), Run(noise=2).digest()) == []
    assert said(run.digest(), Run(header={"started": "2026-11-30T00:00:00+01:00"}).digest()) == []
    assert said(Run(requests=0).digest(), Run(requests=0).digest()) == []


def test_of_whom_there_are_too_few_values_is_said() -> None:
    found = compare_digests([Run().digest(), Run(requests=12, noise=2).digest()]).versus[0]
    told = [one for one in wording.too_few(found.figures) if one.startswith("TTFT")]
    assert told[0] == "TTFT: 3 independent in B, p50 needs 5"
    assert re.fullmatch(r"TTFT: 60 worth \d+ independent ones in A and 3 in B, p95 needs 50, p99 needs 250",
                        told[1])  # fmt: skip


def of(header: str, unit: str, ratio: tuple[float, float, float] | None) -> Compared:
    return Compared(
        name=header, header=header, unit=unit, better="more" if unit == "tok/s" else "less", a=1.0,
        b=1.0 if ratio is None else ratio[0], ratio=None if ratio is None else Interval(*ratio), why="too few steps",
    )  # fmt: skip


WORSE, BETTER = of("E2E p50", "ns", (1.57, 1.33, 1.84)), of("TTFT p50", "ns", (0.5, 0.4, 0.7))
SAME = of("step gap p50", "ns", (1.1, 0.9, 1.3))


@pytest.mark.parametrize(
    ("rate", "figures", "says"),
    [
        ((0.58, 0.33, 1.01), (SAME,), "B is not distinguishable from A: tokens/s out -42 % [-67, 1]."),
        (
            (0.58, 0.33, 1.01),
            (WORSE, SAME),
            "B is not distinguishable from A in tokens/s out: -42 % [-67, 1]. Worse all the same: E2E p50 +57 % "
            "[33, 84].",
        ),
        (
            (0.58, 0.33, 1.01),
            (WORSE, BETTER),
            "B is not distinguishable from A in tokens/s out: -42 % [-67, 1]. Worse all the same: E2E p50 +57 % "
            "[33, 84]. Better all the same: TTFT p50 -50 % [-60, -30].",
        ),
        (
            None,
            (WORSE, SAME),
            "Of A and B, tokens/s out has no interval (too few steps). Worse all the same: E2E p50 +57 % [33, 84].",
        ),
        (None, (SAME,), "Nothing can be said of A and B: tokens/s out has no interval (too few steps)."),
        ((0.5, 0.4, 0.6), (WORSE,), "B is slower than A: tokens/s out -50 % [-60, -40]."),
    ],
)
def test_the_first_sentence_names_what_the_table_shows_beyond_doubt(
    rate: tuple[float, float, float] | None, figures: tuple[Compared, ...], says: str
) -> None:
    headline = of("tokens/s out", "tok/s", rate)
    assert comparison._verdict(headline, (headline, *figures), ("A", "B"))[1] == says


def test_too_few_values_are_explained_however_many_there_are() -> None:
    """As many as 1,491 step gaps of requests that share their hitches tell what few would."""

    def gap(percentile: int, least: int) -> Compared:
        return Compared(
            name=f"step_gap_p{percentile}", header=f"step gap p{percentile}", unit="ns", better="less", a=1.0, b=1.1,
            n=(1491, 1414), why=f"too few: 1,491 worth 23 independent ones, and its interval needs {least}",
        )  # fmt: skip

    told = wording.too_few([gap(95, 50), gap(99, 250), WORSE, of("TTFT p50", "ns", None)])
    assert told == ["step gap: 1,491 worth 23 independent ones, p95 needs 50, p99 needs 250", wording.SHARED]
    assert wording.too_few([WORSE]) == []


def test_what_differs_is_told_in_its_unit() -> None:
    """Seconds, nanoseconds and bytes as such; what was not set is `none`; a plain number stays one."""
    assert wording.quantity("duration_s", 3600.0) == ("duration", "1 h 00 min")
    assert wording.quantity("duration_s", None) == ("duration", "none")
    assert wording.quantity("warm-up left out (ns)", 1_500_000_000) == ("warm-up left out", "1.50 s")
    assert wording.quantity("draft weights", 4_000_000) == ("draft weights", "4.00 MB")
    assert wording.quantity("parameters", 1_300_000) == ("parameters", "1,300,000")
    assert wording.quantity("requests", 30) is None
    assert wording.quantity("sha256", None) is None


def test_a_time_that_differs_has_its_unit_on_the_command_line_and_on_the_screen() -> None:
    one = Difference(area="workload", name="duration_s", a=None, b=30.0)
    assert difference(one, ("A", "B")) == "duration none → 30 s"
    shown = differences([one], 80, UNICODE)
    assert any("duration" in plain(line) and "none → 30 s" in plain(line) for line in shown)
