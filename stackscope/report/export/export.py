"""Export one session, whole or cut off, in bounded memory."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from stackscope.report.export.csv_files import SUFFIX as CSV
from stackscope.report.export.csv_files import CsvFiles
from stackscope.report.export.json_file import JsonFile
from stackscope.report.export.output import whole_file, whole_folder
from stackscope.report.export.parquet_files import SUFFIX as PARQUET
from stackscope.report.export.parquet_files import ParquetFiles, pyarrow_and_parquet
from stackscope.report.export.perfetto import Tracer
from stackscope.report.export.tables import TABLES, Extractor
from stackscope.report.export.trace_events import TraceFile

if TYPE_CHECKING:
    from pathlib import Path

    from stackscope.report.export.tables import TableWriter
    from stackscope.session.reader import SessionReader

Form: TypeAlias = Literal["csv", "parquet", "json", "perfetto"]

COMPRESSED: Final = ".gz"


class Exported(NamedTuple):
    """What came of an export."""

    counts: dict[str, int]
    """Rows by table; of a trace, its events."""
    truncated: str | None
    """Why the recording ended early. `None`: it did not."""
    left_out: str | None
    """What of it could not be read, as a sentence. `None`: nothing."""


def export(reader: SessionReader, form: Form, path: Path, *, replace: bool = False) -> Exported:
    """Write a session to `path`: a folder of tables for `csv` and `parquet`, else one file.

    Raises `StackscopeError` when it cannot be written, or pyarrow is missing; then nothing is left behind.
    """
    if form == "perfetto":
        return _trace(reader, path, replace=replace)
    with ExitStack() as stack:
        if form == "json":
            writer: TableWriter = JsonFile(stack.enter_context(whole_file(path, replace=replace)))
        else:
            if form == "parquet":
                pyarrow_and_parquet()  # Before anything is made.
            suffix = CSV if form == "csv" else PARQUET
            ours = {f"{table.name}{suffix}" for table in TABLES}
            folder = stack.enter_context(whole_folder(path, replace=replace, ours=ours))
            writer = CsvFiles(folder) if form == "csv" else ParquetFiles(folder)
        with closing(writer):
            extractor = Extractor(reader.header, writer)
            for record in reader:
                extractor.write(record)
            extractor.end(reader.truncated)
    return Exported(extractor.counts, reader.truncated, reader.left_out)


def _trace(reader: SessionReader, path: Path, *, replace: bool) -> Exported:
    header = reader.header
    about = {
        "stackscope": header.stackscope, "started": header.started, "host": header.host, "device": header.device,
        "library": header.library, "model": None if header.model is None else header.model.name,
        "draft_model": None if header.draft_model is None else header.draft_model.name,
        "workload": header.workload.get("text"),
    }  # fmt: skip
    with whole_file(path, replace=replace) as unfinished:
        file = TraceFile(unfinished, is_compressed=path.suffix == COMPRESSED, about=about)
        with closing(file):
            tracer = Tracer(header, file.put)
            for record in reader:
                tracer.write(record)
            tracer.end()
            file.finish()
    return Exported({"events": file.n_events}, reader.truncated, reader.left_out)
