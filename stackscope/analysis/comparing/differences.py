"""What is not the same in two sessions, and what of it forbids a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope.analysis.comparing.loads import load_of, offered, told
from stackscope.toggles import EngineConfig, Sampling, idle_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stackscope.analysis.comparing.digest import Digest
    from stackscope.records import Header, ModelSummary

Area: TypeAlias = Literal["configuration", "workload", "machine", "model", "recording"]

DERIVED: Final = frozenset({"text"})
"""Fields of a workload that only say in words what the others say."""
EXTENT: Final = frozenset({"requests", "duration_s"})
"""Those that say how long it goes on."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not the same, by its name where it is recorded. `None`: not known, or not set."""

    area: Area
    name: str
    a: object = None
    b: object = None


def differences(a: Digest, b: Digest) -> tuple[Difference, ...]:
    """Everything that is not the same, the configuration first."""
    heads = _heads(a, b)
    return (*header_differences(*heads), *_of("recording", _recording(a), _recording(b)))


def _heads(a: Digest, b: Digest) -> tuple[Header, Header]:
    """Their headers with the load that was really offered. Where it changed in either, `load` says it of both."""
    asked = [dict(offered(digest.header, digest.loads)) for digest in (a, b)]
    if any("load" in one for one in asked):
        for one, digest in zip(asked, (a, b), strict=True):
            one.setdefault("load", told([span.load for span in digest.loads] or [load_of(digest.header)]))
            one.pop("concurrency", None)
            one.pop("rate", None)
    replace = msgspec.structs.replace
    return replace(a.header, workload=asked[0]), replace(b.header, workload=asked[1])


def header_differences(a: Header, b: Header) -> tuple[Difference, ...]:
    """What the headers alone say differently."""
    return (
        *_configuration(a.config, b.config),
        *_of("workload", workload_of(a), workload_of(b)),
        *_models(a, b),
        *_of("machine", _machine(a), _machine(b)),
    )


def _configuration(a: EngineConfig | None, b: EngineConfig | None) -> Iterator[Difference]:
    if a is None or b is None:
        if a is not b:
            said = ["not recorded" if one is None else "recorded" for one in (a, b)]
            yield Difference(area="configuration", name="configuration", a=said[0], b=said[1])
        return
    idle = idle_settings(a) & idle_settings(b)
    for name in EngineConfig.__struct_fields__:
        one, other = getattr(a, name), getattr(b, name)
        if one != other and name not in idle:
            yield Difference(area="configuration", name=name, a=one, b=other)


def _models(a: Header, b: Header) -> Iterator[Difference]:
    yield from _of("model", _model(a.model, ""), _model(b.model, ""))
    yield from _of("model", _model(a.draft_model, "draft "), _model(b.draft_model, "draft "))


def _model(model: ModelSummary | None, prefix: str) -> dict[str, object]:
    if model is None:
        return {}
    return {
        f"{prefix}name": model.name,
        f"{prefix}architecture": model.architecture,
        f"{prefix}parameters": model.parameters,
        f"{prefix}weights": model.tensor_bytes,
        f"{prefix}sha256": model.sha256,
    }


def workload_of(header: Header) -> dict[str, object]:
    """What was asked, by name, without what has no effect or only says the same in words."""
    asked = {name: value for name, value in header.workload.items() if name not in DERIVED}
    file = asked.get("file")
    if isinstance(file, dict) and file.get("sha256"):
        # The same text is the same workload, wherever the file lies.
        asked.pop("path", None)
        asked["file"] = file["sha256"]
    if asked.get("arrivals") != "trace":
        asked.pop("time_scale", None)
        if asked.get("rate") is None:  # closed loop: nothing arrives by itself
            asked.pop("arrivals", None)
    if asked.get("arrivals") != "gamma":
        asked.pop("burstiness", None)
    if asked.get("name") is not None and _is_greedy(asked.get("sampling")):  # of a file, requests choose themselves
        asked["sampling"] = "greedy"  # whatever the truncations and the seed say
    return asked


def _is_greedy(sampling: object) -> bool:
    try:
        return msgspec.convert(sampling, Sampling).is_greedy
    except msgspec.ValidationError:
        return False  # of a later version, or not recorded


def _machine(header: Header) -> dict[str, object]:
    """Machine and library. The library describes itself in parts: its version, then the features that it uses."""
    version, *features = (header.library or "").split(" | ")
    used = {f"with {feature.strip(' |')}": True for feature in features if feature.strip(" |")}
    return {"host": header.host, "device": header.device, "library": version or None, **used}


def _recording(digest: Digest) -> dict[str, object]:
    """How it was recorded, and what is left out."""
    header = digest.header
    return {
        "stackscope": header.stackscope,
        "source": header.source,
        "starts at step": digest.first_step,
        "warm-up left out (ns)": digest.warmup_ns,
        "ended": "cut off" if digest.footer is None else digest.footer.reason,
    }


def _of(area: Area, a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[Difference]:
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) != b.get(name):
            yield Difference(area=area, name=name, a=a.get(name), b=b.get(name))
