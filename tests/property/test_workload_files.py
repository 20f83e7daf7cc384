"""Files of any bytes are read or refused in a sentence; shared blocks of a trace are shared exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from stackscope.errors import WorkloadError
from stackscope.workload.files import read_file
from stackscope.workload.spec import WorkloadSpec
from stackscope.workload.traffic import Traffic
from tests.workload_fakes import ByteTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = [
    "prompt", "messages", "conversations", "custom_id", "url", "body", "hash_ids", "input_length", "output_length",
    "timestamp", "role", "content", "from", "value", "max_tokens", "temperature", "stop", "arrival", "n", "seed",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(0, 5)
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(["user", "human", "gpt", "POST", "/v1/completions", "assistant", "system", "1e999", ""])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=8,
)
GOOD = json.dumps({"prompt": "fine", "max_tokens": 3})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def refusal(attempt: Callable[[], object]) -> str | None:
    """The sentence with which it is refused. `None`: it is not."""
    try:
        attempt()
    except WorkloadError as error:
        return str(error)
    return None


def read_or_refuse(folder: Path, content: bytes, format: str = "auto") -> None:
    path = folder / "w"
    path.write_bytes(content)
    sentence = refusal(lambda: read_file(str(path), format))
    if sentence is not None:
        assert "\n" not in sentence
        assert str(path) in sentence
        return
    # What can be read can be made into jobs, or is refused with its line.
    spec = WorkloadSpec(path=str(path), format=format, requests=5)  # type: ignore[arg-type]
    sentence = refusal(lambda: Traffic(spec, ByteTokenizer(), context_tokens=4096))
    if sentence is not None:
        assert f"{path}:" in sentence or "blocks apart" in sentence
        return
    jobs = Traffic(spec, ByteTokenizer(), context_tokens=4096).due(0, 0)
    assert jobs
    assert all(len(job.tokens) + job.max_tokens <= 4096 for job in jobs)


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes(folder: Path, content: bytes) -> None:
    read_or_refuse(folder, content)


@settings(max_examples=300, deadline=None)
@given(value=VALUES, format=st.sampled_from(["auto", "jsonl", "sharegpt", "openai-batch", "mooncake"]))
def test_any_json(folder: Path, value: object, format: str) -> None:
    read_or_refuse(folder, json.dumps(value).encode(), format)
    read_or_refuse(folder, f"{GOOD}\n{json.dumps(value)}".encode(), format)
    read_or_refuse(folder, json.dumps([value, value], indent=2).encode(), format)


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 400), data=st.data())
def test_a_damaged_file(folder: Path, cut: int, data: st.DataObject) -> None:
    lines = [
        {"conversations": [{"from": "human", "value": "é" * 20}, {"from": "gpt", "value": "x"}]},
        {"conversations": [{"from": "human", "value": "\u2028\\"}]},
    ]
    whole = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
    read_or_refuse(folder, whole[:cut])
    place = data.draw(st.integers(0, len(whole) - 1))
    read_or_refuse(folder, whole[:place] + data.draw(st.binary(max_size=3)) + whole[place + 1 :])


REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 12) | st.integers(0, 2**64 - 1), min_size=1, max_size=4), st.integers(1, 512)),
    min_size=2,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(requests=REQUESTS, scale=st.sampled_from([1.0, 0.25, 0.0625]), seed=st.integers(0, 3))
def test_blocks_are_equal_where_their_ids_are(
    folder: Path, requests: list[tuple[list[int], int]], scale: float, seed: int
) -> None:
    path = folder / "trace"
    lines = [
        {"timestamp": n, "input_length": 512 * (len(ids) - 1) + last, "output_length": 1, "hash_ids": ids}
        for n, (ids, last) in enumerate(requests)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    spec = WorkloadSpec(path=str(path), token_scale=scale, requests=len(lines), concurrency=99, seed=seed)
    jobs = Traffic(spec, ByteTokenizer(), context_tokens=4096).due(0, 0)
    block = round(512 * scale)
    blocks: dict[int, tuple[int, ...]] = {}
    for job, (ids, last) in zip(jobs, requests, strict=True):
        assert len(job.tokens) == block * (len(ids) - 1) + min(block, max(1, round(last * scale)))
        for place, hash_id in enumerate(ids):
            tokens = job.tokens[place * block : (place + 1) * block]
            longest = max(tokens, blocks.get(hash_id, ()), key=len)
            # Equal ids: equal tokens, the shorter one a beginning of the longer.
            assert longest[: len(tokens)] == tokens
            assert longest[: len(blocks.get(hash_id, ()))] == blocks.get(hash_id, ())
            blocks[hash_id] = longest
    # Other ids: other tokens, for every block long enough to hold its written id (11 bytes hold 64 bits and more).
    full = [tokens[:11] for tokens in blocks.values() if len(tokens) >= 11]
    assert len(set(full)) == len(full)
