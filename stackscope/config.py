"""What a run is asked to do, from the command line, `STACKSCOPE_*` variables, a settings file and defaults, in that
order of precedence."""

from __future__ import annotations

import difflib
import os
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import msgspec

from stackscope.errors import UsageError, WorkloadError
from stackscope.homes import NoHomeError, expanded, expanded_text, user_folder
from stackscope.model.ggml_types import BY_NAME
from stackscope.options import (
    KEYS,
    OPTIONS,
    PATHS,
    RANGES,
    SECTIONS,
    LimitOptions,
    OutputOptions,
    ScreenOptions,
    field_defaults,
    field_types,
)
from stackscope.remarks import without_effect
from stackscope.toggles import ORDERED, EngineConfig, Sampling
from stackscope.toml_file import read_toml
from stackscope.workload.spec import BUILT_INS, Length, WorkloadSpec, parse_length, validate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG_VARIABLE: Final = "STACKSCOPE_CONFIG"
"""Environment variable that names the settings file."""

OTHER_VARIABLES: Final = frozenset({CONFIG_VARIABLE, "STACKSCOPE_CACHE", "STACKSCOPE_SPIN", "STACKSCOPE_GPU_BANDWIDTH"})
"""Variables of Stackscope that are no option of a run."""

FILE_NAME: Final = "config.toml"
DEFAULT_WORKLOAD: Final = "code"
DEFAULT_REQUESTS: Final = 64
"""Requests of a run that was given no end."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `stackscope run` was asked for."""

    engine: EngineConfig = EngineConfig()
    """Its `model` is empty when none was named: the bundled pair is meant."""
    workload: WorkloadSpec = WorkloadSpec(name="code", requests=DEFAULT_REQUESTS)
    output: OutputOptions = OutputOptions()
    limits: LimitOptions = LimitOptions()
    screen: ScreenOptions = ScreenOptions()
    keys: dict[str, str] = {}
    """Keys of the screen by action, as the user wrote them: the screen judges them."""
    keys_file: str | None = None
    """Where they stand. `None`: nowhere."""
    remarks: tuple[str, ...] = ()
    """What of it will do nothing, in sentences."""


class Given(msgspec.Struct, frozen=True):
    """A value that somebody set, and where: what an error message names."""

    value: object
    origin: str


def resolve(
    options: Mapping[str, object],
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    default_requests: int | None = DEFAULT_REQUESTS,
    defaults: Mapping[str, object] | None = None,
) -> RunOptions:
    """The run that these options ask for, over the environment, over the settings file, over the defaults.

    `default_requests` ends a run that was given no end; `None` leaves it without one. `defaults` are options, by name,
    of a command whose defaults are its own.

    `options` are those given on the command line, by `Option.name`. `config` names the settings file; `None` takes that
    of `STACKSCOPE_CONFIG`, or the user's own where it exists. Raises `UsageError`, naming the option, the variable or
    the file and key; of settings that contradict each other, those that do.
    """
    variables = os.environ if environment is None else environment
    given = _layer(_from_options({} if defaults is None else defaults))
    path = settings_file(config, variables)
    if path is not None:
        given |= _layer(read_settings(path))
    given |= _layer(_from_environment(variables))
    typed = _layer(_from_options(options))
    given |= typed
    _check_order(given)
    _check_v_cache(given)
    try:
        built = _build({key: item.value for key, item in given.items()}, default_requests)
    except WorkloadError as error:
        raise _named(error, given) from None
    origins = {key: item.origin for key, item in typed.items()}
    remarks = without_effect(origins, built.workload, built.engine)
    keys_file = str(path) if path is not None and built.keys else None
    return msgspec.structs.replace(built, remarks=remarks, keys_file=keys_file)


def _check_order(given: Mapping[str, Given]) -> None:
    """Refuse a setting that is above another which bounds it. Raises `UsageError` with the names that were given."""
    for pair in ORDERED:
        keys = [f"engine.{name}" for name in pair]
        values = [given[key].value if key in given else field_defaults()[key] for key in keys]
        low, high = values
        if isinstance(low, int) and isinstance(high, int) and low > high:
            told = " and ".join(f"{_origin(key, given)} is {value}" for key, value in zip(keys, values, strict=True))
            raise UsageError(f"{told}, and the first may not be above the second.", remedy="Change one of them.")


def _check_v_cache(given: Mapping[str, Given]) -> None:
    """Refuse a quantised V cache without flash attention, which no model can have. Raises `UsageError`."""
    keys = ("engine.kv_type_v", "engine.flash_attention")
    kind, has_flash = (given[key].value if key in given else field_defaults()[key] for key in keys)
    if BY_NAME[str(kind)].is_quantized and not has_flash:
        raise UsageError(
            f"{_origin(keys[0], given)} is {kind}, and a quantised V cache needs flash attention, which "
            f"{_origin(keys[1], given)} switches off.",
            remedy="Leave that out, or add --kv-type-v f16.",
        )


def _origin(key: str, given: Mapping[str, Given]) -> str:
    """What the user calls a setting: as it was given, or else its option."""
    if key in given:
        return given[key].origin
    return next((option.flags.split("/")[0] for option in OPTIONS if key in option.targets), key)


def _named(error: WorkloadError, given: Mapping[str, Given]) -> UsageError:
    """The refusal of traffic that contradicts itself, with the names under which its settings were given."""
    message = error.message
    if error.setting is not None:
        key = error.setting if "." in error.setting else f"workload.{error.setting}"
        message = _origin(key, given) + message.removeprefix(error.setting)
    return UsageError(message, remedy=error.remedy)


def settings_file(chosen: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The settings file to read: the chosen one, that of `STACKSCOPE_CONFIG`, or the user's own. `None`: there is none.

    Only the user's own file may be missing.
    """
    if chosen is not None:
        return expanded(chosen)
    named = environment.get(CONFIG_VARIABLE, "")
    if named:
        return expanded(named, origin=CONFIG_VARIABLE)
    try:
        own = user_settings_file()
    except NoHomeError:
        return None
    return own if own.is_file() else None


def user_settings_file() -> Path:
    """Where the user's own settings are looked for. Raises `NoHomeError`."""
    return user_folder("config") / FILE_NAME


def read_settings(path: Path) -> dict[str, Given]:
    """The settings in a TOML file, by `section.field`. Raises `UsageError` with the file and the key at fault."""
    content = read_toml(path, called="The settings file ")
    settings: dict[str, Given] = {}
    several: set[str] = set()
    for section, fields in content.items():
        if section not in SECTIONS and section != KEYS:
            raise _unknown_section(path, section)
        if not isinstance(fields, dict):
            raise UsageError(
                f"{path}: {section} is a section, not a value.", remedy=f"Write [{section}] above its keys."
            )
        targets = {field: _targets_of(path, section, field) for field in fields}
        for field in sorted(
            fields, key=lambda name: -len(targets[name])
        ):  # kv_type before the kv_type_k that refines it
            origin = f"{path}: {field} in [{section}]"
            for key in targets[field]:
                if key in settings and len(targets[field]) == 1 and settings[key].origin not in several:
                    raise UsageError(f"{origin} repeats a setting under another name.", remedy="Leave one out.")
                value = _convert(key, fields[field], origin=origin, is_text=False)
                settings[key] = Given(_path_beside(path, key, value), origin)
            if len(targets[field]) > 1:
                several.add(origin)
    return settings


def _targets_of(path: Path, section: str, field: str) -> tuple[str, ...]:
    """The fields that a key of a settings file sets; `kv_type` sets two."""
    key = f"{section}.{field}"
    if key in field_types() or section == KEYS:
        return (key,)
    for option in OPTIONS:
        if option.name == field and all(target.startswith(f"{section}.") for target in option.targets):
            return option.targets
    elsewhere = next((known for known in field_types() if known.endswith(f".{field}")), None)
    if elsewhere is not None:
        home = elsewhere.partition(".")[0]
        raise UsageError(f"{path}: {field} is no setting of [{section}].", remedy=f"Move it to [{home}].")
    names = [known.partition(".")[2] for known in field_types() if known.startswith(f"{section}.")]
    raise UsageError(f"{path}: there is no setting {field} in [{section}].", remedy=_suggestion(field, names))


def _unknown_section(path: Path, name: str) -> UsageError:
    home = next((key.partition(".")[0] for key in field_types() if key.endswith(f".{name}")), None)
    if home is not None:
        return UsageError(f"{path}: {name} stands outside a section.", remedy=f"Put it under [{home}].")
    return UsageError(f"{path}: there is no section [{name}].", remedy=_suggestion(name, [*SECTIONS, KEYS]))


def _path_beside(path: Path, key: str, value: object) -> object:
    """A relative path in a settings file means the file beside it, where there is one."""
    if key not in PATHS or not isinstance(value, str):
        return value
    beside = path.parent / value
    return str(beside) if value and beside.exists() else value


def _from_environment(variables: Mapping[str, str]) -> dict[str, Given]:
    """The settings in `STACKSCOPE_*` variables; an empty one counts as not set. Raises `UsageError`."""
    by_variable = {option.variable: option for option in OPTIONS}
    for name in variables:
        if name.startswith("STACKSCOPE_") and name not in by_variable and name not in OTHER_VARIABLES:
            raise UsageError(
                f"The environment sets {name}, which is no setting.", remedy=_suggestion(name, list(by_variable))
            )
    settings: dict[str, Given] = {}
    for name, option in by_variable.items():
        text = variables.get(name, "").strip()
        if text:
            for key in option.targets:
                settings[key] = Given(_convert(key, text, origin=name, is_text=True), name)
    return settings


def _from_options(options: Mapping[str, object]) -> dict[str, Given]:
    settings: dict[str, Given] = {}
    for option in OPTIONS:
        value = options.get(option.name)
        if value is None:
            continue
        origin = option.flags.split("/")[1 if value is False and "/" in option.flags else 0]
        for key in option.targets:
            settings[key] = Given(_convert(key, value, origin=origin, is_text=isinstance(value, str)), origin)
    return settings


def engine_settings(name: str, text: str, *, origin: str) -> dict[str, object]:
    """The fields of `EngineConfig` that an option of a run sets, by its name without dashes (`kv_type`: two of them).

    Raises `UsageError`, which names `origin`, for an option that sets no engine setting or a value that it cannot have.
    """
    named = {option.name: option.targets for option in OPTIONS if option.targets[0].startswith("engine.")}
    if name not in named:
        raise UsageError(f"{origin}: there is no setting {name} of the engine.", remedy=_suggestion(name, list(named)))
    return {
        key.partition(".")[2]: _convert(key, text, origin=origin, is_text=True)
        for key in named[name]
        if key.startswith("engine.")
    }


def _convert(key: str, value: object, *, origin: str, is_text: bool) -> object:
    """A value as its field wants it; `is_text` allows numbers and switches to be spelled out."""
    kind = field_types().get(key, str)
    try:
        converted = _converted(key, kind, value, origin, is_text=is_text)
    except (msgspec.ValidationError, UnicodeEncodeError):  # The latter: bytes that are not UTF-8.
        raise UsageError(f"{origin} must be {_described(kind)}, not {_spelled(value)}.") from None
    except WorkloadError as error:
        raise UsageError(f"{origin}: {error.message}", remedy=error.remedy) from None
    numbers = converted if isinstance(converted, tuple) else (converted,)
    if not all(isfinite(number) for number in numbers if isinstance(number, float)):
        raise UsageError(f"{origin} must be {_described(kind)}, not {_spelled(value)}.")
    allowed = RANGES.get(key)
    if allowed is not None and any(number not in allowed for number in numbers if isinstance(number, int | float)):
        raise UsageError(f"{origin} must be {allowed.described(_described(kind))}, not {_spelled(value)}.")
    return converted


def _converted(key: str, kind: Any, value: object, origin: str, *, is_text: bool) -> object:
    if key in PATHS and isinstance(value, str):
        if "\0" in value:
            raise msgspec.ValidationError("no path has a NUL")
        return expanded_text(value, origin=origin)  # a name from the catalogue is no path, and stays as it is
    if key == "workload.name" and isinstance(value, str):
        return value  # a built-in or a file, told apart when the layers are known
    if Length in get_args(kind) and isinstance(value, str | int) and not isinstance(value, bool):
        return parse_length(str(value))
    if get_origin(kind) is tuple and isinstance(value, str):
        return msgspec.convert([part.strip() for part in value.split(",")], kind, strict=False)
    if key == "screen.ascii" and value == "auto":
        return None
    if is_text and bool in (kind, *get_args(kind)) and str(value).lower() in ("on", "off", "yes", "no"):
        return str(value).lower() in ("on", "yes")
    return msgspec.convert(value, kind, strict=not is_text)


def _layer(settings: dict[str, Given]) -> dict[str, Given]:
    """One layer with what its settings imply, so that it replaces a lower layer's choice as a whole.

    A workload by name replaces one by path and the other way round; a path to record to asks for a recording.
    """
    layer = dict(settings)
    named, path = layer.get("workload.name"), layer.get("workload.path")
    if named is not None and path is not None:
        raise UsageError(f"{named.origin} and {path.origin} both choose a workload.", remedy="Leave one out.")
    if named is not None:
        name, file = _workload_of(str(named.value), named.origin)
        layer["workload.name"], layer["workload.path"] = Given(name, named.origin), Given(file, named.origin)
    elif path is not None:
        layer["workload.name"] = Given(None, path.origin)
    record_path, record = layer.get("output.record_path"), layer.get("output.record")
    if record_path is not None and record is not None and record.value is False:
        raise UsageError(f"{record.origin} and {record_path.origin} contradict each other.", remedy="Leave one out.")
    if record_path is not None:
        layer["output.record"] = Given(True, record_path.origin)
    return layer


def _workload_of(text: str, origin: str) -> tuple[str | None, str | None]:
    """(built-in, file): what `--workload` names."""
    if text in BUILT_INS:
        return text, None
    path = expanded(text, origin=origin)
    if not path.exists() and not path.suffix and path.name == text:
        raise UsageError(f"{origin}: there is no workload or file {text!r}.", remedy=_suggestion(text, list(BUILT_INS)))
    return None, str(path)


def _build(values: dict[str, Any], default_requests: int | None) -> RunOptions:
    sections: dict[str, dict[str, Any]] = {section: {} for section in (*SECTIONS, KEYS)}
    for key, value in values.items():
        section, _, field = key.partition(".")
        sections[section][field] = value
    wanted = sections["workload"]
    if wanted.get("name") is None and wanted.get("path") is None:
        wanted["name"] = DEFAULT_WORKLOAD
    if wanted.get("requests") is None and wanted.get("duration_s") is None:
        wanted["requests"] = default_requests
    for section in ("sampling", "engine"):
        if "seed" in wanted:
            sections[section].setdefault("seed", wanted["seed"])
    workload = WorkloadSpec(**wanted, sampling=Sampling(**sections["sampling"]))
    validate(workload)
    return RunOptions(
        engine=EngineConfig(**sections["engine"]),
        workload=workload,
        output=OutputOptions(**sections["output"]),
        limits=LimitOptions(**sections["limits"]),
        screen=ScreenOptions(**sections["screen"]),
        keys=sections[KEYS],
    )


def _spelled(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Hexadecimal numbers may be longer than Python writes in decimal.
        return "a number with too many digits"


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"There are: {', '.join(known)}."


def _described(kind: Any) -> str:
    """A field's type in words."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        return "numbers separated by commas"
    if parts:
        return _described(parts[0])
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Length: "a length"}
    return words[kind]
