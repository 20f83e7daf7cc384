"""The order and the limits of measuring, with a clock and runs that are made up."""

from __future__ import annotations

import pytest

from stackscope.experiments import stages
from stackscope.experiments.measurements import Sampler
from stackscope.experiments.protocol import Item
from stackscope.experiments.rounds import PAUSE, Rounds
from stackscope.experiments.samples import Sample


class Clock:
    """Time that passes only while something runs."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Made:
    """Something that takes a fixed time, by the clock."""

    def __init__(self, clock: Clock, rows: int, ns: int, kind: str = "forward") -> None:
        self.item = Item(kind=kind, rows=rows, sequences=1, outputs=rows)  # type: ignore[arg-type]
        self._clock = clock
        self._ns = ns
        self.n_runs = 0

    def run(self) -> int:
        self.n_runs += 1
        self._clock.ns += self._ns
        return self._ns


def curves(clock: Clock, made: list[Made], seconds: float, most: int = 9) -> tuple[stages.Log, list[str]]:
    log, said, sampler = stages.Log(), list[str](), Sampler(clock)
    stages.curves(made, sampler, log, Rounds(sampler, log), seconds, most=most, progress=said.append)
    return log, said


def counts(log: stages.Log) -> dict[int, int]:
    return {series.item.rows: len(series.samples) for series in log.series()}


SECOND = 10**9


def test_all_are_measured_before_any_is_repeated() -> None:
    clock = Clock()
    made = [Made(clock, 1, 2 * SECOND // 5), Made(clock, 2, SECOND // 2), Made(clock, 4, SECOND)]
    log, said = curves(clock, made, 5.0)
    assert said[:3] == ["forward of 1", "forward of 2", "forward of 4"]
    # 1.9 s for a round: two of them fit, and what is left takes the two cheap ones once more.
    assert counts(log) == {1: 3, 2: 3, 4: 2}
    assert clock.ns <= 5.0 * SECOND


def test_what_would_take_too_long_is_left_out_with_its_reason() -> None:
    clock = Clock()
    made = [Made(clock, 1, SECOND // 5), Made(clock, 512, 50 * SECOND)]
    log, _ = curves(clock, made, 3.0)
    assert counts(log).keys() == {1}
    assert made[1].n_runs == 0
    # 512 × 0.2 s
    assert log.unknown == {"forward of 512": "it would have taken about 1 min 42 s, longer than there was"}


def test_what_is_cheap_is_measured_even_when_the_time_is_up() -> None:
    clock = Clock()
    made = [Made(clock, 1, 3 * SECOND, "read"), Made(clock, 1, SECOND // 50), Made(clock, 2, SECOND // 25)]
    log, _ = curves(clock, made, 2.0)
    assert [len(series.samples) for series in log.series()] == [1, 1, 1]
    assert log.unknown == {}


def test_something_short_is_run_often_for_a_sample() -> None:
    clock = Clock()
    made = Made(clock, 1, 1_000_000)
    log, _ = curves(clock, [made], 0.01, most=1)
    [series] = log.series()
    assert [sample.ns for sample in series.samples] == [1_000_000]
    assert made.n_runs == 1 + 1 + 15  # to know what it costs, to warm up, and 15 ms


def test_a_machine_that_turns_slow_does_not_keep_anybody_waiting() -> None:
    clock = Clock()

    class Slowing(Made):
        def run(self) -> int:
            self._ns *= 2
            return super().run()

    made = Slowing(clock, 1, SECOND // 10)
    curves(clock, [made], 2.0)
    assert clock.ns < 4 * SECOND


def test_a_row_is_priced_by_the_longest_forward() -> None:
    clock, log = Clock(), stages.Log()
    assert log.row_ns() is None
    for made in (Made(clock, 64, 6_400), Made(clock, 512, 25_600), Made(clock, 900, 5, "draft")):
        log.add(made.item, Sampler(clock).first(made.run))
    assert log.row_ns() == 50
    assert (log.forward_ns(64), log.forward_ns(900)) == (6_400, None)
    assert (log.has("draft"), log.has("context")) == (True, False)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Item(kind="read", place="memory"), "reading memory"),
        (Item(kind="product", type="q4_K", rows=512), "q4_K matrices × 512"),
        (Item(kind="draft", rows=8, outputs=8), "draft forward of 8"),
        (Item(kind="forward", rows=512, outputs=1), "forward of 512, one output"),
    ],
)
def test_progress_is_in_words(item: Item, words: str) -> None:
    assert stages.described(item) == words


def test_rounds_are_far_apart_and_take_a_share_of_the_time() -> None:
    clock, log = Clock(), stages.Log()
    sampler = Sampler(clock)
    rounds = Rounds(sampler, log)
    rounds.maybe()  # There is nothing yet.
    made = [Made(clock, 1, 2 * SECOND // 5, "read"), Made(clock, 512, 4 * SECOND // 5, "product")]
    for each in made:
        begun_ns = clock.ns
        log.add(each.item, sampler.first(each.run))
        rounds.join(each, clock.ns - begun_ns)
    for n_rounds in (1, 2):
        clock.ns += round(PAUSE * 1.2 * SECOND) - 1
        rounds.maybe()
        assert [each.n_runs for each in made] == [n_rounds, n_rounds]
        clock.ns += 1
        rounds.maybe()
        assert counts(log) == {1: n_rounds + 1, 512: n_rounds + 1}
    rounds.close()
    clock.ns += 60 * SECOND
    rounds.maybe()
    assert [each.n_runs for each in made] == [3, 3]


def test_reading_and_products_are_measured_in_rounds_between_the_forwards() -> None:
    clock = Clock()
    made = [Made(clock, 1, SECOND // 100, "read"), Made(clock, 512, SECOND // 100, "product")]
    made += [Made(clock, rows, SECOND // 50) for rows in (1, 2, 4)]
    log, _ = curves(clock, made, 2.0, most=90)
    n_samples = {(series.item.kind, series.item.rows): len(series.samples) for series in log.series()}
    # A round is two runs and three, 0.05 s, and takes a sixth of the time once everything was measured.
    rounds_ns = (n_samples["read", 1] - 1) * SECOND // 20
    assert SECOND // 10 <= rounds_ns <= clock.ns / 6
    assert n_samples["read", 1] == n_samples["product", 512]
    assert clock.ns <= 2 * SECOND


def test_reading_is_judged_by_the_shortest_run_and_a_product_by_the_usual() -> None:
    clock, log = Clock(), stages.Log()
    sampler = Sampler(clock)
    rounds = Rounds(sampler, log)
    kinds = ("read", "product")
    made = [Uneven(clock, kind) for kind in kinds]
    for each in made:
        log.add(each.item, Sample(3_000_000))
        rounds.join(each, 0)
    rounds.maybe()
    assert {series.item.kind: series.samples[-1].ns for series in log.series()} == {"read": 1e6, "product": 3e6}


class Uneven(Made):
    """Takes 1 to 5 ms, in turn."""

    def __init__(self, clock: Clock, kind: str) -> None:
        super().__init__(clock, 1, 0, kind)

    def run(self) -> int:
        self._ns = (3_000_000, 5_000_000, 1_000_000, 2_000_000, 4_000_000)[self.n_runs % 5]
        return super().run()
