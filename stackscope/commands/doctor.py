"""`stackscope doctor`: what this machine and this build can do, and what to do about what they cannot."""

from __future__ import annotations

import shutil
import textwrap
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from stackscope import __version__
from stackscope.characters import harmless
from stackscope.commands import examinations, gpu_examinations
from stackscope.commands.examinations import Check, LibraryFacts, ask_library
from stackscope.commands.examined_ceilings import of_ceilings
from stackscope.commands.folder_examinations import of_folders
from stackscope.commands.host_examinations import of_host
from stackscope.errors import LibraryError, ModelFileError, StackscopeError, UsageError
from stackscope.hardware import host
from stackscope.hardware.gpu_facts import GpuFacts
from stackscope.hardware.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackscope.records import ModelSummary

Verdict: TypeAlias = Literal["ok", "no", "?"]

MARKS: Final[dict[bool | None, Verdict]] = {True: "ok", False: "no", None: "?"}
NAME_WIDTH: Final = 18


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found out."""

    stackscope: str
    ok: bool
    """Whether Stackscope can run here. What cannot be had, but is not needed, does not count."""
    checks: tuple[Check, ...]
    host: Host
    library: LibraryFacts | None
    """`None`: the library does not load; the check says why."""
    gpus: GpuFacts


def doctor(
    *,
    model: str | None = None,
    json: bool = False,
    library_command: Sequence[str] | None = None,
    gpu_command: Sequence[str] | None = None,
) -> int:
    """Print what can be done here. Returns the exit code: 0 when Stackscope can run, else that of what prevents it.

    `library_command` and `gpu_command` replace the processes that ask the inference library and the GPUs' driver.
    """
    machine = host.look()
    facts, failure = _ask(library_command)
    gpus = gpu_examinations.ask_gpus(gpu_command)
    checks = tuple(_checks(machine, facts, failure, gpus, model))
    report = Report(
        stackscope=__version__,
        ok=all(check.holds is not False or not check.is_needed for check in checks),
        checks=checks,
        host=machine,
        library=facts,
        gpus=gpus,
    )
    if json:
        print(msgspec.json.encode(report, order="sorted").decode())
    else:
        _show(report)
    if report.ok:
        return 0
    return LibraryError.exit_code if facts is None else StackscopeError.exit_code


def _ask(command: Sequence[str] | None) -> tuple[LibraryFacts | None, LibraryError | None]:
    try:
        return ask_library(command), None
    except LibraryError as error:
        return None, error


def _checks(
    machine: Host, facts: LibraryFacts | None, failure: LibraryError | None, gpus: GpuFacts, model: str | None
) -> Iterator[Check]:
    yield from examinations.of_machine(machine)
    yield from of_host()
    yield from gpu_examinations.of_gpus(gpus, machine)
    if facts is not None:
        yield from examinations.of_library(facts, machine)
    elif failure is not None:
        yield Check(
            topic="Inference library",
            name="Library",
            holds=False,
            value=failure.message,
            remedy=failure.remedy or f"Build it again: {examinations.rebuild()}",
            is_needed=True,
        )
    summary, refusal = _model(model)
    if summary is not None:
        yield from examinations.of_model(summary, machine)
    elif refusal is not None:
        remedy = refusal.remedy or "Name another model: --model."
        yield Check(topic="Model", name="Model", holds=False, value=refusal.message, remedy=remedy, is_needed=True)
    if summary is not None:
        path = Path(summary.path)
        yield from of_ceilings(path, facts, named=model, now=datetime.now().astimezone())
    yield from of_folders()
    yield from examinations.of_terminal()
    yield from examinations.of_packages()


def _model(name: str | None) -> tuple[ModelSummary | None, StackscopeError | None]:
    """The model to reckon with: the one named, or the bundled target."""
    from stackscope.model import catalog
    from stackscope.model.spec import load_spec

    try:
        path = catalog.bundled_target() if name is None else catalog.resolve(name)
        return load_spec(path).summary(), None
    except (ModelFileError, LibraryError, UsageError) as error:
        return None, error


def _show(report: Report) -> None:
    width = max(40, shutil.get_terminal_size((100, 24)).columns - NAME_WIDTH - 6)
    topic = ""
    for check in report.checks:
        if check.topic != topic:
            topic = check.topic
            print(f"\n{topic}" if check is not report.checks[0] else topic)
        first, *rest = _wrapped(check.value, width)
        print(f"  {MARKS[check.holds]:<3} {check.name:<{NAME_WIDTH}}{first}")
        for line in rest:
            print(f"{'':<{NAME_WIDTH + 6}}{line}")
        if check.remedy is not None:
            for index, line in enumerate(_wrapped(check.remedy, width - 3)):
                print(f"{'':<{NAME_WIDTH + 6}}{'-> ' if index == 0 else '   '}{line}")
    verdict = "Stackscope can run here." if report.ok else "Stackscope cannot run here yet: see the lines marked no."
    print(f"\n{verdict}")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(harmless(text), width, break_long_words=False, break_on_hyphens=False) or [""]
