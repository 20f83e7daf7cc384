"""Write docs/export.md from the tables of the code. With --check, say whether it is current and write nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stackscope.report.export import perfetto
from stackscope.report.export.tables import TABLES

if TYPE_CHECKING:
    from stackscope.report.export.columns import Table

TARGET = Path(__file__).parent.parent / "docs" / "export.md"

INTRODUCTION = """\
# Exports

Generated from the code by `scripts/generate_export_doc.py`; do not edit.

    stackscope export FILE --to csv -o FOLDER
    stackscope export FILE --to parquet -o FOLDER         # needs pip install pyarrow
    stackscope export FILE --to json -o FILE.json
    stackscope export FILE --to perfetto -o FILE.json.gz  # open it in ui.perfetto.dev, or in chrome://tracing

- `csv` and `parquet` make a folder with one file per table; `json` one object with `columns` (type and unit of every
  column) and `tables` (lists of objects). Tables without rows are there too.
- Unknown is an empty field in CSV and null elsewhere, never 0. What the source of a session cannot know, by its header,
  is unknown in every row.
- Times are integer nanoseconds of the session's clock, whose origin is `started` in the table `session`.
- An export is there whole or not at all. What exists is refused without `--replace`, and a folder with anything else in
  it is never written over.
- Tables hold texts as they were recorded, whatever characters are in them.
- Memory does not grow with the session. A recording that was cut off is exported as far as it goes, and the table
  `session` says so.
- Bytes and operations come from the ledger: they are counted, not measured (see [metrics](metrics.md)). Those of models
  with experts are expectations.

The tables in DuckDB, for instance:

    SELECT epoch, sum(emitted) / sum(duration_ns + coalesce(idle_before_ns, 0)) * 1e9 AS tokens_per_s
    FROM 'FOLDER/steps.parquet' GROUP BY epoch;
"""

TRACKS = (
    (
        "engine",
        "steps",
        "One slice per step with its figures, and inside it one per phase that took time. When a phase began is not"
        " recorded: they are laid end to end, in the order in which the loop goes through them.",
    ),
    (
        "engine",
        "changes and marks",
        "An instant for each change of configuration or load, refusal and mark; a slice for each rebuild.",
    ),
    (
        "slots",
        "slot N",
        "One slice per stay of a request in the slot, inside it one for its prefill and one for its decoding.",
    ),
    ("requests", "request", "The life of each request, from arrival to end: queue, prefill, decode."),
)

COUNTERS = (
    (*perfetto.BANDWIDTH, "Bytes of the target's forward, by the ledger, ÷ its decode phase; 0 while it idles."),
    (
        *perfetto.ACCEPTANCE,
        "Drafted tokens that entered the output, of a step that verified any; stands until the next such step.",
    ),
    (perfetto.DRAFTS, "accepted, rejected", "Tokens of a step."),
    (*perfetto.KV_CELLS, "Cells after the step, cached prefixes included."),
    (*perfetto.QUEUE, "Waiting when the forward began."),
    (*perfetto.SLOTS_BUSY, "Slots that held a request."),
    (*perfetto.CPU, "Of all cores of the machine."),
    (*perfetto.RESIDENT, "Resident memory of the engine process."),
    (*perfetto.gpu_traffic("N"), "By the GPU's own counters."),
)

ARGUMENTS = (
    ("step", "n, epoch", "Its number, and the configuration that it ran under."),
    ("step", "sequences, rows, emitted", "Of its forward: sequences, rows, and tokens that came out."),
    ("step", "drafted, accepted", "Tokens."),
    ("step", "target_bytes, target_flops, draft_bytes", "By the ledger: bytes and operations of the forwards."),
    ("step", "settling", "It may still be slower than its configuration is."),
    ("request N (slots)", "request", "Its number."),
    (
        "prefill, decode (slots)",
        "rows, emitted, steps",
        "Rows computed, tokens that came out, and steps of the stretch.",
    ),
    ("request (requests)", "id, finish_reason, error", "Its number, how it ended, and why it failed."),
    (
        "request (requests)",
        "prompt_tokens, hit_tokens, output_tokens",
        "Tokens: of the prompt, found in the cache, put out.",
    ),
    (
        "request (requests)",
        "preemptions, requeues",
        "How often its work was thrown away, by the engine and by a rebuild.",
    ),
    ("a change", "by, kind, epoch, changes, reason", "As in the table `events`; `changes` is JSON."),
    ("a change", "requeued", "Requests that its rebuild put back."),
    ("load", "concurrency, rate", "Requests offered at a time, and per second, from then on."),
)

TRACE = """\
## The trace

Chrome's trace-event format in its form as an object: JSON, compressed where the file's name ends in `.gz`. Times (`ts`,
`dur`) are microseconds of the session's clock with three decimals, so that no nanosecond is lost. `otherData` says
which session it is. Slices are events `X`, what happens at once `i`, counters `C`, requests `b` and `e` with the
request's number as `id`, and names of groups and tracks `M`. Groups are the `pid` 1 to 4 in the order below; steps are
the track 11, changes and marks 12, and slot N is 100 + N.

{tracks}

What an event carries in `args`; what is not known is left out:

{arguments}

{counters}

What is not known has no counter. A level stands until the next one, which is what the format can say. In names and
texts, control characters and marks of direction are replaced by U+FFFD. A million steps at batch 1 are ten million
events: 70 MB compressed, and more than a gigabyte when a browser has unpacked them.
"""


def table(*rows: tuple[str, ...]) -> str:
    """Rows as a table, the first as its head."""
    head, *others = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others])


def document() -> str:
    """The whole page."""
    trace = TRACE.format(
        tracks=table(("group", "track", "what is on it"), *TRACKS),
        arguments=table(
            ("event", "arguments", "meaning"),
            *(
                (event, ", ".join([f"`{name}`" for name in names.split(", ")]), meaning)
                for event, names, meaning in ARGUMENTS
            ),
        ),
        counters=table(("counter", "series", "meaning"), *COUNTERS),
    )
    return "\n".join([INTRODUCTION, *[section(each) for each in TABLES], trace])


def section(of: Table) -> str:
    rows = [(f"`{column.name}`", column.kind, column.unit, column.meaning) for column in of.columns]
    return "\n".join([f"## `{of.name}`", "", of.meaning, "", table(("column", "type", "unit", "meaning"), *rows), ""])


def main() -> int:
    text = document()
    if "--check" in sys.argv[1:]:
        is_current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print("docs/export.md is current." if is_current else f"docs/export.md is stale: run {Path(__file__).name}.")
        return 0 if is_current else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
