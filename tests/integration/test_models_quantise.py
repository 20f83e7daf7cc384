"""Variants made by llama.cpp's quantiser: every type that can be made, what falls back, and how failures end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import ModelFileError, UsageError
from stackscope.model.catalog import bundled_draft, bundled_target, catalogue, folder_of
from stackscope.model.ftypes import FILE_TYPES, NEED_IMPORTANCE_MATRIX
from stackscope.model.header import read_header
from stackscope.model.quantise import Progress, default_output, quantise
from stackscope.model.spec import load_spec
from tests.unit.gguf_builder import write_gguf
from tests.unit.test_model_files import largest_file
from tests.unit.tiny_models import N_TOKENS, common, llama, weight, write_tiny

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

MADE = sorted(FILE_TYPES.keys() - NEED_IMPORTANCE_MATRIX - {"NVFP4"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", MADE)
def test_every_type_that_needs_no_importance_matrix(kind: str, tmp_path: Path) -> None:
    """From one layer of width 256, so that even the slow searches of the IQ types take a moment only."""
    metadata = common("llama", 1, feed_forward_length=256, attention__head_count=4) | {"llama.embedding_length": 256}
    square = [
        f"blk.0.{part}.weight"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    ]
    norms = ["output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"]
    matrices = [weight("token_embd.weight", 256, N_TOKENS), *(weight(name, 256, 256) for name in square)]
    source = write_gguf(tmp_path / "m-f32.gguf", metadata, [*matrices, *(weight(name, 256) for name in norms)])
    done = quantise(source, kind)
    assert done.path == folder_of("quantised") / f"m-{kind.lower()}.gguf"
    spec = load_spec(done.path)
    assert spec.file_type == FILE_TYPES[kind]
    assert done.bytes == spec.file_bytes
    assert spec.tensor_bytes + spec.padding_bytes == spec.section_bytes
    assert done.fallbacks == ()


def test_a_type_that_fits_no_row_and_has_no_stand_in(tmp_path: Path) -> None:
    """Q1_0 has blocks of 128; the tiny model's rows have 64 elements."""
    with pytest.raises(ModelFileError, match=r"failed to quantize: no tensor type fallback is defined for type q1_0\."):
        quantise(write_tiny(tmp_path, "llama"), "Q1_0")


def test_k_quants_fit_the_target_and_not_the_draft() -> None:
    """The target's rows are multiples of 256; the draft's have 128 and 384 elements, so q4_K gives way to q5_0."""
    target = quantise(bundled_target(), "q4_k_m")
    assert target.fallbacks == ()
    assert target.bytes < target.source_bytes * 0.35
    types = {t.name: t.type for t in read_header(target.path).tensors}
    assert types["blk.0.ffn_up.weight"] == "q4_K"
    assert types["blk.0.attn_norm.weight"] == "f32"
    draft = quantise(bundled_draft(), "Q4_K_M")
    assert len(draft.fallbacks) == 14  # seven matrices in each of two layers
    first = draft.fallbacks[0]
    assert (first.tensor, first.row, first.wanted, first.used) == ("blk.0.attn_k.weight", 128, "q4_K", "q5_0")
    assert {t.type for t in read_header(draft.path).tensors} == {"f32", "q5_0", "q8_0"}


def test_progress_names_every_tensor_once() -> None:
    seen: list[Progress] = []
    quantise(bundled_draft(), "Q8_0", on_progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(i, 20) for i in range(1, 21)]
    assert {p.tensor for p in seen} == {t.name for t in read_header(bundled_draft()).tensors}


def test_the_listing_shows_it_and_a_second_time_is_refused(tmp_path: Path) -> None:
    done = quantise(bundled_draft(), "Q8_0")
    assert [entry.path for entry in catalogue() if entry.kind == "quantised"] == [done.path]
    with pytest.raises(UsageError, match="there already"):
        quantise(bundled_draft(), "Q8_0")
    assert quantise(bundled_draft(), "Q8_0", replace=True).path == done.path
    elsewhere = tmp_path / "sub" / "mine.gguf"
    assert quantise(bundled_draft(), "Q8_0", output=elsewhere).path == elsewhere


def test_what_is_quantised_stays_so_unless_asked() -> None:
    done = quantise(bundled_target(), "Q8_0")
    with pytest.raises(UsageError, match=r"quantised already \(q8_0\)"):
        quantise(done.path, "Q4_0")
    again = quantise(done.path, "Q4_0", requantise=True)
    assert again.path == default_output(bundled_target(), "Q4_0")


def test_mixtures_that_need_a_matrix_are_refused_by_name(tmp_path: Path) -> None:
    """IQ3_XXS would put attn_q and attn_k in IQ2_S."""
    with pytest.raises(UsageError, match="importance matrix"):
        quantise(write_tiny(tmp_path, "llama"), "IQ3_XXS")


def test_nothing_is_left_when_the_disk_is_full(cache: Path) -> None:
    with pytest.raises(ModelFileError, match="could not be written to its end") as caught, largest_file(300_000):
        quantise(bundled_target(), "Q8_0")
    assert "\n" not in str(caught.value)
    assert list((cache / "quantised").iterdir()) == []


def test_nothing_is_left_when_the_user_interrupts(cache: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantise(bundled_target(), "Q8_0", on_progress=interrupt)
    assert list((cache / "quantised").iterdir()) == []


def test_a_killed_quantiser_leaves_no_model(cache: Path) -> None:
    """kill -9 in the middle: a part file stays, which nothing takes for a model and the next try clears away."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from stackscope.model.quantise import quantise\n"
        "quantise(Path(sys.argv[1]), 'Q8_0', "
        "on_progress=lambda p: os.kill(os.getpid(), signal.SIGKILL) if p.done == 9 else None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundled_target())], env=os.environ, stderr=subprocess.PIPE, check=False
    )  # returns when the last holder of the pipe is gone, the quantiser included
    assert done.returncode == -signal.SIGKILL
    (part,) = (cache / "quantised").iterdir()
    assert part.name.endswith(".partial")
    done_after = quantise(bundled_target(), "Q8_0").path
    assert list((cache / "quantised").iterdir()) == [done_after]


def test_an_unreadable_model_is_a_sentence_before_the_quantiser_runs(tmp_path: Path) -> None:
    broken = tmp_path / "m.gguf"
    broken.write_bytes(bundled_target().read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="cut short"):
        quantise(broken, "Q8_0")


def test_a_model_that_the_library_refuses_says_why(tmp_path: Path) -> None:
    """An architecture that llama.cpp does not know."""
    made = llama()
    metadata = {key.replace("llama.", "llamo."): value for key, value in made.metadata.items()}
    source = write_gguf(tmp_path / "m.gguf", metadata | {"general.architecture": "llamo"}, made.tensors)
    with pytest.raises(ModelFileError, match="llamo") as caught:
        quantise(source, "Q8_0")
    assert "\n" not in str(caught.value)
