"""The time model finds what was planted in synthetic machines, and says what it cannot find."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.fit import Fit
from stackscope.analysis.timing.model import origin_of
from stackscope.analysis.timing.shapes import Shape, one_row
from stackscope.records import Delay, StepRecord, Ubatch
from tests.unit.timing_machines import CONFIG, Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.timing.model import TimeModel
    from stackscope.records import Ceilings


def fitted(machine: Machine, steps: Sequence[StepRecord], ceilings: Ceilings | None = None) -> TimeModel:
    fit = Fit(ceilings)
    fit.begin(CONFIG, machine.pricing)
    fit.add(steps)
    model = fit.model()
    assert model is not None
    return model


def rows_shape(rows: int, cached: int = 0, outputs: int | None = None) -> Shape:
    has = rows if outputs is None else outputs
    return Shape(((cached, rows),), has, (Ubatch(rows, has),))


def truth_ns(machine: Machine, shape: Shape) -> float:
    host = machine.host_ns[0] + machine.host_ns[1] * len(shape.spans)
    return machine.forward_ns(shape.spans, shape.passes, shape.cells) + machine.sample_ns * shape.outputs + host


class TestKnownAnswers:
    def test_steps_are_predicted_within_two_percent(self) -> None:
        machine = Machine()
        model = fitted(machine, machine.traffic(1500), machine.calibrated(noise=0.02))
        test = machine.traffic(200, seed=1, noise=0.0)
        errors = [abs(np.log(model.terms(Shape.of(step)).total / truth_ns(machine, Shape.of(step)))) for step in test]
        assert median(errors) < 0.01
        assert float(np.quantile(errors, 0.95)) < 0.02

    def test_planted_efficiencies_are_recovered_within_two_percent(self) -> None:
        """Reading: 16.8 MB of blocks + head at 12 GB/s. Attention: 8,192 FLOPs a pair at 15 GFLOP/s: 546 ns."""
        machine = Machine()
        model = fitted(machine, machine.traffic(2500, noise=0.02), machine.calibrated(noise=0.01))
        one = model.terms(one_row(0))
        assert one.forward == pytest.approx(machine.rows_ns(1), rel=0.02)
        more = model.terms(one_row(1700)).forward - model.terms(one_row(700)).forward
        assert more == pytest.approx(machine.rows_ns(1, 1700) - machine.rows_ns(1, 700), rel=0.02)
        block = model.terms(rows_shape(16)).forward - model.terms(rows_shape(12)).forward
        assert block == pytest.approx(machine.rows_ns(16) - machine.rows_ns(12), rel=0.04)
        assert one.host == pytest.approx(79_000, rel=0.02)
        assert model.terms(rows_shape(4)).sample == pytest.approx(16_000, rel=0.02)

    def test_cells_of_others_cost_what_was_planted(self) -> None:
        """32 query heads over the layers go through 4,096 foreign cells at 2 G/s: 65.5 µs."""
        machine = Machine()
        model = fitted(machine, machine.traffic(2500, noise=0.01, idle=4096), machine.calibrated(noise=0.01))
        spans = tuple((511, 1) for _ in range(4))
        alone = Shape(spans, 4, (Ubatch(4, 4),), cells=2048)
        crowded = msgspec.structs.replace(alone, cells=2048 + 4096)
        extra = model.terms(crowded).total - model.terms(alone).total
        assert extra == pytest.approx(4 * 65_536, rel=0.05)
        assert model.terms(crowded).resident - model.terms(alone).resident == pytest.approx(extra, rel=1e-6)

    def test_what_outliers_say_is_not_heard(self) -> None:
        """One step in ten takes ten times as long: predictions move by less than 2 %."""
        machine = Machine()
        clean = machine.traffic(1200)
        dirty = [
            step if step.n % 10 else msgspec.structs.replace(step, phases=msgspec.structs.replace(
                step.phases, decode=10 * step.phases.decode, other=10 * step.phases.other),
                cpu_ns=20 * step.phases.decode)
            for step in clean
        ]  # fmt: skip
        models = [fitted(machine, steps, machine.calibrated(noise=0.02)) for steps in (clean, dirty)]
        for shape in (one_row(500), rows_shape(4, 900), rows_shape(8), rows_shape(128, 0, 1)):
            assert models[1].terms(shape).total == pytest.approx(models[0].terms(shape).total, rel=0.02)

    def test_steps_correct_the_level_of_a_calibration(self) -> None:
        """Everything takes 1.2 times as long in the run, at row counts that it never had, too."""
        machine = Machine()
        slow = [
            msgspec.structs.replace(step, phases=msgspec.structs.replace(
                step.phases, decode=round(1.2 * step.phases.decode)), cpu_ns=round(1.2 * (step.cpu_ns or 0)))
            for step in machine.traffic(400) if step.rows <= 8
        ]  # fmt: skip
        model = fitted(machine, slow, machine.calibrated())
        assert model.terms(rows_shape(64)).forward == pytest.approx(1.2 * machine.rows_ns(64), rel=0.04)

    def test_a_kind_of_steps_that_the_calibration_has_wrong_corrects_it(self) -> None:
        """Steps of three rows take 1.4 times what they should, beside four other kinds that take what they should: they
        are no outliers, because they agree with each other."""
        machine = Machine()
        steps: list[StepRecord] = []
        for index in range(400):
            rows = (3, 16, 32, 64, 128)[index % 5]
            step = machine.step(
                index, ((100, rows),), (rows,), noise=(1.4 if rows == 3 else 1.0) * (1 + index % 7 / 500)
            )
            steps.append(step)
        model = fitted(machine, steps, machine.calibrated())
        assert model.terms(rows_shape(3, 100)).forward == pytest.approx(1.4 * machine.rows_ns(3, 100), rel=0.06)
        assert model.terms(rows_shape(64, 100)).forward == pytest.approx(machine.rows_ns(64, 100), rel=0.06)

    def test_weights_that_left_the_near_caches_add_the_same_to_every_forward(self) -> None:
        """Half a millisecond more in each, which is half of a row alone and a fiftieth of 128 rows."""
        machine = Machine()
        cold_ns = 500_000
        steps = [
            msgspec.structs.replace(step, phases=msgspec.structs.replace(
                step.phases, decode=step.phases.decode + cold_ns), cpu_ns=(step.cpu_ns or 0) + 2 * cold_ns)
            for step in machine.traffic(400) if step.rows <= 8
        ]  # fmt: skip
        ceilings = msgspec.structs.replace(machine.calibrated(), fits_cache=True)
        model = fitted(machine, steps, ceilings)
        for rows in (1, 4, 64, 128, 512):
            expected = machine.rows_ns(rows) + cold_ns
            assert model.terms(rows_shape(rows)).forward == pytest.approx(expected, rel=0.05)
        # Where the weights stream from memory anyway, a factor is likelier.
        streaming = fitted(machine, steps, machine.calibrated())
        assert streaming.terms(rows_shape(512)).forward > 1.05 * machine.rows_ns(512)

    def test_what_a_prompt_costs_the_loop_is_not_multiplied_by_its_rows(self) -> None:
        """Short pieces of eleven rows cost the loop a millisecond each; one of 160 rows does too, and not fifteen."""
        machine = Machine()
        steps: list[StepRecord] = []
        for index in range(300):
            is_prompt = index % 10 == 0
            spans = ((300, 11 if is_prompt else 1), (300 + index % 50, 1))
            step = machine.step(index, spans, (1, 1))
            longer = msgspec.structs.replace(step.phases, other=step.phases.other + 1_000_000 * is_prompt)
            steps.append(msgspec.structs.replace(step, phases=longer))
        model = fitted(machine, steps, machine.calibrated())
        short, long = (model.terms(Shape(((300, n), (310, 1)), 2, (Ubatch(n + 1, 2),))).host for n in (11, 160))
        assert short == pytest.approx(1_000_000 + 70_000 + 18_000, rel=0.05)
        assert long == pytest.approx(short, rel=0.1)

    def test_what_is_drawn_does_not_depend_on_where_the_models_lie(self) -> None:
        machine = Machine()
        elsewhere = msgspec.structs.replace(CONFIG, model="/another/folder/synthetic.gguf")
        of_another = msgspec.structs.replace(CONFIG, model="/models/another.gguf")
        assert CONFIG.model != elsewhere.model
        assert origin_of(CONFIG) == origin_of(elsewhere) != origin_of(of_another)
        model = fitted(machine, machine.traffic(100), machine.calibrated())
        assert model.beliefs[0].origin == origin_of(CONFIG)


class TestDrift:
    """Steps of the same kinds in eight windows of five seconds, each window with a level of its own."""

    def _steps(self, machine: Machine, levels: Sequence[float], n: int = 40) -> list[StepRecord]:
        steps: list[StepRecord] = []
        for window, level in enumerate(levels):
            for index in range(n):
                rows = (1, 4)[index % 2]
                step = machine.step(len(steps), ((100 + index, rows),), (rows,), noise=level * (1 + 0.01 * (index % 3)))
                steps.append(msgspec.structs.replace(step, start_ns=window * 5_000_000_000 + index * 10_000_000))
        return steps

    def test_a_level_that_changes_is_seen_over_windows(self) -> None:
        machine = Machine()
        calm = fitted(machine, self._steps(machine, [1.0] * 8), machine.calibrated())
        restless = fitted(machine, self._steps(machine, [1.0, 1.3] * 4), machine.calibrated())
        assert calm.errors.drift < 0.04 < 0.08 < restless.errors.drift

    def test_one_window_says_nothing_of_it_however_many_steps_it_has(self) -> None:
        machine = Machine()
        few, many = (fitted(machine, self._steps(machine, [1.0], n), machine.calibrated()) for n in (20, 90))
        assert few.errors.drift == many.errors.drift == pytest.approx(0.05)


class TestSawTooth:
    def test_two_rows_may_take_less_time_than_one(self) -> None:
        """Where one row has a slower kernel of its own: a quarter longer than reading takes."""
        machine = Machine(alone=0.25, single_flops=500e9)
        model = fitted(machine, [], machine.calibrated())
        for rows in (1, 2, 3, 4):
            assert model.terms(rows_shape(rows)).forward == pytest.approx(machine.rows_ns(rows), rel=0.02)
        assert machine.rows_ns(1) > 1.1 * machine.rows_ns(2)
        assert model.terms(one_row(0)).compute == 0.0

    @pytest.mark.parametrize("rows", [7, 9, 10, 11])
    def test_rows_between_the_measured_ones_follow_the_kernel(self, rows: int) -> None:
        machine = Machine(single_flops=15e9)
        model = fitted(machine, [], machine.calibrated())
        assert model.terms(rows_shape(rows)).forward == pytest.approx(machine.rows_ns(rows), rel=0.03)

    def test_a_straight_line_would_be_wrong(self) -> None:
        """Otherwise the test above would show nothing."""
        machine = Machine(single_flops=15e9)
        straight = machine.rows_ns(6) + (machine.rows_ns(8) - machine.rows_ns(6)) / 2
        assert abs(straight / machine.rows_ns(7) - 1.0) > 0.06

    def test_seven_rows_may_take_longer_than_eight(self) -> None:
        machine = Machine(single_flops=6e9)
        model = fitted(machine, [], machine.calibrated())
        assert machine.rows_ns(7) > machine.rows_ns(8)
        assert model.terms(rows_shape(7)).total > model.terms(rows_shape(8)).total

    def test_a_kernel_without_blocks_has_none(self) -> None:
        machine = Machine(is_blocked=False)
        model = fitted(machine, [], machine.calibrated())
        for rows in (7, 10, 23):
            assert model.terms(rows_shape(rows)).forward == pytest.approx(machine.rows_ns(rows), rel=0.03)

    def test_a_gpu_has_none(self) -> None:
        """On a GPU what lies between two measured row counts is interpolated, and never below the smaller."""
        machine = Machine(is_blocked=False)
        fit = Fit(machine.calibrated(), is_gpu=True)
        fit.begin(CONFIG, machine.pricing)
        model = fit.model()
        assert model is not None
        times = [model.terms(rows_shape(rows)).forward for rows in range(1, 65)]
        assert times == sorted(times)
        assert times[6] == pytest.approx(machine.rows_ns(7), rel=0.03)

    def test_where_nothing_was_measured_it_is_less_sure(self) -> None:
        machine = Machine()
        model = fitted(machine, [], machine.calibrated(noise=0.01))

        def width(rows: int) -> float:
            return float(np.std(np.log(model.draws([rows_shape(rows)])[:, 0])))

        assert width(8) < width(11)
        assert width(512) < width(1400)

    def test_beyond_the_deepest_context_attention_is_less_sure(self) -> None:
        machine = Machine()
        model = fitted(machine, machine.traffic(800, noise=0.01), machine.calibrated(noise=0.01))
        widths = [float(np.std(np.log(model.draws([one_row(cached)])[:, 0]))) for cached in (2_000, 20_000, 200_000)]
        assert widths == sorted(widths)
        assert widths[2] > 3 * widths[0]


class TestSeparation:
    def test_one_pass_leaves_weights_and_fixed_cost_together(self) -> None:
        machine = Machine(fixed_ns=900_000.0)
        model = fitted(machine, machine.traffic(600))
        assert "all steps have one pass" in " ".join(model.unknown.values())

    def test_passes_that_vary_part_them(self) -> None:
        machine = Machine(fixed_ns=900_000.0)
        model = fitted(machine, machine.traffic(1500, passes=4, noise=0.01))
        assert not any("weights and fixed" in reason for reason in model.unknown.values())
        twice = Shape(((100, 8),), 8, (Ubatch(4, 4), Ubatch(4, 4)))
        assert model.terms(twice).total == pytest.approx(truth_ns(machine, twice), rel=0.04)

    def test_a_run_that_never_had_idle_cells_says_so(self) -> None:
        machine = Machine()
        steps = [machine.step(n, [(100 + n, 1)], [1]) for n in range(200)]
        assert "no step had cells" in fitted(machine, steps, machine.calibrated()).unknown["resident"]


class TestStarvation:
    def test_steps_that_waited_for_a_cpu_are_left_out(self) -> None:
        """A third of the steps has half of the CPU, and takes twice as long."""
        machine = Machine()
        steps: list[StepRecord] = []
        for step in machine.traffic(900):
            if step.n % 3 == 0:
                phases = msgspec.structs.replace(step.phases, decode=2 * step.phases.decode)
                step = msgspec.structs.replace(step, phases=phases, cpu_ns=round(0.5 * 2 * phases.decode))
            steps.append(step)
        model = fitted(machine, steps, machine.calibrated(noise=0.02))
        assert model.starved == pytest.approx(1 / 3, abs=0.05)
        for shape in (one_row(500), rows_shape(8, 300)):
            assert model.terms(shape).total == pytest.approx(truth_ns(machine, shape), rel=0.02)
        assert "starvation" not in model.unknown

    def test_an_engine_that_never_had_its_cores_is_said_to_be_starved(self) -> None:
        machine = Machine()
        steps = [msgspec.structs.replace(s, cpu_ns=round(0.6 * 2 * s.phases.decode)) for s in machine.traffic(200)]
        assert "60%" in fitted(machine, steps, machine.calibrated()).unknown["starvation"].replace(" ", "")


class TestWithoutCeilings:
    def test_level_and_context_are_learned_from_steps(self) -> None:
        machine = Machine()
        model = fitted(machine, machine.traffic(1500, noise=0.02))
        assert not model.is_calibrated
        for shape in (one_row(400), one_row(1600), rows_shape(4, 800)):
            assert model.terms(shape).total == pytest.approx(truth_ns(machine, shape), rel=0.03)
        assert "not calibrated" in model.unknown["rows"]

    def test_rows_that_were_never_seen_are_wide(self) -> None:
        machine = Machine()
        seen = [machine.step(n, [(n, 1)], [1]) for n in range(300)]
        model = fitted(machine, seen)
        narrow, wide = (model.interval(shape) for shape in (one_row(150), rows_shape(32)))
        assert narrow.high / narrow.low < 1.3
        assert wide.high / wide.low > 2.0
        assert wide.holds(truth_ns(machine, rows_shape(32)))

    def test_without_steps_and_ceilings_there_is_no_model(self) -> None:
        fit = Fit(None)
        fit.begin(CONFIG, Machine().pricing)
        assert fit.model() is None
        fit.begin(CONFIG, Pricing(None, None, 2))
        fit.add(Machine().traffic(10))
        assert fit.model() is None


def test_intervals_cover_what_they_promise() -> None:
    """Over 24 machines, calibrated and run with noise: 80 to 97 % of new steps lie in the interval of 90 %."""
    inside = total = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        machine = Machine(
            bytes_per_s=float(rng.uniform(6e9, 30e9)), block_flops=float(rng.uniform(30e9, 120e9)),
            single_flops=float(rng.uniform(8e9, 30e9)), pair_flops=float(rng.uniform(6e9, 30e9)),
            scanned_per_s=float(rng.uniform(5e8, 5e9)), fixed_ns=float(rng.uniform(3e4, 3e5)),
        )  # fmt: skip
        model = fitted(machine, machine.traffic(150, seed=seed, noise=0.06), machine.calibrated(noise=0.03, seed=seed))
        for step in machine.traffic(40, seed=1000 + seed, noise=0.06):
            taken = step.phases.total
            inside += model.interval(Shape.of(step)).holds(taken)
            total += 1
    assert 0.80 <= inside / total <= 0.97


def test_memory_and_time_stay_bounded() -> None:
    """Of ten thousand steps a few hundred are kept, and asking again without new steps costs no fit."""
    machine = Machine()
    fit = Fit(machine.calibrated())
    fit.begin(CONFIG, machine.pricing)
    steps = machine.traffic(500)
    for _ in range(20):
        fit.add(steps)
    assert fit.n_kept <= 640
    first = fit.model()
    assert fit.model() is first


def test_what_was_learned_of_a_configuration_is_there_when_it_comes_back() -> None:
    machine, fast = Machine(), Machine(pair_flops=60e9)
    other = msgspec.structs.replace(CONFIG, kv_type_k="q8_0", kv_type_v="q8_0")
    fit = Fit(machine.calibrated())
    mine, theirs = machine.pricing, fast.pricing
    fit.begin(CONFIG, mine)
    fit.add(machine.traffic(300))
    before = fit.model()
    fit.begin(other, theirs)
    fit.add(fast.traffic(300))
    assert before is not None
    changed = fit.model()
    assert changed is not None
    back = changed.under(CONFIG, mine)
    assert not isinstance(back, str)
    assert back.terms(one_row(1500)).total == pytest.approx(before.terms(one_row(1500)).total, rel=1e-9)
    fit.begin(CONFIG, mine)
    again = fit.model()
    assert again is not None
    assert again.terms(one_row(1500)).total == pytest.approx(before.terms(one_row(1500)).total, rel=1e-9)


@pytest.mark.parametrize("change", [{"aborted": True}, {"delay": Delay("decode", 1_000_000)}])
def test_steps_that_were_cut_short_or_delayed_teach_nothing(change: dict[str, Any]) -> None:
    machine = Machine()
    steps = machine.traffic(200)
    broken = [msgspec.structs.replace(replaced, **change) for replaced in replace_times(steps, 5.0)]
    shape = one_row(700)
    plain, mixed = fitted(machine, steps), fitted(machine, [*steps, *broken])
    assert mixed.terms(shape) == plain.terms(shape)


def replace_times(steps: Sequence[StepRecord], by: float) -> list[StepRecord]:
    """The same steps, their forwards longer by a factor."""
    return [
        msgspec.structs.replace(s, phases=msgspec.structs.replace(s.phases, decode=round(by * s.phases.decode)))
        for s in steps
    ]


def test_phi_is_how_often_the_keys_seem_to_be_read() -> None:
    """Weights at 12 GB/s; a pair is 8,192 FLOPs at 15 GFLOP/s plus 32 cells at 2 G/s, 562 ns, its bytes 171 ns: 3.3."""
    machine = replace(Machine(), fixed_ns=1_000.0)
    model = fitted(machine, machine.traffic(1500, noise=0.01), machine.calibrated())
    phi = model.phi(1600)
    assert phi is not None
    bytes_ns = 1601 * machine.ledger.kv_bytes_per_token / 12.0
    assert phi == pytest.approx(machine.attention_ns(((1600, 1),), 1601) / bytes_ns, rel=0.1)
