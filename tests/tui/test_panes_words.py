"""What panes say: each state in words, what is unknown as unknown and why, and what must not be made up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from stackscope.analysis.live.snapshot import (
    Effect,
    Event,
    History,
    Latency,
)
from stackscope.records import GpuSample
from stackscope.tui.look import ASCII
from stackscope.tui.panes import PANES
from tests.tui.figures import SECOND, make_spread, plain_window, ratio
from tests.tui.hardware import make_gpu, without_gpu
from tests.tui.pane_words import shown, words
from tests.tui.sessions import (
    SESSIONS,
    calibrated,
    hardware_of,
    make_config,
    running,
    running_after_a_busy_calibration,
)

if TYPE_CHECKING:
    from stackscope.toggles import Setting


def test_speculation_that_is_off_is_off_and_wins_one_token() -> None:
    text = words("acceptance", SESSIONS["baseline"]())
    assert "Speculation is off." in text
    assert "A 1.00 tok/forward" in text
    assert "%" not in text.replace("0–100 %", "")


def test_acceptance_shows_every_place_of_a_draft_in_any_height() -> None:
    window = msgspec.structs.replace(running().now, by_position=(0.81, 0.63, 0.47, 0.32, 0.22))
    snapshot = msgspec.structs.replace(running(), now=window)
    for height in range(2, 20):
        text = words("acceptance", snapshot, 38, height)
        for percent in ("81", "63", "47", "32", "22"):
            assert re.search(rf" {percent}(\.0)? ", text), height
    assert "break-even A -" in words("acceptance", running(), 60)


def test_many_places_are_summed_up_on_a_line() -> None:
    window = msgspec.structs.replace(running().now, by_position=tuple(0.9**n for n in range(1, 33)))
    text = words("acceptance", msgspec.structs.replace(running(), now=window), 58, 8)
    assert "token 1" in text
    assert "tokens 4–32 66 59 53" in text


def test_no_percentage_is_made_up_without_a_measured_ceiling() -> None:
    text = words("compute", running())
    assert "431 GFLOP/s" in text
    assert "ceiling not measured" in text
    assert "%" not in text
    assert "ceiling not measured" in words("compute", running(), 36, 4)
    assert "ceiling - not measured" in words("bandwidth", running())
    assert "%" not in words("bandwidth", running())


def test_what_a_busy_machine_said_is_set_aside_and_not_called_unmeasured() -> None:
    snapshot = running_after_a_busy_calibration()
    advice = "measured on a busy machine: stackscope calibrate"
    for width, reason in ((90, advice), (58, "measured on a busy machine"), (38, "measured while busy")):
        assert f"ceiling {reason}" in words("compute", snapshot, width)
        assert f"ceiling - {reason}" in words("bandwidth", snapshot, width)
        assert "not measured" not in words("compute", snapshot, width) + words("bandwidth", snapshot, width)
    more = msgspec.structs.replace(snapshot, config=make_config(threads=7))  # Never measured, busy or not.
    assert "ceiling not measured" in words("compute", more)
    assert "ceiling - not measured" in words("bandwidth", more)


def test_with_a_ceiling_what_is_left_is_told() -> None:
    text = words("compute", calibrated())
    assert "30.5 % idle" in text
    assert "620 GFLOP/s measured" in text
    assert "81.0 % idle" in words("compute", SESSIONS["gpu"]())


def test_compute_beyond_the_ceiling_is_not_less_than_nothing() -> None:
    over = msgspec.structs.replace(calibrated(), compute_ceiling=1e9)
    assert "0 % idle" in words("compute", over)


def test_busy_time_is_never_a_bandwidth() -> None:
    text = words("bandwidth", SESSIONS["gpu"](), 58, 12)
    assert "busy time 97.0 % not a bandwidth" in text
    assert "measured 2.54 TB/s" in text
    blind = make_gpu(dram_share=None, unknown={"dram_share": "counters are not allowed for this user"})
    text = words("bandwidth", hardware_of(without_gpu(gpus=(blind,))), 70, 12)
    assert "measured - counters are not allowed for this user" in text
    assert "busy time 97.0 %" in text


def test_bandwidth_says_that_there_is_no_gpu_to_measure_it() -> None:
    assert "measured - no GPU" in words("bandwidth", running())
    assert "measured - not sampled" in words("bandwidth", SESSIONS["no-hardware"]())


def test_percentiles_of_too_few_values_are_in_brackets() -> None:
    few = msgspec.structs.replace(running(), latency=Latency(ttft=make_spread(388.0, n=17)))
    assert "TTFT p50 388 ms p95 (621 ms)" in words("throughput", few, 58, 4)
    tight = msgspec.structs.replace(make_spread(26.3, n=3), p95=42.2e6, p99=43.7e6)
    text = words("throughput", msgspec.structs.replace(running(), latency=Latency(tpot=tight)), 90, 12)
    assert "TPOT 26.3 ms (42.2 ms) (43.7 ms) 3" in text
    table = words("throughput", few, 58, 12)
    assert "TTFT 388 ms (621 ms) (854 ms) 17" in table
    many = msgspec.structs.replace(running(), latency=Latency(ttft=make_spread(388.0, n=170)))
    assert "TTFT 388 ms 621 ms 854 ms 170" in words("throughput", many, 58, 12)


def test_units_differ_where_they_have_to() -> None:
    wide = msgspec.structs.replace(running(), latency=Latency(ttft=make_spread(700.0, tail=9.0)))
    assert "TTFT p50 700 ms p95 6.30 s" in words("throughput", wide, 58, 4)


def test_limits_are_told_where_they_are_set() -> None:
    assert "limits TTFT < 300 ms, TPOT < 10 ms met by 97.0 %" in words("throughput", calibrated(), 80)
    assert "limits met 97.0 %" in words("throughput", calibrated(), 38)
    unknown = msgspec.structs.replace(running(), latency=Latency(ttft_limit_ns=SECOND))
    assert "met by -" in words("throughput", unknown, 80)
    assert "met" not in words("throughput", running(), 80)


@pytest.mark.parametrize(
    ("effect", "text"),
    [
        (Effect(state="settling"), "settling"),
        (Effect(state="measuring"), "measuring the change"),
        (Effect(state="not distinguishable", tokens=ratio(1.0, 0.9, 1.1)), "no change to be seen"),
        (Effect(state="not comparable", why="the traffic changed"), "not comparable with before"),
        (Effect(state="measured", tokens=ratio(0.8, 0.7, 0.9), before=100.0), "was 100: -20 %"),
    ],
)
def test_throughput_tells_what_the_last_change_did(effect: Effect, text: str) -> None:
    event = Event(at_ns=SECOND, kind="live", changes={"slots": (2, 4)}, effect=effect)
    mark = Event(at_ns=2 * SECOND, kind="mark", label="later")
    assert text in words("throughput", msgspec.structs.replace(running(), events=(mark, event)), 80)


def test_hardware_without_a_gpu_says_so() -> None:
    text = words("hardware", running())
    assert "no GPU: CPU backend" in text
    assert "CPU 96.4 % of 2 cores" in text
    assert "engine share 0.99" in text
    assert "GPUs: nobody looked" in words("hardware", hardware_of(without_gpu(gpus=None)))


def test_every_gpu_has_a_line_where_there_is_room_and_a_lost_one_is_named() -> None:
    text = shown("hardware", SESSIONS["gpus"](), 98, 14)
    for index in range(8):
        assert f"GPU{index} " in text
    assert "GPU6 LOST  the GPU fell off the bus" in text
    assert "GPU1 99.0 %  throttled: power limit, hot" in text
    assert "DRAM: counters are not allowed for this user" in text


@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 6])
def test_gpus_without_room_are_summed_up_and_none_goes_missing(height: int) -> None:
    text = words("hardware", SESSIONS["gpus"](), 58, height)
    listed = text.count("GPU1 ") + sum(text.count(f"GPU{index} ") for index in (0, 2, 3, 4, 5, 6, 7))
    assert f"{8 - listed} more" in text or "8 GPUs" in text
    assert "LOST" in text


def test_readings_that_are_missing_have_their_reason() -> None:
    sample = without_gpu(cpu_pressure=None, unknown={"cpu_pressure": "the kernel has no PSI"})
    assert " pressure: the kernel has no PSI" in words("hardware", hardware_of(sample), 58, 8)
    untold = without_gpu(frequency_mhz=None, unknown={"frequency_mhz": "not told", "memory_total_bytes": "not told"})
    assert "clock, memory total: not told" in words("hardware", hardware_of(untold), 58, 8)


def test_a_gpu_that_cannot_be_read_says_why_and_not_that_it_is_unused() -> None:
    why = "the driver reports an unknown error"
    unread = GpuSample(uuid="", name="GPU 2", index=2, unknown={"*": why, "is_used": why})
    text = words("hardware", hardware_of(without_gpu(gpus=(unread,))), 58, 8)
    assert f"GPU2 - {why}" in text
    assert "not used" not in text


def test_a_gpu_that_the_engine_may_use_is_not_called_unused() -> None:
    gpu = make_gpu(is_used=False, unknown={"is_used": "nobody says"})
    text = words("hardware", hardware_of(without_gpu(gpus=(gpu,))), 98, 8)
    assert "use unknown" in text
    assert "not used" not in text


def test_what_few_hosts_tell_shows_where_it_is_told() -> None:
    sample = without_gpu(
        package_power_w=65.4, dram_bytes_per_s=21.3e9, io_pressure=0.25, memory_pressure=0.001, swap_bytes_per_s=4e6,
        major_faults_per_s=12.0, involuntary_switches_per_s=3.5, unknown={"package_power_w": "only root may read it"},
    )  # fmt: skip
    text = words("hardware", hardware_of(sample), 98, 12)
    told = ("package 65 W", "DRAM 21.3 GB/s", "I/O pressure 25 %", "swapping 4.00 MB/s", "faults from disk 12.0 /s")
    assert [what for what in (*told, "cores lost 3.50 /s") if what not in text] == []
    assert "memory pressure" not in text
    assert "only root" not in text


def test_without_a_gpu_the_measured_bandwidth_is_the_processors() -> None:
    text = words("bandwidth", hardware_of(without_gpu(dram_bytes_per_s=21.3e9)), 80)
    assert "measured 21.3 GB/s" in text
    assert "measured - no GPU" in words("bandwidth", hardware_of(without_gpu()), 80)


def test_a_gpu_of_which_nothing_is_known_shows_nothing_made_up() -> None:
    gpu = GpuSample(uuid="GPU-1", name="unknown", index=0, is_used=True)
    line = shown("hardware", hardware_of(without_gpu(gpus=(gpu,)))).split("\n")[1]
    assert line.split() == ["GPU0", "-"]


def test_throttling_by_a_quota_comes_first() -> None:
    text = words("hardware", hardware_of(without_gpu(throttled_share=0.25)), 58, 3)
    assert "held by quota 25 %" in text


def test_the_cache_says_that_it_is_off() -> None:
    text = words("prefix", SESSIONS["baseline"]())
    assert text.startswith("off The prefix cache is off.")


def test_nothing_looked_up_is_no_rate() -> None:
    minute = plain_window(lookup_tokens=0, useful_hit_tokens=0, useful_hit_rate=None)
    text = words("prefix", msgspec.structs.replace(running(), minute=minute, history=History(bin_ns=SECOND)))
    assert "Nothing was looked up in the last minute." in text
    assert "%" not in text


def test_the_token_of_the_last_miss_is_told() -> None:
    assert "last miss at prompt token 118" in words("prefix", running())


def test_shares_of_the_anatomy_sum_to_the_whole_at_any_size() -> None:
    for width in (36, 58, 78, 98):
        for height in range(4, 20):
            found = [
                float(word)
                for line in shown("anatomy", running(), width, height).split("\n")[2:]
                for word, unit in zip(line.split(), line.split()[1:], strict=False)
                if unit == "%"
            ]
            assert sum(found) == pytest.approx(100, abs=0.3), (width, height)


def test_a_window_without_steps_shows_the_minute_and_says_so() -> None:
    text = words("anatomy", SESSIONS["waiting"]())
    assert "no step in 2 s" in text
    assert "59.0 %" in text


@pytest.mark.parametrize("pane", [pane for pane in PANES if pane not in ("hardware", "verdict")])
def test_an_empty_session_says_so(pane: str) -> None:
    assert "This session has no steps." in words(pane, SESSIONS["empty"]())
    assert "once its first step is done" in words(pane, SESSIONS["starting"]())


@pytest.mark.parametrize("pane", PANES)
def test_what_a_source_does_not_tell_is_neither_zero_nor_a_rate(pane: str) -> None:
    text = words(pane, SESSIONS["attached"](), 78, 12)
    assert "0 %" not in text
    assert " 0 " not in text.replace("0–800", "").replace(" 0 in flight", "")


def test_events_are_told_in_words() -> None:
    text = words("events", running(), 118, 12)
    assert "1:40 speculation off → draft model, draft length 3 → 5 +92 % [71, 113] +121 % [115, 127] above" in text
    assert "1:32 mark baseline" in text
    assert "refused V cache f16 → q8_0: A quantised V cache needs flash attention, which is off." in text
    assert "flash attention on → off rebuilt in 182 ms, 2 requeued not distinguishable" in text
    assert "2 requeued - not distinguishable -1.0 % [-4.0, 2.0]" in words("events", running(), 140, 12)
    assert "load 4 → 8 not comparable: prompts became 2.1 times as long" in text
    assert "weights F16 → Q8_0 rebuilt in 1.23 s, 2 requeued by plan - +62 % [55, 69]" in words(
        "events", running(), 140
    )
    narrow = words("events", running(), 60, 12)
    assert "predicted +92 % [71, 113] measured +121 % [115, 127]" in narrow
    assert "measured +62 % [55, 69]" in words("events", running(), 30, 20)
    assert "speculation off -> draft model" in words("events", running(), 118, 12, look=ASCII)


def test_what_is_being_measured_is_said() -> None:
    text = words("events", SESSIONS["settling"](), 140, 12)
    assert (
        "KV cache f16 → q8_0 rebuilt in 240 ms, 4 requeued +8 % [3, 12] settling: 4 requests are prefilled again"
        in text
    )
    assert "measuring: needs 5 s more" in text


def test_settings_that_only_follow_are_not_told() -> None:
    changes: dict[str, tuple[Setting, Setting]] = {"slots": (4, 32), "slots_max": (16, 32)}
    event = Event(at_ns=0, kind="rebuild", changes=changes)
    text = words("events", msgspec.structs.replace(running(), events=(event,)), 118, 3)
    assert "slots 4 → 32" in text
    assert "at most" not in text
