"""`stackscope explain`: the worked example to the letter, stored texts, JSON, and what is refused in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands import quantities
from stackscope.commands.explain import gpu
from stackscope.commands.explain_options import TOLD, Asked
from stackscope.errors import UsageError
from stackscope.model.catalog import resolve
from stackscope.model.spec import load_spec
from stackscope.report.roofline_plot import Point, plot

GOLDEN: Final = Path(__file__).parent.parent / "golden"
UPDATE: Final = "UPDATE_GOLDEN"
"""Environment variable that has the stored texts written anew, to be read before they are committed."""

EXAMPLE: Final = ("--params", "8B", "--bits", "16", "--bandwidth", "1TB/s", "--flops", "100TFLOP/s")
DRAFTS: Final = ("--draft-length", "3", "--acceptance", "0.8", "--draft-params", "500M")
CASES: Final[dict[str, tuple[str, ...]]] = {
    "one": (*EXAMPLE, "--batch", "1"),
    "hundred": (*EXAMPLE, "--batch", "100", "--draft-length", "3", "--acceptance", "80%"),
    "drafts": (*EXAMPLE, *DRAFTS, "--context", "4096", "--kv-per-token", "128KiB", "--batch", "8"),
    "unknown": (*EXAMPLE[:6], "--context", "4096"),
    "file": ("--model", "lab-target-f16", "--gpu", "H200", "--context", "500", "--draft-length", "4",
             "--draft-model", "lab-draft-f16", "--acceptance", "0.8,0.6"),
}  # fmt: skip


def explain(*options: str, **environment: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    result = CliRunner(env={"COLUMNS": "80", **environment}).invoke(app, ["explain", *options])
    return result.exit_code, result.stdout, result.stderr


def document(*options: str) -> dict[str, Any]:
    code, out, err = explain(*options, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", CASES)
def test_it_looks_as_stored(name: str, width: int) -> None:
    code, out, err = explain(*CASES[name], COLUMNS=str(width))
    assert (code, err) == (0, "")
    path = GOLDEN / f"explain-{name}-{width}.txt"
    if os.environ.get(UPDATE):
        path.write_text(out, encoding="utf-8")
    assert out == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", CASES)
def test_lines_keep_to_the_width_without_trailing_spaces(name: str, width: int) -> None:
    for line in explain(*CASES[name], COLUMNS=str(width))[1].split("\n"):
        assert line == line.rstrip()
        assert len(line) <= max(width, 80), line


def test_the_worked_example_is_told_in_words() -> None:
    one = explain(*EXAMPLE, "--batch", "1")[1]
    assert "read weights       16.0 GB  16.0 ms" in one
    assert "compute         16.0 GFLOP  0.16 ms" in one
    assert "each sequence could verify 99 drafted tokens in the same time" in one
    assert "from batch 100 on, computing takes as long as reading" in one
    hundred = explain(*EXAMPLE, "--batch", "100")[1]
    assert "compute         1.60 TFLOP  16.0 ms" in hundred
    assert "no slack is left" in hundred
    assert "speculation now costs" in hundred
    four = explain("--params", "8B", "--bits", "4", "--bandwidth", "1TB/s", "--flops", "100TFLOP/s")[1]
    assert "read weights       4.00 GB  4.00 ms" in four
    assert "from batch 25 on, computing takes as long as reading" in four


def test_json_holds_the_same_in_ns_and_bytes() -> None:
    found = document(*EXAMPLE, "--batch", "100", *DRAFTS)
    assert found["forward"]["memory_ns"] == found["forward"]["compute_ns"] == pytest.approx(16e6)
    assert (found["forward"]["bound"], found["crossover_batch"], found["free_drafts"]) == ("both", 100, 0)
    assert found["speculation"]["break_even_tokens"] == pytest.approx(4 + 3 * 1e6 / 16e6)
    assert found["speculation"]["break_even_acceptance"] is None
    assert {one["bits"]: one["crossover_batch"] for one in found["variants"]} == {16: 100, 8.5: 54, 4.5: 29, 4: 25}


def test_json_has_null_for_what_is_not_known() -> None:
    found = document(*EXAMPLE[:6], "--context", "4096")
    assert found["forward"]["weights_ns"] == pytest.approx(16e6)
    assert [found["forward"][key] for key in ("kv_bytes", "kv_ns", "memory_ns", "compute_ns", "ns")] == [None] * 5
    assert (found["ridge"], found["crossover_batch"], found["speculation"]) == (None, None, None)


def test_a_file_brings_its_geometry_and_a_gpu_its_ceilings() -> None:
    found = document(*CASES["file"])
    assert found["machine"] == {"bandwidth": 4.8e12, "flops": 989e12}
    # 6 layers of 2 heads of 64, keys and values of 2 bytes; 500 cached, its own read and written.
    assert found["forward"]["kv_bytes"] == 502 * 6 * 2 * 2 * 64 * 2
    halved = document(*CASES["file"], "--kv-type", "q8_0")
    assert halved["forward"]["kv_bytes"] == found["forward"]["kv_bytes"] * 34 // 64
    faster = document(*CASES["file"], "--bandwidth", "9.6TB/s")
    assert faster["forward"]["memory_ns"] == pytest.approx(found["forward"]["memory_ns"] / 2)


def test_a_plot_in_ascii_shows_roof_and_points() -> None:
    points = [Point("o", 1.0, 1e12), Point("x", 1.0, 1e12), Point("x", 400.0, 1e14)]
    drawn = "\n".join(line.plain for line in plot(1e12, 1e14, points, 60, is_ascii=True))
    assert drawn.isascii()
    assert (drawn.count("o"), drawn.count("x")) == (1, 1)  # the first of two in a place is seen
    assert "/" in drawn
    assert "100 TFLOP/s" in drawn


def test_a_plot_of_any_width_is_safe() -> None:
    for width in (1, 20, 200):
        for is_ascii in (True, False):
            for line in plot(1.0, 1e18, [Point("o", 1e-9, 1e-9)], width, is_ascii=is_ascii):
                assert len(line.plain) <= max(width, 22) + 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "There is no model to explain. Give --params 8B, or --model FILE.gguf."),
        (("--params", "8B"), "There is no machine to explain it on."),
        ((*EXAMPLE, "--model", "lab-target-f16"), "The file says what --params would. Leave out --params or --model."),
        ((*EXAMPLE, "--kv-type", "q8_0"), "--kv-type needs the geometry of a file."),
        (("--params", "8", *EXAMPLE[2:]), "--params must be a number of parameters, not '8'. Write it as 270M,"),
        ((*EXAMPLE, "--bits", "q4_k_m"), "--bits must be a number of bits, not 'q4_k_m'."),
        ((*EXAMPLE, "--bandwidth", "1Tb/s"), "--bandwidth must be a bandwidth, not '1Tb/s'. Bits are not taken."),
        ((*EXAMPLE, "--bandwidth", "1TB"), "--bandwidth must be a bandwidth, not '1TB'."),
        ((*EXAMPLE, "--flops", "100T"), "--flops must be a rate of arithmetic, not '100T'."),
        ((*EXAMPLE, "--batch", "0"), "--batch must be a whole number, not '0'. Give one from 1 to 65,536."),
        ((*EXAMPLE, "--batch", "1.5"), "--batch must be a whole number, not '1.5'."),
        ((*EXAMPLE, "--context", "-1"), "--context must be a whole number, not '-1'."),
        ((*EXAMPLE, "--acceptance", "0.8"), "--acceptance says nothing without drafts. Add --draft-length 3."),
        ((*EXAMPLE, "--draft-length", "3", "--acceptance", "8"), "--acceptance must be an acceptance, not '8'."),
        ((*EXAMPLE, "--draft-length", "3", "--draft-bits", "8"), "--draft-bits says nothing without --draft-params."),
        ((*EXAMPLE, *DRAFTS, "--draft-model", "x"), "There can be one draft model."),
        ((*EXAMPLE, "--gpu", "H100"), "'H100' may be several GPUs. Name one of: NVIDIA H100 80GB HBM3, NVIDIA H100"),
        ((*EXAMPLE, "--gpu", "Voodoo 2"), "'Voodoo 2' is not in the table of GPUs. Give --bandwidth and --flops, or"),
        (("--model", "lab-target-f16", "--gpu", "L4", "--kv-type", "q3"), "--kv-type 'q3' is not known. There are:"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_sentence_with_a_remedy(given: tuple[str, ...], sentence: str) -> None:
    code, out, err = explain(*given)
    assert (code, out) == (2, "")
    assert err.startswith(f"stackscope: {sentence}")
    assert err.count("\n") == 1


def test_a_file_that_is_none_is_told_as_everywhere() -> None:
    code, out, err = explain("--model", "none.gguf", "--gpu", "L4")
    assert (code, out) == (3, "")
    assert "none.gguf" in err


@pytest.mark.parametrize(
    ("text", "value"),
    [("1TB/s", 1e12), ("60 GB/s", 60e9), ("1GiB/s", 2**30), ("900kB/s", 9e5), ("3.35TB/s", 3.35e12), ("512B/s", 512)],
)
def test_bandwidths(text: str, value: float) -> None:
    assert quantities.bandwidth("--bandwidth", text) == value


@pytest.mark.parametrize("text", ["", "1", "GB/s", "0GB/s", "-1GB/s", "1e9B/s", "infGB/s", "1 TB / s", "1gb/s", "1GiB"])
def test_texts_that_are_no_bandwidth(text: str) -> None:
    with pytest.raises(UsageError):
        quantities.bandwidth("--bandwidth", text)


def test_decimal_and_binary_sizes_are_told_apart() -> None:
    assert quantities.size("--x", "128KiB") == 131_072
    assert quantities.size("--x", "128kB") == quantities.size("--x", "128KB") == 128_000
    assert quantities.size("--x", "1GiB") / quantities.size("--x", "1GB") == 1.073741824


def test_parameters_rates_bits_and_acceptance() -> None:
    assert [quantities.parameters("--x", text) for text in ("270M", "8b", "1.5T")] == [270e6, 8e9, 1.5e12]
    assert [quantities.flop_rate("--x", text) for text in ("989TFLOP/s", "66 GFLOPS")] == [989e12, 66e9]
    assert [quantities.bits("--x", text) for text in ("16", "4.5", "Q4_K", "bf16")] == [16.0, 4.5, 4.5, 16.0]
    assert quantities.acceptance("--x", "0.7, 60%,0") == (0.7, 0.6, 0.0)
    for wrong in ("0", "65", "-4", "1e1"):
        with pytest.raises(UsageError):
            quantities.bits("--x", wrong)


def test_a_gpu_is_found_by_words_that_only_it_has() -> None:
    assert gpu("h200").names == ("NVIDIA H200",)
    assert gpu("H100 pcie").names == ("NVIDIA H100 PCIe",)
    assert gpu("L4").names == ("NVIDIA L4",)


def test_a_context_beyond_that_of_a_model_is_said() -> None:
    given = ("--model", "lab-target-f16", "--gpu", "H200", "--draft-length", "2", "--draft-model", "lab-draft-f16")
    most = load_spec(resolve("lab-target-f16")).context
    assert not any("was made for" in note for note in document(*given, "--context", f"{most}")["notes"])
    beyond = [note for note in document(*given, "--context", f"{most + 1}")["notes"] if "was made for" in note]
    assert [note.partition(" of ")[0] for note in beyond] == [
        "The model was made for contexts",
        "The draft model was made for contexts",
    ]
    assert f"{most:,} tokens at most" in beyond[0]


def test_every_option_is_told() -> None:
    assert tuple(TOLD) == Asked.__struct_fields__
