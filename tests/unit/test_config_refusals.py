"""Settings that make no sense are refused by the names under which they were given."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from stackscope.config import read_settings, resolve
from stackscope.errors import UsageError
from stackscope.options import OPTIONS, RANGES, Option, field_types
from stackscope.toml_file import MOST_BYTES
from tests.unit.test_config import refusal, refusal_with, resolved, settings


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ({"arrivals": "gamma"}, {}, "gamma arrivals need a rate. Give requests per second."),
        ({"turns": "3"}, {}, "--turns has no meaning for the workload code. Leave it out."),
        ({}, {"TURNS": "3"}, "STACKSCOPE_TURNS has no meaning for the workload code. Leave it out."),
        (
            {"prompt_tokens": "0"},
            {},
            "--prompt-tokens: the mean of a length must lie between 1 and 10,000,000, not at 0.0.",
        ),
        ({"time_scale": "2"}, {}, "--time-scale only stretches the arrivals of a trace. Use trace arrivals."),
        (
            {"ngram_min": "6"},
            {},
            "--ngram-min is 6 and --ngram-max is 4, and the first may not be above the second. Change one of them.",
        ),
        (
            {"slots": "20"},
            {"SLOTS_MAX": "10"},
            "--slots is 20 and STACKSCOPE_SLOTS_MAX is 10, and the first may not be above the second."
            " Change one of them.",
        ),
        (
            {"kv_type": "q4_0", "flash_attention": False},
            {},
            "--kv-type is q4_0, and a quantised V cache needs flash attention, which --no-flash-attention switches off."
            " Leave that out, or add --kv-type-v f16.",
        ),
        (
            {"kv_type_v": "q8_0"},
            {"FLASH_ATTENTION": "off"},
            "--kv-type-v is q8_0, and a quantised V cache needs flash attention, which STACKSCOPE_FLASH_ATTENTION"
            " switches off. Leave that out, or add --kv-type-v f16.",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_by_the_names_that_were_given(
    options: dict[str, object], environment: dict[str, str], message: str
) -> None:
    assert refusal_with(environment, options=options) == message


def test_a_quantised_k_cache_alone_needs_no_flash_attention() -> None:
    given: dict[str, object] = {"kv_type": "q4_0", "kv_type_v": "f16", "flash_attention": False}
    assert resolved(options=given).engine.kv_type_k == "q4_0"


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.targets[0] in RANGES], ids=lambda o: o.name)
def test_a_number_out_of_its_range_is_refused_by_the_name_that_was_given(option: Option, tmp_path: Path) -> None:
    allowed = RANGES[option.targets[0]]
    for value in (allowed.least - 1, *([] if math.isinf(allowed.most) else [allowed.most + 1e6 + allowed.most])):
        kind = str(field_types()[option.targets[0]])
        text = str(int(value)) if "int" in kind else str(value)
        assert refusal(options={option.name: text}).startswith(f"{option.flags} must be "), option.flags
        assert refusal_with({option.name.upper(): text}).startswith(f"{option.variable} must be ")
    section, _, field = option.targets[0].partition(".")
    value = int(allowed.least) - 1
    path = settings(tmp_path, f"[{section}]\n{field} = {[float(value)] if field == 'tensor_split' else value}")
    assert refusal(path).startswith(f"{path}: {field} in [{section}] must be ")


def test_settings_that_go_on_and_on_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "zeros.toml"
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match="is longer than 1"):
        read_settings(path)
    path.write_bytes(b"#" * MOST_BYTES)
    assert read_settings(path) == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("x = " + "[" * 100_000, "is nested too deeply"),
        ("x = " + "9" * 10_000, "holds a number with too many digits."),
        ("[engine]\nslots = " + "9" * 40, "slots in [engine] must be a whole number from 1 to 255"),
        ("[engine]\nslots = 1e400", "slots in [engine] must be a whole number, not inf."),
        ("[engine]\nslots = 1\nslots = 2", "is not valid TOML: "),
    ],
    ids=["deep", "digits", "huge", "infinite", "twice"],
)
def test_a_settings_file_of_strange_values_is_one_sentence(content: str, says: str, tmp_path: Path) -> None:
    told = refusal(settings(tmp_path, content))
    assert says in told
    assert "\n" not in told


def test_a_byte_order_mark_before_settings_is_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "from-windows.toml"
    path.write_bytes(b"\xef\xbb\xbf[engine]\r\nslots = 2\r\n")
    assert resolved(path).engine.slots == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_to_which_nobody_writes_is_refused_and_one_that_has_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    assert refusal(path) == f"{path} is a pipe to which nobody writes. Give the path of a file."
    ends = os.pipe()
    os.write(ends[1], b"[engine]\nslots = 2\n")
    os.close(ends[1])
    assert resolved(Path(f"/dev/fd/{ends[0]}")).engine.slots == 2
    os.close(ends[0])


LONG = "9" * 5_000
"""Digits that Python refuses to read as a whole number."""


@pytest.mark.parametrize("name", ["slots", "prompt_tokens", "output_tokens", "turns", "rate", "tensor_split"])
@pytest.mark.parametrize("text", ["\udcff", LONG, f"{LONG}..{LONG}"])
def test_what_no_number_can_be_read_from_is_told(name: str, text: str) -> None:
    flag = next(option.flags for option in OPTIONS if option.name == name)
    with pytest.raises(UsageError, match=f"^{flag}"):
        resolve({name: text})
    with pytest.raises(UsageError, match=f"^STACKSCOPE_{name.upper()}"):
        resolve({}, environment={f"STACKSCOPE_{name.upper()}": text})


def test_a_hexadecimal_number_too_long_to_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f"[engine]\nslots = 0x{'f' * 5_000}\n")
    with pytest.raises(UsageError, match=r"slots in \[engine\] must be .*, not a number with too many digits"):
        resolve({}, config=file)
