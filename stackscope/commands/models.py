"""The `models` verbs: list what there is, show what is in one, make variants, fetch files."""

from __future__ import annotations

import json as json_format
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from stackscope import units
from stackscope.characters import harmless, harmless_json
from stackscope.commands.interrupts import told_when_interrupted
from stackscope.errors import ModelFileError
from stackscope.homes import NoHomeError
from stackscope.model.catalog import CatalogEntry, cache_folder, catalogue, resolve
from stackscope.model.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackscope.model.quantise import Fallback, Quantised
    from stackscope.model.spec import ModelSpec
    from stackscope.records import LayerSummary

MIB: Final = 1 << 20
UNBROKEN: Final = 100_000
"""Cells of a line where nobody's window breaks it."""
NOT_WRITTEN: Final = "nothing was written."


class Report(Protocol):
    """Tells a progress bar what is being done, how much of it is done, and how much there is."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def list_models(*, json: bool = False) -> None:
    """Print what is bundled and cached."""
    entries = catalogue()
    if json:
        _print_json([_entry_object(entry) for entry in entries])
        return
    console = _console()
    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="fold")
    table.add_column("kind")
    table.add_column("size", justify="right")
    for entry in entries:
        table.add_row(harmless(entry.name), entry.kind, units.data_size(entry.bytes))
    console.print(table)
    try:
        told = f"Variants and downloads are kept in {shown(cache_folder())}"
    except NoHomeError as error:
        told = f"There is no place for variants and downloads: {error}"
    console.print(f"\n{told}", soft_wrap=True)
    if any(entry.kind == "unfinished" for entry in entries):
        console.print("What is unfinished goes on, or is cleared away, when its command is given again", soft_wrap=True)


def show(model: Path | str, *, json: bool = False) -> None:
    """Print what a model is. Raises `ModelFileError` for a file that cannot generate text here."""
    from stackscope.model.spec import load_spec

    spec = load_spec(resolve(model))
    if json:
        _print_json(_spec_object(spec))
        return
    console = _console()
    console.print(spec.name, style="bold", soft_wrap=True)
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for name, value in _facts(spec):
        facts.add_row(name, value)
    console.print(facts)
    console.print()
    console.print(_weights(spec))


def quantise(
    source: Path | str,
    type_name: str,
    *,
    output: Path | None = None,
    requantise: bool = False,
    replace: bool = False,
    json: bool = False,
) -> None:
    """Write a quantised variant and say what came out. Raises `UsageError` and `ModelFileError`."""
    from stackscope.model import quantise as quantiser

    with told_when_interrupted(NOT_WRITTEN), _progress() as report:
        done = quantiser.quantise(
            resolve(source),
            type_name,
            output=output,
            requantise=requantise,
            replace=replace,
            on_progress=lambda progress: report(progress.tensor, progress.done, progress.total),
        )
    if json:
        fallbacks = [fallback._asdict() for fallback in done.fallbacks]
        _print_json(done._asdict() | {"path": shown(done.path), "fallbacks": fallbacks})
        return
    share = units.percent(done.bytes / done.source_bytes)
    console = _console()
    console.print(f"{shown(done.path)}", soft_wrap=True)
    console.print(f"{done.type}, {units.data_size(done.bytes)}: {share} of {units.data_size(done.source_bytes)}")
    for line in _fallback_lines(done):
        console.print(line, soft_wrap=True)


def inflate(
    source: Path | str, megabytes: float, *, output: Path | None = None, replace: bool = False, json: bool = False
) -> None:
    """Write a wider copy that gives the same logits. Raises `UsageError` and `ModelFileError`."""
    from stackscope.model import inflate as widener

    with told_when_interrupted(NOT_WRITTEN), _progress() as report:
        done = widener.inflate(
            resolve(source),
            megabytes,
            output=output,
            replace=replace,
            on_progress=lambda written, total: report("writing", written, total),
        )
    if json:
        _print_json({"path": shown(done.path), "source_bytes": done.source_bytes, **done.plan._asdict()})
        return
    plan = done.plan
    console = _console()
    console.print(f"{shown(done.path)}", soft_wrap=True)
    console.print(
        f"{units.data_size(plan.bytes)}, from {units.data_size(done.source_bytes)}: feed-forward width "
        f"{units.count(plan.width)} instead of {units.count(plan.width_before)}; it answers the same",
        soft_wrap=True,
    )


def get(name: str, *, sha256: str | None = None, revision: str | None = None, json: bool = False) -> None:
    """Fetch OWNER/REPO/FILE and say where it is. Raises `UsageError` and `DownloadError`."""
    from stackscope.model.download import fetch
    from stackscope.model.header import read_header
    from stackscope.model.hub_files import parse
    from stackscope.model.suitability import require_text_model

    wanted = parse(name, revision=revision)
    with told_when_interrupted("what was downloaded is kept, and the same command goes on."), _progress() as report:
        done = fetch(wanted, sha256=sha256, on_progress=report)
    if json:
        _print_json(done._asdict() | {"path": shown(done.path)})
    else:
        meaning = {
            "downloaded": "downloaded and verified",
            "present": "was there already, in the Hub's current version",
            "unchecked": "was there already, and was not compared with the Hub's",
        }[done.how]
        console = _console()
        console.print(shown(done.path), soft_wrap=True)
        console.print(f"{units.data_size(done.bytes)}, {meaning}")
        if done.sha256 is not None:
            console.print(f"SHA-256 {done.sha256}", soft_wrap=True)
    try:
        require_text_model(read_header(done.path))
    except ModelFileError as error:  # the file was asked for and is there; that it is no target is worth a word
        _console(stderr=True).print(str(error), soft_wrap=True)


def _facts(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    from stackscope.model.ftypes import name_of

    mixture = name_of(spec.file_type)
    yield "file", shown(spec.path)
    yield "size", f"{units.data_size(spec.file_bytes)}{f', {mixture}' if mixture is not None else ''}"
    further = f", and {spec.prediction_layers} that predict further tokens" if spec.prediction_layers > 0 else ""
    yield (
        "architecture",
        f"{spec.architecture}: {len(spec.layers)} layers{further}, width {units.count(spec.embedding)}",
    )
    tied = ", head tied to the embedding" if spec.has_tied_head else ""
    yield "parameters", f"{units.scaled(spec.parameters)}{tied}"
    if spec.experts > 0:
        yield "experts", f"{spec.experts_used} of {spec.experts} per token"
    kind = "" if spec.tokenizer is None else f", {spec.tokenizer} tokenizer"
    template = "with a chat template" if spec.chat_template is not None else "no chat template"
    yield "vocabulary", f"{units.count(spec.vocabulary)} tokens{kind}, {template}"
    yield "context", f"{units.count(spec.context)} tokens"
    for heads, layers in Counter(_heads(layer) for layer in spec.layers if layer.kv_heads > 0).items():
        where = "" if layers == len(spec.layers) else f", in {layers} layers"
        yield "attention", heads + where
    yield from _patterns(spec)
    yield "KV cache", _kv_cache(spec)
    state = sum(layer.recurrent_state for layer in spec.layers) * 4
    if state > 0:
        yield "state", f"{units.data_size(state)} per sequence (F32)"
    for missing in spec.not_modelled:
        yield "not counted", missing


def _heads(layer: LayerSummary) -> str:
    if layer.mla_rank is not None:
        return f"{layer.heads} heads on one compressed key of {layer.mla_rank} (MLA)"
    group = f" ({layer.heads // layer.kv_heads} to 1)" if layer.heads > layer.kv_heads else ""
    return f"{layer.heads} heads on {layer.kv_heads} KV{group}, key {layer.key_length}, value {layer.value_length}"


def _patterns(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """One letter per layer, for models whose layers are not all alike."""
    letters = [_letter(layer) for layer in spec.layers]
    if len(set(letters)) > 1:
        legend = ", ".join(f"{letter} {_LETTERS[letter]}" for letter in dict.fromkeys(letters))
        groups = ["".join(letters[start : start + 10]) for start in range(0, len(letters), 10)]
        yield "layers", f"{' '.join(groups)}  ({legend})"
    windows = Counter(layer.window for layer in spec.layers if layer.window is not None)
    for window, count in windows.items():
        yield "window", f"{units.count(window)} tokens, in {count} of {len(spec.layers)} layers"


_LETTERS: Final = {
    "F": "full attention",
    "w": "windowed",
    "s": "shares an earlier layer's KV",
    "r": "recurrent",
    "b": "recurrent and attending",
    "-": "neither",
}


def _letter(layer: LayerSummary) -> str:
    if layer.recurrent_state > 0:
        return "b" if layer.kv_heads > 0 else "r"
    if layer.kv_heads == 0:
        return "-"
    if layer.shares_kv:
        return "s"
    return "w" if layer.window is not None else "F"


def _kv_cache(spec: ModelSpec) -> str:
    from stackscope.model.spec import kv_bytes_per_token

    per_token = f"{units.data_size(spec.kv_bytes_per_token())} per token at F16"
    windows = [layer.window for layer in spec.layers if layer.window is not None and layer.kv_heads > 0]
    if not windows:
        return per_token
    beyond = sum(kv_bytes_per_token(layer, "f16", "f16") for layer in spec.layers if layer.window is None)
    return f"{per_token}, {units.data_size(beyond)} once {units.count(max(windows))} tokens are passed"


def _weights(spec: ModelSpec) -> Table:
    """Bytes by role and type, largest first."""
    sums: Counter[tuple[str, str]] = Counter()
    elements: Counter[tuple[str, str]] = Counter()
    for tensor in spec.tensor_classes:
        sums[tensor.role, tensor.type] += tensor.bytes
        elements[tensor.role, tensor.type] += tensor.elements
    table = Table(box=None, pad_edge=False)
    for name in ("weights", "type"):
        table.add_column(name)
    for name in ("parameters", "bytes", "share"):
        table.add_column(name, justify="right")
    for (role, kind), n_bytes in sums.most_common():
        share = units.percent(n_bytes / spec.tensor_bytes)
        table.add_row(role, kind, units.scaled(elements[role, kind]), units.data_size(n_bytes), share)
    return table


def _spec_object(spec: ModelSpec) -> dict[str, object]:
    summary: dict[str, object] = msgspec.to_builtins(spec.summary())
    return summary | {
        "file_type": spec.file_type,
        "data_offset": spec.data_offset,
        "padding_bytes": spec.padding_bytes,
        "prediction_layers": spec.prediction_layers,
        "kv_bytes_per_token_f16": spec.kv_bytes_per_token(),
        "tokenizer": spec.tokenizer,
        "chat_template": spec.chat_template,
        "not_modelled": list(spec.not_modelled),
    }


def _entry_object(entry: CatalogEntry) -> dict[str, object]:
    return {"name": entry.name, "kind": entry.kind, "path": shown(entry.path), "bytes": entry.bytes}


def _fallback_lines(done: Quantised) -> Iterator[str]:
    """Which tensors kept another type than the mixture's, in one line per exchange."""
    groups: dict[tuple[str, str], list[Fallback]] = {}
    for fallback in done.fallbacks:
        groups.setdefault((fallback.wanted, fallback.used), []).append(fallback)
    for (wanted, used), members in groups.items():
        first = members[0]
        others = f" and {len(members) - 1} more" if len(members) > 1 else ""
        yield f"{used} instead of {wanted}: {first.tensor} (rows of {units.count(first.row)}){others}"


@contextmanager
def _progress() -> Iterator[Report]:
    """A progress bar on stderr, and nothing where stderr is no terminal."""
    console = _console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[amount]}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("", amount="", total=None)

        def report(what: str, done: int, total: int) -> None:
            amount = f"{units.data_size(done)} of {units.data_size(total)}" if total > MIB else f"{done} of {total}"
            bar.update(task, description=what[:32], completed=done, total=total, amount=amount)

        yield report


def _console(*, stderr: bool = False) -> Console:
    """Text as it is: no markup in names, no guessing of what to colour, and in a pipe no break inside a path."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = UNBROKEN
    return console


def _print_json(value: object) -> None:
    print(harmless_json(json_format.dumps(value, indent=2, ensure_ascii=False)))
