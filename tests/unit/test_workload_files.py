"""Workload files: every format, every way of being wrong, each with its line."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
import zstandard

from stackscope.errors import WorkloadError
from stackscope.toggles import Sampling
from stackscope.workload.check import check
from stackscope.workload.entries import Blocks, Message, WorkloadFile
from stackscope.workload.files import read_file
from stackscope.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, content: str | bytes, name: str = "w.jsonl") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(folder: Path, *lines: object, format: str = "auto") -> WorkloadFile:
    return read_file(write(folder, "\n".join(json.dumps(line) for line in lines)), format)


def refusal(folder: Path, content: str | bytes, format: str = "auto", name: str = "w.jsonl") -> str:
    path = write(folder, content, name)
    with pytest.raises(WorkloadError) as caught:
        read_file(path, format)
    text = str(caught.value)
    assert path in text
    assert "\n" not in text
    return text.replace(path, "FILE")


def test_json_lines_of_every_kind(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        "just a text",
        {"prompt": "with a limit", "max_tokens": 5, "temperature": 0.5, "stop": "\n", "arrival": None},
        {"prompt": [1, 2, 3], "top_k": -1, "n_predict": 4, "stop": ["a", "b"]},
        {
            "messages": [
                {"role": "developer", "content": "S"},
                {"role": "user", "content": [{"type": "text", "text": "Q"}]},
            ]
        },
        {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "recorded"}], "seed": 9},
        {"prompt": "twice", "n": 2, "ignore_eos": True, "extra": {"ignored": 1}},
    )
    assert (file.format, file.n_requests) == ("jsonl", 7)
    text, limited, tokens, chat, answered, first, second = file.entries
    assert text.prompt == "just a text"
    assert (limited.max_tokens, limited.stop, limited.arrival_ns) == (5, ("\n",), None)
    assert limited.overrides.applied(Sampling(min_p=0.2)) == Sampling(min_p=0.2, temperature=0.5)
    assert (tokens.prompt, tokens.max_tokens, tokens.stop) == ((1, 2, 3), 4, ("a", "b"))
    assert tokens.overrides.applied(Sampling()) == Sampling(top_k=0)
    assert chat.prompt == (Message("system", "S"), Message("user", "Q"))
    # A trailing answer is no part of the prompt: its length bounds the generated one.
    assert answered.prompt == (Message("user", "Q"),)
    assert answered.references == ("recorded",)
    assert answered.overrides.applied(Sampling()).seed == 9
    assert first == second
    assert first.ignore_eos is True


def test_openai_batch(tmp_path: Path) -> None:
    chat = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
    plain = {"custom_id": "b", "method": "POST", "url": "/v1/completions"}
    file = read(
        tmp_path,
        chat | {"body": {"model": "m", "messages": [{"role": "user", "content": "Q"}], "max_completion_tokens": 7}},
        plain | {"body": {"model": "m", "prompt": ["one", "two"], "max_tokens": 3}},
        plain | {"custom_id": "c", "body": {"prompt": [[1, 2], [3]]}},
        plain | {"custom_id": "d", "body": {"prompt": [4, 5]}},
    )
    assert file.format == "openai-batch"
    assert [entry.prompt for entry in file.entries] == [(Message("user", "Q"),), "one", "two", (1, 2), (3,), (4, 5)]
    assert [entry.max_tokens for entry in file.entries] == [7, 3, 3, None, None, None]
    assert [entry.line for entry in file.entries] == [1, 2, 2, 3, 3, 4]


def test_sharegpt(tmp_path: Path) -> None:
    def turns(*pairs: tuple[str, str]) -> dict[str, object]:
        return {"id": "x", "conversations": [{"from": speaker, "value": text} for speaker, text in pairs]}

    path = write(
        tmp_path,
        json.dumps(
            [
                turns(("system", "S"), ("human", "1"), ("gpt", "one"), ("human", "2"), ("gpt", "two")),
                turns(("gpt", "begins in the middle"), ("human", "3"), ("human", ""), ("human", "4")),
                turns(),
                turns(("gpt", "nobody asked")),
                {"conversations": [{"role": "user", "content": "5"}, {"role": "assistant", "content": "five"}]},
            ],
            indent=1,
        ),
    )
    file = read_file(path)
    assert (file.format, file.n_requests, len(file.entries)) == ("sharegpt", 4, 3)
    first, second, third = file.entries
    assert first.prompt == (Message("system", "S"), Message("user", "1"))
    assert (first.later, first.references) == (("2",), ("one", "two"))
    assert second.prompt == (Message("user", "3\n\n4"),)
    assert second.references == (None,)
    assert third.references == ("five",)
    assert file.notes == ("2 conversations without a message from the user were left out.",)


def test_mooncake(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        {"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]},
        {"timestamp": 10.5, "input_length": 512, "output_length": 1, "hash_ids": [46]},
    )
    assert file.format == "mooncake"
    # By arrival, which the file was not.
    assert [entry.line for entry in file.entries] == [2, 1]
    assert [entry.arrival_ns for entry in file.entries] == [10_500_000, 27_482_000_000]
    assert file.entries[1].prompt == Blocks((46, 47, 48), 1100)
    assert file.entries[1].max_tokens == 52
    assert file.notes == ("The entries were put in the order of their arrival.",)


def test_packing_line_ends_marks_and_blank_lines_change_nothing(tmp_path: Path) -> None:
    lines = ['{"prompt": "é \u2028 \\u0000"}', '"two"', '{"prompt": "three"}']
    plain = ("\n".join(lines)).encode()
    expected = read_file(write(tmp_path, plain)).entries
    assert len(expected) == 3
    packer = zstandard.ZstdCompressor()
    for name, content in {
        "bom": b"\xef\xbb\xbf" + plain,
        "crlf": plain.replace(b"\n", b"\r\n") + b"\r\n",
        "gz": gzip.compress(plain),
        "two.gz": gzip.compress(plain[:30]) + gzip.compress(plain[30:]),
        "zst": packer.compress(plain),
        "two.zst": packer.compress(plain[:30]) + packer.compress(plain[30:]),
        "array": b"[" + b",\n".join(line.encode() for line in lines) + b"]\n",
    }.items():
        assert read_file(write(tmp_path, content, name)).entries == expected, name
    # Blank lines count as lines.
    blank = read_file(write(tmp_path, plain.replace(b"\n", b"\n\n  \n")))
    assert [entry.line for entry in blank.entries] == [1, 4, 7]


def test_a_very_long_line(tmp_path: Path) -> None:
    text = "x" * 20_000_000
    (entry,) = read(tmp_path, {"prompt": text}).entries
    assert entry.prompt == text


NO_FILES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "FILE is empty."),
    ("blank", b" \r\n\n", "FILE is empty."),
    ("only a mark", b"\xef\xbb\xbf", "FILE is empty."),
    ("gguf", b"GGUF\x03\x00", "FILE is a model file, not a workload."),
    ("parquet", b"PAR1....", "FILE is a Parquet file"),
    ("html", b"<!DOCTYPE html><html>", "FILE is an HTML page"),
    ("utf16", '{"prompt":"x"}'.encode("utf-16"), "FILE is text in UTF-16"),
    ("zip", b"PK\x03\x04....", "FILE is a zip archive"),
    ("half a gzip", gzip.compress(b'{"prompt":"x"}' * 99)[:-9], "FILE is a damaged gzip file"),
    (
        "half a zstd",
        zstandard.compress(b'{"prompt":"x"}' * 99)[:-9],
        "FILE is a damaged zstd file: it ends in the middle",
    ),
    ("no zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 40, "FILE is a damaged zstd file"),
    ("empty array", b"[]", "FILE has no entries."),
    ("csv", b"prompt,tokens\nhello,5\n", "FILE:1: it is not JSON"),
    ("half an array", b'[\n{"prompt":"x"},\n{"prompt"', "FILE:3: the array is not whole"),
    ("bad array", b'[\n{"prompt":"x"},\n{"prompt":nope}]', "FILE:3: it is not JSON"),
    ("two arrays", b'["a"]\n["b"]', "FILE:2: it is not JSON"),
    ("pretty object", b'{\n "prompt": "x"\n}', "FILE:1: it is not whole JSON: one value has to stand on one line."),
    ("number", b"5", "FILE:1: expected str | object, got int"),
    ("unknown keys", b'{"question":"x","answer":"y"}', "FILE:1: no format has these keys: question, answer."),
    ("no keys", b"{}", "FILE:1: no format has these keys: none."),
    ("two formats", b'{"prompt":"x","conversations":[]}', "FILE:1: its keys fit jsonl or sharegpt. Give the format."),
    ("silent", b'{"conversations":[]}', "FILE has nothing to ask"),
    ("deep", b'{"prompt":' + b"[" * 100_000, "FILE:1: it is nested too deeply"),
    (
        "half timed",
        b'{"prompt":"x","arrival":1}\n{"prompt":"y"}',
        "FILE:2: it has no arrival time, but line 1 has one.",
    ),
]


@pytest.mark.parametrize(("content", "sentence"), [row[1:] for row in NO_FILES], ids=[row[0] for row in NO_FILES])
def test_what_is_no_workload_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    assert sentence in refusal(tmp_path, content)


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    for path, sentence in (
        (str(tmp_path / "missing"), "There is no file"),
        (str(tmp_path), "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("no\0name", "There is no file"),
    ):
        with pytest.raises(WorkloadError) as caught:
            read_file(path)
        assert sentence in str(caught.value)


def mooncake(**changes: object) -> dict[str, object]:
    return {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]} | changes


def batch(**changes: object) -> dict[str, object]:
    body = {"messages": [{"role": "user", "content": "Q"}]}
    return {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body} | changes


def said(*messages: object) -> dict[str, object]:
    return {"messages": list(messages)}


BAD_LINES: list[tuple[str, object, str]] = [
    ("jsonl", {"prompt": ""}, "the prompt is empty"),
    ("jsonl", {"prompt": 5}, "`prompt`: expected str | array, got int"),
    ("jsonl", {"prompt": []}, "the prompt is empty"),
    ("jsonl", {"prompt": [1, -2]}, "a token is out of range"),
    ("jsonl", {"prompt": [1, 2**31]}, "a token is out of range"),
    ("jsonl", {"prompt": [1, "two"]}, "`prompt[1]`: expected int, got str"),
    ("jsonl", {"prompt": "x", "messages": []}, "either `prompt` or `messages`"),
    ("jsonl", {"text": "x"}, "either `prompt` or `messages`"),
    ("jsonl", {"prompt": "x", "max_tokens": 0}, "`max_tokens` is 0, which is not between 1 and 1e+07"),
    ("jsonl", {"prompt": "x", "max_tokens": -3}, "`max_tokens` is -3"),
    ("jsonl", {"prompt": "x", "max_tokens": 2.5}, "`max_tokens`: expected int, got float"),
    ("jsonl", {"prompt": "x", "max_tokens": True}, "`max_tokens`: expected int, got bool"),
    ("jsonl", {"prompt": "x", "max_tokens": 10**30}, "`max_tokens` is 1"),
    ("jsonl", {"prompt": "x", "max_tokens": 3, "n_predict": 4}, "different limits of tokens: 3, 4"),
    ("jsonl", {"prompt": "x", "temperature": -1}, "`temperature` is -1"),
    ("jsonl", {"prompt": "x", "top_p": 1.5}, "`top_p` is 1.5"),
    ("jsonl", {"prompt": "x", "top_k": -2}, "`top_k` is -2"),
    ("jsonl", {"prompt": "x", "seed": -1}, "`seed` is -1"),
    ("jsonl", {"prompt": "x", "n": 0}, "`n` is 0"),
    ("jsonl", {"prompt": "x", "n": 129}, "`n` is 129"),
    ("jsonl", {"prompt": "x", "stop": ["a", ""]}, "`stop` has an empty text"),
    ("jsonl", {"prompt": "x", "arrival": -0.5}, "`arrival` is -0.5"),
    ("jsonl", {"prompt": "x", "arrival": "noon"}, "`arrival`: expected float, got str"),
    ("jsonl", said(), "`messages` has none from the user"),
    ("jsonl", said({"role": "system", "content": "S"}), "`messages` has none from the user"),
    ("jsonl", said({"role": "tool", "content": "T"}), "`messages[0]`: the role 'tool' is not supported"),
    ("jsonl", said({"role": "user"}), "`messages[0]`: it has no content"),
    ("jsonl", said({"content": "x"}), "`messages[0]`: object missing required field role"),
    (
        "jsonl",
        said({"role": "user", "content": [{"type": "image_url"}]}),
        "content of type 'image_url' is not supported",
    ),
    (
        "jsonl",
        said({"role": "user", "content": "x", "tool_calls": [{}]}),
        "`messages[0]`: tool calls are not supported",
    ),
    ("openai-batch", batch(url="/v1/embeddings"), "`url` '/v1/embeddings' is not supported"),
    ("openai-batch", batch(method="GET"), "`method` 'GET' is not supported"),
    ("openai-batch", batch(body={}), "`body` needs `messages`"),
    ("openai-batch", batch(url="/v1/completions"), "`body` needs `prompt`"),
    ("openai-batch", batch(url="/v1/completions", body={"prompt": []}), "`body` needs `prompt`"),
    ("openai-batch", batch(url="/v1/completions", body={"prompt": [1, "x"]}), "`prompt` mixes tokens with texts"),
    ("openai-batch", batch(url="/v1/completions", body={"prompt": ["x", ""]}), "the prompt is empty"),
    ("openai-batch", batch(custom_id="first"), "`custom_id` 'first' was on line 1 before"),
    ("openai-batch", batch(custom_id=None), "`custom_id`: expected str, got null"),
    ("sharegpt", {"conversations": [{"from": "human"}]}, "needs `from` and `value`"),
    ("sharegpt", {"conversations": [{"from": "tool", "value": "x"}]}, "the speaker 'tool' is not supported"),
    ("sharegpt", {"conversations": "x"}, "`conversations`: expected array, got str"),
    ("mooncake", mooncake(hash_ids=[1]), "`hash_ids` has 1 ids, but 600 tokens are 2 blocks of 512"),
    ("mooncake", mooncake(input_length=0), "`input_length` is 0"),
    ("mooncake", mooncake(output_length=0), "`output_length` is 0"),
    ("mooncake", mooncake(hash_ids=[1, -2]), "`hash_ids` is -2"),
    ("mooncake", mooncake(timestamp=-1), "`timestamp` is -1"),
    ("mooncake", mooncake(timestamp=1e300), "`timestamp` is 1e+300"),
    ("mooncake", {"timestamp": 1}, "object missing required field input_length"),
]
GOOD_LINES = {
    "jsonl": {"prompt": "fine"},
    "openai-batch": batch(custom_id="first"),
    "sharegpt": {"conversations": [{"from": "human", "value": "fine"}]},
    "mooncake": mooncake(),
}


@pytest.mark.parametrize(("format", "line", "reason"), BAD_LINES, ids=[f"{row[0]}: {row[2]}" for row in BAD_LINES])
def test_a_bad_line_names_its_file_line_and_reason(tmp_path: Path, format: str, line: object, reason: str) -> None:
    # Line 1 is good and line 2 blank, so the bad one is line 3, whether the format is given or found.
    content = f"{json.dumps(GOOD_LINES[format])}\n\n{json.dumps(line)}\n"
    for given in (format, "auto"):
        text = refusal(tmp_path, content, given)
        assert text.startswith("FILE:3: ")
        assert reason in text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt": "x"', "not whole JSON"),
        (b'{"prompt": "x", "temperature": NaN}', "it is not JSON"),
        (b'{"prompt": "x", "temperature": Infinity}', "it is not JSON"),
        (b'{"prompt": "x", "temperature": 1e999}', "`temperature`: number out of range"),
        (b'{"prompt": "\xff"}', "it is not UTF-8"),
        (b'{"prompt": "\\ud800 alone"}', "half of a UTF-16 surrogate pair"),
        (b'{"prompt": "\\ude00"}', "half of a UTF-16 surrogate pair"),
        (b'{"prompt": "x"} {"prompt": "y"}', "it is not JSON"),
        (b"null", "expected str | object, got null"),
        (b"[1]", "expected str | object, got array"),
    ],
)
def test_a_line_that_is_no_json_names_itself(tmp_path: Path, line: bytes, reason: str) -> None:
    text = refusal(tmp_path, b'"fine"\n' + line)
    assert text.startswith("FILE:2: ")
    assert reason in text


def test_the_line_of_an_array_s_element_is_where_it_begins(tmp_path: Path) -> None:
    content = '[\n{"prompt": "fine"},\n\n{"prompt":\n 5}]'
    assert refusal(tmp_path, content).startswith("FILE:4: `prompt`: expected str")


def test_a_wrong_guess_can_be_corrected(tmp_path: Path) -> None:
    line = {"prompt": "x", "conversations": [{"from": "human", "value": "y"}]}
    assert read(tmp_path, line, format="jsonl").entries[0].prompt == "x"
    assert read(tmp_path, line, format="sharegpt").entries[0].prompt == (Message("user", "y"),)


def test_check_reads_the_file_and_says_what_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(mooncake()))
    facts = check(WorkloadSpec(path=path, arrivals="trace", token_scale=0.5))
    assert (facts.format, facts.requests, facts.has_arrivals) == ("mooncake", 1, True)
    assert facts.sha256 is not None
    assert len(facts.sha256) == 64

    plain = write(tmp_path, '"x"')
    with pytest.raises(WorkloadError, match="does not say when"):
        check(WorkloadSpec(path=plain, arrivals="trace"))
    with pytest.raises(WorkloadError, match="A token scale has no meaning"):
        check(WorkloadSpec(path=plain, token_scale=0.5))
    with pytest.raises(WorkloadError, match="There is no file"):
        check(WorkloadSpec(path=str(tmp_path / "missing")))
