"""Requests from files: lengths, limits, conversations, what does not fit, and the blocks of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import WorkloadError
from stackscope.toggles import Sampling
from stackscope.workload.blocks import BlockTokens
from stackscope.workload.entries import Blocks
from stackscope.workload.spec import Length, WorkloadSpec
from stackscope.workload.traffic import Traffic
from tests.workload_fakes import CHATML, ByteTokenizer

if TYPE_CHECKING:
    from stackscope.workload.jobs import Job


def write(folder: Path, *lines: object) -> str:
    path = folder / "w.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return str(path)


def traffic(path: str, *, context: int = 1_000, template: str | None = None, **options: object) -> Traffic:
    spec = WorkloadSpec(path=path, concurrency=100, **options)  # type: ignore[arg-type]
    return Traffic(spec, ByteTokenizer(template), context_tokens=context)


def jobs(path: str, **options: object) -> list[Job]:
    """One pass over a file of single requests."""
    n = options.pop("requests", None)
    lines = len(Path(path).read_text(encoding="utf-8").splitlines())
    return traffic(path, requests=lines if n is None else n, **options).due(0, 0)  # type: ignore[arg-type]


def refusal(path: str, **options: object) -> str:
    with pytest.raises(WorkloadError) as caught:
        traffic(path, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(path, "FILE")


def test_a_prompt_is_taken_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "abc"}, {"prompt": "<s>abc"}, {"prompt": [5, 6, 259]})
    plain, begun, tokens = jobs(path)
    assert plain.tokens == (256, *b"abc")
    assert begun.tokens == (256, *b"abc")  # one beginning of sequence, not two
    assert tokens.tokens == (5, 6, 259)


def test_messages_go_through_the_template(tmp_path: Path) -> None:
    path = write(tmp_path, {"messages": [{"role": "user", "content": "Q"}], "stop": ["x"]})
    (job,) = jobs(path, template=CHATML)
    assert ByteTokenizer().decode(job.tokens) == "<s><|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    assert job.stop == ("x",)
    (plain,) = jobs(path)
    assert plain.stop == ("\nUser:", "x")


def test_a_broken_template_is_no_trouble_where_there_are_no_messages(tmp_path: Path) -> None:
    assert len(jobs(write(tmp_path, "abc"), template="{% for %}")) == 1


def test_how_much_to_generate(tmp_path: Path) -> None:
    answered = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "12 in bytes."}]
    path = write(
        tmp_path,
        {"prompt": "nothing said"},
        {"prompt": "said", "max_tokens": 7},
        {"messages": answered},
        {"messages": answered, "max_tokens": 9},
        {"messages": [answered[0], {"role": "assistant", "content": ""}]},
    )

    def limits(**options: object) -> list[int]:
        return [job.max_tokens for job in jobs(path, **options)]

    # The default, the entry's word, the length of the recorded answer (never 0).
    assert limits() == [128, 7, 12, 9, 1]
    assert limits(max_tokens=8) == [8, 7, 8, 8, 1]
    assert limits(output_tokens=Length.fixed(50)) == [50] * 5
    assert limits(output_tokens=Length.fixed(50), max_tokens=20) == [20] * 5


def test_what_an_entry_says_of_sampling_comes_before_what_the_workload_says(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "a", "temperature": 0.0}, {"prompt": "b", "ignore_eos": False})
    first, second = jobs(path, sampling=Sampling(temperature=0.8, top_k=5), ignore_eos=True)
    assert (first.sampling, first.ignore_eos) == (Sampling(temperature=0.0, top_k=5), True)
    assert (second.sampling, second.ignore_eos) == (Sampling(temperature=0.8, top_k=5), False)


def test_a_prompt_that_does_not_fit_names_its_line_and_sizes_before_anything_runs(tmp_path: Path) -> None:
    path = write(tmp_path, "short", {"prompt": "x" * 95, "max_tokens": 5})
    # 95 bytes and the beginning of sequence, and 5 to generate: 101.
    assert refusal(path, context=100) == (
        "FILE:2: the prompt of 96 tokens and 5 to generate do not fit the context of 100. "
        "Allow truncation (truncate = true), lower max_tokens, or use a larger context."
    )
    assert len(jobs(path, context=101)) == 2
    # Lines that no request will reach are no trouble.
    assert len(jobs(path, context=100, requests=1)) == 1


def test_tokens_and_messages_are_checked_alike(tmp_path: Path) -> None:
    long = "x" * 200
    assert refusal(write(tmp_path, {"prompt": [7] * 98, "max_tokens": 3}), context=100).startswith(
        "FILE:1: the prompt of 98 tokens and 3 to generate do not fit"
    )
    assert (
        refusal(write(tmp_path, {"prompt": [7, 260]})) == "FILE:1: token 260 is outside the model's vocabulary of 260."
    )
    message = {"messages": [{"role": "user", "content": long}], "max_tokens": 1}
    assert refusal(write(tmp_path, message), context=100).startswith("FILE:1: the prompt of 218 tokens and 1 to")
    turns = [{"from": "human", "value": "short"}, {"from": "gpt", "value": "a"}, {"from": "human", "value": long}]
    assert refusal(write(tmp_path, {"conversations": turns}), context=200).startswith(
        "FILE:1: the prompt of 218 tokens"
    )


def test_a_default_limit_gives_way_to_the_prompt(tmp_path: Path) -> None:
    (job,) = jobs(write(tmp_path, "x" * 59), context=100)
    assert (len(job.tokens), job.max_tokens) == (60, 40)


def test_truncation_leaves_out_the_middle(tmp_path: Path) -> None:
    text = "".join(chr(33 + n % 90) for n in range(300))
    path = write(tmp_path, {"prompt": text, "max_tokens": 40}, {"prompt": "short", "max_tokens": 500})
    long, short = jobs(path, context=100, truncate=True)
    # 100 − 40 = 60 tokens: the first 30 with the beginning of sequence, and the last 30.
    assert long.tokens == (256, *text[:29].encode(), *text[-30:].encode())
    assert long.max_tokens == 40
    # An output limit beyond the context becomes what the prompt leaves.
    assert (len(short.tokens), short.max_tokens) == (6, 94)


def test_a_template_s_refusal_names_the_line(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if 'no' in m.content %}{{ raise_exception('not that') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    path = write(tmp_path, *({"messages": [{"role": "user", "content": text}]} for text in ("yes", "no")))
    assert refusal(path, template=template).startswith("FILE:2: The model's chat template refused a prompt: not that.")


def test_a_conversation_goes_on_with_the_model_s_answers(tmp_path: Path) -> None:
    turns = [
        ("system", "S"),
        ("human", "1"),
        ("gpt", "recorded"),
        ("human", "2"),
        ("gpt", "recorded too"),
        ("human", "3"),
    ]
    path = write(tmp_path, {"conversations": [{"from": who, "value": text} for who, text in turns]})
    run = traffic(path, requests=3)
    texts = []
    for answer in (b"first", b"second", b""):
        (job,) = run.due(0, 0)
        texts.append(ByteTokenizer().decode(job.tokens))
        run.finished(job.id, list(answer))
    assert texts == [
        "<s>S\n\nUser: 1\nAssistant:",
        "<s>S\n\nUser: 1\nAssistant: first\nUser: 2\nAssistant:",
        "<s>S\n\nUser: 1\nAssistant: first\nUser: 2\nAssistant: second\nUser: 3\nAssistant:",
    ]
    assert run.done


def test_a_conversation_that_outgrows_the_context_forgets(tmp_path: Path) -> None:
    turns = [{"from": who, "value": "x" * 20} for _ in range(10) for who in ("human", "gpt")]
    run = traffic(write(tmp_path, {"conversations": turns}), context=400, requests=10)
    remembered = []
    for turn in range(10):
        (job,) = run.due(0, 0)
        assert len(job.tokens) + job.max_tokens <= 400
        text = ByteTokenizer().decode(job.tokens)
        remembered.append([n for n in range(turn) if f"answer {n}" in text])
        run.finished(job.id, f"answer {turn}".encode().ljust(20, b"."))
    # A turn is 6 + 20 + 1 and 11 + 20 + 1 bytes, the question and the opening of its answer 38 with the first token: of
    # the 380 bytes that a prompt may have, five turns leave room for no sixth, and down to half of it are two.
    assert remembered[:8] == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [4, 5], [4, 5, 6]]
    assert "Conversations that outgrew the context forgot their oldest turns." in run.notes


def test_a_file_begins_again_after_its_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a", "b", "c")
    assert [bytes(job.tokens[1:]) for job in jobs(path, requests=7)] == [b"a", b"b", b"c", b"a", b"b", b"c", b"a"]
    once, again = traffic(path, requests=3), traffic(path, requests=4)
    assert (len(once.due(0, 0)), once.notes) == (3, ())
    assert len(again.due(0, 0)) == 4
    assert again.notes == ("The file was begun again after its last request, so its prompts repeat.",)
    endless = traffic(path)
    assert endless.total is None
    assert not endless.done


def trace(folder: Path, *requests: tuple[int, int, list[int]]) -> str:
    return write(
        folder,
        *({"timestamp": 1000 * n, "input_length": length, "output_length": out, "hash_ids": ids}
          for n, (length, out, ids) in enumerate(requests)),
    )  # fmt: skip


def test_equal_hash_ids_are_equal_tokens_and_others_differ_at_once(tmp_path: Path) -> None:
    path = trace(tmp_path, (1100, 9, [0, 1, 2]), (1100, 9, [0, 1, 3]), (1536, 9, [0, 1, 2]), (600, 9, [7, 1]))
    a, b, longer, other = jobs(path, context=2_000)
    assert [len(job.tokens) for job in (a, b, longer, other)] == [1100, 1100, 1536, 600]
    assert a.tokens[:1024] == b.tokens[:1024]
    assert a.tokens[1024] != b.tokens[1024]
    assert longer.tokens[:1100] == a.tokens  # a last block that is not full is the beginning of the full one
    assert other.tokens[:512] != a.tokens[:512]
    assert other.tokens[512:] == a.tokens[512:600]  # block 1 is block 1 wherever it stands
    assert (a.max_tokens, a.ignore_eos) == (9, True)
    assert max(max(job.tokens) for job in (a, b)) < 256  # never a special token


def test_a_trace_can_be_scaled_to_a_small_context(tmp_path: Path) -> None:
    path = trace(tmp_path, (1100, 64, [0, 1, 2]), (513, 1, [0, 9]))
    assert "the prompt of 1,100 tokens and 64 to generate do not fit the context of 200" in refusal(path, context=200)
    first, second = jobs(path, context=200, token_scale=0.125)
    # Blocks of 512 ÷ 8 = 64; the last one holds 76 ÷ 8 = 9.5, rounded to 10; 64 ÷ 8 to generate. Nothing becomes 0.
    assert (len(first.tokens), first.max_tokens) == (64 + 64 + 10, 8)
    assert (len(second.tokens), second.max_tokens) == (64 + 1, 1)
    assert first.tokens[:64] == second.tokens[:64]
    # The whole trace is checked at its own scale.
    (job, _) = jobs(path, context=200, truncate=True)
    assert len(job.tokens) == 200 - 64


def test_blocks_too_small_to_differ_are_refused(tmp_path: Path) -> None:
    # A bundled sample uses some 100 different bytes, so a block of one token tells some 100 ids apart, not a million.
    path = trace(tmp_path, (10, 5, [1_000_000]))
    assert "too few to tell 1,000,000 blocks apart" in refusal(path, token_scale=0.002)


def test_trace_arrivals(tmp_path: Path) -> None:
    path = trace(tmp_path, (5, 5, [0]), (5, 5, [1]), (5, 5, [2]))
    run = traffic(path, arrivals="trace", time_scale=0.5, requests=4)
    assert [job.id for job in run.due(0, 0)] == [0]
    assert run.next_arrival_ns() == 500_000_000
    # Both that have come meanwhile, at the times at which they came; the file begins again 0.5 s after its last.
    late = run.due(1_400_000_000, 0)
    assert [(job.id, job.arrived_ns) for job in late] == [(1, 500_000_000), (2, 1_000_000_000)]
    assert [(job.id, job.arrived_ns) for job in run.due(9 * 10**9, 0)] == [(3, 1_500_000_000)]
    assert run.done


def test_a_written_id_is_exact_where_chance_would_not_be() -> None:
    import numpy as np

    blocks = BlockTokens(np.array([10, 20, 30]), block=4, n_digits=4, seed=0, scale=4 / 512)
    seen = {tuple(blocks.block(hash_id)) for hash_id in range(81)}
    assert len(seen) == 81  # 3⁴: every block of three tokens in four places, each for one id
    assert blocks.block(5) == [30, 20, 10, 10]  # 5 = 2 + 1 × 3, the lowest digit first
    assert blocks.tokens(Blocks((5, 5), 1024)) == [30, 20, 10, 10] * 2
