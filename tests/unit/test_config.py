"""Settings: where each may come from, which one wins, and that every mistake names its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope.analysis.metrics.base import ServiceLimits
from stackscope.config import (
    DEFAULT_REQUESTS,
    OTHER_VARIABLES,
    RunOptions,
    read_settings,
    resolve,
    settings_file,
    user_settings_file,
)
from stackscope.errors import UsageError
from stackscope.options import KEYS, OPTIONS, RANGES, SECTIONS, ScreenOptions, field_defaults, field_types
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length

if TYPE_CHECKING:
    from pathlib import Path


def settings(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def resolved(path: Path | None = None, *, options: dict[str, object] | None = None, **variables: str) -> RunOptions:
    return resolve(options or {}, config=path, environment={f"STACKSCOPE_{k}": v for k, v in variables.items()})


def refusal(path: Path | None = None, *, options: dict[str, object] | None = None, **variables: str) -> str:
    return refusal_with(variables, path, options)


def refusal_with(variables: dict[str, str], path: Path | None = None, options: dict[str, object] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        resolve(options or {}, config=path, environment={f"STACKSCOPE_{k}": v for k, v in variables.items()})
    return str(caught.value)


def test_without_any_setting_the_bundled_models_serve_the_code_workload() -> None:
    options = resolved()
    assert options == RunOptions()
    assert options.engine == EngineConfig()
    assert (options.workload.name, options.workload.requests) == ("code", DEFAULT_REQUESTS)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = settings(tmp_path, "[engine]\nslots = 2\nthreads = 2\ndraft_length = 2")
    options = resolved(path, options={"slots": 4}, SLOTS="3", THREADS="3").engine
    assert (options.slots, options.threads, options.draft_length) == (4, 3, 2)


def test_every_field_of_the_engine_and_of_the_workload_has_an_option() -> None:
    targets = {target for option in OPTIONS for target in option.targets}
    assert set(field_types()) - targets == {"workload.path"}  # --workload takes a name or a path
    assert targets <= set(field_types())


def test_defaults_are_in_their_ranges() -> None:
    assert RANGES.keys() <= field_types().keys()
    given = {key: field_defaults()[key] for key in RANGES if field_defaults()[key] not in (None, ())}
    assert [key for key, value in given.items() if value not in RANGES[key]] == []


def test_option_names_are_unique_and_no_variable_means_two_things() -> None:
    variables = [option.variable for option in OPTIONS]
    assert len(set(variables)) == len(variables)
    assert not OTHER_VARIABLES & set(variables)


@pytest.mark.parametrize("option", [option for option in OPTIONS if len(option.targets) > 1], ids=lambda o: o.name)
def test_fields_that_share_an_option_share_their_type(option: object) -> None:
    assert isinstance(option, type(OPTIONS[0]))
    assert len({str(field_types()[target]) for target in option.targets}) == 1


def test_a_value_of_every_field_survives_the_file(tmp_path: Path) -> None:
    text = """
        [engine]
        model = "lab-target-f16"
        speculation = "ngram"
        synthetic_acceptance = 1
        unified_kv = false
        tensor_split = [3, 1.5]
        kv_type_k = "q8_0"
        [sampling]
        temperature = 0.7
        [workload]
        name = "chat"
        duration_s = 2.5
        prompt_tokens = "64..128"
        output_tokens = 32
        turns = {kind = "geometric", mean = 3.0}
        [output]
        json = true
        [limits]
        ttft_ms = 300
        [screen]
        theme = "light"
        ascii = true
        refresh_hz = 2
        [keys]
        mark = "M"
        speculation = "f2, x"
    """
    options = resolved(settings(tmp_path, text))
    assert options.engine == EngineConfig(
        model="lab-target-f16",
        speculation="ngram",
        synthetic_acceptance=1.0,
        unified_kv=False,
        tensor_split=(3.0, 1.5),
        kv_type_k="q8_0",
    )
    assert options.workload.sampling.temperature == 0.7
    assert options.workload.requests is None  # a duration was given, so no number of requests is made up
    assert options.workload.prompt_tokens == Length.uniform(64, 128)
    assert options.workload.output_tokens == Length.fixed(32)
    assert options.workload.turns == Length.geometric(3.0)
    assert options.output.json
    assert options.limits.service == ServiceLimits(ttft_ns=300_000_000)
    assert options.screen == ScreenOptions(theme="light", ascii=True, refresh_hz=2.0)
    assert options.keys == {"mark": "M", "speculation": "f2, x"}


def test_what_sets_both_kv_types_yields_to_what_sets_one_in_any_order(tmp_path: Path) -> None:
    path = settings(tmp_path, '[engine]\nkv_type_v = "f16"\nkv_type = "q8_0"')
    assert (resolved(path).engine.kv_type_k, resolved(path).engine.kv_type_v) == ("q8_0", "f16")
    options = resolved(options={"kv_type_k": "q4_0", "kv_type": "q8_0"}).engine
    assert (options.kv_type_k, options.kv_type_v) == ("q4_0", "q8_0")


def test_one_seed_is_for_everything_that_was_given_none(tmp_path: Path) -> None:
    options = resolved(settings(tmp_path, "[workload]\nseed = 7\n[sampling]\nseed = 8"))
    assert (options.workload.seed, options.workload.sampling.seed, options.engine.seed) == (7, 8, 7)
    options = resolved(settings(tmp_path, "[sampling]\nseed = 8"), options={"seed": 9})
    assert (options.workload.seed, options.workload.sampling.seed, options.engine.seed) == (9, 9, 9)


def test_switches_and_lists_are_spelled_out_in_the_environment() -> None:
    options = resolved(PREFIX_CACHE="no", UNIFIED_KV="0", ADAPTIVE="true", TENSOR_SPLIT="3, 1", DURATION="1.5")
    engine = options.engine
    assert (engine.prefix_cache, engine.unified_kv, engine.adaptive_draft) == (False, False, True)
    assert engine.tensor_split == (3.0, 1.0)
    assert options.workload.duration_s == 1.5


def test_ascii_is_yes_no_or_what_fits_the_terminal(tmp_path: Path) -> None:
    path = settings(tmp_path, "[screen]\nascii = true")
    assert resolved(path).screen.ascii is True
    assert resolved(path, ASCII="auto").screen.ascii is None
    assert resolved(path, ASCII="off").screen.ascii is False
    assert resolved(path, options={"ascii": False}).screen.ascii is False
    assert resolved(settings(tmp_path, '[screen]\nascii = "auto"')).screen.ascii is None


def test_limits_are_told_in_milliseconds(tmp_path: Path) -> None:
    path = settings(tmp_path, "[limits]\nttft_limit = 0.5\ntpot_ms = 20")
    assert resolved(path).limits.service == ServiceLimits(ttft_ns=500_000, tpot_ns=20_000_000)
    assert resolved(path, options={"tpot_limit": "15"}).limits.service.tpot_ns == 15_000_000
    assert not resolved().limits.service.is_given


def test_an_empty_variable_is_not_set() -> None:
    assert resolved(SLOTS="", MODEL=" ") == RunOptions()


def test_a_workload_is_a_name_or_a_file_and_replaces_the_other(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "x"}\n')
    path = settings(tmp_path, '[workload]\npath = "prompts.jsonl"')
    assert (resolved(path).workload.name, resolved(path).workload.path) == (None, str(prompts))
    chosen = resolved(path, options={"workload": "rag"}).workload
    assert (chosen.name, chosen.path) == ("rag", None)
    chosen = resolved(options={"workload": str(prompts)}, WORKLOAD="rag").workload
    assert (chosen.name, chosen.path) == (None, str(prompts))


def test_a_workload_that_is_neither_is_refused_with_the_nearest_name() -> None:
    assert refusal(options={"workload": "chta"}) == (
        "--workload: there is no workload or file 'chta'. Did you mean chat?"
    )


def test_a_path_beside_the_settings_file_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "my.gguf").touch()
    path = settings(tmp_path, '[engine]\nmodel = "my.gguf"\ndraft_model = "lab-draft-f16"')
    assert resolved(path).engine.model == str(tmp_path / "my.gguf")
    assert resolved(path).engine.draft_model == "lab-draft-f16"  # no such file there: a name out of the catalogue


def test_a_path_to_record_to_asks_for_a_recording(tmp_path: Path) -> None:
    off = settings(tmp_path, "[output]\nrecord = false")
    assert not resolved(off).output.record
    chosen = resolved(off, options={"record": "here.jsonl.zst"}).output
    assert (chosen.record, chosen.record_path) == (True, "here.jsonl.zst")
    assert not resolved(options={"recording": False}, RECORD="here").output.record
    message = refusal(options={"recording": False, "record": "here"})
    assert message == "--no-record and --record contradict each other. Leave one out."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engine]\nslotz = 4", "{path}: there is no setting slotz in [engine]. Did you mean slots?"),
        ("[enigne]\nslots = 4", "{path}: there is no section [enigne]. Did you mean engine?"),
        ("slots = 4", "{path}: slots stands outside a section. Put it under [engine]."),
        ("[engine]\ntemperature = 1", "{path}: temperature is no setting of [engine]. Move it to [sampling]."),
        ("engine = 4", "{path}: engine is a section, not a value. Write [engine] above its keys."),
        ('[engine]\nslots = "four"', "{path}: slots in [engine] must be a whole number, not 'four'."),
        ('[engine]\nslots = "4"', "{path}: slots in [engine] must be a whole number, not '4'."),
        ("[engine]\nslots = true", "{path}: slots in [engine] must be a whole number, not True."),
        ("[engine]\nslots = 4.5", "{path}: slots in [engine] must be a whole number, not 4.5."),
        ("[engine]\nprefix_cache = 1", "{path}: prefix_cache in [engine] must be true or false, not 1."),
        (
            "[engine]\nsynthetic_acceptance = nan",
            "{path}: synthetic_acceptance in [engine] must be a number, not nan.",
        ),
        ('[engine]\nmodel = "a\\u0000b"', "{path}: model in [engine] must be a text, not 'a\\x00b'."),
        ("[engine]\nmodel = 3", "{path}: model in [engine] must be a text, not 3."),
        (
            '[engine]\nspeculation = "on"',
            "{path}: speculation in [engine] must be one of off, ngram, draft, mtp, not 'on'.",
        ),
        (
            "[engine]\ncontext = 512\ncontext_tokens = 1024",
            "{path}: context_tokens in [engine] repeats a setting under another name. Leave one out.",
        ),
        (
            '[workload]\nname = "chat"\npath = "x"',
            "{path}: name in [workload] and {path}: path in [workload] both choose a workload. Leave one out.",
        ),
        (
            '[workload]\nturns = "many"',
            "{path}: turns in [workload]: 'many' is not a length. "
            "Write 128, 64..256, lognormal(200, 0.6) or geometric(200).",
        ),
        ("[screen]\nrefresh_hz = 20", "{path}: refresh_hz in [screen] must be a number from 0.1 to 10, not 20."),
        ("[screen]\nrefresh_hz = 0", "{path}: refresh_hz in [screen] must be a number from 0.1 to 10, not 0."),
        (
            '[screen]\ntheme = "pink"',
            "{path}: theme in [screen] must be one of auto, dark, light, ansi, mono, not 'pink'.",
        ),
        ("[limits]\nttft_ms = 0", "{path}: ttft_ms in [limits] must be a number above 0, not 0."),
        ("[limits]\ntpot_ms = -1.5", "{path}: tpot_ms in [limits] must be a number above 0, not -1.5."),
        ("[limits]\ntheme = 3", "{path}: theme is no setting of [limits]. Move it to [screen]."),
        ("[keys]\nmark = 3", "{path}: mark in [keys] must be a text, not 3."),
        ("[keys.mark]\nlive = 'x'", "{path}: mark in [keys] must be a text, not {{'live': 'x'}}."),
        ("keys = 3", "{path}: keys is a section, not a value. Write [keys] above its keys."),
        ("[key]\nmark = 'x'", "{path}: there is no section [key]. Did you mean keys?"),
        (
            "[engine\n",
            "{path} is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 8)."
            " Correct line 1: a section is [name], a setting name = value, with quotes around a text.",
        ),
        (
            "[engine]\nmodel = '",
            '{path} is not valid TOML: Expected "\'" (at end of document).'
            " Correct its end: a section is [name], a setting name = value, with quotes around a text.",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = settings(tmp_path, text)
    assert refusal(path) == message.format(path=path)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert refusal(missing) == f"The settings file {missing} cannot be read: No such file or directory. Check the path."
    assert refusal(tmp_path) == f"The settings file {tmp_path} cannot be read: Is a directory. Check the path."
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"[engine]\n\xff\xfe[")
    told = f"{binary} is not a text file in UTF-8, from line 2 on. Save it as UTF-8, if it is a file of settings."
    assert refusal(binary) == told


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SLOTZ": "4"}, "The environment sets STACKSCOPE_SLOTZ, which is no setting. Did you mean STACKSCOPE_SLOTS?"),
        ({"SLOTS": "four"}, "STACKSCOPE_SLOTS must be a whole number, not 'four'."),
        ({"SYNTHETIC_ACCEPTANCE": "nan"}, "STACKSCOPE_SYNTHETIC_ACCEPTANCE must be a number, not 'nan'."),
        ({"RATE": "inf"}, "STACKSCOPE_RATE must be a number, not 'inf'."),
        ({"REFRESH": "11"}, "STACKSCOPE_REFRESH must be a number from 0.1 to 10, not '11'."),
        ({"TTFT_LIMIT": "nan"}, "STACKSCOPE_TTFT_LIMIT must be a number, not 'nan'."),
        ({"ASCII": "perhaps"}, "STACKSCOPE_ASCII must be true or false, not 'perhaps'."),
        ({"TENSOR_SPLIT": "1,nan"}, "STACKSCOPE_TENSOR_SPLIT must be numbers separated by commas, not '1,nan'."),
        ({"JSON": "perhaps"}, "STACKSCOPE_JSON must be true or false, not 'perhaps'."),
        (
            {"KV_TYPE": "q9"},
            "STACKSCOPE_KV_TYPE must be one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, not 'q9'.",
        ),
    ],
)
def test_a_mistake_in_the_environment_is_named(variables: dict[str, str], message: str) -> None:
    assert refusal_with(variables) == message


def test_the_file_is_the_chosen_one_then_that_of_the_environment_then_the_users_own(tmp_path: Path) -> None:
    named = {"STACKSCOPE_CONFIG": str(tmp_path / "named.toml")}
    assert settings_file(tmp_path / "chosen.toml", named) == tmp_path / "chosen.toml"
    assert settings_file(None, named) == tmp_path / "named.toml"
    assert settings_file(None, {}) is None
    own = user_settings_file()
    own.parent.mkdir(parents=True)
    own.touch()
    try:
        assert settings_file(None, {}) == own
    finally:
        own.unlink()
        own.parent.rmdir()


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert resolved(settings(tmp_path, "")) == RunOptions()
    assert read_settings(settings(tmp_path, "[engine]\n")) == {}


ENGINE_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "slots": st.integers(1, 200),
        "threads": st.integers(1, 64),
        "prefix_cache": st.booleans(),
        "synthetic_acceptance": st.floats(0, 1),
        "kv_type_k": st.sampled_from(["f16", "q8_0", "q4_0"]),
        "tensor_split": st.lists(st.floats(0, 100), max_size=4).map(tuple),
    },
)


@given(values=ENGINE_VALUES)
def test_what_is_written_to_a_file_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("settings") / "config.toml"
    path.write_bytes(_toml(values))
    assert resolved(path).engine == EngineConfig(**values)  # type: ignore[arg-type]


def _toml(values: dict[str, object]) -> bytes:
    """JSON's scalars and arrays are TOML's too."""
    lines = [b"[engine]", *(name.encode() + b" = " + msgspec.json.encode(value) for name, value in values.items())]
    return b"\n".join(lines)


@given(section=st.text(max_size=12), field=st.text(max_size=12))
def test_no_name_of_a_key_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, section: str, field: str) -> None:
    path = tmp_path_factory.mktemp("settings") / "config.toml"
    path.write_text(f"[{msgspec.json.encode(section).decode()}]\n{msgspec.json.encode(field).decode()} = 1\n")
    if section not in SECTIONS or section == KEYS:
        assert str(path) in refusal(path)


@pytest.mark.parametrize(
    ("options", "remarks"),
    [
        ({"top_k": 5}, ("At temperature 0 the likeliest token is taken: --top-k has no effect.",)),
        (
            {"top_k": 5, "top_p": 0.5, "min_p": 0.1},
            ("At temperature 0 the likeliest token is taken: --top-k, --top-p and --min-p have no effect.",),
        ),
        ({"top_k": 5, "temperature": 0.8}, ()),
        ({"shadow_share": 0.1, "shadows": False}, ("Shadows are off: --shadow-share has no effect.",)),
        ({"shadow_share": 0.1}, ()),
        (
            {"concurrency": 5, "rate": 3.0},
            ("Requests arrive by the clock, however many are in flight: --concurrency has no effect.",),
        ),
        ({"rate": 3.0}, ()),
        ({"concurrency": 5}, ()),
        ({"shadows": False}, ()),
    ],
)
def test_options_that_do_nothing_are_told(options: dict[str, object], remarks: tuple[str, ...]) -> None:
    assert resolve(options, environment={}).remarks == remarks


def test_a_settings_file_may_hold_more_than_a_run_needs(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[sampling]\ntop_k = 5\n")
    assert resolve({}, config=path, environment={}).remarks == ()
    assert resolve({"temperature": 0.5}, config=path, environment={}).workload.sampling.top_k == 5
