"""Snapshots of every state of the screen. All of them are synthetic: numbers that fit together, measured by nobody."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stackscope.analysis.live.snapshot import (
    Effect,
    Event,
    History,
    Latency,
    Levels,
    Point,
    Ratio,
    RequestView,
    Snapshot,
    Suggestion,
    Verdict,
    Window,
)
from stackscope.analysis.scorecard import Outcome, Score, score_of
from stackscope.records import Estimate
from stackscope.toggles import EngineConfig
from tests.tui.figures import (
    BANDWIDTH_CEILING,
    BIN_NS,
    COMPUTE_CEILING,
    MODEL,
    NOW_NS,
    PLAIN,
    SECOND,
    SLOTS_NS,
    SPECULATING,
    SPECULATION_NS,
    make_history,
    make_latency,
    make_parts,
    make_spread,
    plain_window,
    ratio,
    speculating_window,
)
from tests.tui.hardware import one_gpu, several_gpus, without_gpu
from tests.unit.ceilings_builders import ceilings, conditions
from tests.unit.record_builders import make_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackscope.records import HardwareSample, Header


def make_requests() -> tuple[RequestView, ...]:
    """Four in slots: three verify drafts, one is still prefilling; and one that has just finished."""
    return (
        RequestView(
            id=611, slot=0, phase="verify", prompt_tokens=512, prefilled=512, hit_tokens=384, output_tokens=97,
            drafted=172, accepted=81, age_ns=1_420_000_000,
        ),
        RequestView(
            id=612, slot=1, phase="verify", prompt_tokens=377, prefilled=377, hit_tokens=0, output_tokens=41,
            drafted=80, accepted=27, age_ns=700_000_000,
        ),
        RequestView(
            id=614, slot=2, phase="prefill", prompt_tokens=None, prefilled=448, hit_tokens=256, output_tokens=0,
            drafted=0, accepted=0, age_ns=31_000_000,
        ),
        RequestView(
            id=613, slot=3, phase="decode", prompt_tokens=290, prefilled=290, hit_tokens=272, output_tokens=3,
            drafted=0, accepted=0, age_ns=96_000_000,
        ),
        RequestView(
            id=610, slot=4, phase="verify", prompt_tokens=402, prefilled=402, hit_tokens=256, output_tokens=128,
            drafted=210, accepted=99, age_ns=2_150_000_000, finished="length",
        ),
    )  # fmt: skip


def score_of_events(events: tuple[Event, ...]) -> Score:
    """What the predictions of these events are worth."""
    return score_of(
        Outcome(at_ns=event.at_ns, changes=event.changes, predicted=estimate(event.predicted),
                measured=estimate(event.effect.tokens))
        for event in reversed(events)
        if event.predicted is not None and event.effect is not None and event.effect.tokens is not None
    )  # fmt: skip


def estimate(of: Ratio) -> Estimate:
    return Estimate(of.value, of.low, of.high)


def make_events() -> tuple[Event, ...]:
    """Every kind of event, newest first."""
    return (
        Event(
            at_ns=SPECULATION_NS, kind="live", changes={"speculation": ("off", "draft"), "draft_length": (3, 5)},
            predicted=ratio(1.92, 1.71, 2.13),
            effect=Effect(
                state="measured", tokens=ratio(2.21, 2.15, 2.27), before=329.0, after=728.0, before_s=17.0, after_s=30.5
            ),
        ),
        Event(at_ns=SPECULATION_NS - 8 * SECOND, kind="mark", label="baseline"),
        Event(
            at_ns=SLOTS_NS, kind="live", changes={"slots": (2, 4)}, predicted=ratio(1.71, 1.6, 1.8),
            effect=Effect(
                state="measured", tokens=ratio(1.87, 1.83, 1.91), before=176.0, after=329.0, before_s=40.0, after_s=18.0
            ),
        ),
        Event(
            at_ns=61 * SECOND, kind="refused", changes={"kv_type_v": ("f16", "q8_0")},
            label="A quantised V cache needs flash attention, which is off.",
        ),
        Event(
            at_ns=44 * SECOND, kind="rebuild", changes={"flash_attention": (True, False)}, duration_ns=182_000_000,
            requeued=2,
            effect=Effect(state="not distinguishable", tokens=ratio(0.99, 0.96, 1.02), before=178.0, after=176.0,
                          before_s=12.0, after_s=16.0),
        ),
        Event(at_ns=32 * SECOND, kind="traffic", changes={"concurrency": (4, 8)},
              effect=Effect(state="not comparable", why="prompts became 2.1 times as long")),
        Event(
            at_ns=12 * SECOND, kind="rebuild", by="plan", duration_ns=1_230_000_000, requeued=2,
            changes={"model": ("/models/synthetic-135m-F16.gguf", "/models/synthetic-135m-Q8_0.gguf")},
            effect=Effect(state="measured", tokens=ratio(1.62, 1.55, 1.69), before=110.0, after=178.0, before_s=9.0,
                          after_s=20.0),
        ),
    )  # fmt: skip


def make_config(**changes: Any) -> EngineConfig:
    """Draft-model speculation over four slots."""
    config = EngineConfig(
        model="/models/synthetic-135m-Q8_0.gguf", draft_model="/models/synthetic-15m-Q8_0.gguf", speculation="draft",
        draft_length=5, slots=4, slots_max=16, context_tokens=16_384, threads=2,
    )  # fmt: skip
    return msgspec.structs.replace(config, **changes)


def header(**changes: Any) -> Header:
    return make_header(
        **(
            {
                "config": make_config(speculation="off", draft_length=3, slots=2),
                "device": "synthetic 2-core",
                "library": "llama.cpp synthetic",
                "capabilities": ("phases", "cpu", "prefix_cache", "acceptance", "slots"),
                "workload": {"name": "code", "seed": 1, "concurrency": 8},
            }
            | changes
        )
    )


def running() -> Snapshot:
    """A CPU machine at full speed, speculation on for half a minute, nothing calibrated."""
    return Snapshot(
        at_ns=NOW_NS, state="running", header=header(), config=make_config(), model_name=MODEL, epoch=4, concurrency=8,
        n_steps=9_412, n_requests=610, n_tokens=38_213,
        now=speculating_window(), minute=speculating_window(wall_ns=60 * SECOND, steps=4_310, tokens_per_s=566.0,
                                                            parts=make_parts(mixed(SPECULATING, PLAIN), 60 * SECOND)),
        levels=Levels(queue=1, slots_busy=4, slots=4, kv_cells=9_211, resident_blocks=388, resident_paths=21,
                      shared_blocks=24, held_bytes=71_000_000, missed_at=118),
        latency=make_latency(), history=make_history(), requests=make_requests(), events=make_events(),
        score=score_of_events(make_events()),
        hardware=without_gpu(),
        verdict=Verdict(
            basis="phases", name="Decode forward", share=0.69, since_ns=SPECULATION_NS, previous="Prefill",
            sentence="target forwards take 69 % of wall time, reading 165 MB per step at 14.1 GB/s",
            rejected=("draft model 14.2 %", "host 5.9 %", "idle 3.1 %"),
        ),
    )  # fmt: skip


def mixed(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """Shares half-way between two."""
    return tuple((a + b) / 2 for a, b in zip(one, other, strict=True))


def running_after_a_busy_calibration() -> Snapshot:
    """The same on a machine whose ceilings were measured while others kept it busy."""
    config = make_config()
    measured = ceilings(
        conditions=conditions(model=PurePath(config.model).name), is_quiet=False, foreign_share=0.8
    )  # fmt: skip
    return msgspec.structs.replace(running(), config=config, header=header(ceilings=measured))


def calibrated() -> Snapshot:
    """The same with measured ceilings, limits of service, and an explainer behind the verdict."""
    return msgspec.structs.replace(
        running(),
        compute_ceiling=COMPUTE_CEILING,
        bandwidth_ceiling=BANDWIDTH_CEILING,
        latency=make_latency(ttft_limit_ns=300_000_000, tpot_limit_ns=10_000_000, good_share=0.97),
        verdict=Verdict(
            basis="explainer", name="Weight bandwidth", share=0.68, since_ns=SPECULATION_NS, previous="Draft overhead",
            sentence="reading 165 MB per step at 14.1 of 17.2 GB/s measured",
            rejected=("compute: 70 % of the measured rate", "KV: 4 % of the bytes", "host: 6 %"),
            next=(
                Suggestion(changes={"model": "/models/synthetic-135m-Q4_K_M.gguf"}, predicted=ratio(1.44, 1.37, 1.52)),
                Suggestion(changes={"draft_length": 3}, predicted=ratio(1.06, 1.02, 1.09)),
            ),
        ),
    )  # fmt: skip


def baseline() -> Snapshot:
    """Speculation and prefix cache off, requests waiting, and a history that does not reach back a minute."""
    return msgspec.structs.replace(
        running(), at_ns=29 * SECOND, config=make_config(speculation="off", prefix_cache=False), epoch=0,
        n_steps=2_101, n_requests=64, n_tokens=8_420,
        now=plain_window(lookup_tokens=0, useful_hit_tokens=0, useful_hit_rate=None, hit_rate=None, blocks_read=0,
                         blocks_written=0),
        minute=plain_window(wall_ns=25 * SECOND, lookup_tokens=0, useful_hit_tokens=0, useful_hit_rate=None,
                            hit_rate=None),
        levels=Levels(queue=4, slots_busy=4, slots=4, kv_cells=1_740, resident_blocks=0, resident_paths=0,
                      shared_blocks=0, held_bytes=0),
        latency=make_latency(ttft=make_spread(388.0, n=17), tpot=make_spread(12.1, n=17),
                             e2e=make_spread(2_100.0, n=17)),
        history=History(bin_ns=BIN_NS, points=baseline_points()), events=(), score=None,
        compute_ceiling=COMPUTE_CEILING, bandwidth_ceiling=BANDWIDTH_CEILING,
        requests=tuple(msgspec.structs.replace(r, phase="decode", drafted=0, accepted=0, hit_tokens=0)
                       for r in make_requests()[:2]),
        verdict=Verdict(basis="phases", name="Decode forward", share=0.8, since_ns=3 * SECOND,
                        sentence="target forwards take 80 % of wall time, reading 147 MB per step at 14.0 GB/s",
                        rejected=("prefill 8.0 %", "host 5.8 %", "idle 4.5 %")),
    )  # fmt: skip


def baseline_points() -> tuple[Point, ...]:
    """26 s of plain decoding."""
    return tuple(
        msgspec.structs.replace(point, at_ns=3 * SECOND + (index + 1) * BIN_NS, useful_hit_rate=None)
        for index, point in enumerate(make_history().points[:51])
    )


def settling() -> Snapshot:
    """Two seconds after a rebuild; the change before it is still being measured."""
    speculation = msgspec.structs.replace(
        make_events()[0],
        effect=Effect(state="measuring", before=329.0, before_s=17.0, after_s=1.5, why="needs 5 s more"),
    )
    switch = Event(
        at_ns=NOW_NS - 2 * SECOND, kind="rebuild", changes={"kv_type_k": ("f16", "q8_0"), "kv_type_v": ("f16", "q8_0")},
        duration_ns=240_000_000, requeued=4, predicted=ratio(1.08, 1.03, 1.12),
        effect=Effect(state="settling", before=728.0, before_s=30.5, why="4 requests are prefilled again"),
    )  # fmt: skip
    return msgspec.structs.replace(
        calibrated(), state="settling", epoch=5, config=make_config(kv_type_k="q8_0", kv_type_v="q8_0"),
        events=(switch, speculation, *make_events()[1:]), score=score_of_events(make_events()[1:]),
    )  # fmt: skip


def with_gpu() -> Snapshot:
    """One GPU, of which everything is known."""
    return gpu_session(1)


def with_gpus() -> Snapshot:
    """Eight GPUs, one of them lost, one throttled, two in use."""
    return msgspec.structs.replace(gpu_session(2), hardware=several_gpus())


def gpu_session(n: int) -> Snapshot:
    """At the rates of so many GPUs in use."""
    verdict = msgspec.structs.replace(
        calibrated().verdict,
        sentence=f"reading {8.7 * n:#.3g} GB per step at {2.61 * n:#.3g} of {3.12 * n:#.3g} TB/s measured",
        rejected=("compute: 23 % of the measured rate", "KV: 9 % of the bytes", "host: 6 %"),
    )
    return msgspec.structs.replace(
        calibrated(), hardware=one_gpu(), header=header(device="NVIDIA H100 80GB HBM3"), verdict=verdict,
        compute_ceiling=n * 612e12, bandwidth_ceiling=n * 3.12e12, model_name="synthetic-8b Q8_0",
        now=speculating_window(bytes_per_s=n * 2.2e12, forward_bytes_per_s=n * 2.61e12, flops_per_s=n * 116e12,
                               forward_flops_per_s=n * 140e12, kv_read_bytes_per_s=n * 240e9,
                               kv_write_bytes_per_s=n * 3e9, weight_bytes_per_s=n * 1.96e12, bytes_per_step=n * 8.7e9),
        history=gpu_history(n),
    )  # fmt: skip


def gpu_history(n: int) -> History:
    """The minute at the rates of so many GPUs."""
    history = make_history()
    points = tuple(
        point if point.flops_per_s is None or point.bytes_per_s is None else
        msgspec.structs.replace(point, flops_per_s=point.flops_per_s * 270 * n, bytes_per_s=point.bytes_per_s * 200 * n,
                                forward_bytes_per_s=2.61e12 * n)
        for point in history.points
    )  # fmt: skip
    return msgspec.structs.replace(history, points=points)


def starting() -> Snapshot:
    """Before any record."""
    return Snapshot()


def loading() -> Snapshot:
    """The header has come, and no step yet."""
    return Snapshot(at_ns=400_000_000, header=header(), config=make_config(), model_name=MODEL, concurrency=8)


def waiting() -> Snapshot:
    """Nothing is in flight: the load has paused."""
    return msgspec.structs.replace(
        running(), state="waiting", requests=(), now=Window(wall_ns=2 * SECOND),
        levels=Levels(queue=0, slots_busy=0, slots=4, kv_cells=6_208, resident_blocks=388, resident_paths=21,
                      shared_blocks=24, held_bytes=71_000_000, missed_at=118),
        verdict=Verdict(sentence="no request is in flight"),
    )  # fmt: skip


def dead() -> Snapshot:
    """The engine's process died."""
    return msgspec.structs.replace(
        running(), state="dead", ended="engine-died",
        log=("loading synthetic-135m-Q8_0.gguf", "ggml.c:4120: GGML_ASSERT(ne00 == ne10) failed", "aborted"),
    )  # fmt: skip


def attached() -> Snapshot:
    """A server that somebody else runs: no phases, no bytes, no drafts by position, nothing about the machine."""
    points = tuple(
        Point(at_ns=point.at_ns, tokens_per_s=point.tokens_per_s, queue=point.queue) for point in make_history().points
    )
    return Snapshot(
        at_ns=NOW_NS, state="running", n_requests=610, n_tokens=38_213,
        header=header(source="attach", device="synthetic", library=None, model=None, config=None, capabilities=()),
        now=Window(wall_ns=2 * SECOND, tokens_per_s=728.0, requests_per_s=4.7, queue=3.0),
        minute=Window(wall_ns=60 * SECOND, tokens_per_s=566.0, requests_per_s=4.4, queue=2.6),
        levels=Levels(queue=3), history=History(bin_ns=BIN_NS, points=points),
        latency=Latency(ttft=make_spread(212.0, n=282), e2e=make_spread(1_240.0, n=282), is_complete=False),
        verdict=Verdict(sentence="this source does not say where the time of a step goes"),
    )  # fmt: skip


def empty() -> Snapshot:
    """A recording that was cut off before its first step."""
    return Snapshot(at_ns=2 * SECOND, state="finished", header=header(), config=make_config(), model_name=MODEL)


def replay_end() -> Snapshot:
    """The end of a recording."""
    return msgspec.structs.replace(running(), state="finished", requests=(), ended="done")


def without_hardware() -> Snapshot:
    """A recording whose machine nobody sampled."""
    return msgspec.structs.replace(running(), hardware=None)


def hardware_of(sample: HardwareSample) -> Snapshot:
    """Running on the machine of a sample."""
    return msgspec.structs.replace(running(), hardware=sample)


SESSIONS: Final[dict[str, Callable[[], Snapshot]]] = {
    "starting": starting,
    "loading": loading,
    "waiting": waiting,
    "baseline": baseline,
    "running": running,
    "calibrated": calibrated,
    "settling": settling,
    "dead": dead,
    "gpu": with_gpu,
    "gpus": with_gpus,
    "attached": attached,
    "empty": empty,
    "replay-end": replay_end,
    "no-hardware": without_hardware,
}
"""All of them, by name. `running` is also what a paused display shows."""
