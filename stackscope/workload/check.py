"""Checking a workload before anything heavy starts, and what its header says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stackscope.errors import WorkloadError
from stackscope.workload.corpus import CORPUS_VERSION
from stackscope.workload.files import read_file
from stackscope.workload.spec import describe, validate

if TYPE_CHECKING:
    from stackscope.workload.entries import WorkloadFile
    from stackscope.workload.spec import WorkloadSpec


class WorkloadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a workload before a model is."""

    format: str | None = None
    """The file's format. `None`: a built-in."""
    requests: int | None = None
    """Requests in one pass over the file. `None`: a built-in, which has no end."""
    has_arrivals: bool = False
    """The file says when its requests arrive."""
    sha256: str | None = None
    """Of the file as unpacked. `None`: a built-in."""
    notes: tuple[str, ...] = ()


def check(spec: WorkloadSpec) -> WorkloadFacts:
    """Refuse what cannot work, reading a file whole. Raises WorkloadError with one sentence.

    What needs the model is checked by `Traffic`: whether prompts fit the context and the template takes the messages.
    """
    validate(spec)
    if spec.path is None:
        return WorkloadFacts()
    file = read_file(spec.path, spec.format)
    validate_arrivals(spec, file)
    return WorkloadFacts(
        format=file.format,
        requests=file.n_requests,
        has_arrivals=file.has_arrivals,
        sha256=file.sha256,
        notes=file.notes,
    )


def validate_arrivals(spec: WorkloadSpec, file: WorkloadFile) -> None:
    """Refuse what a file of this format does not have. Raises WorkloadError."""
    if spec.arrivals == "trace" and not file.has_arrivals:
        raise WorkloadError(
            f"{file.path} does not say when its requests arrive.",
            remedy="Give a rate, or no arrivals for a closed loop.",
        )
    if spec.token_scale != 1 and file.format != "mooncake":
        raise WorkloadError(f"A token scale has no meaning for a file of format {file.format}.", remedy="Leave it out.")


def header(spec: WorkloadSpec, facts: WorkloadFacts) -> dict[str, object]:
    """What the session header says of the workload: its whole description, the seed included, and what was found."""
    described = msgspec.to_builtins(spec)
    assert isinstance(described, dict)
    found = msgspec.to_builtins(facts)
    return {**described, "text": describe(spec), "corpus": CORPUS_VERSION, "file": found if spec.path else None}
