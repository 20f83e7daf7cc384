"""The time model under another configuration: what is known of it, what is scaled, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.fit import Fit
from stackscope.analysis.timing.shapes import Shape, one_row
from stackscope.records import DraftForward, Ubatch
from stackscope.records.ceilings import CacheKind, TypeRate
from tests.unit.ceilings_builders import about
from tests.unit.record_builders import make_model
from tests.unit.timing_machines import CONFIG, Machine, quantised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackscope.analysis.timing.model import TimeModel
    from stackscope.records import Ceilings
    from stackscope.toggles import EngineConfig, KvType

ROWS_8 = Shape(tuple((400, 1) for _ in range(8)), 8, (Ubatch(8, 8),))
DEEP = one_row(3000)


def known(machine: Machine, ceilings: Ceilings | None, others: Sequence[Ceilings] = (), n: int = 500) -> TimeModel:
    fit = Fit(ceilings, others)
    fit.begin(CONFIG, machine.pricing)
    fit.add(machine.traffic(n, noise=0.01))
    model = fit.model()
    assert model is not None
    return model


def said(model: TimeModel, config: EngineConfig, pricing: Pricing) -> TimeModel:
    other = model.under(config, pricing)
    assert not isinstance(other, str), other
    return other


def spread(model: TimeModel, shape: Shape, other: TimeModel) -> tuple[float, float]:
    """(mean, standard deviation) of ln of the ratio of two models' times for a shape."""
    logs = np.log(other.draws([shape])[:, 0] / model.draws([shape])[:, 0])
    return float(logs.mean()), float(logs.std())


class TestLiveChanges:
    def test_what_does_not_change_a_step_of_given_shape_changes_nothing(self) -> None:
        machine = Machine()
        model = known(machine, machine.calibrated())
        other = said(model, msgspec.structs.replace(CONFIG, slots=4, token_budget=64), machine.pricing)
        assert other.terms(ROWS_8) == model.terms(ROWS_8)
        assert np.array_equal(other.draws([ROWS_8, DEEP]), model.draws([ROWS_8, DEEP]))
        assert other.conditions.slots == 4

    def test_ngram_drafts_cost_little_before_any_was_seen(self) -> None:
        machine = Machine()
        model = known(machine, machine.calibrated())
        other = said(model, msgspec.structs.replace(CONFIG, speculation="ngram"), machine.pricing)
        shape = Shape(((300, 4),), 4, (Ubatch(4, 4),), drafted=3)
        assert 0.0 < other.terms(shape).draft < 0.02 * other.terms(shape).total
        assert model.terms(shape).draft == 0.0


class TestWeights:
    def test_a_calibration_of_the_other_weights_is_used(self) -> None:
        """Steps here take 1.1 times what the calibration said; so will the others."""
        here, there = Machine(), quantised(Machine(bytes_per_s=8e9, block_flops=40e9))
        other_ceilings = _for_model(there.calibrated(), "synthetic-Q4_0.gguf")
        fit = Fit(here.calibrated(), [other_ceilings])
        fit.begin(CONFIG, here.pricing)
        slow = replace(
            here, bytes_per_s=here.bytes_per_s / 1.1, block_flops=here.block_flops / 1.1,
            single_flops=here.single_flops / 1.1, pair_flops=here.pair_flops / 1.1,
            scanned_per_s=here.scanned_per_s / 1.1, fixed_ns=here.fixed_ns * 1.1,
        )  # fmt: skip
        fit.add(slow.traffic(600, noise=0.01))
        model = fit.model()
        assert model is not None
        other = said(model, msgspec.structs.replace(CONFIG, model="/x/synthetic-Q4_0.gguf"), there.pricing)
        assert other.is_calibrated
        shape = Shape(tuple((0, 1) for _ in range(8)), 8, (Ubatch(8, 8),))
        assert other.terms(shape).forward == pytest.approx(1.1 * there.forward_ns(shape.spans, shape.passes), rel=0.05)

    def test_without_one_they_scale_by_their_bytes(self) -> None:
        """Blocks of 0.28 times the bytes at the same rate: the term shrinks by as much, and the interval says how
        unsure that is: some 30 %."""
        machine, small = Machine(), quantised(Machine())
        model = known(machine, machine.calibrated(noise=0.01))
        other = said(model, msgspec.structs.replace(CONFIG, model="/x/synthetic-Q4_0.gguf"), small.pricing)
        assert not other.is_calibrated
        ratio = other.terms(one_row(0)).weights / model.terms(one_row(0)).weights
        assert ratio == pytest.approx(0.28125, rel=0.02)
        assert other.terms(one_row(0)).head == pytest.approx(model.terms(one_row(0)).head, rel=1e-6)
        assert "Q4_0" in other.unknown["weights"]
        draws = other.draws([one_row(0)])[:, 0] / model.draws([one_row(0)])[:, 0]
        low, high = np.quantile(draws, (0.05, 0.95))
        assert low < small.rows_ns(1) / machine.rows_ns(1) < high
        assert high / low > 1.2

    def test_a_type_whose_products_were_timed_is_better_known(self) -> None:
        """At 6 GB/s instead of 12, its reading takes twice as long for its bytes."""
        machine, small = Machine(), quantised(Machine())
        plain = machine.calibrated(noise=0.01)
        rate = TypeRate(
            type="q4_0", place="memory", vector_bytes_per_s=about(6e9), matrix_flops_per_s=about(60e9), matrix_rows=512
        )
        timed = msgspec.structs.replace(plain, types=(*plain.types, rate))
        config = msgspec.structs.replace(CONFIG, model="/x/synthetic-Q4_0.gguf")
        blind, seeing = (known(machine, one) for one in (plain, timed))
        vague, firm = said(blind, config, small.pricing), said(seeing, config, small.pricing)
        ratio = firm.terms(one_row(0)).weights / seeing.terms(one_row(0)).weights
        assert ratio == pytest.approx(2 * 0.28125, rel=0.02)
        assert spread(seeing, one_row(0), firm)[1] < 0.6 * spread(blind, one_row(0), vague)[1]
        assert "Q4_0" not in firm.unknown["weights"]

    @pytest.mark.parametrize("changes", [{"place": "cache"}, {"busy": True}], ids=["cache", "busy"])
    def test_rates_of_another_place_or_of_a_disturbed_machine_are_not_set_against_these(
        self, changes: dict[str, object]
    ) -> None:
        """At 100 GB/s in the cache, or on a machine that others slowed: the bytes say more."""
        machine, small = Machine(), quantised(Machine())
        plain = machine.calibrated(noise=0.01)
        place = "cache" if "place" in changes else "memory"
        rate = TypeRate(type="q4_0", place=place, vector_bytes_per_s=about(100e9), matrix_rows=512)  # type: ignore[arg-type]
        other = msgspec.structs.replace(
            _for_model(plain, "another.gguf"), types=(rate,),
            is_quiet="busy" not in changes, foreign_share=1.0 if "busy" in changes else 0.0,
        )  # fmt: skip
        fit = Fit(plain, [other])
        fit.begin(CONFIG, machine.pricing)
        fit.add(machine.traffic(500, noise=0.01))
        model = fit.model()
        assert model is not None
        derived = said(model, msgspec.structs.replace(CONFIG, model="/x/synthetic-Q4_0.gguf"), small.pricing)
        ratio = derived.terms(one_row(0)).weights / model.terms(one_row(0)).weights
        assert ratio == pytest.approx(0.28125, rel=0.02)

    def test_a_model_of_twice_the_blocks_takes_twice_the_reading(self) -> None:
        machine = Machine()
        bigger = make_model(
            layers=machine.model.layers * 2,
            tensors=(*machine.model.tensors, *(
                msgspec.structs.replace(t, layer=t.layer + 4) for t in machine.model.tensors if t.layer is not None)),
        )  # fmt: skip
        model = known(machine, machine.calibrated())
        pricing = Pricing(Ledger(bigger), None, 2)
        other = said(model, msgspec.structs.replace(CONFIG, model="/x/big.gguf"), pricing)
        assert other.terms(one_row(0)).weights == pytest.approx(2 * model.terms(one_row(0)).weights, rel=0.01)
        deep = one_row(1000)
        assert other.terms(deep).attention == pytest.approx(2 * model.terms(deep).attention, rel=0.01)


class TestSettings:
    def test_other_kv_types_are_unsure_in_the_attention_alone(self) -> None:
        machine = Machine()
        model = known(machine, machine.calibrated())
        config = msgspec.structs.replace(CONFIG, kv_type_k="q8_0", kv_type_v="q8_0")
        other = said(model, config, Pricing(Ledger(machine.model, "q8_0", "q8_0"), None, 2))
        assert "q8_0" in other.unknown["attention"]
        assert spread(model, one_row(0), other)[1] < 0.02
        assert spread(model, DEEP, other)[1] > 0.08
        assert other.terms(DEEP).weights == model.terms(DEEP).weights

    def test_more_threads_help_by_less_than_their_number(self) -> None:
        """Four for two: compute becomes 1.4 to 2 times as fast, reading 1 to 2 times."""
        machine = Machine()
        model = known(machine, machine.calibrated())
        other = said(model, msgspec.structs.replace(CONFIG, threads=4), machine.pricing._replace(threads=4))
        mean, sd = spread(model, ROWS_8, other)
        assert np.log(0.5) < mean < 0.0
        assert sd > 0.05
        assert "4 threads" in other.unknown["threads"]

    def test_threads_that_were_calibrated_are_known(self) -> None:
        machine, quick = Machine(), Machine(bytes_per_s=14e9, block_flops=110e9, single_flops=45e9)
        theirs = quick.calibrated()
        theirs = msgspec.structs.replace(theirs, conditions=msgspec.structs.replace(theirs.conditions, threads=4))
        model = known(machine, machine.calibrated(), [theirs])
        other = said(model, msgspec.structs.replace(CONFIG, threads=4), machine.pricing._replace(threads=4))
        assert other.is_calibrated
        assert "threads" not in other.unknown
        empty = Shape(tuple((0, 1) for _ in range(8)), 8, (Ubatch(8, 8),))
        assert other.terms(empty).forward == pytest.approx(quick.forward_ns(empty.spans, empty.passes), rel=0.05)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"gpu_layers": 7}, "placed"),
            ({"speculation": "mtp"}, "multi-token"),
            ({"speculation": "draft"}, "draft model"),
        ],
    )
    def test_what_cannot_be_said_is_refused_with_a_reason(self, changes: dict[str, object], words: str) -> None:
        machine = Machine()
        model = known(machine, machine.calibrated(), n=50)
        refusal = model.under(msgspec.structs.replace(CONFIG, **changes), machine.pricing)
        assert isinstance(refusal, str)
        assert words in refusal

    def test_a_starved_engine_says_nothing_of_other_threads(self) -> None:
        """With 0.6 of two cores, one thread might well be faster than two, which wait for each other."""
        machine = Machine()
        fit = Fit(machine.calibrated())
        fit.begin(CONFIG, machine.pricing)
        fit.add([msgspec.structs.replace(s, cpu_ns=round(0.6 * 2 * s.phases.decode)) for s in machine.traffic(100)])
        model = fit.model()
        assert model is not None
        refusal = model.under(msgspec.structs.replace(CONFIG, threads=1), machine.pricing._replace(threads=1))
        assert isinstance(refusal, str)
        assert "cores" in refusal

    def test_weights_of_unknown_geometry_are_refused(self) -> None:
        model = known(Machine(), None, n=50)
        assert isinstance(model.under(CONFIG, Pricing(None, None, 2)), str)

    def test_the_first_configuration_may_be_another_than_the_calibrated_one(self) -> None:
        """Ceilings for f16, a run with q8_0: the curve holds, and attention is unsure."""
        machine = Machine()
        config = msgspec.structs.replace(CONFIG, kv_type_k="q8_0", kv_type_v="q8_0")
        fit = Fit(None, [machine.calibrated()])
        fit.begin(config, Pricing(Ledger(machine.model, "q8_0", "q8_0"), None, 2))
        model = fit.model()
        assert model is not None
        assert not model.is_calibrated
        rows = Shape(((0, 8),), 8, (Ubatch(8, 8),))
        assert model.terms(rows).forward == pytest.approx(machine.rows_ns(8), rel=0.04)
        assert "q8_0" in model.unknown["attention"]


Q8 = {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}


class TestCaches:
    """Another kind of cache, forwards of which a calibration timed: pairs take three times as long, cells twice."""

    SLOW = Machine(pair_flops=5e9, scanned_per_s=1e9, shares_rows=False)
    KIND = CacheKind(kv_type_k="q8_0", kv_type_v="q8_0", flash_attention=True)
    SHAPES = (one_row(0), one_row(1500), ROWS_8, Shape(((900, 70),), 1, (Ubatch(70, 1),)))

    def _model(self, **changes: object) -> TimeModel:
        """Of steps that take as long as the calibration says, with the cache as it was."""
        machine = Machine()
        ceilings = self.SLOW.with_cache(machine.calibrated(), msgspec.structs.replace(self.KIND, **changes))
        return known(machine, ceilings)

    def _pricing(self, kind: KvType, threads: int = 2) -> Pricing:
        return Pricing(Ledger(Machine().model, kind, kind), None, threads)

    def test_what_was_measured_is_predicted(self) -> None:
        other = said(self._model(), msgspec.structs.replace(CONFIG, **Q8), self._pricing("q8_0"))
        for shape in self.SHAPES:
            assert other.terms(shape).forward == pytest.approx(
                self.SLOW.forward_ns(shape.spans, shape.passes), rel=0.03
            )
        assert "attention" not in other.unknown

    def test_what_the_cache_leaves_alone_leaves_the_ratio(self) -> None:
        model = self._model()
        other = said(model, msgspec.structs.replace(CONFIG, **Q8), self._pricing("q8_0"))
        assert other.terms(ROWS_8).weights == pytest.approx(model.terms(ROWS_8).weights, rel=0.01)
        assert spread(model, one_row(0), other)[1] < 0.02

    def test_steps_that_were_slower_than_the_calibration_are_so_with_it(self) -> None:
        machine = Machine()
        ceilings = self.SLOW.with_cache(machine.calibrated(), self.KIND)
        fit = Fit(ceilings)
        fit.begin(CONFIG, machine.pricing)
        fit.add([
            msgspec.structs.replace(step, phases=msgspec.structs.replace(
                step.phases, decode=round(1.2 * step.phases.decode)), cpu_ns=round(1.2 * (step.cpu_ns or 0)))
            for step in machine.traffic(500, noise=0.01)
        ])  # fmt: skip
        model = fit.model()
        assert model is not None
        other = said(model, msgspec.structs.replace(CONFIG, **Q8), self._pricing("q8_0"))
        truth = self.SLOW.forward_ns(ROWS_8.spans, ROWS_8.passes)
        assert other.terms(ROWS_8).forward == pytest.approx(1.2 * truth, rel=0.04)

    def test_another_quantised_type_is_taken_for_alike_but_not_for_known(self) -> None:
        model = self._model()
        measured, alike = (
            said(model, msgspec.structs.replace(CONFIG, kv_type_k=kind, kv_type_v=kind), self._pricing(kind))
            for kind in ("q8_0", "q4_0")
        )
        assert alike.terms(DEEP).attention == pytest.approx(measured.terms(DEEP).attention, rel=0.01)
        assert spread(model, DEEP, alike)[1] > 1.5 * spread(model, DEEP, measured)[1]

    def test_attention_of_the_other_kind_is_not_taken_for_this_one(self) -> None:
        model = self._model(flash_attention=False, kv_type_k="f16", kv_type_v="f16")
        quantised = said(model, msgspec.structs.replace(CONFIG, **Q8), self._pricing("q8_0"))
        assert "q8_0" in quantised.unknown["attention"]
        plain = said(model, msgspec.structs.replace(CONFIG, flash_attention=False), self._pricing("f16"))
        assert "attention" not in plain.unknown

    def test_with_other_threads_the_cache_comes_first_where_it_was_measured(self) -> None:
        """The pairs' share of the time grows as it did with two threads."""
        model = self._model()
        one = msgspec.structs.replace(CONFIG, threads=1)
        plain = said(model, one, self._pricing("f16", 1))
        other = said(model, msgspec.structs.replace(one, **Q8), self._pricing("q8_0", 1))
        assert "threads" in other.unknown
        assert "attention" not in other.unknown
        assert other.terms(ROWS_8).attention > 2.5 * plain.terms(ROWS_8).attention


class TestDrafting:
    DRAFT = make_model(name="draft", path="/models/draft.gguf")

    def _pricing(self, machine: Machine) -> Pricing:
        return Pricing(machine.ledger, Ledger(self.DRAFT), 2)

    def _shape(self) -> Shape:
        forwards = tuple(DraftForward(((300 + n, 1),), 1) for n in range(3))
        return Shape(((300, 4),), 4, (Ubatch(4, 4),), draft=forwards, cells=304, drafted=3)

    def test_a_draft_model_that_was_calibrated_takes_its_forwards(self) -> None:
        machine = Machine()
        ceilings = machine.calibrated()
        small = machine.calibrated().forwards[:5]
        ceilings = msgspec.structs.replace(ceilings, draft="draft.gguf", draft_forwards=small)
        config = msgspec.structs.replace(CONFIG, draft_model="/models/draft.gguf", speculation="draft")
        fit = Fit(ceilings)
        fit.begin(config, self._pricing(machine))
        model = fit.model()
        assert model is not None
        draft = model.terms(self._shape()).draft
        assert draft == pytest.approx(3 * machine.rows_ns(1, 300), rel=0.12)

    def test_draft_steps_teach_its_time(self) -> None:
        """Each step's three forwards take 0.4 ms, where the calibration knows nothing."""
        machine = Machine()
        config = msgspec.structs.replace(CONFIG, draft_model="/models/draft.gguf", speculation="draft")
        fit = Fit(machine.calibrated())
        fit.begin(config, self._pricing(machine))
        for step in machine.traffic(300, noise=0.01):
            spans = tuple((slot.cached, 1) for slot in step.work if slot.drafted)
            if spans:
                forwards = (DraftForward(spans, len(spans)),) * 3
                phases = msgspec.structs.replace(step.phases, draft=1_200_000)
                step = msgspec.structs.replace(step, draft=forwards, phases=phases)
            fit.add([step])
        model = fit.model()
        assert model is not None
        assert model.terms(self._shape()).draft == pytest.approx(1_200_000, rel=0.1)

    def test_one_that_nobody_timed_is_wide(self) -> None:
        machine = Machine()
        model = known(machine, machine.calibrated())
        config = msgspec.structs.replace(CONFIG, draft_model="/models/draft.gguf", speculation="draft")
        other = said(model, config, self._pricing(machine))
        assert "draft" in other.unknown
        draft = (
            other.draws([self._shape()])[:, 0] - other.draws([msgspec.structs.replace(self._shape(), draft=())])[:, 0]
        )
        assert float(np.std(draft) / np.mean(draft)) > 0.2


def _for_model(ceilings: Ceilings, name: str) -> Ceilings:
    return msgspec.structs.replace(ceilings, conditions=msgspec.structs.replace(ceilings.conditions, model=name))


def test_a_calibration_of_a_busy_machine_stands_for_no_calm_one() -> None:
    machine = Machine()
    for ceilings, is_undisturbed in (
        (machine.calibrated(), True),
        (msgspec.structs.replace(machine.calibrated(), is_quiet=False, foreign_share=0.5), False),
        (None, False),
    ):
        fit = Fit(ceilings)
        fit.begin(CONFIG, machine.pricing)
        fit.add(machine.traffic(20))
        model = fit.model()
        assert model is not None
        assert model.is_undisturbed == is_undisturbed
        model.starved = 0.5  # So many steps teach nothing, and the others were beside them.
        assert model.is_starved
        assert not model.is_undisturbed
