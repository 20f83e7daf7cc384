"""Settings that make no sense are refused by the names under which they were given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from stackscope.config import MOST_BYTES, read_settings
from stackscope.errors import UsageError
from stackscope.options import OPTIONS, RANGES, Option, field_types
from tests.unit.test_config import refusal, refusal_with, settings

if TYPE_CHECKING:
    from pathlib import Path


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
    ],
)
def test_what_contradicts_itself_is_refused_by_the_names_that_were_given(
    options: dict[str, object], environment: dict[str, str], message: str
) -> None:
    assert refusal_with(environment, options=options) == message


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
