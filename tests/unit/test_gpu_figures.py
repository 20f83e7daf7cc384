"""What the windows of a ladder come to, from steps and samples that were made up."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from benchmarks.gpu.figures import BLOCK_NS, Cell, Window, cells_of, losing, readings, tables
from stackscope.analysis.ledger import Ledger
from stackscope.records import DraftForward, GpuSample, HardwareSample, Header, Phases, SlotWork, StepRecord
from tests.unit.fake_engine import SUMMARY
from tests.unit.record_builders import make_header

MS = 1_000_000
HEADER: Header = msgspec.structs.replace(make_header(), model=SUMMARY, draft_model=SUMMARY)


def step(n: int, start_ms: float, *, batch: int = 2, drafted: int = 0, emitted: int = 1) -> StepRecord:
    """Ten milliseconds, eight of them in the forward."""
    work = tuple(
        SlotWork(
            request=slot, slot=slot, phase="verify" if drafted else "decode", new=1 + drafted, cached=100,
            drafted=drafted, accepted=emitted - 1, emitted=emitted, outputs=1 + drafted,
        )
        for slot in range(batch)
    )  # fmt: skip
    forwards = tuple(DraftForward(tuple((100, 1) for _ in range(batch)), batch) for _ in range(drafted))
    phases = Phases(decode=8 * MS, draft=MS if drafted else 0, other=MS if drafted else 2 * MS)
    return StepRecord(n=n, start_ns=round(start_ms * MS), phases=phases, work=work, draft=forwards, slots_busy=batch)


def window(began_ms: float, ended_ms: float, speculation: str = "off", batch: int = 2) -> Window:
    began_ns, ended_ns = round(began_ms * MS), round(ended_ms * MS)
    return Window(kv_type="f16", batch=batch, speculation=speculation, began_ns=began_ns, ended_ns=ended_ns)


def sample(at_ms: float, age_ms: float = 0.0, **changes: Any) -> HardwareSample:
    answers: dict[str, Any] = {
        "uuid": "GPU-1", "name": "NVIDIA H200", "is_used": True, "age_ns": round(age_ms * MS), "dram_share": 0.5,
        "peak_bytes_per_s": 4.8e12, "power_w": 300.0, "sm_active": 0.4, "tensor_active": 0.2,
    }  # fmt: skip
    return HardwareSample(at_ns=round(at_ms * MS), gpus=(GpuSample(**{**answers, **changes}),))


def only(cells: list[Cell]) -> Cell:
    [cell] = cells
    return cell


def test_a_window_is_summed_up() -> None:
    steps = [step(n, 10 * n) for n in range(100)]
    cell = only(cells_of(HEADER, [window(100, 500)], steps, [sample(400), sample(450)]))
    assert (cell.steps, cell.seconds) == (40, 0.4)
    assert cell.tokens_per_s == pytest.approx(200)
    assert cell.tokens_per_forward == 1.0
    assert cell.forward_share == pytest.approx(0.8)
    bytes_of_a_step = Ledger(SUMMARY).account(steps[0]).exact.total
    assert cell.modelled_bytes_per_s == pytest.approx(bytes_of_a_step * 100)
    assert cell.forward_bytes_per_s == pytest.approx(bytes_of_a_step * 125)
    assert (cell.measured_bytes_per_s, cell.measured_from) == (2.4e12, 2)
    assert cell.agreement == pytest.approx(2.4e12 / cell.modelled_bytes_per_s)
    assert cell.idle_compute == pytest.approx(1 - cell.flops_per_s / 989e12)
    assert (cell.power_w, cell.tensor_active, cell.peak_bytes_per_s) == (300.0, 0.2, 4.8e12)
    assert sum(cell.tokens) == pytest.approx(80)


def test_windows_with_the_same_settings_are_one_cell_and_drafting_counts() -> None:
    steps = [step(n, 10 * n, drafted=3 if 10 <= n < 30 else 0, emitted=3 if 10 <= n < 30 else 1) for n in range(40)]
    windows = [window(0, 100), window(100, 200, "draft"), window(200, 300, "draft"), window(300, 400)]
    off, draft = cells_of(HEADER, windows, steps, [])
    assert (off.steps, draft.steps) == (20, 20)
    assert (off.tokens_per_forward, draft.tokens_per_forward) == (1.0, 3.0)
    assert draft.forward_share == pytest.approx(0.9)
    ledger = Ledger(SUMMARY)
    both = ledger.account(steps[10]).exact.total + ledger.account_draft(steps[10].draft).exact.total
    assert draft.modelled_bytes_per_s == pytest.approx(100 * both)
    assert (draft.measured_bytes_per_s, draft.agreement, draft.idle_compute) == (None, None, None)


def test_a_window_without_steps_has_no_cell() -> None:
    assert cells_of(HEADER, [window(0, 5)], [step(0, 0)], []) == []


@pytest.mark.parametrize(
    ("samples", "n"),
    [
        ([sample(350, age_ms=100), sample(400, age_ms=150)], 1),
        ([sample(350, age_ms=170)], 0),
        ([sample(350, is_used=False)], 0),
        ([sample(350, is_lost=True)], 0),
        ([sample(520)], 0),
        ([HardwareSample(at_ns=350 * MS)], 0),
        ([msgspec.structs.replace(sample(350), gpus=2 * (sample(350).gpus or ()))], 0),
    ],
)
def test_a_reading_counts_once_and_where_it_was_taken(samples: list[HardwareSample], n: int) -> None:
    assert len(readings(samples, window(0, 500))) == n


def test_a_step_in_two_blocks_is_divided_by_time() -> None:
    steps = [step(n, 30 * n, emitted=1) for n in range(20)]
    steps = [msgspec.structs.replace(one, phases=Phases(decode=30 * MS)) for one in steps]
    cell = only(cells_of(HEADER, [window(0, 600)], steps, []))
    assert len(cell.tokens) == 600 * MS // BLOCK_NS
    assert cell.tokens == pytest.approx([2 * 100 / 30] * 6)


def cell(batch: int, speculation: str, rate: float, spread: float = 0.05) -> Cell:
    noise = random.Random(f"{batch} {speculation}")
    tokens = tuple(rate / 10 * (1 + spread * noise.uniform(-1, 1)) for _ in range(24))
    return Cell(
        kv_type="f16", batch=batch, speculation=speculation, steps=10, seconds=2.4, tokens_per_s=rate,
        tokens_per_forward=1.0, forward_share=0.9, modelled_bytes_per_s=1e9, forward_bytes_per_s=1e9, flops_per_s=1e9,
        tokens=tokens,
    )  # fmt: skip


def ladder(*rates: tuple[float, float]) -> list[Cell]:
    """(off, draft) tokens per second at batch 1, 2, 4, and so on."""
    pairs = [(cell(2**n, "off", off), cell(2**n, "draft", draft)) for n, (off, draft) in enumerate(rates)]
    return [one for pair in pairs for one in pair]


def test_speculation_loses_from_the_batch_after_which_it_never_wins() -> None:
    [verdict] = losing(ladder((100, 250), (200, 150), (300, 330), (400, 300), (500, 350)))
    assert verdict.loses_from == 8
    assert verdict.text == "KV f16: speculation loses from batch 8 on."
    value, low, high = verdict.gains[1]
    assert value == pytest.approx(2.5, rel=0.05)
    assert low < value < high


def test_what_is_not_sure_is_not_called_losing() -> None:
    wide = [cell(1, "off", 100, spread=0.9), cell(1, "draft", 98, spread=0.9)]
    [verdict] = losing(wide)
    assert verdict.loses_from is None
    assert verdict.text == "KV f16: no batch up to 1 from which on speculation surely loses."


def test_half_a_pair_says_nothing() -> None:
    [verdict] = losing([cell(1, "off", 100)])
    assert (verdict.gains, verdict.text) == ({}, "KV f16: what speculation gains was not measured.")


def test_tables_have_a_dash_for_what_is_not_known() -> None:
    bandwidth, gains = tables(ladder((100, 250)))
    assert "f16 1 off" in bandwidth
    assert bandwidth.splitlines()[2].split()[-1] == "-"
    assert "f16 1  " in gains
    assert tables([]) == []
