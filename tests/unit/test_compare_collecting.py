"""A session streamed into arrays has the metrics that it has record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from stackscope.analysis.comparing.collecting import METRICS, MOST_HELD, Collector
from stackscope.analysis.comparing.columns import MOST_BLOCKS
from stackscope.analysis.comparing.comparison import compared
from stackscope.analysis.comparing.figures import BY_NAME
from stackscope.analysis.comparing.moved import anatomy
from stackscope.analysis.ledgers import UNPRICED
from stackscope.analysis.live.snapshot import PARTS
from stackscope.analysis.live.sums import counted, end_times
from stackscope.analysis.metrics import counts, latency, time
from stackscope.analysis.summary import RunSummary
from stackscope.records import ConfigEvent, GpuSample, HardwareSample, StepRecord, Ubatch
from tests.unit.compare_sessions import Run
from tests.unit.record_builders import SyntheticEngine, make_header, make_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackscope.analysis.comparing.digest import Digest
    from stackscope.records import AnyRecord


def both(records: Iterable[AnyRecord], **options: Any) -> tuple[Digest, RunSummary]:
    """The same records summed up in both ways."""
    held = list(records)
    collector, summary = Collector("x", **options), RunSummary(**options)
    collector.take(held)
    for record in held:
        summary.write(record)
    return collector.digest(), summary


def require_same(digest: Digest, summary: RunSummary) -> None:
    expected = summary.result().values
    for metric in METRICS:
        assert digest.values[metric.tag] == expected[metric.tag], metric.tag


@pytest.mark.parametrize(
    "run",
    [
        Run(),
        Run(drafted=3, config={"speculation": "draft"}),
        Run(hit=0.5, slots=1),
        Run(header={"model": None}),
        Run(header={"capabilities": ("phases",)}),
        Run(step={"cpu_ns": None}),
        Run(step={"aborted": True}),
        Run(step={"work": ()}),
        Run(requests=0),
    ],
    ids=["plain", "drafts", "hits", "no model", "few capabilities", "no CPU time", "aborted", "no work", "empty"],
)
def test_metrics_are_those_of_the_summary(run: Run) -> None:
    require_same(*both(run.records()))


@pytest.mark.parametrize(
    "run",
    [Run(), Run(drafted=3, hit=0.5), Run(drafted=2, step={"aborted": True})],
    ids=["plain", "drafts and hits", "aborted"],
)
def test_the_anatomy_is_that_of_the_live_view(run: Run) -> None:
    digest = run.digest()
    steps = [record for record in run.records() if isinstance(record, StepRecord)]
    expected = counted(steps, end_times(steps), UNPRICED).sums
    found = anatomy(digest)
    assert found is not None
    assert tuple(found) == PARTS
    assert list(found.values()) == pytest.approx([ns / len(steps) for ns in expected.parts])


def test_there_is_no_anatomy_without_phases_or_steps() -> None:
    assert anatomy(Run(header={"capabilities": ("slots",)}).digest()) is None
    assert anatomy(Run(requests=0).digest()) is None


def test_forwards_in_several_passes_count_each() -> None:
    step = make_step(work=make_step().work * 2, ubatches=(Ubatch(1, 1), Ubatch(1, 0)))
    digest, summary = both([make_header(), step, make_step(1)])
    require_same(digest, summary)
    one_pass = both([make_header(), make_step(work=make_step().work * 2), make_step(1)])[0]
    assert digest.total("weight_bytes") > one_pass.total("weight_bytes")


def test_epochs_have_their_own_prices() -> None:
    steps = [make_step(n) for n in range(60)]
    config = make_header().config
    assert config is not None
    quantised = msgspec.structs.replace(config, kv_type_k="q8_0", kv_type_v="q8_0")
    change = ConfigEvent(at_ns=0, epoch=1, kind="rebuild", config=quantised)
    later = [msgspec.structs.replace(step, epoch=1) for step in steps[30:]]
    digest, summary = both([make_header(), *steps[:30], change, *later])
    require_same(digest, summary)
    assert [(span.number, span.steps) for span in digest.epochs] == [(0, 30), (1, 30)]
    assert digest.epochs[1].config == quantised
    kv = digest.column("kv_bytes")
    assert kv[-1] < 0.6 * kv[0]


def test_steps_of_an_epoch_that_nobody_announced_are_not_priced() -> None:
    require_same(*both([make_header(), make_step(), make_step(1, epoch=7)]))


def test_warm_up_is_left_out_and_counted() -> None:
    records = list(Run(requests=20).records())
    digest, summary = both(records, warmup_ns=1_500_000_000)
    require_same(digest, summary)
    result = summary.result()
    assert digest.warmup_steps == result.warmup_steps > 0
    assert digest.warmup_requests == result.warmup_requests > 0


def test_batches_of_steps_join_without_a_seam() -> None:
    """More steps than are held at once, and more blocks than are kept."""
    n_steps = 8 * MOST_BLOCKS + MOST_HELD + 3
    digest, summary = both([make_header(), *SyntheticEngine().records(n_steps)])
    steps, wall = digest[counts.Steps], digest[counts.WallTime]
    assert (steps, wall) == (n_steps, summary.result()[counts.WallTime])
    assert digest.blocks.shape[1] <= MOST_BLOCKS
    assert digest.total("steps") == n_steps
    values = digest.distributions[time.StepTime.tag]
    sizes = np.bincount(values.owners, minlength=digest.blocks.shape[1])
    assert sizes.tolist() == digest.column("steps").tolist()
    assert digest[time.StepTime] is not None


def test_values_belong_to_requests_in_order() -> None:
    digest = Run(requests=10).digest()
    gaps = digest.distributions[latency.StepGap.tag]
    assert gaps.n_owners == 10
    assert np.bincount(gaps.owners).tolist() == (digest.requests.output_tokens - 1).tolist()
    assert sorted(digest.requests.ids.tolist()) == list(range(10))


def test_a_session_without_a_header_is_none() -> None:
    with pytest.raises(ValueError, match="begins with its header"):
        Collector("x").digest()


# Readings of the machine


def state_of(*samples: HardwareSample) -> Any:
    collector = Collector("x")
    collector.take([make_header(), *samples])
    return collector.digest().machine


def test_energy_is_what_counters_gained() -> None:
    def sample(at_s: int, joules: float) -> HardwareSample:
        gpu = GpuSample(uuid="a", name="G", is_used=True, energy_j=joules, throttle=())
        other = GpuSample(uuid="b", name="G", energy_j=9 * joules)
        return HardwareSample(at_ns=at_s * 10**9, gpus=(gpu, other), package_power_w=50.0)

    state = state_of(sample(0, 1000.0), sample(1, 1300.0), sample(2, 1500.0))
    assert state.gpu_energy_j == 500.0
    assert state.package_energy_j == 100.0  # 50 W over 2 s
    assert state.throttled == {}


def test_energies_of_other_parts_of_a_machine_are_not_compared() -> None:
    def digest(package_w: float | None) -> Digest:
        collector = Collector("x")
        gpus = [GpuSample(uuid="a", name="G", is_used=True, energy_j=100.0 * at) for at in range(3)]
        samples = [HardwareSample(at_ns=at * 10**9, gpus=(gpus[at],), package_power_w=package_w) for at in range(3)]
        collector.take([make_header(), *(make_step(n) for n in range(40)), *samples])
        return collector.digest()

    energy = BY_NAME["energy_per_token"]
    # 200 J over 2 s, at a token every millisecond.
    assert energy.of(digest(None)) == pytest.approx(0.1)
    found = compared(energy, digest(None), digest(50.0), is_same_work=False)
    assert (found.ratio, found.why) == (None, "not of the same parts of the machine")
    assert compared(energy, digest(None), digest(None), is_same_work=False).why == "measured once"


def test_throttling_is_a_share_of_the_readings_that_tell() -> None:
    def sample(at_s: int, throttle: tuple[str, ...] | None) -> HardwareSample:
        gpu = GpuSample(uuid="a", name="G", is_used=True, throttle=throttle)
        return HardwareSample(at_ns=at_s * 10**9, gpus=(gpu,))

    state = state_of(sample(0, ()), sample(1, ("power cap",)), sample(2, None), sample(3, ("power cap", "heat")))
    assert state.throttled == {"heat": pytest.approx(1 / 3), "power cap": pytest.approx(2 / 3)}


def test_what_nobody_read_is_unknown() -> None:
    state = state_of(HardwareSample(at_ns=0))
    assert (state.throttled, state.gpu_energy_j, state.package_energy_j, state.memory_peak_bytes) == (None,) * 4
