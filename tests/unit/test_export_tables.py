"""The tables of an export: what is in them, and that three forms of file say the same."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from stackscope.analysis.summary import RunSummary
from stackscope.records import (
    CacheCounters,
    DraftShadow,
    GpuSample,
    HardwareSample,
    LengthCounts,
    Mark,
    Phases,
    Prediction,
    PrefixShadow,
    Probe,
    RequestRecord,
    SlotWork,
    StepRecord,
)
from stackscope.records.explaining import Estimate
from stackscope.report.export.export import export
from stackscope.report.export.tables import TABLES, Extractor
from stackscope.session.reader import SessionReader, read_session
from stackscope.session.writer import SessionWriter
from tests.unit.record_builders import make_footer, make_header, make_request, make_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec

    from stackscope.records import AnyRecord, Header
    from stackscope.report.export.columns import Row, Table
    from stackscope.report.export.export import Form

ROOT: Final = Path(__file__).parents[2]
STORY: Final = ROOT / "profiles" / "story.jsonl.zst"


class Kept:
    """A writer that keeps the rows, by table, as dictionaries."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in TABLES}

    def put(self, table: Table, row: Row) -> None:
        self.rows[table.name].append(dict(zip(table.names, row, strict=True)))

    def close(self) -> None: ...


def rows_of(*records: AnyRecord, header: Header | None = None, truncated: str | None = None) -> dict[str, list[Any]]:
    kept = Kept()
    extractor = Extractor(make_header() if header is None else header, kept)
    for record in records:
        extractor.write(record)
    extractor.end(truncated)
    return kept.rows


def written(path: Path, records: Iterable[AnyRecord], header: Header | None = None) -> Path:
    with SessionWriter(path, make_header() if header is None else header) as writer:
        for record in records:
            writer.write(record)
    return path


# What is in the tables


@pytest.mark.parametrize(
    ("record", "table", "elsewhere"),
    [
        (StepRecord, "steps", {"phases", "work", "ubatches", "draft", "cache", "delay"}),
        (SlotWork, "work", set()),
        (RequestRecord, "requests", {"emissions"}),
        (HardwareSample, "hardware", {"gpus"}),
        (GpuSample, "gpus", set()),
        (CacheCounters, "steps", set()),
        (LengthCounts, "draft_shadows", set()),
        (PrefixShadow, "prefix_shadows", set()),
        (Probe, "probes", set()),
    ],
)
def test_every_field_of_a_record_is_a_column(record: type[msgspec.Struct], table: str, elsewhere: set[str]) -> None:
    """A field that is added later must be exported, or be said to be elsewhere."""
    names = next(each.names for each in TABLES if each.name == table)
    assert set(record.__struct_fields__) - elsewhere <= set(names)


def test_every_phase_is_a_column() -> None:
    assert {f"{phase}_ns" for phase in Phases.__struct_fields__} <= set(rows_of(make_step())["steps"][0])


def test_every_column_says_what_it_is() -> None:
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            assert column.meaning.endswith("."), column.name
            assert column.name.isidentifier()
            suffix = column.name.rpartition("_")[2]
            if suffix in ("ns", "bytes"):
                assert column.unit == {"ns": "ns", "bytes": "B"}[suffix], column.name


def test_cells_are_of_the_type_that_their_column_says() -> None:
    kinds: dict[str, Any] = {"int": int, "float": float, "bool": bool, "text": str}
    kept = Kept()
    extractor = Extractor(SessionReader(STORY).header, kept)
    for record in SessionReader(STORY):
        extractor.write(record)
    extractor.end(None)
    for table in TABLES:
        for row in kept.rows[table.name]:
            for column in table.columns:
                cell = row[column.name]
                is_float = column.kind == "float" and type(cell) is int  # a sampler may have whole numbers
                assert cell is None or type(cell) is kinds[column.kind] or is_float, (table.name, column.name, cell)


def test_a_step_is_a_row_and_each_of_its_sequences_one_of_work() -> None:
    verify = SlotWork(request=1, slot=1, phase="verify", new=4, cached=20, drafted=3, accepted=2, emitted=3, outputs=4)
    prefill = SlotWork(request=2, slot=3, phase="prefill", new=100, cached=28)
    step = make_step(n=7, work=(verify, prefill), kv_cells=152)
    rows = rows_of(step, header=make_header(capabilities=()))
    assert len(rows["steps"]) == 1
    row = rows["steps"][0]
    assert row["n"] == 7
    assert (row["sequences"], row["prefill_rows"], row["decode_rows"]) == (2, 100, 4)
    assert (row["outputs"], row["emitted"], row["drafted"], row["accepted"]) == (4, 3, 3, 2)
    assert row["duration_ns"] == sum(row[f"{phase}_ns"] for phase in Phases.__struct_fields__)
    assert [(work["step"], work["slot"], work["phase"], work["cached"]) for work in rows["work"]] == [
        (7, 1, "verify", 20), (7, 3, "prefill", 28),
    ]  # fmt: skip


def test_idle_time_is_that_between_steps_that_follow_each_other() -> None:
    first, gap = make_step(n=0), make_step(n=3)
    late = make_step(n=1, start_ns=first.end_ns + 250)
    assert [row["idle_before_ns"] for row in rows_of(first, late, gap)["steps"]] == [None, 250, None]


def test_the_cost_of_all_steps_is_that_of_the_summary() -> None:
    run, kept = RunSummary(), Kept()
    reader = SessionReader(STORY)
    extractor = Extractor(reader.header, kept)
    for record in reader:
        run.write(record)
        extractor.write(record)
    steps = kept.rows["steps"]
    values = run.result().values
    emitted = sum(row["emitted"] for row in steps)
    assert emitted == values["output_tokens"]
    moved = sum(row["target_bytes"] + row["draft_bytes"] for row in steps)
    assert moved / emitted == pytest.approx(values["bytes_per_token"])
    flops = sum(row["target_flops"] + row["draft_flops"] for row in steps)
    assert flops / emitted == pytest.approx(values["flops_per_token"])


def test_what_a_source_cannot_know_is_unknown_and_zero_is_zero() -> None:
    step = make_step(queue=0)
    known = rows_of(step, header=make_header(capabilities=("phases", "slots", "acceptance", "prefix_cache", "cpu")))
    unknown = rows_of(step, header=make_header(source="attach", capabilities=("phases",)))
    assert (known["steps"][0]["queue"], known["steps"][0]["drafted"], known["steps"][0]["lookups"]) == (0, 0, 0)
    for name in ("queue", "slots_busy", "drafted", "accepted", "lookups", "hit_tokens", "cpu_ns"):
        assert unknown["steps"][0][name] is None, name
    assert unknown["steps"][0]["decode_ns"] == 850_000


def test_a_forward_that_was_cut_short_has_no_known_cost_and_an_unknown_model_none() -> None:
    assert rows_of(make_step(aborted=True))["steps"][0]["target_bytes"] is None
    assert rows_of(make_step(), header=make_header(model=None))["steps"][0]["target_bytes"] is None
    assert rows_of(make_step(work=()), header=make_header(model=None))["steps"][0]["target_bytes"] == 0


def test_latencies_are_those_of_the_metrics() -> None:
    row = rows_of(make_request())["requests"][0]
    assert row["queue_ns"] == 5_000_000
    assert row["ttft_ns"] == 50_000_000
    assert row["tpot_ns"] == 1_000_000  # 4 tokens 1 ms apart
    assert row["e2e_ns"] == 53_000_000
    never = rows_of(make_request(emissions=(), admitted_ns=None, finish_reason="cancelled"))["requests"][0]
    assert (never["ttft_ns"], never["tpot_ns"], never["first_token_ns"], never["queue_ns"]) == (None,) * 4
    assert never["output_tokens"] == 0


def test_the_rest_has_its_tables() -> None:
    gpu = GpuSample(uuid="GPU-1", name="One", dram_share=0.5, peak_bytes_per_s=2e12, throttle=())
    rows = rows_of(
        HardwareSample(at_ns=5, gpus=(gpu,), unknown={"package_power_w": "nobody tells"}),
        Mark(at_ns=6, label="here"),
        Prediction(at_ns=7, changes={"slots": (8, 4)}, tokens=Estimate(1.2, 1.1, 1.3)),
        Probe(at_ns=8, cpu_share=0.9),
        DraftShadow(at_ns=9, epoch=0, source="ngram", requests=1, tokens=9, lengths=(LengthCounts(3, 4, 3, 9, 5),)),
        PrefixShadow(at_ns=10, epoch=0, requests=1, lookup_tokens=100, hit_tokens=64, useful_hit_tokens=64),
        make_footer(reason="interrupted"),
        truncated="why",
    )
    assert rows["gpus"][0]["dram_bytes_per_s"] == 1e12
    assert rows["gpus"][0]["throttle"] == "[]"
    assert rows["gpus"][0]["power_w"] is None
    assert json.loads(rows["hardware"][0]["unknown"]) == {"package_power_w": "nobody tells"}
    assert (rows["events"][0]["kind"], rows["events"][0]["text"]) == ("mark", "here")
    assert (rows["predictions"][0]["tokens_low"], rows["predictions"][0]["ttft_low"]) == (1.1, None)
    assert rows["probes"][0]["read_bytes_per_s"] is None
    assert (rows["draft_shadows"][0]["length"], rows["draft_shadows"][0]["accepted"]) == (3, 5)
    assert rows["prefix_shadows"][0]["capacity_tokens"] is None
    assert (rows["session"][0]["ended"], rows["session"][0]["truncated"]) == ("interrupted", "why")


# Files


def parsed(text: str, kind: str) -> Any:
    if text == "":
        return None
    kinds: dict[str, Any] = {"int": int, "float": float, "text": str, "bool": {"true": True, "false": False}.get}
    return kinds[kind](text)


def test_csv_json_and_parquet_say_the_same(tmp_path: Path) -> None:
    import pyarrow.parquet

    recording = STORY
    forms: tuple[Form, ...] = ("csv", "parquet")
    for form in forms:
        export(SessionReader(recording), form, tmp_path / form)
    export(SessionReader(recording), "json", tmp_path / "all.json")
    document = json.loads((tmp_path / "all.json").read_bytes())
    assert set(document["tables"]) == {table.name for table in TABLES}
    for table in TABLES:
        rows = document["tables"][table.name]
        assert document["columns"][table.name] == {
            column.name: {"type": column.kind, "unit": column.unit} for column in table.columns
        }
        with (tmp_path / "csv" / f"{table.name}.csv").open(encoding="utf-8", newline="") as file:
            head, *lines = csv.reader(file)
        assert tuple(head) == table.names
        kinds = [column.kind for column in table.columns]
        from_csv = [{n: parsed(t, k) for n, t, k in zip(head, line, kinds, strict=True)} for line in lines]
        # An empty text and an unknown one look the same in CSV, and only there.
        assert from_csv == [{n: None if v == "" else v for n, v in row.items()} for row in rows]
        read = pyarrow.parquet.read_table(tmp_path / "parquet" / f"{table.name}.parquet")
        assert read.to_pylist() == rows
        for column, field in zip(table.columns, read.schema, strict=True):
            assert field.metadata[b"unit"].decode() == column.unit
    assert len(document["tables"]["steps"]) == len(read_session(STORY).steps)
    assert len(document["tables"]["session"]) == 1


def test_texts_with_anything_in_them_survive(tmp_path: Path) -> None:
    import pyarrow.parquet

    texts = ['a "quote", a comma\nand a line', "=1+1", "<script>", "\ud800 half a pair", "ende\r\n", "ünï ✓"]
    recording = written(tmp_path / "s.jsonl.zst", [make_request(id=i, output=text) for i, text in enumerate(texts)])
    expected = [text.replace("\ud800", "?") for text in texts]
    export(SessionReader(recording), "json", tmp_path / "s.json")
    rows = json.loads((tmp_path / "s.json").read_bytes())["tables"]["requests"]
    assert [row["output"] for row in rows] == expected
    export(SessionReader(recording), "csv", tmp_path / "csv")
    with (tmp_path / "csv" / "requests.csv").open(encoding="utf-8", newline="") as file:
        assert [row["output"] for row in csv.DictReader(file)] == expected
    export(SessionReader(recording), "parquet", tmp_path / "parquet")
    read = pyarrow.parquet.read_table(tmp_path / "parquet" / "requests.parquet")
    assert read.column("output").to_pylist() == expected


def test_parquet_of_several_row_groups_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet

    monkeypatch.setattr("stackscope.report.export.parquet_files.GROUP_ROWS", 100)
    recording = written(tmp_path / "s.jsonl.zst", [make_step(n) for n in range(250)])
    export(SessionReader(recording), "parquet", tmp_path / "out")
    found = pyarrow.parquet.ParquetFile(tmp_path / "out" / "steps.parquet")
    assert found.num_row_groups == 3
    assert found.read().column("n").to_pylist() == list(range(250))


def test_the_page_is_current() -> None:
    script = ROOT / "scripts" / "generate_export_doc.py"
    found = subprocess.run(
        [sys.executable, str(script), "--check"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
