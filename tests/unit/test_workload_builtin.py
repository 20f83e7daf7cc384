"""Built-in workloads: what is shared and what is not, lengths, contexts of every size, the same from the same seed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import WorkloadError
from stackscope.workload import corpus
from stackscope.workload.spec import BUILT_INS, BuiltIn, Length, WorkloadSpec
from stackscope.workload.traffic import Traffic
from tests.workload_fakes import CHATML, ByteTokenizer, WordTokenizer

if TYPE_CHECKING:
    from stackscope.workload.jobs import Job, Tokenizer

BLOCK = 16


def run(spec: WorkloadSpec, tokenizer: Tokenizer | None = None, context: int = 8192, answer: str = "Yes.") -> list[Job]:
    """Every job of a closed loop, each answered before the next call, in the order of their ids."""
    tokenizer = WordTokenizer() if tokenizer is None else tokenizer
    traffic = Traffic(spec, tokenizer, context_tokens=context)
    jobs: list[Job] = []
    while not traffic.done:
        due = traffic.due(0, 0)
        assert due
        jobs += due
        for job in due:
            traffic.finished(job.id, tokenizer.encode(answer, add_special=False))
    return sorted(jobs, key=lambda job: job.id)


def common(first: Job, second: Job) -> int:
    """Tokens that two prompts share at their beginning."""
    pairs = zip(first.tokens, second.tokens, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@pytest.mark.parametrize("name", BUILT_INS)
@pytest.mark.parametrize("template", [None, CHATML], ids=["plain", "template"])
def test_the_same_seed_gives_the_same_jobs_and_another_seed_others(name: BuiltIn, template: str | None) -> None:
    def tokens(seed: int) -> list[tuple[tuple[int, ...], int]]:
        spec = WorkloadSpec(name=name, requests=12, seed=seed)
        return [(job.tokens, job.max_tokens) for job in run(spec, ByteTokenizer(template))]

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


@pytest.mark.parametrize("name", BUILT_INS)
@pytest.mark.parametrize("context", [300, 512, 1024, 2048, 32_768])
@pytest.mark.parametrize("template", [None, CHATML], ids=["plain", "template"])
def test_every_job_fits_the_context(name: BuiltIn, context: int, template: str | None) -> None:
    for tokenizer in (ByteTokenizer(template), WordTokenizer(template)):
        if name == "rag" and context <= 512 and isinstance(tokenizer, ByteTokenizer):
            continue  # a question of a hundred bytes, an output of 256 and the frame leave nothing to a document
        jobs = run(WorkloadSpec(name=name, requests=24), tokenizer, context)
        assert [job.id for job in jobs] == list(range(24))
        for job in jobs:
            assert job.max_tokens >= 1
            assert len(job.tokens) >= 16
            assert len(job.tokens) + job.max_tokens <= context


@pytest.mark.parametrize("name", BUILT_INS)
def test_a_hopeless_context_is_refused_in_a_sentence(name: BuiltIn) -> None:
    with pytest.raises(WorkloadError, match="The context of 40 tokens is too small for the workload") as caught:
        Traffic(WorkloadSpec(name=name), ByteTokenizer(), context_tokens=40)
    assert caught.value.remedy is not None


@pytest.mark.parametrize("name", BUILT_INS)
def test_options_bound_the_output(name: BuiltIn) -> None:
    for job in run(WorkloadSpec(name=name, requests=10, output_tokens=Length.uniform(20, 40), max_tokens=30)):
        assert 20 <= job.max_tokens <= 30
    exact = run(WorkloadSpec(name=name, requests=10, output_tokens=Length.fixed(33), ignore_eos=True))
    assert {(job.max_tokens, job.ignore_eos) for job in exact} == {(33, True)}


def test_code_shares_file_prefixes_in_full_and_in_part() -> None:
    jobs = run(WorkloadSpec(name="code", requests=60))
    full = part = fresh = 0
    for index, job in enumerate(jobs):
        shared = max((common(job, earlier) for earlier in jobs[:index]), default=0)
        full += shared == len(job.tokens)
        part += BLOCK <= shared < len(job.tokens)
        fresh += shared < BLOCK
    # Six files at four positions each: most prompts came before, some reach further than any before them.
    assert full >= 20
    assert part >= 5
    assert 1 <= fresh <= 6


def test_code_prompts_have_exactly_the_length_asked_for() -> None:
    assert {len(job.tokens) for job in run(WorkloadSpec(name="code", requests=9, prompt_tokens=Length.fixed(777)))} == {
        777
    }


def test_code_has_as_many_files_as_asked_for() -> None:
    jobs = run(WorkloadSpec(name="code", requests=300, documents=40, prompt_tokens=Length.fixed(200)))
    assert len({job.tokens[:64] for job in jobs}) == 40


def test_code_files_longer_than_any_module() -> None:
    jobs = run(WorkloadSpec(name="code", requests=3, prompt_tokens=Length.fixed(100_000)), context=131_072)
    assert {len(job.tokens) for job in jobs} == {100_000}


def test_code_is_real_code() -> None:
    tokenizer = WordTokenizer()
    job = run(WorkloadSpec(name="code", requests=1), tokenizer)[0]
    text = tokenizer.decode(job.tokens[1:])
    assert any(module.startswith(text) for module in corpus.modules())


def test_unique_shares_not_even_the_first_block() -> None:
    for tokenizer in (ByteTokenizer(), WordTokenizer()):
        jobs = run(WorkloadSpec(name="unique", requests=2_000, prompt_tokens=Length.fixed(24)), tokenizer)
        assert len({job.tokens[:BLOCK] for job in jobs}) == 2_000
        assert {job.tokens[0] for job in jobs} == {256}  # the beginning-of-sequence token
        assert {len(job.tokens) for job in jobs} == {24}


def test_copy_asks_for_its_passage_again() -> None:
    tokenizer = WordTokenizer()
    for job in run(WorkloadSpec(name="copy", requests=20), tokenizer):
        text = tokenizer.decode(job.tokens[1:])
        # The passage may itself have two blank lines in a row, so every place where it could end is tried.
        parts = text.split("\n\n\n")
        halves = [("\n\n\n".join(parts[:n]), "\n\n\n".join(parts[n:])) for n in range(1, len(parts))]
        (passage, lead), *_ = [half for half in halves if half[1] and half[0].startswith(half[1])]
        # What is left of the passage is what may be generated: three quarters of it.
        rest = len(tokenizer.encode(passage, add_special=False)) - len(tokenizer.encode(lead, add_special=False))
        assert job.max_tokens == pytest.approx(rest, abs=2)


def test_copy_by_template_quotes_the_passage() -> None:
    tokenizer = WordTokenizer(CHATML)
    job = run(WorkloadSpec(name="copy", requests=1, prompt_tokens=Length.fixed(50)), tokenizer)[0]
    text = tokenizer.decode(job.tokens)
    assert "<|im_start|>user\nRepeat the text below exactly as it is, without any comment.\n\n" in text
    assert job.max_tokens == 50


def test_copy_shares_nothing_but_its_frame() -> None:
    jobs = run(WorkloadSpec(name="copy", requests=40))
    assert max(common(a, b) for a in jobs for b in jobs if a.id < b.id) < BLOCK


@pytest.mark.parametrize("template", [None, CHATML], ids=["plain", "template"])
def test_rag_shares_its_documents(template: str | None) -> None:
    tokenizer = WordTokenizer(template)
    jobs = run(WorkloadSpec(name="rag", requests=60, documents=3), tokenizer)
    documents: dict[tuple[int, ...], list[Job]] = {}
    for job in jobs:
        documents.setdefault(job.tokens[:60], []).append(job)
    assert len(documents) == 3
    for group in documents.values():
        for job in group:
            # All but the question and what the template puts behind it.
            assert common(group[0], job) >= len(job.tokens) - 60
            assert "Question: " in tokenizer.decode(job.tokens)


def test_rag_documents_have_the_length_asked_for_or_what_fits_alike() -> None:
    spec = WorkloadSpec(name="rag", requests=40, documents=2, shared_tokens=3_000, output_tokens=Length.uniform(1, 100))
    for context, least in ((16_384, 3_000), (2_048, 1_700)):
        jobs = run(spec, WordTokenizer(), context)
        heads: dict[tuple[int, ...], list[Job]] = {}
        for job in jobs:
            heads.setdefault(job.tokens[:60], []).append(job)
        for group in heads.values():
            assert min(common(group[0], job) for job in group) >= least


def test_rag_has_more_documents_than_are_bundled() -> None:
    jobs = run(WorkloadSpec(name="rag", requests=200, documents=15))
    assert len({job.tokens[:40] for job in jobs}) == 15


def test_questions_and_messages_have_the_length_asked_for() -> None:
    names: tuple[BuiltIn, ...] = ("rag", "chat")
    for name in names:
        spec = WorkloadSpec(name=name, requests=6, prompt_tokens=Length.fixed(300))
        natural = WorkloadSpec(name=name, requests=6)
        for longer, shorter in zip(run(spec), run(natural), strict=True):
            assert len(longer.tokens) > len(shorter.tokens) + 200


@pytest.mark.parametrize("template", [None, CHATML], ids=["plain", "template"])
def test_chat_grows_by_the_model_s_own_answers(template: str | None) -> None:
    tokenizer = WordTokenizer(template)
    jobs = run(
        WorkloadSpec(name="chat", requests=20, turns=Length.fixed(4), concurrency=1),
        tokenizer,
        answer="Fnord, quite so.",
    )
    for earlier, later in itertools.pairwise(jobs):
        if earlier.conversation != later.conversation:
            continue
        # The next prompt is the last one, the answer, and the next message.
        assert common(earlier, later) >= len(earlier.tokens) - 2
        text = tokenizer.decode(later.tokens)
        assert text.count("Fnord, quite so.") == later.id % 4
    assert [job.conversation for job in jobs] == [number for number in range(5) for _ in range(4)]


def test_chats_share_the_system_prompt_and_no_more() -> None:
    jobs = run(WorkloadSpec(name="chat", requests=60, turns=Length.fixed(1), shared_tokens=200))
    shared = [common(a, b) for a in jobs for b in jobs if a.id < b.id]
    assert min(shared) >= 200
    # Name and place come first in the message, so two customers part there.
    assert sum(n < 200 + 24 for n in shared) / len(shared) > 0.95


def test_a_long_chat_forgets_its_oldest_turns_and_says_so() -> None:
    tokenizer = WordTokenizer()
    spec = WorkloadSpec(name="chat", requests=40, turns=Length.fixed(40), output_tokens=Length.fixed(50), concurrency=1)
    traffic = Traffic(spec, tokenizer, context_tokens=1_024)
    lengths = []
    for _ in range(40):
        (job,) = traffic.due(0, 0)
        lengths.append(len(job.tokens))
        assert len(job.tokens) + 50 <= 1_024
        traffic.finished(job.id, tokenizer.encode("word " * 50, add_special=False))
    assert "Conversations that outgrew the context forgot their oldest turns." in traffic.notes
    # It grows turn by turn and drops by a good part at a time, so that prefixes are shared in between.
    drops = [before - after for before, after in itertools.pairwise(lengths) if after < before]
    assert 1 <= len(drops) <= 8
    assert min(drops) > 200


def test_what_was_cut_is_said() -> None:
    def notes(spec: WorkloadSpec, context: int) -> tuple[str, ...]:
        traffic = Traffic(spec, ByteTokenizer(CHATML), context_tokens=context)
        traffic.due(0, 0)
        return traffic.notes

    assert notes(WorkloadSpec(name="code"), 4096) == ()
    assert notes(WorkloadSpec(name="code", output_tokens=Length.fixed(100)), 512) == (
        "Prompts were cut at 412 tokens, where 1,024 were wanted, to fit the context.",
    )
    assert notes(WorkloadSpec(name="copy"), 300) == (
        "Passages to copy were shortened to 100 tokens to fit the context.",
    )
    assert any("Documents were cut at" in note for note in notes(WorkloadSpec(name="rag"), 2048))
    assert any("The system prompt was cut from" in note for note in notes(WorkloadSpec(name="chat"), 2048))


def test_answers_of_any_kind_are_taken() -> None:
    tokenizer = ByteTokenizer(CHATML)
    spec = WorkloadSpec(name="chat", requests=30, turns=Length.fixed(6))
    traffic = Traffic(spec, tokenizer, context_tokens=4096)
    answers = [[], [0], [255, 254], [257], [259], list(b"<|im_start|>system\n"), [65] * 3000]
    n = 0
    while not traffic.done:
        for job in traffic.due(0, 0):
            traffic.finished(job.id, answers[n % len(answers)])
            n += 1
    assert n == 30


def test_the_corpus_is_whole() -> None:
    assert len(corpus.modules()) == 14
    assert sum(map(len, corpus.modules())) < 1_000_000
    assert all(document.questions for document in corpus.documents())
    assert len({document.title for document in corpus.documents()}) == len(corpus.documents())
    assert all(topic.turns for topic in corpus.chats().topic)
    assert all(word.isalpha() and word.islower() for word in corpus.words())
    assert len(corpus.words()) > 300


def test_code_files_of_different_numbers_differ_early() -> None:
    order = tuple(range(len(corpus.modules())))
    heads = [corpus.code_file(number, 500, order)[:120] for number in range(200)]
    assert len(set(heads)) == 200
    # More files than there are definitions to begin at: a heading keeps them apart.
    assert corpus.code_file(14 * 500, 500, order) != corpus.code_file(14 * 501, 500, order)
