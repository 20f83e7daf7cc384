"""The pieces of the time model: columns by hand, products in pieces, which steps are kept."""

from __future__ import annotations

import sys

import msgspec
import numpy as np
import pytest

from stackscope.analysis.ledger import Ledger
from stackscope.analysis.ledgers import Pricing
from stackscope.analysis.timing.design import BLOCKS, COLUMNS_OF, Design, by_parameter, times_of
from stackscope.analysis.timing.drawing import Belief, Load, latent
from stackscope.analysis.timing.fit import Fit
from stackscope.analysis.timing.forwards import COLUMNS, WEIGHTS, ForwardDesign, _strangers
from stackscope.analysis.timing.learning import LEAST_COLDER, priors
from stackscope.analysis.timing.products import multiplied, squared
from stackscope.analysis.timing.sampled import MOST, PER_KIND, Kept, Sampled, kind_of, packed, unpacked
from stackscope.analysis.timing.shapes import Shape, one_row
from stackscope.analysis.timing.solving import NO_DATA, Data, Prior, among_alike, solve
from stackscope.records import DraftForward, LayerSummary, ModelSummary, SlotWork, TensorClass, Ubatch
from tests.unit.record_builders import make_model, make_step
from tests.unit.timing_machines import CONFIG, Machine

LAYER = LayerSummary(heads=8, kv_heads=2, key_length=64, value_length=64)


def row_of(
    spans: tuple[tuple[int, int], ...], passes: tuple[Ubatch, ...], cells: int = 0, *,
    model: ModelSummary | None = None, **settings: object,
) -> dict[str, float]:  # fmt: skip
    """Columns of a forward by parameter and term, those that are zero left out."""
    config = msgspec.structs.replace(CONFIG, **settings)
    design = ForwardDesign(Ledger(model or make_model(), config.kv_type_k, config.kv_type_v), config, is_gpu=False)
    values = design.row(spans, passes, cells)
    return {
        f"{COLUMNS.parameters[owner]}/{term}": float(value)
        for owner, term, value in zip(COLUMNS.parameter, COLUMNS.terms, values, strict=True)
        if value
    }


class TestColumns:
    def test_one_row_alone(self) -> None:
        """100 cells of a span of 256; 32 heads go through it; 101 pairs of 8,192 FLOPs, the layers together."""
        found = row_of(((100, 1),), (Ubatch(1, 1),), cells=101)
        assert found == pytest.approx({
            "weights/weights": 1.0, "fixed.forward/fixed": 1.0, "fixed.pass/fixed": 1.0, "head.1/head": 1.0,
            "body.alone/weights": 1.0, "head.alone/head": 1.0,
            "pair.row/attention": 101 * 8192 / 1e6, "scan.row/attention": 32 * 256 / 1e6,
        })  # fmt: skip

    def test_cells_of_others_are_resident(self) -> None:
        """1,000 more cells: 1,101 of a span of 1,280; the first 256 cells count as those of the other kernel."""
        found = row_of(((100, 1),), (Ubatch(1, 1),), cells=1101)
        assert found["scan.split/resident"] == pytest.approx(32 * 1000 / 1e6)
        scanned = found["scan.row/attention"] + found["scan.split/attention"] + found["scan.split/resident"]
        assert scanned == pytest.approx(32 * 1280 / 1e6)

    def test_split_kv_has_no_residents(self) -> None:
        found = row_of(((100, 1), (700, 1)), (Ubatch(2, 2),), cells=9000, unified_kv=False)
        assert found["scan.row/resident"] == pytest.approx(32 * (701 - 101) / 1e6)

    def test_rows_beyond_blocks(self) -> None:
        """Ten rows are two blocks and two: the head has all of them, the blocks too but for the last feed-forward."""
        found = row_of(((0, 10),), (Ubatch(10, 10),))
        for name in ("b4", "b8", "r1", "r2"):
            assert found[f"body.{name}/compute"] == found[f"head.{name}/head"] == pytest.approx(1.0)
        assert "body.r3/compute" not in found

    def test_a_pass_without_outputs_reads_no_head(self) -> None:
        """Of four layers' feed-forward, the last one's is not read: 1,536 × 512 × 3 of 11.5 M elements."""
        found = row_of(((0, 64),), (Ubatch(64, 0),))
        assert not any(name.startswith("head") for name in found)
        w = Ledger(make_model()).weights
        late = w.output_ffn.bytes / (w.attention.bytes + w.ffn.bytes + w.output_ffn.bytes)
        assert found["weights/weights"] == pytest.approx(1.0 - late)
        assert found["body.b64/compute"] == pytest.approx(1.0 - late)

    def test_two_passes_are_two_readings(self) -> None:
        found = row_of(((0, 8),), (Ubatch(4, 4), Ubatch(4, 4)))
        assert found["weights/weights"] == found["fixed.pass/fixed"] == found["body.b4/compute"] == 2.0
        assert found["fixed.forward/fixed"] == 1.0

    def test_tiles_from_64_rows_on_unless_the_cache_is_quantised(self) -> None:
        assert "pair.tile/attention" in row_of(((0, 64),), (Ubatch(64, 1),))
        assert "pair.row/attention" in row_of(((0, 63),), (Ubatch(63, 1),))
        assert "pair.row/attention" in row_of(((0, 64),), (Ubatch(64, 1),), kv_type_k="q8_0", kv_type_v="q8_0")

    def test_cells_beyond_a_window_are_passed_over_unless_the_cache_is_cut(self) -> None:
        """A window of 512 at 2,000 tokens: 512 pairs; 2,048 cells, or the window's 513 in 768."""
        model = make_model(layers=(msgspec.structs.replace(LAYER, window=512),) * 4)
        whole = row_of(((2000, 2),), (Ubatch(2, 2),), model=model)
        cut = row_of(((2000, 2),), (Ubatch(2, 2),), model=model, swa_full=False)
        assert whole["pair.row/attention"] == cut["pair.row/attention"] == pytest.approx(2 * 512 * 8192 / 1e6)
        assert whole["scan.row/attention"] == pytest.approx(2 * 32 * 2048 / 1e6)
        assert cut["scan.row/attention"] == pytest.approx(2 * 32 * 768 / 1e6)

    def test_the_slowest_of_the_threads_that_share_a_row_counts(self) -> None:
        """2,001 cells of 2,048: the first thread has 1,024 of them. Of a window's 512 cells, the second one has all."""
        config = msgspec.structs.replace(CONFIG, threads=2)
        for window, cells in ((None, 2048), (512, 1024)):
            model = make_model(layers=(msgspec.structs.replace(LAYER, window=window),) * 4)
            found = ForwardDesign(Ledger(model), config, is_gpu=False).row(((2000, 1),), (Ubatch(1, 1),))
            pairs = by_parameter(COLUMNS, [found])[0][COLUMNS.parameters.index("pair.split")]
            assert pairs == pytest.approx((cells - 256) * 8192 / 1e6)

    def test_attention_that_is_not_fused_multiplies_long_pieces_of_prompts_by_matrices(self) -> None:
        assert "pair.tile/attention" in row_of(((0, 64),), (Ubatch(64, 1),), flash_attention=False)
        assert "pair.row/attention" in row_of(((900, 1),), (Ubatch(1, 1),), flash_attention=False)

    def test_more_rows_wake_more_experts(self) -> None:
        """8 experts of which 2 are used: one row wakes 2, two rows 3.5 (equation 3)."""
        dense = make_model()
        layers = range(4)
        experts = [TensorClass(role="expert", type="F16", layer=n, elements=80_000, bytes=160_000) for n in layers]
        model = make_model(tensors=(*dense.tensors, *experts), experts=8, experts_used=2)
        one, two = (row_of(((0, n),), (Ubatch(n, n),), model=model) for n in (1, 2))
        assert "weights/compute" not in one
        body = sum(t.bytes for t in dense.tensors if t.layer is not None) + 4 * 160_000 * 2 / 8
        assert two["weights/compute"] == pytest.approx(4 * 160_000 / 8 * 1.5 / body)


class TestStrangers:
    """Pairs that a tile computes for rows of other sequences."""

    def test_all_rows_of_a_tile_go_through_the_cells_of_all_its_sequences(self) -> None:
        """Two rows decode behind 300 tokens each, 62 begin a prompt: 2 × (301 + 62) + 62 × 602."""
        assert _strangers(((300, 1), (300, 1), (0, 62)), 10_000, None) == 2 * (301 + 62) + 62 * 602

    def test_other_tiles_do_not(self) -> None:
        """Of 256 rows the first 64 share a tile with one that decodes; the other 192 are alone in theirs."""
        assert _strangers(((300, 1), (0, 255)), 10_000, None) == 1 * 255 + 63 * 301

    def test_a_shared_cell_is_one(self) -> None:
        """Both have the same 300 cells, and 32 of their own: a row meets no more than the other's 32."""
        assert _strangers(((300, 32), (300, 32)), 364, None) == 64 * 32

    def test_a_window_keeps_no_more_than_its_own(self) -> None:
        assert _strangers(((5000, 1), (0, 63)), 10_000, 512) == 1 * 63 + 63 * 513

    def test_a_sequence_by_itself_meets_none(self) -> None:
        assert _strangers(((100, 200),), 10_000, None) == 0


class TestDesign:
    def test_a_recorded_step_has_the_shape_of_its_work(self) -> None:
        work = (
            SlotWork(request=0, slot=0, phase="verify", new=4, cached=90, drafted=3, outputs=4),
            SlotWork(request=1, slot=1, phase="prefill", new=32, cached=0, outputs=1),
        )
        draft = (DraftForward(((90, 1),), 1),)
        shape = Shape.of(make_step(work=work, draft=draft, kv_cells=500))
        assert shape == Shape(((90, 4), (0, 32)), 5, (Ubatch(36, 5),), draft, 500, 3)
        assert shape.rows == 36

    def test_times_leave_the_shadows_out(self) -> None:
        step = make_step()
        phases = msgspec.structs.replace(step.phases, shadow=70_000, draft=11_000)
        times = times_of(msgspec.structs.replace(step, phases=phases))
        assert times == (850_000, 11_000, 21_000, 129_000)

    def test_drafting_counts_sequences_that_decode(self) -> None:
        """Two that verify three drafts each, beside a chunk of a prompt."""
        design = Design(msgspec.structs.replace(CONFIG, speculation="ngram"), Machine().pricing, is_gpu=False)
        shape = Shape(((5, 4), (9, 4), (0, 100)), 9, (Ubatch(108, 9),), drafted=6)
        columns = by_parameter(COLUMNS_OF["draft"], [design.columns(shape)[1]])[0]
        found = dict(zip(COLUMNS_OF["draft"].parameters, columns, strict=True))
        assert (found["draft.ngram.sequence"], found["draft.ngram.token"]) == (2.0, 6.0)
        assert found["draft.model.sequence"] == 0.0


class TestSampled:
    def _kept(self, at_ns: int) -> Kept:
        return Kept(b"", b"", *times_of(make_step()), None, at_ns, (1,), (1,), 0, 0)

    def test_columns_come_back_as_they_were_packed(self) -> None:
        order = np.random.default_rng(1)
        columns = [[order.random(len(COLUMNS_OF[name].terms)) for name in BLOCKS] for _ in range(5)]
        for one in columns:
            one[1][:] = 0.0
            one[0][order.random(len(one[0])) < 0.7] = 0.0
        kept = [Kept(*packed(one), *times_of(make_step()), None, 0, (1,), (1,), 0, 0) for one in columns]
        for index, block in enumerate(unpacked(kept)):
            assert np.array_equal(block, [one[index] for one in columns])
        assert [block.shape for block in unpacked([])] == [(0, len(COLUMNS_OF[name].terms)) for name in BLOCKS]

    def test_a_step_that_is_kept_is_small(self) -> None:
        design = Design(CONFIG, Pricing(Ledger(make_model(), "f16", "f16")), is_gpu=False)
        where, values = packed(design.columns(one_row(200)))
        assert sys.getsizeof(where) + sys.getsizeof(values) < 300

    def test_a_common_kind_does_not_push_out_rare_ones(self) -> None:
        sampled = Sampled()
        rare, common = (2, 2, 5, 0, False), (1, 1, 5, 0, False)
        for n in range(20_000):
            kind = rare if n == 100 else common
            if sampled.wants(kind, 10**8):
                sampled.keep(kind, self._kept(n))
        times = [one.at_ns for one in sampled.all()]
        assert 100 in times
        assert len(times) == PER_KIND + 1
        assert max(times) > 19_000

    def test_many_kinds_stay_within_bounds(self) -> None:
        sampled = Sampled()
        for n in range(9_000):
            kind = (n % 3000, 1, 5, 0, False)
            if sampled.wants(kind, 10**8):
                sampled.keep(kind, self._kept(n))
        assert len(sampled) == len(sampled.all()) <= MOST

    def test_fast_steps_are_mostly_not_kept(self) -> None:
        """At 1 ms a step, one in ten, once the kind is known."""
        sampled = Sampled()
        kind = kind_of(make_step())
        assert sum(sampled.wants(kind, 1_000_000) for _ in range(400)) < 60


class TestSolving:
    def test_a_parameter_without_data_keeps_its_prior(self) -> None:
        prior = Prior(np.array([10.0, 5.0]), np.array([5.0, 2.0]), np.zeros((0, 2)), 1.0)
        columns = np.column_stack((np.arange(1.0, 51.0), np.zeros(50)))
        found = solve(prior, NO_DATA, Data(columns, 20.0 * columns[:, 0], np.zeros(50)))
        assert found.mean[0] == pytest.approx(20.0, rel=0.01)
        assert found.sd[1] / found.mean[1] == pytest.approx(0.4, rel=0.1)
        assert found.sd[0] / found.mean[0] < 0.01

    def test_nothing_becomes_negative(self) -> None:
        """Times that fall with the second column: it gets nothing."""
        rng = np.random.default_rng(1)
        columns = rng.uniform(1.0, 2.0, (80, 2)) * 1e6
        times = 10.0 * columns[:, 0] - 3.0 * columns[:, 1]
        found = solve(Prior(np.ones(2), np.ones(2), np.zeros((0, 2)), 1.0), NO_DATA, Data(columns, times, np.zeros(80)))
        assert found.mean[1] == 0.0
        assert found.mean[0] > 0.0

    def test_an_outlier_is_a_step_that_differs_from_those_alike(self) -> None:
        """Two steps of one kind that agree on 0.5, one that does not; and two of another, too few to be believed."""
        residuals = np.array([0.5] * 2 + [2.0, 0.7, 0.7])
        found = among_alike(residuals, np.array([0] * 3 + [1, 1]))
        assert found == pytest.approx([0.0] * 2 + [1.5, 0.7, 0.7])
        assert among_alike(residuals, None) == pytest.approx(residuals)


class TestDrawing:
    def test_draws_have_mean_and_spread(self) -> None:
        belief = Belief(("a", "b"), np.array([100.0, 50.0]), np.diag([5.0, 0.0]), (Load("x", np.array([0.0, 0.1])),))
        drawn = belief.draws(20_000, 0)
        assert drawn.mean(axis=0) == pytest.approx([100.0, 50.0], rel=0.02)
        assert drawn.std(axis=0) == pytest.approx([5.0, 5.0], rel=0.05)
        assert belief.sd == pytest.approx([5.0, 5.0])

    def test_one_name_is_one_unknown(self) -> None:
        assert latent("a", 50, 1) is latent("a", 50, 1)
        assert abs(np.corrcoef(latent("a", 4000, 1), latent("b", 4000, 1))[0, 1]) < 0.05


@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (7, 65, 3), (613, 67, 67), (200, 70, 900), (3, 400_000, 2)])
def test_products_in_pieces_are_products(n: int, k: int, m: int) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(n, k)), rng.normal(size=(k, m))
    np.testing.assert_allclose(multiplied(left, right), left @ right, atol=1e-8 * k)
    if k < 1000:
        np.testing.assert_allclose(squared(left), left.T @ left, atol=1e-8 * n)


def test_a_second_session_goes_on_with_what_the_first_one_taught() -> None:
    """Its ledgers are others, of the same model."""
    machine, slow = Machine(), Machine(fixed_ns=2_000_000.0)
    fit = Fit(machine.calibrated())
    fit.begin(CONFIG, machine.pricing)
    fit.add(slow.traffic(100))
    fit.begin(CONFIG, Machine().pricing)
    model = fit.model()
    assert model is not None
    shape = Shape(((100, 4),), 4, (Ubatch(4, 4),))
    assert model.terms(shape).forward == pytest.approx(slow.rows_ns(4, 100), rel=0.05)


def test_models_do_not_keep_all_models_before_them() -> None:
    machine = Machine()
    other = msgspec.structs.replace(CONFIG, threads=1)
    pricings = (machine.pricing, Pricing(machine.ledger, None, 1))
    fit = Fit(machine.calibrated())
    for n in range(6):
        fit.begin((CONFIG, other)[n % 2], pricings[n % 2])
        fit.add(machine.traffic(20, seed=n))
        model = fit.model()
        assert model is not None
        assert all(not known.source.known for known in model.source.known.values())


@pytest.mark.parametrize(("times", "share"), [(1, 0.663), (4, 0.166), (40, LEAST_COLDER)])
def test_no_more_of_the_weights_leaves_the_nearer_caches_than_those_hold(times: int, share: float) -> None:
    """Of 24 MB two thirds, of 1 GB hardly anything: reading that may not take twice as long for it."""
    plain = make_model()
    larger = tuple(
        tensor if tensor.role == "embedding"
        else msgspec.structs.replace(tensor, elements=times * tensor.elements, bytes=times * tensor.bytes)
        for tensor in plain.tensors
    )  # fmt: skip
    machine = Machine(model=msgspec.structs.replace(plain, tensors=larger))
    ceilings = msgspec.structs.replace(machine.calibrated(), fits_cache=True)
    design = Design(CONFIG, machine.pricing, is_gpu=False)
    prior = priors(design, CONFIG, ceilings)[0][0]
    assert prior.colder is not None
    assert prior.colder[1] / prior.mean[WEIGHTS] == pytest.approx(share, rel=0.01)
